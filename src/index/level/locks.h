// Place: a slot of a bucket. Locks: the bucket locks that a thread holds (level.I5).
#pragma once

#include <algorithm>
#include <cstdint>

#include "index/level/tier.h"

namespace perdure::level {

template <class T>
struct Place {
  static constexpr std::uint32_t kLineSlots = T::Codec::Form::kSlots;

  Tier<T>* tier = nullptr;
  std::uint64_t bucket = 0;
  std::uint32_t slot = Tier<T>::kSlots;

  bool found() const { return slot != Tier<T>::kSlots; }
  auto& meta() const { return tier->metas[bucket]; }
  Line<T>& line() const { return tier->line(bucket, slot); }
  std::uint32_t in_line() const { return slot % kLineSlots; }
  std::uint64_t bit() const { return 1ULL << in_line(); }
  std::uint64_t line_offset() const {
    return tier->bucket_offset(bucket) + slot / kLineSlots * sizeof(Line<T>);
  }
};

// The locks of a key's candidate buckets, or of a batch. The destructor releases them.
template <class T>
struct Locks {
  using P = typename T::Platform;
  // The buckets of a batch, or of a key in all levels, and the bucket that each of the batch's
  // items, or the victim of a movement, goes to.
  static constexpr std::uint32_t kMax =
      std::max(T::Geometry::kBatchBuckets * (1 + Tier<T>::kSlots), 2 * kMaxLevels + 1);
  struct Held {
    Tier<T>* tier;
    std::uint64_t bucket;
    bool changed;
  };
  Held held[kMax];
  std::uint32_t count = 0;

  Locks() = default;
  ~Locks() { release(); }
  Locks(const Locks&) = delete;
  Locks& operator=(const Locks&) = delete;
  bool has(const Tier<T>* tier, std::uint64_t bucket) const {
    for (std::uint32_t i = 0; i < count; ++i) {
      if (held[i].tier == tier && held[i].bucket == bucket) return true;
    }
    return false;
  }
  // Returns whether all held locks come before this one in the order of locks.
  bool precede(const Tier<T>& tier, std::uint64_t bucket) const {
    return std::all_of(held, held + count, [&](const Held& h) {
      return h.tier == &tier ? h.bucket < bucket : h.tier->log > tier.log;
    });
  }
  void lock(Tier<T>& tier, std::uint64_t bucket) {
    PERDURE_ASSERT(P, "level.I5", precede(tier, bucket));
    tier.metas[bucket].lock();
    held[count++] = {&tier, bucket, false};
  }
  // `seen`: nothing, or the version that the bucket must still have.
  template <class... Seen>
  bool try_lock(Tier<T>& tier, std::uint64_t bucket, Seen... seen) {
    if (!tier.metas[bucket].try_lock(seen...)) return false;
    held[count++] = {&tier, bucket, false};
    return true;
  }
  // Forgets this lock, which the caller will release.
  void keep(const Tier<T>& tier, std::uint64_t bucket) {
    PERDURE_ASSERT(P, "level.I5", has(&tier, bucket));
    for (std::uint32_t i = 0; i < count; ++i) {
      if (held[i].tier != &tier || held[i].bucket != bucket) continue;
      held[i] = held[--count];
      return;
    }
  }
  void changed(const Tier<T>* tier, std::uint64_t bucket) {
    PERDURE_ASSERT(P, "level.I5", has(tier, bucket));
    for (std::uint32_t i = 0; i < count; ++i) {
      if (held[i].tier == tier && held[i].bucket == bucket) held[i].changed = true;
    }
  }
  [[gnu::always_inline]] void release_last() {
    --count;
    held[count].tier->metas[held[count].bucket].unlock(held[count].changed);
  }
  [[gnu::noinline]] void release() {
    while (count > 0) release_last();
  }
};

}  // namespace perdure::level
