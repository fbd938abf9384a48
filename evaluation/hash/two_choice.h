// TwoChoice: an array of buckets in which a key may lie in either of two, as in bucketized cuckoo
// hashing and PFHT.
#pragma once

#include <cstdint>
#include <memory>

#include "evaluation/hash/baseline.h"

namespace perdure::paper {

template <Platform P, std::uint32_t kSlots>
class TwoChoice : public Baseline<P> {
 protected:
  using BucketT = Bucket<kSlots>;
  struct Place {
    BucketT* bucket = nullptr;
    std::uint32_t slot = 0;
    bool found() const noexcept { return bucket != nullptr; }
    Slot& item() const noexcept { return bucket->slots[slot]; }
  };
  using Baseline<P>::Baseline;

  Status open_buckets(std::uint32_t log_buckets) noexcept {
    if (Status s = this->open_log(); !s.ok()) return s;
    auto array = this->template allocate<BucketT>(1ULL << log_buckets);
    if (!array) return std::move(array.error());
    buckets_ = *array;
    count_ = 1ULL << log_buckets;
    return {};
  }
  BucketT& bucket(std::uint64_t hash) const noexcept { return buckets_[hash & (count_ - 1)]; }
  // The other bucket of an item.
  BucketT& alternative(const Place& place) const noexcept {
    const level::Probe probe = paper::place(place.item().key);
    BucketT& first = bucket(probe.hashes[0]);
    return &first == place.bucket ? bucket(probe.hashes[1]) : first;
  }
  Place find_place(const level::Probe& probe) const noexcept {
    for (const std::uint64_t hash : probe.hashes) {
      BucketT& home = bucket(hash);
      const std::uint32_t slot = home.find(this->platform_, probe.word);
      if (slot != kSlots) return {&home, slot};
    }
    return {};
  }
  Place free_place(const level::Probe& probe) const noexcept {
    for (const std::uint64_t hash : probe.hashes) {
      BucketT& home = bucket(hash);
      const std::uint32_t slot = home.free_slot();
      if (slot != kSlots) return {&home, slot};
    }
    return {};
  }
  void put(const Place& place, std::uint64_t key, std::uint64_t value) noexcept {
    this->log_free_.put(*place.bucket, place.slot, key, value);
    ++this->items_;
  }
  void drop(const Place& place) noexcept {
    this->log_free_.drop(*place.bucket, place.slot);
    --this->items_;
  }
  void visit_slots(FunctionRef<void(const Slot&)> visit) const override {
    for (std::uint64_t i = 0; i < count_; ++i) this->visit_bucket(buckets_[i], visit);
  }

  BucketT* buckets_ = nullptr;
  std::uint64_t count_ = 0;
};

}  // namespace perdure::paper
