// Plans: makes sure that no insert of a batch has to move an item or to enlarge the table
// (pool/batch.h), and names the blocks of its records.
//
// The plan follows free_place() for one insert after the other. The inserts come in this order
// later, and nothing else takes a slot meanwhile (batch.I4).
#pragma once

#include <algorithm>
#include <cstdint>

#include "index/level/many.h"
#include "index/planned_slots.h"
#include "util/containers.h"

namespace perdure::level {

template <class T>
class Plans : public Many<T> {
 protected:
  using Base = Many<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::begin_read, Base::context_, Base::current, Base::has_records, Base::kSlots,
      Base::seeds_;

 public:
  using Base::Base;

  Status plan_batch(const BatchPlan& plan) override {
    Array<Probe> inserts;
    for (std::size_t i = 0; i < plan.mutations.size(); ++i) {
      const detail::Mutation& mutation = plan.mutations[i];
      if (mutation.kind == MutationKind::erase) continue;
      const Probe probe = Codec::probe(mutation.key, seeds_);
      const bool added =
          (!has_records() || plan.needs.add(RecordView::bytes_needed(probe.bytes, mutation.value),
                                            BlockKind::plain)) &&
          (plan.present[i] || inserts.push_back(probe));
      if (!added) return StatusCode::out_of_memory;
    }
    this->planned_ = inserts.size();
    Status s;
    for (bool helped = false; s.ok() && !inserts.empty(); helped = true) {
      std::uint64_t crowded = 0;
      s = find_crowded(inserts, crowded);
      if (crowded == 0) break;
      if (s.ok()) s = this->make_room(crowded, helped);
    }
    this->planned_ = 0;
    return s;
  }

 private:
  // `crowded`: gets the generation of the view if one of the inserts finds no free slot; or 0.
  [[gnu::noinline]] Status find_crowded(const Array<Probe>& inserts, std::uint64_t& crowded) const {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return s;
    const View<T>& view = *current();
    PlannedSlots planned;
    if (!planned.reset(inserts.size())) return StatusCode::out_of_memory;
    for (const Probe& probe : inserts) {
      if (!take_place(view, probe, planned)) crowded = view.generation;
    }
    if constexpr (Codec::kBytes || Form::kArrays) return find_clashes(view, inserts);
    return {};
  }
  // Plans the slot that free_place() will choose. Returns false if there is none.
  static bool take_place(const View<T>& view, const Probe& probe, PlannedSlots& planned) {
    for (std::uint32_t level = 0; level < 2; ++level) {
      const Tier<T>& tier = *view.tiers[view.target() + level];
      const auto number = [&](std::uint64_t bucket) { return bucket * 2 + level + 1; };
      const auto used = [&](std::uint64_t bucket) {
        return tier.used(bucket) + planned.taken(number(bucket));
      };
      const std::uint64_t a = tier.index(probe.hashes[0]);
      const std::uint64_t b = tier.index(probe.hashes[1]);
      const std::uint64_t bucket = used(b) < used(a) ? b : a;
      if (used(bucket) >= kSlots) continue;
      planned.take(number(bucket));
      return true;
    }
    return false;
  }
  // Whether too many keys would have one hash.
  Status find_clashes(const View<T>& view, const Array<Probe>& inserts) const {
    Array<std::uint64_t> hashes;
    for (const Probe& probe : inserts) {
      if (!hashes.push_back(probe.hashes[0])) return StatusCode::out_of_memory;
    }
    std::sort(hashes.begin(), hashes.end());
    for (const Probe& probe : inserts) {
      const auto [first, last] = std::equal_range(hashes.begin(), hashes.end(), probe.hashes[0]);
      const auto same = static_cast<std::uint64_t>(last - first) - 1;
      if (this->clashes(view, probe) + same >= 2 * kSlots) return this->too_many_clashes();
    }
    return {};
  }
};

}  // namespace perdure::level
