// LatchedBatch: a small batch that lets other mutations go on. It holds the latches of its keys,
// and not the gate.
//
// WHAT  batch.h has the record, the word and what an open does; they are the same. What differs is
//   the exclusion: from its commit until it is done, no other thread changes a key of the batch, or
//   takes what the rest of it needs. Keys that are required are held, too. For at most kMostKeys
//   keys and kMostBytes bytes, in engines that have latches for it (EngineInstance::latches_for).
//   All other batches close the gate, for all or for a piece at a time.
// INVARIANTS
//   batch.J1  (C) At the commit the batch holds the latch of each of its keys, until all is durably
//       done. So each key has the value from before the batch or that of the batch, as batch.I3
//       demands of an open, and the next open may do all of it again.
//   batch.J2  (C) At the commit each new key has a free slot that no other can take, and each
//       entry that is a record has its block (batch.I2). So an open needs no space.
//   batch.J3  (C) The word names one batch. A batch that has found the word in use waits for the
//       one that has it. After a failure between the two no thread stores the word again.
// OPERATIONS  (the thread is pinned as a mutation, from before the record's first store until after
//   the clear: the gate, a seal and a close wait for that)
//   prepare  the records of the entries, then the record of the batch, of all its mutations, also
//            of those that change nothing. 1 fence. No latch is held.
//   latch    tries the latch of each key, and claims a slot for each new one. If another thread has
//            one of them, all are released, and it begins again: a batch waits for no latch while
//            it holds one. A full leaf is split in between.
//   commit, apply, clear  under the latch of the word: as in batch.h, 1 fence each.
//   finish   shows the new entries, and releases the latches. Then what was replaced is retired.
// PROGRESS  blocking. After kTries tries the batch closes the gate, for which it must not be
//   pinned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "pool/batch.h"

namespace perdure {

template <Platform P>
class LatchedBatch {
 public:
  static constexpr std::size_t kMostKeys = 256;
  static constexpr std::size_t kMostBytes = 256 << 10;  // also bounds what a log may overrun

  explicit LatchedBatch(PoolCore<P>& core) : core_(core) {}
  LatchedBatch(const LatchedBatch&) = delete;
  LatchedBatch& operator=(const LatchedBatch&) = delete;

  // False: the batch must close the gate; nothing has changed. Errors: conflict; of the header, of
  // a read; poisoned.
  Expected<bool> commit(std::span<const BatchTarget> targets,
                        std::span<const BatchMutation> mutations, const BatchOrder& order,
                        std::span<const BatchRequirement> required) {
    if (order.size() + required.size() > kMostKeys) return false;
    if (!take(targets, mutations, order) || !take(targets, required) || !find_latches()) {
      return false;
    }
    if (Status s = core_.use_batches(); !s.ok()) return fail(std::move(s));
    MutationGuard<P> guard(core_.epochs());
    if (!guard.ok() || !guard.pass_gate() || guard.limbo_full()) return false;
    if (core_.epochs().gate().pending() != nullptr) return false;  // it has the word
    if (core_.platform().poisoned() || !fits()) return false;
    const bool ready = make_records() && write_record();
    const bool latched = ready && latch();
    Status met = latched ? check_required() : Status();
    if (latched && met.ok()) return do_latched();
    if (core_.platform().poisoned()) return fail(core_.platform().failure());
    give_back();
    return met.ok() ? Expected<bool>(false) : fail(std::move(met));
  }

 private:
  static constexpr unsigned kTries = 256;  // some 100 us

  // The mutations [begin, end) of one map.
  struct Part {
    BatchTarget target;
    std::size_t begin = 0;
    std::size_t end = 0;
    Array<BatchRequirement> required = {};
    std::unique_ptr<BatchLatches> latches = nullptr;
  };

  // False: the batch is too large, or memory is short.
  bool take(std::span<const BatchTarget> targets, std::span<const BatchMutation> mutations,
            const BatchOrder& order) {
    if (!mutations_.reserve(order.size()) || !blocks_.reserve(order.size())) return false;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto& [target, mutation] = mutations[order[i]];
      const bool begins = i == 0 || target != mutations[order[i - 1]].target;
      if (begins && !parts_.push_back({targets[target], i, i})) return false;
      bytes += mutation.key.bytes.size() + batch_record::value_bytes(mutation);
      if (bytes > kMostBytes || !mutations_.push_back(mutation) || !blocks_.push_back(0)) {
        return false;
      }
      ++parts_[parts_.size() - 1].end;
    }
    return !mutations_.empty();
  }
  // A map of which a key is only required has a part without mutations.
  bool take(std::span<const BatchTarget> targets, std::span<const BatchRequirement> required) {
    for (const BatchRequirement& one : required) {
      const EngineInstance* map = targets[one.target].map;
      std::size_t i = 0;
      while (i < parts_.size() && parts_[i].target.map != map) ++i;
      const std::size_t n = mutations_.size();
      if (i == parts_.size() && !parts_.push_back({targets[one.target], n, n})) return false;
      if (!parts_[i].required.push_back(one)) return false;
    }
    return true;
  }
  // False: a map has no such latches, or memory is short.
  bool find_latches() {
    for (Part& part : parts_) {
      part.latches =
          part.target.map->latches_for({mutations_.begin() + part.begin, part.end - part.begin},
                                       {part.required.begin(), part.required.size()});
      if (part.latches == nullptr) return false;
    }
    return true;
  }
  bool fits() {
    for (Part& part : parts_) {
      if (!part.latches->fits()) return false;
    }
    return true;
  }

  bool make_records() {
    for (Part& part : parts_) {
      if (!part.latches->make_records({blocks_.begin() + part.begin, part.end - part.begin}).ok()) {
        return false;
      }
    }
    return true;
  }
  bool write_record() {
    const std::span<const detail::Mutation> mutations(mutations_.begin(), mutations_.size());
    const std::span<const std::uint64_t> blocks(blocks_.begin(), blocks_.size());
    const layout::BatchRecord head = batch_record::head_of(parts_, 0, mutations, blocks);
    auto record = core_.heap().allocate(head.bytes, BlockKind::plain);
    if (!record) return false;
    record_ = *record;
    bytes_ = head.bytes;
    auto* memory = core_.heap().template at<std::byte>(record_);
    return batch_record::write(
        core_.platform(), memory, record_, head, parts_, mutations, blocks, [](auto& /*out*/) {},
        [] {});
  }
  // Frees what was made for nothing.
  void give_back() {
    for (const std::uint64_t block : blocks_) {
      if (block != 0) core_.heap().free(block);
    }
    if (record_ != 0) core_.heap().free(record_);
  }

  bool latch() {
    for (unsigned tries = 0; tries < kTries; ++tries) {
      for (Part& part : parts_) {
        if (!part.latches->make_place().ok()) return false;
      }
      std::size_t held = 0;
      while (held < parts_.size() && parts_[held].latches->latch()) ++held;
      if (held == parts_.size()) return true;
      while (held-- > 0) parts_[held].latches->release();
      P::pause(63);  // gives the core away
    }
    return false;
  }

  // With the latches, which it releases if a requirement is not met.
  Status check_required() {
    std::uint32_t first = 0;
    Status s;
    for (const Part& part : parts_) {
      auto unmet = part.latches->unmet();
      if (!unmet) {
        s = std::move(unmet.error());
      } else if (*unmet != 0 && (first == 0 || *unmet < first)) {
        first = *unmet;
      }
    }
    if (s.ok() && first != 0) s = unmet_requirement(first);
    for (Part& part : parts_) {
      if (!s.ok()) part.latches->release();
    }
    return s;
  }
  Expected<bool> do_latched() {
    bool done = false;
    {
      LatchGuard word(core_.batch_latch());
      done = !core_.platform().poisoned() && core_.commit_batch(record_, bytes_) && apply() &&
             core_.clear_batch();
    }
    if (!done) core_.platform().poison();
    for (Part& part : parts_) part.latches->finish(done);
    if (!done) return fail(core_.platform().failure());
    for (Part& part : parts_) part.latches->clean_up();
    core_.heap().free(record_);
    return true;
  }
  bool apply() {
    for (Part& part : parts_) part.latches->store();
    for (Part& part : parts_) {
      if (!part.latches->settle()) return false;
    }
    return true;
  }

  PoolCore<P>& core_;
  Array<Part> parts_;
  Array<detail::Mutation> mutations_;
  Array<std::uint64_t> blocks_;  // with the entry of the mutation; 0: none
  std::uint64_t record_ = 0;
  std::uint64_t bytes_ = 0;  // of the record
};

}  // namespace perdure
