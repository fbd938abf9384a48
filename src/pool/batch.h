// Batch: mutations of any maps of one pool that happen wholly or not at all, across every crash.
//
// WHAT  A batch of any size and of any engines. One at a time; latched_batch.h has small ones, and
//   piece_batch.h large ones, which hold no others up for long. Its mutations are prepared so that
//   none can fail, written to a record, and committed by one word. Then they are done. After a
//   crash the next open does the rest.
// LAYOUT  format/layout.h, batch_record.h
// INVARIANTS
//   batch.I1  (C) From the commit to the end of the last mutation no other mutation of the pool
//       happens: the gate is closed (gate.h). At an open, no map serves yet.
//   batch.I2  (C) What the mutations will use is theirs at the commit. Blocks with the entry of a
//       put are durable, and the record names them: an open marks them, as no map may reach them
//       yet. Other blocks are in the heap's stash. Those that are not used yet are free later: an
//       open, which allocates nothing else, finds them. Blocks of several extents must lie where
//       the stash had them, so the record names these runs. Extents one by one are alike.
//   batch.I3  Doing a mutation again changes nothing, because no other one of its key came in
//       between. An open leaves out those whose key is as it should be, also for the blocks they
//       would take.
//   batch.I4  (C) The structure of a map has room for every put at the commit, and at an open still
//       has it. A hash table has a slot for every put, in the order of the puts. Its engine does
//       them one by one, so that a crash leaves the first ones, and the rest find the slots that
//       the plan saw. A leaf has a free slot for every new key in its range.
// OPERATIONS  (the gate is closed, and no step of background work runs)
//   sort     before the gate is closed. Of each map the puts come first: an erase may free the leaf
//            that has the place of a put. Then by key.
//   choose   leaves out the mutations that would change nothing.
//   prepare  every engine makes places (EngineInstance::plan_batch), and the heap allocates all
//            blocks. What it changes changes no entry. Fails with no effect.
//   record   all that an open needs: of each mutation key and value, or the block that has both,
//            if the engine has written it already. 1 fence, also for these blocks.
//   commit   format/batch_log.h. 1 fence: linearization point and persist point. Reads may see the
//            mutations one by one from here on.
//   apply    write_many() of each map, with the engine's fences.
//   clear    1 fence. Then the record's block is freed.
//   A failure after the commit, which nothing explains but a shortage of DRAM, poisons the pool:
//   nothing is acknowledged any more, no close vouches for it, and the next open does the rest.
// RECOVERY  The blocks that the record names are marked before the heap's sweep begins. The rest
//   comes after complete() of all maps, before the first serves (pool/opening.h): the mutations
//   that are left are planned and applied as above, then clear. A map of the batch that cannot be
//   opened refuses the pool.
// PROGRESS  blocking. Mutations of other threads wait from the choice to the end of clear. The
//   batch itself waits for the brake (gate.h) between its mutations, in its record, too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "format/pool_core.h"
#include "index/engine.h"
#include "pool/batch_record.h"
#include "util/containers.h"

namespace perdure {

// A map of a batch, and where the directory has it.
struct BatchTarget {
  EngineInstance* map = nullptr;
  std::uint32_t slot = 0;
  std::uint64_t root = 0;
};

// A mutation of a batch, put or erase, of one of its targets.
struct BatchMutation {
  std::uint32_t target = 0;
  detail::Mutation mutation = {};
};

inline Status unmet_requirement(std::uint32_t number) {
  return Status::format(StatusCode::conflict,
                        "requirement %u of the batch is not met; nothing was changed", number);
}

// The order in which a batch does its mutations, which are of distinct keys.
class BatchOrder {
 public:
  // Returns false if memory is short.
  [[nodiscard]] bool sort(std::span<const BatchMutation> mutations) {
    if (!places_.reserve(mutations.size())) return false;
    for (std::uint32_t i = 0; i < mutations.size(); ++i) {
      const auto& [target, mutation] = mutations[i];
      if (!places_.push_back({.group = target * std::uint64_t{2} + batch_record::erases(mutation),
                              .prefix = prefix_of(mutation.key),
                              .number = i})) {
        return false;
      }
    }
    const auto before = [&](const Place& a, const Place& b) {
      if (a.group != b.group) return a.group < b.group;
      if (a.prefix != b.prefix) return a.prefix < b.prefix;
      return mutations[a.number].mutation.key.bytes < mutations[b.number].mutation.key.bytes;
    };
    if (!std::is_sorted(places_.begin(), places_.end(), before)) {
      std::sort(places_.begin(), places_.end(), before);
    }
    return true;
  }
  std::size_t size() const { return places_.size(); }
  // The number of the mutation that comes at place i.
  std::uint32_t operator[](std::size_t i) const { return places_[i].number; }

 private:
  // Most keys of byte strings differ in their first bytes, so their order seldom needs the rest.
  struct Place {
    std::uint64_t group = 0;
    std::uint64_t prefix = 0;
    std::uint32_t number = 0;
  };
  static std::uint64_t prefix_of(const detail::Key& key) {
    if (key.bytes.empty()) return key.word;
    std::uint64_t word = 0;
    std::memcpy(&word, key.bytes.data(), std::min(key.bytes.size(), sizeof(word)));
    return __builtin_bswap64(word);
  }

  Array<Place> places_;
};

template <Platform P>
class Batch {
 public:
  explicit Batch(PoolCore<P>& core) : core_(core) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // The caller has closed the gate, and holds the background. The whole batch, or nothing: an error
  // but `poisoned` means that no entry has changed.
  Status commit(std::span<const BatchTarget> targets, std::span<const BatchMutation> mutations,
                const BatchOrder& order) {
    const Doing doing(core_);
    PERDURE_ASSERT(P, "batch.I1", core_.epochs().gate().does_batch());
    if (Status s = choose(targets, mutations, order); !s.ok()) return s;
    if (mutations_.empty()) return {};
    if (Status s = core_.use_batches(); !s.ok()) return s;
    for (bool again = false;; again = true) {
      Status s = prepare();
      if (s.ok()) break;
      free_blocks();
      if (s != StatusCode::pool_full || again) return s;
      core_.epochs().drain_for_room();
      core_.heap().reclaim();
    }
    const bool committed = write_record() && core_.commit_batch(record_, head_.bytes);
    Status s = committed ? apply() : Status(StatusCode::poisoned);
    if (s.ok() && !core_.clear_batch()) s = StatusCode::poisoned;
    core_.heap().release_stash();
    if (!s.ok()) {
      core_.platform().poison();
      return core_.platform().failure();
    }
    core_.heap().free(record_);
    return {};
  }

  // Marks the blocks that the record names, before the sweep of an open frees what nothing has
  // marked. Errors: corruption; of the heap.
  static Status mark_blocks(PoolCore<P>& core, std::uint64_t record) {
    if (Status s = core.heap().read_table(); !s.ok()) return s;
    batch_record::Reader<P> in(core.platform(), core.heap(), record);
    if (Status s = in.open(); !s.ok()) return s;
    bool whole = true;
    BlockRun run;
    for (std::uint32_t i = 0; whole && i < in.runs(); ++i) whole = in.next(run);
    for (std::uint32_t i = 0; whole && i < in.maps(); ++i) {
      layout::BatchMap line{};
      whole = in.next(line);
      for (std::uint64_t n = 0; whole && n < line.entries; ++n) {
        detail::Mutation mutation;
        std::uint64_t block = 0;
        bool done = false;
        whole = in.next(mutation, block, done);
        if (!whole || block == 0) continue;
        Status s = core.heap().mark_serving(block, "pool.batch.mark_block"_site);
        if (!s.ok()) return s;
      }
      in.end_map();
    }
    return whole && in.ended() ? Status() : in.damaged();
  }
  // Does what is left of the batch with this record. `find(slot, root)` returns the open map there,
  // or null. No map serves yet. Errors: corruption; those of a shortage; poisoned.
  template <class Find>
  Status redo(std::uint64_t record, Find&& find) {
    const GateHold<P> hold(core_.epochs());
    const Doing doing(core_);
    record_ = record;
    Status s = read_record(find);
    if (s.ok()) s = redo_left();
    for (const Part& part : parts_) {
      if (part.replays) part.target.map->end_replay();
    }
    core_.heap().release_stash();
    if (!s.ok()) return s;
    if (!core_.clear_batch()) return core_.platform().failure();
    core_.heap().free(record);
    return {};
  }

 private:
  // The mutations of the calling thread pass the closed gate, for a scope.
  class Doing {
   public:
    explicit Doing(PoolCore<P>& core) : gate_(core.epochs().gate()) { gate_.set_batch(true); }
    ~Doing() { gate_.set_batch(false); }
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;

   private:
    Gate<P>& gate_;
  };
  static constexpr std::size_t kTogether = 64;
  // The mutations of one target: [begin, end) of mutations_.
  struct Part {
    BatchTarget target;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool replays = false;  // between begin_replay() and end_replay()
  };
  std::span<const detail::Mutation> mutations_of(const Part& part) const {
    return {mutations_.begin() + part.begin, mutations_.begin() + part.end};
  }
  std::span<const bool> present_of(const Part& part) const {
    return {present_.begin() + part.begin, present_.begin() + part.end};
  }
  std::span<std::uint64_t> blocks_of(const Part& part) {
    return {blocks_.begin() + part.begin, part.end - part.begin};
  }
  [[nodiscard]] bool add(Part& part, const detail::Mutation& mutation, bool present,
                         std::uint64_t block) {
    ++part.end;
    return mutations_.push_back(mutation) && present_.push_back(present) &&
           blocks_.push_back(block);
  }

  // --- choose ---

  Status choose(std::span<const BatchTarget> targets, std::span<const BatchMutation> mutations,
                const BatchOrder& order) {
    if (!mutations_.reserve(order.size()) || !present_.reserve(order.size()) ||
        !blocks_.reserve(order.size())) {
      return StatusCode::out_of_memory;
    }
    std::uint32_t target = 0;
    for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      const std::uint32_t before = std::exchange(target, mutations[order[begin]].target);
      if (parts_.empty() || target != before) {
        forget_empty_part();
        const std::size_t n = mutations_.size();
        if (!parts_.push_back({targets[target], n, n})) return StatusCode::out_of_memory;
      }
      Some some;
      while (end < order.size() && some.count < kTogether &&
             mutations[order[end]].target == target) {
        some.mutations[some.count++] = mutations[order[end++]].mutation;
      }
      if (Status s = choose_some(parts_[parts_.size() - 1], some); !s.ok()) return s;
    }
    forget_empty_part();
    return {};
  }
  // The last part, if nothing is to be done in it.
  void forget_empty_part() {
    if (parts_.empty()) return;
    const Part& last = parts_[parts_.size() - 1];
    if (last.begin == last.end) (void)parts_.pop_back();
  }
  // Mutations of one map.
  struct Some {
    std::size_t count = 0;
    detail::Mutation mutations[kTogether];
    std::uint64_t blocks[kTogether] = {};  // redo: that the record names
  };
  // Whether the put has given its key this value. The value of a named block lies in that: one that
  // is equal would leave the block unused.
  static bool is_value(const Some& some, std::size_t i, const detail::Value& value) {
    const detail::Mutation& mutation = some.mutations[i];
    if (some.blocks[i] != 0) {  // a word may be in another block
      return value.word_size == 0 && value.bytes.data() == mutation.value.bytes.data();
    }
    return !batch_record::erases(mutation) && detail::same_value(value, mutation.value);
  }
  // Adds those whose keys are not as they leave them. Reads the keys together, so that their cache
  // misses overlap.
  Status choose_some(Part& part, const Some& some) {
    detail::Key keys[kTogether];
    bool present[kTogether] = {};
    bool same[kTogether] = {};
    for (std::size_t i = 0; i < some.count; ++i) keys[i] = some.mutations[i].key;
    auto read = part.target.map->index().read_many({keys, some.count},
                                                   [&](std::size_t i, const detail::Value& value) {
                                                     present[i] = true;
                                                     same[i] = is_value(some, i, value);
                                                   });
    if (!read) return std::move(read.error());
    for (std::size_t i = 0; i < some.count; ++i) {
      const bool done = batch_record::erases(some.mutations[i]) ? !present[i] : same[i];
      if (!done && !add(part, some.mutations[i], present[i], some.blocks[i])) {
        return StatusCode::out_of_memory;
      }
    }
    return {};
  }

  // --- prepare, record, apply ---

  Status plan(BlockNeeds& needs, bool replays) {
    for (const Part& part : parts_) {
      Status s = part.target.map->plan_batch(
          {mutations_of(part), present_of(part), blocks_of(part), needs, replays});
      if (!s.ok()) return s;
    }
    return {};
  }
  Status prepare() {
    BlockNeeds needs;
    if (Status s = plan(needs, false); !s.ok()) return s;
    head_ = batch_record::head_of(parts_, core_.heap().count_runs(needs), mutations_,
                                  {blocks_.begin(), blocks_.size()});
    // Before the stash, which is not for the record.
    auto record = core_.heap().allocate(head_.bytes, BlockKind::plain);
    if (!record) return std::move(record.error());
    record_ = *record;
    Status s = core_.heap().fill_stash(needs);
    if (!s.ok()) core_.heap().free(record_);
    return s;
  }
  void free_blocks() {
    for (std::uint64_t& block : blocks_) {
      if (block != 0) core_.heap().free(std::exchange(block, 0));
    }
  }

  // Returns false if the pool is poisoned.
  bool write_record() {
    auto* memory = core_.heap().template at<std::byte>(record_);
    return batch_record::write(
        core_.platform(), memory, record_, head_, parts_, mutations_,
        {blocks_.begin(), blocks_.size()},
        [&](auto& out) { core_.heap().for_each_run([&](const BlockRun& run) { out.add(run); }); },
        [&] { core_.epochs().gate().slow_record(); });  // it may be longer than the log
  }

  Status apply() {
    for (const Part& part : parts_) {
      Status first;
      part.target.map->begin_apply(mutations_of(part), blocks_of(part));
      part.target.map->index().write_many(mutations_of(part),
                                          [&](std::size_t, Expected<bool> result) {
                                            if (!result && first.ok())
                                              first = std::move(result.error());
                                          });
      part.target.map->end_apply();
      if (!first.ok()) return first;
    }
    return {};
  }

  // --- redo ---

  template <class Find>
  Status read_record(Find&& find) {
    batch_record::Reader<P> in(core_.platform(), core_.heap(), record_);
    if (Status s = in.open(); !s.ok()) return s;
    for (std::uint32_t i = 0; i < in.runs(); ++i) {
      BlockRun run;
      if (!in.next(run)) return in.damaged();
      if (!runs_.push_back(run)) return StatusCode::out_of_memory;
    }
    for (std::uint32_t i = 0; i < in.maps(); ++i) {
      layout::BatchMap line{};
      if (!in.next(line)) return in.damaged();
      const BatchTarget target{find(line.slot, line.root), line.slot, line.root};
      if (target.map == nullptr) {
        return Status::format(StatusCode::corruption,
                              "a batch was committed and not done when the pool was left, and the "
                              "map in slot %u, which it changes, cannot be opened",
                              line.slot);
      }
      const std::size_t n = mutations_.size();
      if (!parts_.push_back({target, n, n})) return StatusCode::out_of_memory;
      if (Status s = read_part(in, line, parts_[parts_.size() - 1]); !s.ok()) return s;
    }
    return in.ended() ? Status() : in.damaged();
  }
  // Keeps what is left to do.
  Status read_part(batch_record::Reader<P>& in, const layout::BatchMap& line, Part& part) {
    for (std::uint64_t left = line.entries; left > 0;) {
      Some some;
      for (; left > 0 && some.count < kTogether; --left) {
        bool done = false;
        if (!in.next(some.mutations[some.count], some.blocks[some.count], done)) {
          return in.damaged();
        }
        some.count += done ? 0 : 1;
      }
      if (Status s = choose_some(part, some); !s.ok()) return in_recovery(std::move(s));
    }
    in.end_map();
    part.target.map->begin_replay(line.version);
    part.replays = true;
    return {};
  }
  Status redo_left() {
    BlockNeeds needs;
    Status s = core_.heap().find_runs({runs_.begin(), runs_.size()});
    if (s.ok()) s = plan(needs, true);
    if (s.ok()) s = core_.heap().refill_stash(needs);
    if (s.ok()) s = apply();
    return in_recovery(std::move(s));
  }
  // What a map refuses now it had accepted before the commit.
  Status in_recovery(Status s) const {
    switch (s.code()) {
      case StatusCode::ok:
      case StatusCode::corruption:
      case StatusCode::out_of_memory:
      case StatusCode::pool_full:
      case StatusCode::io:
      case StatusCode::poisoned:
        return s;
      default:
        return Status::format(StatusCode::corruption,
                              "the batch that the last process left cannot be finished: %.*s; "
                              "restore a copy",
                              static_cast<int>(s.message().size()), s.message().data());
    }
  }

  PoolCore<P>& core_;
  Array<Part> parts_;
  Array<detail::Mutation> mutations_;
  Array<bool> present_;          // whether the key of the mutation is, before it
  Array<std::uint64_t> blocks_;  // with the entry of the mutation; 0: none
  layout::BatchRecord head_{};
  std::uint64_t record_ = 0;
  Array<BlockRun> runs_;  // of the stash of the process that died
};

}  // namespace perdure
