// TwoLevel: level hashing as its paper prints it (sections 3 and 4), for figures whose parts our
// engine cannot switch off. The engine differs: docs/design/level.md.
//
// WHAT  Buckets of kSlots in two levels, of which the top one is twice the bottom one. Two hash
//   functions give a key two buckets in each level. An insert takes the less loaded bucket of the
//   top level, else of the bottom level. Else it moves one item within its level, else one from
//   bottom to top. The table is full when none of this makes room. Then expand() adds a level and
//   moves the items of the smallest one.
// CONSISTENCY  log_free.h. insert 2F 2S, with a movement 5F 5S. erase 1F 1S. update 2F 2S, into an
//   empty slot of the bucket or through the log. expand moves each item, 3F 3S.
// DEVIATIONS  One thread, as the paper's figures for these tables. insert looks for the key first.
//   No recovery; a level that has been drained is left to the heap.
#pragma once

#include <memory>
#include <new>
#include <span>
#include <utility>

#include "evaluation/hash/baseline.h"

namespace perdure::paper {

// What the figures leave out.
struct Decisions {
  bool two_hashes = true;      // D2 of figure 2
  bool two_levels = true;      // D3
  bool movement = true;        // D4
  bool upwards = true;         // movements from bottom to top (B2T of figure 4)
  bool dynamic_search = true;  // the fuller level first (figure 5), else the top one
  bool opportunistic = true;   // updates into an empty slot (figure 12), else all are logged
};

template <Platform P, std::uint32_t kSlots = 4>
class TwoLevel final : public Baseline<P> {
 public:
  // The top level has 2^log_top buckets.
  static Expected<std::unique_ptr<TwoLevel>> make_with(P& platform, Heap<P>& heap,
                                                       std::uint32_t log_top,
                                                       const Decisions& decisions) {
    std::unique_ptr<TwoLevel> table(new (std::nothrow) TwoLevel(platform, heap, decisions));
    if (table == nullptr) return fail(StatusCode::out_of_memory);
    if (Status s = table->open_log(); !s.ok()) return fail(std::move(s));
    for (std::uint32_t i = 0; i < (decisions.two_levels ? 2 : 1); ++i) {
      const std::uint64_t count = 1ULL << log_top >> i;
      auto array = table->template allocate<BucketT>(count);
      if (!array) return fail(std::move(array.error()));
      table->levels_[i] = {.buckets = *array, .count = count};
    }
    return table;
  }
  static Expected<std::unique_ptr<Table>> make(P& platform, Heap<P>& heap, std::uint32_t log_top) {
    auto table = make_with(platform, heap, log_top, {});
    if (!table) return fail(std::move(table.error()));
    return std::move(*table);
  }

  std::uint64_t slots() override { return (levels_[0].count + levels_[1].count) * kSlots; }
  Expected<bool> insert(std::uint64_t key, std::uint64_t value) override {
    const level::Probe probe = place(key);
    if (find_place(probe).found()) return false;
    Place target = free_place(probe);
    if (!target.found() && decisions_.movement) target = make_place(probe);
    if (!target.found()) return fail(StatusCode::pool_full);
    this->log_free_.put(*target.bucket, target.slot, key, value);
    ++levels_[target.level].items;
    ++this->items_;
    return true;
  }
  Expected<bool> update(std::uint64_t key, std::uint64_t value) override {
    const Place found = find_place(place(key));
    if (!found.found()) return false;
    if (decisions_.opportunistic) {
      this->log_free_.update(*found.bucket, found.slot, value);
    } else {
      this->log_free_.update_logged(found.bucket->slots[found.slot], value);
    }
    return true;
  }
  Expected<bool> erase(std::uint64_t key) override {
    const Place found = find_place(place(key));
    if (!found.found()) return false;
    this->log_free_.drop(*found.bucket, found.slot);
    --levels_[found.level].items;
    --this->items_;
    return true;
  }

  // Errors: pool_full if the heap is, or if an item finds no place, which the paper excludes. The
  // table is unusable after the second one.
  Status expand() {
    auto array = this->template allocate<BucketT>(levels_[0].count * 2);
    if (!array) return std::move(array.error());
    const Level drained = levels_[1];
    levels_[1] = levels_[0];
    levels_[0] = {.buckets = *array, .count = levels_[1].count * 2};
    for (BucketT& bucket : drained.all()) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        if (!bucket.has(slot)) continue;
        const Place to = free_place(place(bucket.slots[slot].key));
        if (!to.found()) return StatusCode::pool_full;
        this->log_free_.move(bucket, slot, *to.bucket, to.slot);
        ++levels_[to.level].items;
      }
    }
    return {};
  }
  // The number of items whose update needs no log, because their bucket has an empty slot.
  std::uint64_t log_free_items() const {
    std::uint64_t count = 0;
    for (const Level& level : levels_) {
      for (const BucketT& bucket : level.all()) count += bucket.used() % kSlots;
    }
    return count;
  }

 private:
  using BucketT = Bucket<kSlots>;
  struct Level {
    BucketT* buckets = nullptr;
    std::uint64_t count = 0;
    std::uint64_t items = 0;
    std::span<BucketT> all() const noexcept { return {buckets, count}; }
    BucketT& bucket(std::uint64_t hash) const noexcept { return buckets[hash & (count - 1)]; }
  };
  struct Place {
    std::uint32_t level = 0;
    BucketT* bucket = nullptr;
    std::uint32_t slot = 0;
    bool found() const noexcept { return bucket != nullptr; }
  };

  TwoLevel(P& platform, Heap<P>& heap, const Decisions& decisions) noexcept
      : Baseline<P>(platform, heap), decisions_(decisions) {}

  std::span<const std::uint64_t> hashes(const level::Probe& probe) const noexcept {
    return {probe.hashes, decisions_.two_hashes ? std::size_t{2} : std::size_t{1}};
  }

  Place find_in(std::uint32_t level, const level::Probe& probe) const noexcept {
    for (const std::uint64_t hash : hashes(probe)) {
      BucketT& bucket = levels_[level].bucket(hash);
      const std::uint32_t slot = bucket.find(this->platform_, probe.word);
      if (slot != kSlots) return {level, &bucket, slot};
    }
    return {};
  }
  Place find_place(const level::Probe& probe) const noexcept {
    if (!decisions_.two_levels) return find_in(0, probe);
    const bool fuller = decisions_.dynamic_search && levels_[0].items <= levels_[1].items;
    const std::uint32_t first = fuller ? 1 : 0;
    const Place found = find_in(first, probe);
    return found.found() ? found : find_in(1 - first, probe);
  }
  const Slot* lookup(std::uint64_t key) const noexcept override {
    const Place found = find_place(place(key));
    return found.found() ? &found.bucket->slots[found.slot] : nullptr;
  }
  void visit_slots(FunctionRef<void(const Slot&)> visit) const override {
    for (const Level& level : levels_) {
      for (const BucketT& bucket : level.all()) this->visit_bucket(bucket, visit);
    }
  }

  // An empty slot of the less loaded bucket.
  Place free_in(std::uint32_t level, const level::Probe& probe) const noexcept {
    BucketT* chosen = &levels_[level].bucket(probe.hashes[0]);
    if (decisions_.two_hashes) {
      BucketT& second = levels_[level].bucket(probe.hashes[1]);
      if (second.used() < chosen->used()) chosen = &second;
    }
    const std::uint32_t slot = chosen->free_slot();
    return slot == kSlots ? Place{} : Place{level, chosen, slot};
  }
  Place free_place(const level::Probe& probe) const noexcept {
    const Place free = free_in(0, probe);
    return free.found() || !decisions_.two_levels ? free : free_in(1, probe);
  }
  // Moves an item of one of the key's buckets in `from`, which are full, to an empty slot in `to`.
  // Returns the slot that it leaves.
  Place move_one(std::uint32_t from, std::uint32_t to, const level::Probe& probe) noexcept {
    for (const std::uint64_t hash : hashes(probe)) {
      BucketT& bucket = levels_[from].bucket(hash);
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        const Place free = free_in(to, place(bucket.slots[slot].key));
        if (!free.found()) continue;
        this->log_free_.move(bucket, slot, *free.bucket, free.slot);
        --levels_[from].items;
        ++levels_[to].items;
        return {from, &bucket, slot};
      }
    }
    return {};
  }
  Place make_place(const level::Probe& probe) noexcept {
    Place made = move_one(0, 0, probe);
    if (made.found() || !decisions_.two_levels) return made;
    made = move_one(1, 1, probe);
    return made.found() || !decisions_.upwards ? made : move_one(1, 0, probe);
  }

  Decisions decisions_;
  Level levels_[2];  // top, bottom
};

}  // namespace perdure::paper
