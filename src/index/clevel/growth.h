// Growth: free slots, and the list of levels: adds levels to grow or shrink the table. clevel.I1,
// clevel.I6.
//
// OPERATIONS  A level is added in two steps. add() announces it: one compare-and-swap puts it
//   behind the levels of the list, decides between threads, and gives the level its place in the
//   ring. install() stores its word there, writes it back, fences, and publishes the list of which
//   it is a part. Every thread that needs a level and finds one announced installs it, so a thread
//   that is stopped between the steps holds up no other.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "index/clevel/ready.h"
#include "index/resizes.h"

namespace perdure::clevel {

template <class T>
class Growth : public Ready<T> {
  using Base = Ready<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;

 public:
  [[gnu::noinline]] Expected<bool> compact() override {
    (void)context_.background.finish(rehash_);
    const bool ahead = this->give_back_ahead();
    auto begun = with_room([&] { return shrink(); });
    if (!begun) return begun;
    if (*begun) (void)context_.background.finish(rehash_);
    return *begun || ahead;
  }

 protected:
  using Base::Base;
  using Base::begin_change, Base::context_, Base::installers_, Base::level_word, Base::levels,
      Base::levels_, Base::make_block, Base::persist, Base::put_back, Base::rehash_, Base::root_,
      Base::take_ready, Base::verified, Base::want, Base::with_room;

  // Stores a word of the ring that was `old`, unless another thread has, and makes it durable.
  bool store_ring(std::uint32_t index, std::uint64_t old, std::uint64_t word) {
    std::uint64_t& place = root_->levels[index];
    (void)context_.platform.compare_exchange(place, old, word);
    if (!persist(&place, sizeof(place), "clevel.ring.word"_site)) return false;
    PERDURE_ASSERT(P, "clevel.I6",
                   context_.platform.load(place) == word &&
                       context_.platform.persisted(&place, sizeof(place)));
    return true;
  }

  // Publishes `next`, unless the list is not `before` any more. The caller then retires that.
  bool exchange_list(const LevelList& before, LevelList& next) {
    auto* expected = const_cast<LevelList*>(&before);
    return levels_.compare_exchange_strong(expected, &next);
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

  // For a key that found no slot in `seen`: adds a level, unless the list has changed since. Waits
  // for no other thread. With `in_time`, for the rehash, returns false if the level does not lie
  // ready yet. The caller is pinned.
  [[gnu::noinline]] Expected<bool> expand(const LevelList& seen, bool in_time) {
    if (&levels() != &seen) return true;
    if (seen.announced != 0) {
      if (Status s = install_announced({}); !s.ok()) return fail(std::move(s));
      return true;
    }
    if (seen.count == kMaxLevels) return fail(no_more_levels(seen));
    // The first level is not the largest one if an insert has made it, or while the table shrinks;
    // then the rehash fills only the newest.
    if (!crowded(seen.first()) || (!in_time && !crowded(seen.largest()))) {
      return fail(Status::format(
          StatusCode::hash_overflow,
          "too many keys share their buckets: this one has no slot in %u levels, the largest or "
          "first of which is nearly empty",
          seen.count));
    }
    auto block = in_time ? this->block_in_time(seen) : this->block_at_once(seen);
    if (!block) return fail(std::move(block.error()));
    if (block->offset == 0) return false;
    auto added = add(seen, {&*block, 1}, false);
    if (!added) return added;
    // It was not there in time.
    if (*added && block->buckets < seen.next_size()) want(seen.next_size());
    return true;
  }

  // For a batch of so many inserts, one of which finds no slot: adds a level that has room for all.
  // `buckets`: at least so many; gets twice the size of that level. The caller is pinned.
  [[gnu::noinline]] Status expand_for(const LevelList& seen, std::uint64_t inserts,
                                      std::uint64_t& buckets) {
    if (&levels() != &seen) return {};
    if (seen.announced != 0) return install_announced({});
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
    Expected<Fresh> block = take_ready(size);
    if (block->offset == 0) block = make_block(size);
    if (!block) return std::move(block.error());
    auto added = add(seen, {&*block, 1}, false);
    return added ? Status() : std::move(added.error());
  }

  // The last level has gone, and with it the oldest resize under way ends: that of the third level.
  // resize_latch_ is held.
  void end_resize(const LevelList& before) {
    const std::uint64_t moved = moved_.exchange(0, std::memory_order_relaxed);
    if (before.levels[2]->inherited) return;  // another process began it
    resizes_.add_ended(before.levels[2]->resize, before.levels[0]->count, moved, *context_.log,
                       context_.map);
  }
  // The resizes since the open. resize_latch_ is held.
  void copy_resizes(const LevelList& list, EngineStats& out) {
    const auto under_way = std::span(list.begin(), list.end()).subspan(2);
    const auto begun = [](const Level* level) { return !level->inherited; };
    resizes_.copy_to(out, static_cast<std::uint64_t>(std::ranges::count_if(under_way, begun)));
    for (const Level* level : under_way) {
      if (begun(level) && !out.resizes.push_back(level->resize)) out.partial = true;
    }
  }

  static void finish_level(void*, std::uint64_t level) { delete reinterpret_cast<Level*>(level); }
  static void finish_list(void*, std::uint64_t list) { delete reinterpret_cast<LevelList*>(list); }
  static constexpr Reclaimer kLevelReclaimer{nullptr, &finish_level};
  static constexpr Reclaimer kListReclaimer{nullptr, &finish_list};

  // The entries at the end of the walk, less those gained by then.
  typename P::template Atomic<std::uint64_t> found_{0};
  Resizes<P> resizes_;                                   // that have ended; under resize_latch_
  typename P::template Atomic<std::uint64_t> moved_{0};  // by the resize under way

 private:
  static constexpr std::uint64_t kLeastLoad = 16;  // no level for a batch below a load of 1/16

  static Status no_more_levels(const LevelList& list) {
    return Status::format(StatusCode::hash_overflow,
                          "this key has no slot, and %u levels, the most there can be, wait to "
                          "be rehashed",
                          list.count);
  }
  // Whether so many slots of the level are used that full buckets are normal. If all buckets of a
  // key are full in an empty level, the keys in them were chosen to collide.
  bool crowded(const Level& level) const {
    constexpr std::uint64_t kSample = 64;
    if (level.count < kSample) return true;
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
        static_cast<std::int64_t>(found_.load(std::memory_order_relaxed) + this->gained());
    return static_cast<std::uint64_t>(std::max<std::int64_t>(entries, 0));
  }

  // The resize that a level begins which comes behind those of `list`, with `added`.
  ResizeStats resize_of(const LevelList& list, std::span<const Fresh> added, bool shrink) const {
    ResizeStats resize{.begin_ns = resizes_.since_open(),
                       .slots_before = slots_of(list),
                       .slots_after = 0,
                       .entries = entries_about(),
                       .shrink = shrink};
    if (!shrink) resize.slots_after = resize.slots_before - list.levels[0]->count * G::kSlots;
    for (const Fresh& block : added) resize.slots_after += block.buckets * G::kSlots;
    return resize;
  }

  struct ListDeleter {  // of a list that no thread has seen: with the levels that it announces
    void operator()(LevelList* list) const {
      for (const Level* level : list->coming()) delete level;
      delete list;
    }
  };
  using NewList = std::unique_ptr<LevelList, ListDeleter>;

  // Adds levels of these blocks to a list that announces none. They are part of the table when this
  // returns. Returns false if the list has changed: the blocks are then put back. The caller is
  // pinned.
  [[gnu::noinline]] Expected<bool> add(const LevelList& seen, std::span<const Fresh> blocks,
                                       bool shrink) {
    NewList next(new (std::nothrow) LevelList(seen));
    // Had beforehand: what is announced must come.
    std::unique_ptr<LevelList> whole(new (std::nothrow) LevelList);
    bool memory = next != nullptr && whole != nullptr;
    const ResizeStats resize = resize_of(seen, blocks, shrink);
    for (std::size_t i = 0; memory && i < blocks.size(); ++i) {
      const Fresh& block = blocks[i];
      auto* buckets = context_.heap.template at<Bucket>(block.offset);
      auto* level = new (std::nothrow)
          Level{.buckets = buckets,
                .count = block.buckets,
                .offset = block.offset,
                .ring = (seen.first().ring + 1 + static_cast<std::uint32_t>(i)) % kRing,
                .number = seen.first().number + 1 + i,
                .resize = resize};
      memory = level != nullptr;
      if (!memory) break;
      next->levels[next->count + next->announced++] = level;
      PERDURE_ASSERT(P, "clevel.I1",
                     context_.platform.persisted(buckets, block.buckets * sizeof(Bucket)));
    }
    if (!memory || !exchange_list(seen, *next)) {
      for (const Fresh& block : blocks) put_back(block);
      if (!memory) return fail(StatusCode::out_of_memory);
      return false;
    }
    (void)next.release();
    context_.epochs.retire(kListReclaimer, this, reinterpret_cast<std::uint64_t>(&seen));
    if (Status s = install_announced(std::move(whole)); !s.ok()) return fail(std::move(s));
    return true;
  }

  // Makes the levels that are announced parts of the table, whichever thread announced them.
  // `whole`: memory for the list, or null.
  [[gnu::noinline]] Status install_announced(std::unique_ptr<LevelList> whole) {
    for (;;) {
      const LevelList& list = levels();
      if (list.announced == 0) return {};
      if (whole == nullptr) whole.reset(new (std::nothrow) LevelList);
      if (whole == nullptr) return StatusCode::out_of_memory;  // the announcer has some
      if (Status s = install(list, whole); !s.ok() || whole == nullptr) return s;
    }
  }
  // Does nothing, and leaves `whole`, if the list has changed. Any number of threads may do this
  // for one list. Each counts itself at the place before it looks at the list, and drop()
  // looks at the count when the level is part of the list: one of the two sees the other. So the
  // place is free, or has the level's word, when a thread stores that.
  [[gnu::noinline]] Status install(const LevelList& list, std::unique_ptr<LevelList>& whole) {
    *whole = list;
    whole->count += std::exchange(whole->announced, 0);
    for (const Level* level : list.coming()) installers_[level->ring].fetch_add(1);
    bool durable = true;
    if (levels_.load() == &list) {
      for (const Level* level : list.coming()) {  // PP(expand)
        durable = durable && store_ring(level->ring, 0, level_word(level->offset, level->count));
      }
      if (durable && exchange_list(list, *whole)) {
        if (whole.release()->growing()) context_.background.wake(rehash_);
        context_.epochs.retire(kListReclaimer, this, reinterpret_cast<std::uint64_t>(&list));
      }
    }
    for (const Level* level : list.coming()) installers_[level->ring].fetch_sub(1);
    return durable ? Status() : StatusCode::poisoned;
  }

  // Adds two smaller levels with room for the entries above the present two. The rehash then
  // empties those, one after the other, so each moment is one of a growing table. Returns false if
  // the new levels would take more than half the room, or if the table grows meanwhile.
  [[gnu::noinline]] Expected<bool> shrink() {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_change(guard, true); !s.ok()) return fail(std::move(s));
    const LevelList& list = levels();
    if (list.growing() || list.announced != 0 || !verified()) return false;
    const std::uint64_t lower = lower_for(entries_about());
    if (lower * 3 * 2 * G::kSlots > slots_of(list)) return false;
    std::array<Fresh, 2> blocks;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      auto block = make_block(lower << i);
      if (!block) {
        if (i != 0) put_back(blocks[0]);
        return fail(std::move(block.error()));
      }
      blocks[i] = *block;
    }
    return add(list, blocks, true);
  }
};

}  // namespace perdure::clevel
