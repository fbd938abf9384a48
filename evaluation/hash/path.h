// Path: path hashing, the write-friendly scheme that level hashing is compared with (paper,
// sections 2.2.2 and 5.1).
//
// WHAT  An inverted binary tree with one item in each bucket; its levels are arrays of halving
//   size. Two hash functions name two leaves, one in each half, so that the two paths to the root
//   are disjoint. A key lies anywhere on them. Only the first levels exist, half as many as the
//   tree would have ("about log(N)/2 levels"). The table is full when both paths are. No item
//   moves.
// LAYOUT  The levels lie in one array, leaves first, with two buckets a line.
// CONSISTENCY  log_free.h. A bucket has one slot and no empty one beside its item, and every update
//   is logged.
#pragma once

#include <new>

#include "evaluation/hash/baseline.h"

namespace perdure::paper {

template <Platform P>
class Path final : public Baseline<P> {
 public:
  static Expected<std::unique_ptr<Table>> make(P& platform, Heap<P>& heap,
                                               std::uint32_t log_leaves) {
    std::unique_ptr<Path> table(new (std::nothrow) Path(platform, heap, log_leaves));
    if (table == nullptr) return fail(StatusCode::out_of_memory);
    if (Status s = table->open_log(); !s.ok()) return fail(std::move(s));
    auto array = table->template allocate<BucketT>(table->slots());
    if (!array) return fail(std::move(array.error()));
    table->buckets_ = *array;
    return table;
  }

  std::uint64_t slots() override { return level_begin(levels_); }
  Expected<bool> insert(std::uint64_t key, std::uint64_t value) override {
    BucketT* empty = nullptr;
    const BucketT* found = walk(key, &empty);
    if (found != nullptr) return false;
    if (empty == nullptr) return fail(StatusCode::pool_full);
    this->log_free_.put(*empty, 0, key, value);
    ++this->items_;
    return true;
  }
  Expected<bool> update(std::uint64_t key, std::uint64_t value) override {
    BucketT* found = walk(key);
    if (found == nullptr) return false;
    this->log_free_.update(*found, 0, value);
    return true;
  }
  Expected<bool> erase(std::uint64_t key) override {
    BucketT* found = walk(key);
    if (found == nullptr) return false;
    this->log_free_.drop(*found, 0);
    --this->items_;
    return true;
  }

 private:
  using BucketT = Bucket<1>;

  Path(P& platform, Heap<P>& heap, std::uint32_t log_leaves) noexcept
      : Baseline<P>(platform, heap), log_leaves_(log_leaves), levels_((log_leaves + 2) / 2) {}

  // Buckets of the levels before this one.
  std::uint64_t level_begin(std::uint32_t level) const noexcept {
    return (2ULL << log_leaves_) - (2ULL << log_leaves_ >> level);
  }
  // Walks both paths, level by level. Returns the key's bucket, or null. `empty` receives the first
  // empty bucket.
  BucketT* walk(std::uint64_t key, BucketT** empty = nullptr) const noexcept {
    const level::Probe probe = place(key);
    const std::uint64_t half = 1ULL << (log_leaves_ - 1);
    std::uint64_t leaves[2] = {probe.hashes[0] & (half - 1), half + (probe.hashes[1] & (half - 1))};
    for (std::uint32_t level = 0; level < levels_; ++level) {
      BucketT* const buckets = buckets_ + level_begin(level);
      for (std::uint64_t& at : leaves) {
        BucketT& bucket = buckets[at];
        at >>= 1;
        if (bucket.find(this->platform_, key) == 0) return &bucket;
        if (empty != nullptr && *empty == nullptr && !bucket.has(0)) *empty = &bucket;
      }
    }
    return nullptr;
  }
  const Slot* lookup(std::uint64_t key) const noexcept override {
    const BucketT* found = walk(key);
    return found != nullptr ? &found->slots[0] : nullptr;
  }
  void visit_slots(FunctionRef<void(const Slot&)> visit) const override {
    for (std::uint64_t i = 0; i < level_begin(levels_); ++i) this->visit_bucket(buckets_[i], visit);
  }

  BucketT* buckets_ = nullptr;
  std::uint32_t log_leaves_;
  std::uint32_t levels_;
};

}  // namespace perdure::paper
