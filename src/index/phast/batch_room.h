// BatchRoom: makes the records of a batch, and room for its puts, before it is committed
// (pool/batch.h).
//
// RECORDS  A put of a byte string gets its record. A put of a word gets none: it may only change
//   the word of the record that is there.
// ROOM  Divides the leaves that cannot take all new keys of a batch, until each has a free slot for
//   every new key in its range. So no mutation of the batch splits a leaf. A division is a split
//   (structure.h) of a leaf that need not be full, and its bound may be a key that is still to
//   come. It changes no entry. If the batch fails, the leaves stay divided.
// WHERE  The new keys of a leaf and its entries are divided evenly, by their number. But if the new
//   keys all lie at the end of the leaf, or at its gap, what comes before the bound fills the leaf.
// PROGRESS  The caller has closed the gate, or is beside a pending batch (beside.h): no other
//   thread takes a slot first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "index/phast/structure.h"

namespace perdure::phast {

template <class T>
class BatchRoom : public Structure<T> {
  using Base = Structure<T>;

 protected:
  using Base::before, Base::begin_mutation, Base::check_named, Base::context_, Base::enter,
      Base::inner_, Base::less, Base::read_keys, Base::records, Base::records_, Base::split_by,
      Base::table_;
  using typename Base::Codec, typename Base::Desc, typename Base::P, typename Base::SplitPlan;

 public:
  using Base::Base, Base::kBytes, Base::kEntries;

  Status plan_batch(const BatchPlan& plan) override {
    Status s;
    static_assert(BatchPlan::kAgain >= 2 * kEntries);  // a leaf has so many, or room for them
    for (std::size_t i = 0; s.ok() && records() && i < plan.mutations.size(); ++i) {
      if (plan.mutations[i].kind != MutationKind::erase) s = make_record(plan, i);
    }
    for (std::size_t i = 0; s.ok() && (i = next_insert(plan, i)) < plan.mutations.size();) {
      MutationGuard<P> guard(context_.epochs);
      s = begin_mutation(guard, true);
      if (s.ok()) s = make_room(plan, i);
    }
    return s;
  }

  void begin_apply(std::span<const detail::Mutation> mutations,
                   std::span<const std::uint64_t> blocks) override {
    applied_ = mutations;
    blocks_ = blocks;
  }
  void end_apply() override { begin_apply({}, {}); }

  // The value of key 0 is in the root, and its record in no plan.
  bool takes_pieces(const detail::Mutation* least) const override {
    return least == nullptr || has_leaf(*least) || !records();
  }

 protected:
  // The block of a mutation of the batch, or 0.
  std::uint64_t block_of(const detail::Mutation& mutation) const {
    return applied_.empty() ? 0 : blocks_[static_cast<std::size_t>(&mutation - applied_.data())];
  }

  // Not fenced.
  Expected<std::uint64_t> write_record(const detail::Mutation& mutation) const {
    return records_.write(mutation.key.bytes, mutation.value, "phast.batch.record"_site);
  }
  // Key 0 has a place of its own.
  static bool has_leaf(const detail::Mutation& mutation) {
    return kBytes || mutation.key.word != 0;
  }
  // In the leaf of the insert i. Moves i behind the leaf's range.
  Status make_room(const BatchPlan& plan, std::size_t& i) {
    const Probe first = Codec::probe(plan.mutations[i].key);
    std::uint32_t number = enter(first, inner_.locate_range(first)).number;
    Inserts inserts{.begin = i};
    for (Probe probe = first;;) {
      ++inserts.count;
      inserts.last = probe;
      i = next_insert(plan, i + 1);
      if (i == plan.mutations.size()) break;
      probe = Codec::probe(plan.mutations[i].key);
      if (table_[number].above(probe)) break;
    }
    while (entries_of(number) + inserts.count > kEntries) {
      auto divide = [&](const Desc& desc, SplitPlan& split) {
        return plan_division(desc, plan, inserts, split);
      };
      if (Status s = split_by(number, divide); !s.ok()) return s;
      number = table_[number].next.load(std::memory_order_relaxed);
    }
    return {};
  }
  std::uint64_t entries_of(std::uint32_t number) const {
    return static_cast<std::uint64_t>(__builtin_popcountll(table_[number].visible()));
  }

 private:
  Status make_record(const BatchPlan& plan, std::size_t i) {
    const detail::Mutation& mutation = plan.mutations[i];
    if (plan.blocks[i] != 0) return {};
    if (!plan.in_pieces && (plan.replays || mutation.value.word_size != 0 || !has_leaf(mutation))) {
      const std::size_t bytes = RecordView::bytes_needed(mutation.key.bytes, mutation.value);
      const bool added = plan.needs.add(bytes, BlockKind::plain);
      return added ? Status() : StatusCode::out_of_memory;
    }
    context_.epochs.gate().slow_record();
    auto block = write_record(mutation);
    if (!block) return std::move(block.error());
    plan.blocks[i] = *block;
    return {};
  }
  // New keys of a batch in the range of one leaf.
  struct Inserts {
    std::size_t begin = 0;  // in the plan's mutations
    std::uint64_t count = 0;
    Probe last = {};
  };

  // The first insert that does not come before i, or the number of mutations.
  static std::size_t next_insert(const BatchPlan& plan, std::size_t i) {
    const auto inserts = [&] {
      const detail::Mutation& mutation = plan.mutations[i];
      return mutation.kind != MutationKind::erase && !plan.present[i] && has_leaf(mutation);
    };
    while (i < plan.mutations.size() && !inserts()) ++i;
    return i;
  }

  // Plans a split, and leaves those of the inserts that belong into the new leaf.
  Status plan_division(const Desc& desc, const BatchPlan& batch, Inserts& inserts,
                       SplitPlan& plan) const {
    Probe keys[64];
    if (Status s = read_keys(desc, plan, keys); !s.ok()) return s;
    std::uint8_t* const end = plan.order + plan.count;
    std::sort(plan.order, end,
              [&](std::uint8_t a, std::uint8_t b) { return less(keys[a], keys[b]); });
    std::size_t next = inserts.begin;
    Probe insert = Codec::probe(batch.mutations[next].key);
    const auto below = count_below(plan, keys, insert);
    const std::uint32_t behind = plan.count - count_below(plan, keys, inserts.last);
    const bool at_gap = below + behind == plan.count && (behind == 0 || behind == desc.behind);
    const std::uint64_t all = plan.count + inserts.count;
    const std::uint64_t leaves = (all + kEntries - 1) / kEntries;
    const std::uint64_t stay = at_gap ? std::min<std::uint64_t>(below + inserts.count, kEntries)
                                      : (all + leaves - 1) / leaves;
    std::uint64_t left = inserts.count;
    for (std::uint64_t n = 0; n < stay; ++n) {
      const bool old =
          plan.keep < plan.count && (left == 0 || less(keys[plan.order[plan.keep]], insert));
      plan.bound = old ? keys[plan.order[plan.keep++]] : insert;
      if (old || --left == 0) continue;
      next = next_insert(batch, next + 1);
      insert = Codec::probe(batch.mutations[next].key);
    }
    if (at_gap && left == 0) {
      widen(plan, keys);
    } else if (below + behind == plan.count && behind < kEntries) {
      plan.behind[left == 0 ? 0 : 1] = left == 0 ? plan.keep - below : behind;
    }
    inserts.begin = next;
    inserts.count = left;
    plan.planned = true;
    return check_neighbours(desc, plan, keys);
  }
  static std::uint32_t count_below(const SplitPlan& plan, const Probe* keys, const Probe& probe) {
    std::uint32_t count = 0;
    while (count < plan.count && less(keys[plan.order[count]], probe)) ++count;
    return count;
  }
  // The bound may have been made from the key of an entry beside it.
  Status check_neighbours(const Desc& desc, const SplitPlan& plan, const Probe* keys) const {
    for (std::uint32_t i = plan.keep - std::min(plan.keep, 1U); i <= plan.keep; ++i) {
      if (i == plan.count) break;
      const std::uint8_t slot = plan.order[i];
      if (Status s = check_named(desc, slot, keys[slot]); !s.ok()) return s;
    }
    return {};
  }
  // Moves the bound up to the next entry, if there is one: the keys of the stream that come later
  // belong into the same leaf.
  static void widen(SplitPlan& plan, const Probe* keys) {
    if (plan.keep == plan.count) return;
    const Probe& above = keys[plan.order[plan.keep]];
    if constexpr (kBytes) {
      const std::string_view text = before(above.bytes, plan.bound.bytes, plan);
      if (!text.empty()) plan.bound = ordered::probe_of(text);
    } else {
      plan.bound.word = above.word - 1;
    }
  }

  // Between begin_apply() and end_apply(). The gate is closed then, and before others read them.
  std::span<const detail::Mutation> applied_;
  std::span<const std::uint64_t> blocks_;
};

}  // namespace perdure::phast
