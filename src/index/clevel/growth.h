// Growth: free slots, and the list of levels: adds levels to grow or shrink the table, and zeroes
// the next level ahead of need. clevel.I1, clevel.I6.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

#include "index/clevel/lookup.h"
#include "index/resizes.h"

namespace perdure::clevel {

template <class T>
class Growth : public Lookup<T> {
  using Base = Lookup<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;

 public:
  [[gnu::noinline]] Expected<bool> compact() override {
    (void)context_.background.finish(rehash_);
    const bool ahead = give_back_ahead();
    auto begun = with_room([&] { return shrink(); });
    if (!begun) return begun;
    if (*begun) (void)context_.background.finish(rehash_);
    return *begun || ahead;
  }

 protected:
  using Base::Base;
  using Base::begin_change, Base::context_, Base::levels, Base::levels_, Base::persist,
      Base::rehash_, Base::resize_latch_, Base::root_, Base::stripes_, Base::verified,
      Base::with_room;

  // Returns the ring's word of a level.
  static std::uint64_t level_word(std::uint64_t offset, std::uint64_t buckets) {
    const std::uint64_t word = offset | static_cast<std::uint64_t>(__builtin_ctzll(buckets));
    return word | std::uint64_t{crc32c(0, &word, sizeof(word)) & 0xFFFF} << kOffsetBits;
  }
  bool store_ring(std::uint32_t index, std::uint64_t word) {
    std::uint64_t& place = root_->levels[index];
    context_.platform.store(place, word);
    if (!persist(&place, sizeof(place), "clevel.ring.word"_site)) return false;
    PERDURE_ASSERT(P, "clevel.I6",
                   context_.platform.load(place) == word &&
                       context_.platform.persisted(&place, sizeof(place)));
    return true;
  }

  static std::uint64_t slots_of(const LevelList& list) {
    std::uint64_t slots = 0;
    for (const Level* level : list) slots += level->count * G::kSlots;
    return slots;
  }
  // Returns the buckets of the lower of two levels, the upper one twice as large, that this many
  // entries fill to 4/5.
  static std::uint64_t lower_for(std::uint64_t entries) {
    std::uint64_t lower = kMinBuckets;
    while (lower * 3 * G::kSlots < entries / 4 * 5) lower *= 2;
    return lower;
  }
  // Returns the inserts less the erases since the open.
  std::uint64_t gained() const {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < G::kStripes; ++i) sum += stripes_[i].gained();
    return sum;
  }

  // Returns an empty slot for the key, or null: of its buckets in this level and those above, one
  // in the emptiest; of equally empty ones, in the highest.
  [[gnu::always_inline]] std::uint64_t* free_slot(const Probe& probe, const LevelList& list,
                                                  std::uint32_t lowest) const {
    std::uint64_t* best = nullptr;
    int most = 0;
    for (std::uint32_t i = list.count; i-- > lowest;) {
      for (Bucket* bucket : list.levels[i]->buckets_of(probe)) {
        const std::uint32_t empty = P::match_words(bucket->slots, G::kSlots, 0);
        const int free = __builtin_popcount(empty);
        if (free <= most) continue;
        std::uint64_t* slot = &bucket->slots[__builtin_ctz(empty)];
        // The whole bucket is sealed, or will be.
        if (context_.platform.load(*slot) == kSealed) continue;
        most = free;
        best = slot;
      }
    }
    return best;
  }

  // Called with the slot that an insert has taken. If so few slots of its bucket are free, though
  // it was among the key's emptiest, the table will soon grow: wakes the unit that zeroes the
  // level.
  [[gnu::noinline]] void look_ahead(const LevelList& list, const std::uint64_t* slot) {
    const auto line = reinterpret_cast<std::uintptr_t>(slot) & ~(kLine - 1);
    const std::uint32_t empty =
        P::match_words(reinterpret_cast<const std::uint64_t*>(line), G::kSlots, 0);
    if (__builtin_popcount(empty) > static_cast<int>(G::kSlots / 8) || list.growing()) return;
    const std::uint64_t buckets = list.next_size();
    if (wanted_.load(std::memory_order_relaxed) == buckets || &levels() != &list) return;
    wanted_.store(buckets, std::memory_order_release);
    context_.background.wake(ahead_);
  }

  // Adds a level, unless the list has changed since a thread found no slot in it. Other threads
  // that found no slot wait meanwhile. The caller is pinned and holds grow_latch_.
  [[gnu::noinline]] Status expand(const LevelList* seen) {
    if (&levels() != seen) return {};
    if (seen->count == kMaxLevels) return no_more_levels(*seen);
    if (!crowded(seen->first())) {
      return Status::format(StatusCode::hash_overflow,
                            "too many keys share their buckets: this one has no slot in %u levels, "
                            "the largest of which is nearly empty",
                            seen->count);
    }
    const std::uint64_t buckets = seen->next_size();
    return append(*seen, {&buckets, 1}, false);
  }

  // For a batch of so many inserts, one of which finds no slot: adds a level that has room for all.
  // `buckets`: at least so many; gets twice the size of that level. The caller is pinned.
  [[gnu::noinline]] Status expand_for(const LevelList& seen, std::uint64_t inserts,
                                      std::uint64_t& buckets) {
    const LatchGuard growing(grow_latch_);
    if (&levels() != &seen) return {};
    if (seen.count == kMaxLevels) return no_more_levels(seen);
    if (seen.next_size() / 2 * G::kSlots > kLeastLoad * (entries_about() + inserts)) {
      return Status::format(StatusCode::hash_overflow,
                            "too many keys share their buckets: %u levels have not enough slots "
                            "for them",
                            seen.count);
    }
    std::uint64_t size = std::max(buckets, seen.next_size());
    while (size * G::kSlots < 2 * inserts) size *= 2;
    buckets = size * 2;
    return append(seen, {&size, 1}, false);
  }

  // For the resize that ends with this level. resize_latch_ is held.
  void end_resize(const Level& drained) {
    const std::uint64_t moved = std::exchange(moved_, 0);
    if (inherited_ != 0) {  // another process began it
      --inherited_;
      return;
    }
    resizes_.end(drained.count, moved, *context_.log, context_.map);
  }

  static void finish_level(void*, std::uint64_t level) { delete reinterpret_cast<Level*>(level); }
  static void finish_list(void*, std::uint64_t list) { delete reinterpret_cast<LevelList*>(list); }
  static constexpr Reclaimer kLevelReclaimer{nullptr, &finish_level};
  static constexpr Reclaimer kListReclaimer{nullptr, &finish_list};

  // Zeroes the next level ahead of need, as a unit of background work.
  struct AheadUnit final : BackgroundWork<P> {
    explicit AheadUnit(Growth* m) : map(m) {}
    Step run_some() noexcept override {
      // The holder may wait for a thread that waits for this step.
      if (!map->ahead_latch_.try_lock()) return Step::more;
      Status failure;  // the insert that needs the level reports it
      const Step step = map->prepare_some(failure);
      map->ahead_latch_.unlock();
      return step;
    }
    Growth* map;
  };

  // Held by the thread that adds a level, and taken before the other latches. Held across
  // allocations, which may wait for background work: steps therefore only try to take it.
  typename P::Latch grow_latch_;
  typename P::Latch ahead_latch_;  // likewise
  AheadUnit ahead_{this};
  struct {  // the next level, as far as it is zeroed; under ahead_latch_
    std::uint64_t offset = 0;
    std::uint64_t buckets = 0;
    std::uint64_t zeroed = 0;
  } next_;
  // The entries at the end of the walk, less those gained by then.
  typename P::template Atomic<std::uint64_t> found_{0};
  Resizes<P> resizes_;           // under resize_latch_
  std::uint64_t inherited_ = 0;  // under way at open and not ended
  std::uint64_t moved_ = 0;      // by the resize under way; only the rehash's step uses it

 private:
  static constexpr std::uint64_t kLeastLoad = 16;  // no level for a batch below a load of 1/16

  static Status no_more_levels(const LevelList& list) {
    return Status::format(StatusCode::hash_overflow,
                          "this key has no slot, and %u levels, the most there can be, wait to "
                          "be rehashed",
                          list.count);
  }
  // Whether so many slots of the level are used that full buckets are normal. If all buckets of a
  // key are full in an empty table, the keys in them were chosen to collide.
  bool crowded(const Level& level) const {
    constexpr std::uint64_t kSample = 64;
    if (level.count <= kSample) return true;
    std::uint64_t used = 0;
    for (std::uint64_t i = 0; i < kSample; ++i) {
      const Bucket& bucket = level.buckets[i * (level.count / kSample)];
      for (std::uint32_t s = 0; s < G::kSlots; ++s) {
        used += context_.platform.load(bucket.slots[s]) != 0 ? 1 : 0;
      }
    }
    return used * 4 >= kSample * G::kSlots;
  }

  // Returns the number of entries. Until the walk of an open ends, counts only those gained.
  std::uint64_t entries_about() const {
    const auto entries =
        static_cast<std::int64_t>(found_.load(std::memory_order_relaxed) + gained());
    return static_cast<std::uint64_t>(std::max<std::int64_t>(entries, 0));
  }

  // Begins a resize for each level that is to go. resize_latch_ is held.
  [[gnu::noinline]] void begin_resizes(const LevelList& from, const LevelList& to, bool shrink) {
    ResizeStats resize{.slots_before = slots_of(from),
                       .slots_after = 0,
                       .entries = entries_about(),
                       .shrink = shrink};
    const std::uint32_t added = to.count - from.count;
    for (std::uint32_t i = shrink ? from.count : to.growing() ? 1 : 0; i < to.count; ++i) {
      resize.slots_after += to.levels[i]->count * G::kSlots;
    }
    for (std::uint32_t i = 0; i < added; ++i) resizes_.begin(resize);
  }

  // Zeroes a part of the next level, so that an insert that needs it finds it zeroed. ahead_latch_
  // is held.
  [[gnu::noinline]] Step prepare_some(Status& failure) {
    const std::uint64_t buckets = wanted_.load(std::memory_order_acquire);
    if (next_.zeroed == buckets || buckets == 0) return Step::rest;
    if (next_.buckets != buckets) {
      if (next_.offset != 0) context_.heap.free(next_.offset);
      next_ = {};
      auto block = context_.heap.allocate(buckets * sizeof(Bucket), BlockKind::plain);
      if (!block) {
        failure = std::move(block.error());
        return Step::rest;
      }
      next_ = {.offset = *block, .buckets = buckets};
    }
    auto* first = context_.heap.template at<Bucket>(next_.offset) + next_.zeroed;
    const std::uint64_t n = std::min(G::kAhead, buckets - next_.zeroed);
    context_.platform.zero(first, n * sizeof(Bucket));
    if (!persist(first, n * sizeof(Bucket), "clevel.ahead.zero"_site)) {
      failure = StatusCode::poisoned;
      return Step::rest;
    }
    next_.zeroed += n;
    return next_.zeroed == buckets ? Step::rest : Step::more;
  }

  // Returns the level of so many buckets once it is durably zero.
  [[gnu::noinline]] Expected<std::uint64_t> take_level(std::uint64_t buckets) {
    for (;;) {
      wanted_.store(buckets, std::memory_order_release);
      Status failure;
      const LatchGuard guard(ahead_latch_);
      if (prepare_some(failure) == Step::more) continue;
      const bool ready = next_.zeroed == buckets;
      if (!ready && failure.ok()) continue;  // a thread with an older list wanted another size
      wanted_.store(0, std::memory_order_release);
      if (!ready) return fail(std::move(failure));
      return std::exchange(next_, {}).offset;
    }
  }
  // Frees the next level if it is not needed yet. Returns whether there was one.
  bool give_back_ahead() {
    const LatchGuard guard(ahead_latch_);
    wanted_.store(0, std::memory_order_release);
    if (next_.offset == 0) return false;
    context_.heap.free(std::exchange(next_, {}).offset);
    return true;
  }

  // Adds levels of these sizes, unless the list has changed. The caller is pinned and holds
  // grow_latch_.
  [[gnu::noinline]] Status append(const LevelList& seen, std::span<const std::uint64_t> sizes,
                                  bool shrink) {
    auto* next = new (std::nothrow) LevelList(seen);
    if (next == nullptr) return StatusCode::out_of_memory;
    Status s;
    for (const std::uint64_t size : sizes) {
      auto* level = new (std::nothrow) Level;
      auto block = level != nullptr ? take_level(size) : fail(StatusCode::out_of_memory);
      if (!block) {
        delete level;
        s = std::move(block.error());
        break;
      }
      *level = {.buckets = context_.heap.template at<Bucket>(*block),
                .count = size,
                .offset = *block,
                .ring = (next->first().ring + 1) % kRing};
      next->levels[next->count++] = level;
    }
    if (s.ok()) {
      const LatchGuard guard(resize_latch_);
      if (levels_.load(std::memory_order_relaxed) == &seen) {
        for (std::uint32_t i = seen.count; i < next->count && s.ok(); ++i) {
          const Level& level = *next->levels[i];
          PERDURE_ASSERT(P, "clevel.I1",
                         context_.platform.persisted(level.buckets, level.count * sizeof(Bucket)));
          if (!store_ring(level.ring, level_word(level.offset, level.count))) {  // PP(expand)
            s = StatusCode::poisoned;
          }
        }
        if (s.ok()) {
          levels_.store(next, std::memory_order_release);
          begin_resizes(seen, *next, shrink);
          context_.epochs.retire(kListReclaimer, this, reinterpret_cast<std::uint64_t>(&seen));
          if (next->growing()) context_.background.wake(rehash_);
          return {};
        }
      }
    }
    for (std::uint32_t i = seen.count; i < next->count; ++i) {
      // No other thread knows the level. In a poisoned pool its word may be on the medium.
      if (s != StatusCode::poisoned) context_.heap.free(next->levels[i]->offset);
      delete next->levels[i];
    }
    delete next;
    return s;
  }

  // Adds two smaller levels with room for the entries above the present two. The rehash then
  // empties those, one after the other, so each moment is one of a growing table. Returns false if
  // the new levels would take more than half the room.
  [[gnu::noinline]] Expected<bool> shrink() {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_change(guard, true); !s.ok()) return fail(std::move(s));
    const LatchGuard growing(grow_latch_);
    const LevelList& list = levels();
    if (list.growing() || !verified()) return false;
    const std::uint64_t lower = lower_for(entries_about());
    if (lower * 3 * 2 * G::kSlots > slots_of(list)) return false;
    const std::uint64_t sizes[] = {lower, lower * 2};
    if (Status s = append(list, sizes, true); !s.ok()) return fail(std::move(s));
    return true;
  }

  typename P::template Atomic<std::uint64_t> wanted_{0};  // buckets of the next level
};

}  // namespace perdure::clevel
