// BatchLatch: the latches of a small batch (pool/latched_batch.h).
//
// WHAT  As write_many(), but the stripes of all keys are held together, from before the commit of
//   the batch until it is durably done. A held stripe keeps its leaf from being split or unlinked,
//   and its claim keeps a slot. Keys of one batch may share a stripe. But a stripe can claim one
//   slot only, so a batch that would fill two under one stripe closes the gate.
// PROGRESS  Takes a stripe only if it is free, so threads do not wait in a circle. Other threads
//   wait for a stripe for as long as the batch takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "index/phast/write.h"

namespace perdure::phast {

template <class T>
class BatchLatch : public Write<T> {
  using Base = Write<T>;

 public:
  using Base::Base, Base::kBytes;

  std::unique_ptr<BatchLatches> latches_for(std::span<const detail::Mutation> mutations,
                                            std::span<const BatchRequirement> required) override {
    return std::unique_ptr<BatchLatches>(new (std::nothrow) Latches(*this, mutations, required));
  }

 protected:
  using typename Base::Desc, typename Base::Group, typename Base::Keys, typename Base::P,
      typename Base::Pending;

 private:
  using Step = typename Pending::Step;

  class Latches final : public BatchLatches {
   public:
    Latches(BatchLatch& map, std::span<const detail::Mutation> mutations,
            std::span<const BatchRequirement> required)
        : map_(map), mutations_(mutations), required_(required) {}

    bool fits() override {
      const std::size_t n = keys();
      if (!probes_.reserve(n) || !pending_.reserve(n) || !held_.reserve(n)) return false;
      for (std::size_t from = 0; from < n; from += kTogether) {
        if (!look(from, std::min(n, from + kTogether))) return false;
      }
      held_.clear();
      return true;
    }
    Status make_records(std::span<std::uint64_t> blocks) override {
      for (std::size_t i = 0; map_.records() && i < mutations_.size(); ++i) {
        if (!puts(i)) continue;
        auto block = map_.write_record(mutations_[i]);
        if (!block) return std::move(block.error());
        blocks[i] = *block;
        Base::name_record(pending_[i], *block);
      }
      return {};
    }
    Status make_place() override {
      const std::size_t i = std::exchange(crowded_, kNone);
      if (i != kNone) {
        // Else the slots are claimed, by this batch or by others.
        unfit_ = unfit_ || map_.table_[pending_[i].leaf].visible() != Desc::kSlots;
        if (!unfit_) return map_.split(pending_[i].leaf, probes_[i]);
      }
      return unfit_ ? Status(StatusCode::unsupported) : Status();
    }
    bool latch() override {
      for (std::size_t i = 0; i < keys(); ++i) {
        if (latch_one(i)) continue;
        release();
        return false;
      }
      return true;
    }
    void release() override {
      for (const std::uint64_t one : held_) {
        map_.table_[leaf_of(one)].search.stripes.release(stripe_in(one));
      }
      held_.clear();
    }
    Expected<std::uint32_t> unmet() const override {
      for (std::size_t i = 0; i < required_.size(); ++i) {
        const Pending& pending = pending_[mutations_.size() + i];
        const bool present = pending.slot != kNoSlot;
        bool met = present == required_[i].present;
        if (met && present) {
          auto same = map_.holds_value(pending.before, required_[i].value);
          if (!same) return fail(std::move(same.error()));
          met = *same;
        }
        if (!met) return required_[i].number;
      }
      return 0U;
    }
    void store() override {
      for (Pending& pending : pending_) map_.store(pending);
    }
    bool settle() override {
      bool wrote = false;
      for (const Pending& pending : pending_) wrote |= map_.write_back(pending);
      return !wrote || map_.settle();
    }
    void finish(bool durable) override {
      for (const Pending& pending : pending_) {
        if (durable) map_.show(pending);
      }
      release();
    }
    void clean_up() override {
      for (const Pending& pending : pending_) map_.clean_up(pending);
    }

   private:
    static constexpr std::size_t kTogether = Base::kGroup;
    static constexpr std::size_t kNone = ~std::size_t{0};

    // A stripe of a leaf.
    static std::uint64_t name_of(std::uint32_t leaf, unsigned stripe) {
      return std::uint64_t{leaf} << 8 | stripe;
    }
    static std::uint32_t leaf_of(std::uint64_t name) {
      return static_cast<std::uint32_t>(name >> 8);
    }
    static unsigned stripe_in(std::uint64_t name) { return name & 0xFF; }
    // Those of the mutations, and then those that are required.
    std::size_t keys() const { return mutations_.size() + required_.size(); }
    const detail::Key& key(std::size_t i) const {
      const std::size_t n = mutations_.size();
      return i < n ? mutations_[i].key : required_[i - n].key;
    }
    bool puts(std::size_t i) const {
      return i < mutations_.size() && mutations_[i].kind != MutationKind::erase;
    }
    bool has(std::uint64_t name) const {
      for (const std::uint64_t one : held_) {
        if (one == name) return true;
      }
      return false;
    }

    // Finds the leaves of some keys. Guesses, without a latch, whether each can have its latch and
    // its slot: held_ has the stripes so far.
    bool look(std::size_t from, std::size_t to) {
      detail::Key keys[kTogether];
      for (std::size_t i = from; i < to; ++i) keys[i - from] = key(i);
      Group group;
      if (!map_.fetch(Keys(keys, to - from), group).ok()) return false;
      for (std::size_t i = from; i < to; ++i) {
        const Probe& probe = group.probes[i - from];
        const bool in_record = map_.records() && puts(i) && mutations_[i].value.word_size != 0;
        if ((!kBytes && probe.word == 0) || in_record) return false;
        const std::uint32_t leaf = map_.enter(probe, {group.leaves[i - from]}).number;
        (void)probes_.push_back(probe);
        const std::uint64_t word = puts(i) ? mutations_[i].value.word : 0;
        (void)pending_.push_back({.leaf = leaf, .probe = &probes_[i], .value = word});
        const std::uint64_t name = name_of(leaf, map_.stripe_of(probe));
        const bool shares = has(name);
        if (shares && puts(i) && !is_present(leaf, probe)) return false;
        if (!shares) (void)held_.push_back(name);
      }
      return true;
    }
    bool is_present(std::uint32_t leaf, const Probe& probe) const {
      std::uint64_t ignored = 0;
      return map_.find_slot(map_.table_[leaf], probe, ignored) != kNoSlot;
    }

    // False: the key's stripe is not held, or it is and the batch cannot go on.
    bool latch_one(std::size_t i) {
      const Probe& probe = probes_[i];
      Pending& pending = pending_[i];
      pending.leaf = map_.enter(probe, {pending.leaf}).number;
      const bool inserts = puts(i) && !is_present(pending.leaf, probe);
      const unsigned stripe = map_.stripe_of(probe);
      std::uint32_t claimed = kNoSlot;
      const bool shares = has(name_of(pending.leaf, stripe));
      if (!shares) {
        if (!map_.try_latch(probe, pending.leaf, claimed, inserts)) return false;
        (void)held_.push_back(name_of(pending.leaf, stripe));
      }
      Desc& desc = map_.table_[pending.leaf];
      pending.slot = map_.find_slot(desc, probe, pending.before);
      const bool present = pending.slot != kNoSlot;
      pending.step = i >= mutations_.size() ? Step::none
                     : present              ? (puts(i) ? Step::replace : Step::clear)
                     : puts(i)              ? Step::fill
                                            : Step::none;
      if (pending.step == Step::replace || pending.step == Step::clear) {
        // A damaged entry is not changed. The batch that closes the gate says so.
        detail::Value ignored;
        if (!map_.records() || map_.value_of(pending.before, ignored)) return true;
        unfit_ = true;
        return false;
      }
      if (pending.step == Step::none) return true;
      if (inserts && !shares && claimed == kNoSlot) crowded_ = i;
      pending.slot = claimed;
      return claimed != kNoSlot;
    }

    BatchLatch& map_;
    std::span<const detail::Mutation> mutations_;
    std::span<const BatchRequirement> required_;
    Array<Probe> probes_;
    Array<Pending> pending_;
    Array<std::uint64_t> held_;
    std::size_t crowded_ = kNone;  // the mutation that found no slot
    bool unfit_ = false;           // the batch must close the gate
  };
};

}  // namespace perdure::phast
