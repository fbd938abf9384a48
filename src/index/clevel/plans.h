// Plans: makes sure that every insert of a batch finds a slot (pool/batch.h), and names the blocks
// of its items and blobs.
//
// The plan follows free_slot() for one insert after the other. The inserts come in this order
// later, and nothing else takes a slot meanwhile (batch.I4).
#pragma once

#include <cstdint>

#include "index/clevel/many.h"
#include "index/planned_slots.h"
#include "util/containers.h"

namespace perdure::clevel {

template <class T>
class Plans : public Many<T> {
  using Base = Many<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;

 public:
  Status plan_batch(const BatchPlan& plan) override {
    Array<Probe> inserts;
    for (std::size_t i = 0; i < plan.mutations.size(); ++i) {
      const detail::Mutation& mutation = plan.mutations[i];
      if (mutation.kind == MutationKind::erase) continue;
      const Probe probe = this->probe_of(mutation.key);
      const bool added = plan.present[i] ? !bytes_values_ || add_blob(mutation.value, plan.needs)
                                         : this->add_item(probe, mutation.value, plan.needs) &&
                                               inserts.push_back(probe);
      if (!added) return StatusCode::out_of_memory;
    }
    std::uint64_t buckets = 0;
    for (bool fit = inserts.empty(); !fit;) {
      if (Status s = this->rehash_for_room(); !s.ok()) return s;
      if (Status s = make_slots(inserts, buckets, fit); !s.ok()) return s;
    }
    return {};
  }

 protected:
  using Base::add_blob, Base::begin_read, Base::bytes_values_, Base::context_, Base::levels;
  using Base::Base;

 private:
  // `fit`: whether all find a slot. If not, it adds a level. `buckets`: as in expand_for().
  [[gnu::noinline]] Status make_slots(const Array<Probe>& inserts, std::uint64_t& buckets,
                                      bool& fit) {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return s;
    const LevelList& list = levels();
    PlannedSlots planned;
    if (!planned.reset(inserts.size())) return StatusCode::out_of_memory;
    for (const Probe& probe : inserts) {
      const std::uint64_t bucket = bucket_for(probe, list, planned);
      if (bucket == 0) return this->expand_for(list, inserts.size(), buckets);
      planned.take(bucket);
    }
    fit = true;
    return {};
  }
  // The bucket that free_slot() will choose, after those that are planned; 0: none.
  std::uint64_t bucket_for(const Probe& probe, const LevelList& list,
                           const PlannedSlots& planned) const {
    std::uint64_t best = 0;
    int most = 0;
    for (std::uint32_t i = list.count; i-- > (list.growing() ? 1U : 0U);) {
      for (const Bucket* bucket : list.levels[i]->buckets_of(probe)) {
        const std::uint64_t number = this->offset_of(bucket);
        const std::uint32_t empty = P::match_words(bucket->slots, G::kSlots, 0);
        const int free = __builtin_popcount(empty) - static_cast<int>(planned.taken(number));
        if (free <= most) continue;
        if (context_.platform.load(bucket->slots[__builtin_ctz(empty)]) == kSealed) continue;
        most = free;
        best = number;
      }
    }
    return best;
  }
};

}  // namespace perdure::clevel
