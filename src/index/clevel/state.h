// State: the data of a map and the helpers that all parts use. Its scopes decide when items may
// move (clevel.I3).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "index/clevel/hash.h"
#include "index/clevel/item.h"
#include "index/clevel/layout.h"
#include "index/clevel/stripe.h"
#include "index/closed_sum.h"
#include "index/engine_report.h"
#include "index/map_engine.h"
#include "index/traits.h"
#include "perdure/stats.h"

namespace perdure::clevel {

template <class T>
class ClevelMap;

// In DRAM.
struct Level {
  Bucket* buckets = nullptr;
  std::uint64_t count = 0;   // of buckets, a power of two
  std::uint64_t offset = 0;  // of the block
  std::uint32_t ring = 0;    // the index of its word
  bool inherited = false;    // it was there at open: an earlier process may have begun to rehash it
  std::uint64_t number = 0;  // one more than that of the level before
  ResizeStats resize = {};   // that it began, if it is not inherited
  std::uint64_t mask() const { return count - 1; }
  std::array<Bucket*, 2> buckets_of(const Probe& probe) const {
    return {&buckets[probe.first(mask())], &buckets[probe.second(mask())]};
  }
};

// The levels, the last one first. Immutable once it is published (clevel.I6).
struct LevelList {
  std::uint32_t count = 0;
  std::uint32_t announced = 0;  // levels behind those, which are not part of the table yet
  Level* levels[kMaxLevels] = {};
  Level* const* begin() const { return levels; }
  Level* const* end() const { return levels + count; }
  Level& first() const { return *levels[count - 1]; }
  std::span<Level* const> coming() const { return {end(), announced}; }
  bool growing() const { return count > 2; }  // the last level drains
  // Of those that do not drain.
  const Level& largest() const {
    return **std::max_element(begin() + (growing() ? 1 : 0), end(),
                              [](const Level* a, const Level* b) { return a->count < b->count; });
  }
  std::uint64_t next_size() const { return largest().count * 2; }
};

[[gnu::cold]] inline Status damaged_at(std::uint64_t offset) {
  return damaged_object("the item", offset);
}

template <class T>
class State : public MapEngine<T, Root, ClevelMap<T>, detail::Index> {
  using Base = MapEngine<T, Root, ClevelMap<T>, detail::Index>;

 public:
  State(const EngineContext<typename T::Platform>& context, std::uint64_t root)
      : Base(context, root), stripes_(new(std::nothrow) Stripe<P>[G::kStripes]) {}

 protected:
  using typename Base::P;
  using G = typename T::Geometry;
  using Base::context_, Base::offset_of, Base::root_;
  static constexpr unsigned kOdds = 1;  // the number of tally_
  static constexpr bool kBytesKeys = T::Codec::kBytes;
  static constexpr auto kRootCrc = "clevel.root.crc"_site;
  static constexpr std::uint64_t kMoveBegun = std::uint64_t{1} << 32;

  // Of an operation.
  [[gnu::cold, gnu::noinline]] Status damaged_item(std::uint64_t offset) const {
    return this->of_this_map(damaged_at(offset));
  }
  const LevelList& levels() const { return *levels_.load(std::memory_order_acquire); }
  bool verified() const { return verified_.load(std::memory_order_acquire); }

  Probe probe_of(const detail::Key& key) const {
    if constexpr (kBytesKeys) return {.hash = hash_bytes(key.bytes, seed_), .bytes = key.bytes};
    return {.hash = hash_word(key.word, seed_), .word = key.word};
  }
  [[gnu::noinline]] Probe probe_of(const Item* item, [[maybe_unused]] std::uint64_t state) const {
    if constexpr (kBytesKeys) {
      return probe_of(detail::Key{.bytes = {key_of(item), key_bytes(state)}});
    } else {
      return probe_of(detail::Key{.word = word_key(item)});
    }
  }
  std::uint64_t word_key(const Item* item) const {
    return context_.platform.load(*reinterpret_cast<const std::uint64_t*>(key_of(item)));
  }
  Item* item_at(std::uint64_t word) const {
    return context_.heap.template at<Item>(word & kOffsetMask);
  }
  // The inserts less the erases since the open.
  std::int64_t gained() const { return this->tally_.sum(Tally<P>::kEntries); }
  // Returns an odd number that no other call returns.
  std::uint64_t odd() { return this->tally_.next(kOdds) * 2 + 1; }
  Stripe<P>& stripe_of(const Probe& probe) const { return stripes_[probe.stripe() % G::kStripes]; }
  bool plausible(std::uint64_t word) const {
    return context_.heap.contains(word & kOffsetMask, 32) && (word & 15) == 0;
  }
  // Whether the item of a plausible slot lies in the file as a whole, with these lengths.
  bool readable(std::uint64_t word, std::uint64_t state) const {
    return context_.heap.contains(word & kOffsetMask, item_bytes(state));
  }
  bool is_item_block(std::uint64_t offset) const {
    const Heap<P>& heap = context_.heap;
    return heap.is_block(offset) && !heap.is_plain(offset) && heap.block_bytes(offset) >= 32;
  }
  bool whole(std::uint64_t word, std::uint64_t state) const {
    Item* item = item_at(word);
    return matches<P>(is_whole(item, state, context_.platform.load(item->value),
                               context_.heap.block_bytes(word & kOffsetMask)),
                      "clevel.item.crc"_site);
  }
  // Whether the block has room for an item of these lengths. Damaged lengths must not lead beyond
  // the file.
  bool fits(std::uint64_t word, std::uint64_t state) const {
    const std::uint64_t offset = word & kOffsetMask;
    return is_item_block(offset) && item_bytes(state) <= context_.heap.block_bytes(offset);
  }
  std::uint64_t slot_term(const std::uint64_t& slot, std::uint64_t word) const {
    return closed_term(offset_of(&slot), word);
  }

  // A thread holds one while it copies a slot or clears one of two copies. Items move only while
  // may_copy().
  class [[nodiscard]] Moving {
   public:
    explicit Moving(State& map) : map_(map) {
      map_.moves_.fetch_add(kMoveBegun + 1, std::memory_order_seq_cst);
    }
    ~Moving() { map_.moves_.fetch_sub(1, std::memory_order_seq_cst); }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;
    bool may_copy() const {
      return map_.scanners_.load(std::memory_order_seq_cst) == 0 &&
             !map_.context_.platform.poisoned();
    }

   private:
    State& map_;
  };
  // No item moves while it lives. It first waits for the moves that are under way.
  class [[nodiscard]] Pause {
   public:
    explicit Pause(State& map) : map_(map) {
      map_.scanners_.fetch_add(1, std::memory_order_seq_cst);
      for (unsigned n = 0; map_.moves_.load(std::memory_order_seq_cst) % kMoveBegun != 0;) {
        P::pause(n++);
      }
    }
    ~Pause() {
      map_.scanners_.fetch_sub(1, std::memory_order_seq_cst);
      map_.context_.background.wake(map_.rehash_);
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    State& map_;
  };
  // The rehash as a unit of background work. Its step is in a layer above, in growth.h.
  struct RehashUnit final : BackgroundWork<P> {
    explicit RehashUnit(State* m) : map(m) {}
    Step run_some() noexcept override { return static_cast<ClevelMap<T>*>(map)->rehash_some(); }
    State* map;
  };

  Seed seed_;
  bool bytes_values_ = false;
  bool clean_ = false;  // the map was closed cleanly
  typename P::template Atomic<LevelList*> levels_{nullptr};
  typename P::template Atomic<bool> verified_{false};  // clevel.I7
  typename P::template Atomic<bool> damaged_{false};   // clevel.I10
  std::unique_ptr<Stripe<P>[]> stripes_;
  // How many threads may store the word of an announced level, by its place in the ring: while
  // there are any, the place stays that level's (clevel.I6).
  typename P::template Atomic<std::uint32_t> installers_[kRing];
  typename P::Latch resize_latch_;  // of the drop of a level and the history of resizes
  RehashUnit rehash_{this};
  typename P::template Atomic<std::uint32_t> scanners_{0};
  // Moving scopes: the lower half counts those that live, the upper half those that have begun.
  typename P::template Atomic<std::uint64_t> moves_{0};
  // clevel.I9. The first counts the buckets that the walk has summed, in its order. The second is
  // what changes ahead of the walk have added.
  typename P::template Atomic<std::uint64_t> summed_{0};
  typename P::template Atomic<std::uint64_t> added_ahead_{0};
  static constexpr std::uint32_t kSumLatches = 16;
  typename P::Latch sum_latches_[kSumLatches];
};

}  // namespace perdure::clevel
