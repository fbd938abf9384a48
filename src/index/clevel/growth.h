// Growth: free slots, and the list of levels: adds levels to grow or shrink the table. Moves items
// to higher levels, to drain the last level or to make room for an insert. clevel.I1, clevel.I3,
// clevel.I4, clevel.I6.
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

#include "index/clevel/lookup.h"
#include "index/planned_slots.h"
#include "index/resizes.h"
#include "util/containers.h"

namespace perdure::clevel {

template <class T>
class Growth : public Lookup<T> {
  using Base = Lookup<T>;
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
  using Base::begin_change, Base::begin_read, Base::clean_, Base::context_, Base::installers_,
      Base::item_at, Base::level_word, Base::levels, Base::levels_, Base::make_block,
      Base::offset_of, Base::persist, Base::plausible, Base::probe_of, Base::put_back,
      Base::readable, Base::rehash_, Base::resize_latch_, Base::root_, Base::take_ready,
      Base::verified, Base::want, Base::with_room;
  using typename Base::Moving;

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

  // For a key that found no slot in `seen`: makes a slot, by a move or by one more level. If
  // another insert moves an item, it does not wait, and adds a level.
  [[gnu::noinline]] Status make_slot(const Probe& probe, const LevelList* seen) {
    if (seen->announced == 0 && !seen->growing() && raise(probe, *seen->levels[0])) {
      auto room = make_room(probe, seen);
      raised_[1].store(0, std::memory_order_release);
      raised_[0].store(0, std::memory_order_release);
      if (!room) return std::move(room.error());
      if (*room) return {};
    }
    auto added = expand(*seen, false);
    return added ? Status() : std::move(added.error());
  }

  // The step of RehashUnit (state.h).
  Step rehash_some() {
    // clevel.I7. mark_some() wakes the unit.
    if (!verified() && P::runs("clevel.rehash.wait"_site)) return Step::rest;
    bool waits = false;
    const Step step = rehash_range(waits);
    // Another thread must go on first. With this count P::pause() gives the core away.
    if (waits) P::pause(63);
    return step;
  }

  // For a batch, beside which no step runs: drains levels until another one can be added.
  [[gnu::noinline]] Status rehash_for_room() {
    while (levels().count == kMaxLevels) {
      bool waits = false;
      if (!verified() || rehash_range(waits) != Step::more) {
        if (context_.platform.poisoned()) return context_.platform.failure();
        return Status::format(StatusCode::pool_full, "a level has no room to be rehashed");
      }
    }
    return {};
  }

  // For the plan of a batch. `fit`: whether all find a slot. If not, it adds a level. `buckets`: as
  // in expand_for().
  [[gnu::noinline]] Status make_slots(const Array<Probe>& inserts, std::uint64_t& buckets,
                                      bool& fit) {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return s;
    const LevelList& list = levels();
    PlannedSlots planned;
    if (!planned.reset(inserts.size())) return StatusCode::out_of_memory;
    for (const Probe& probe : inserts) {
      const std::uint64_t bucket = bucket_for(probe, list, planned);
      if (bucket == 0) return expand_for(list, inserts.size(), buckets);
      planned.take(bucket);
    }
    fit = true;
    return {};
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

  // The entries at the end of the walk, less those gained by then.
  typename P::template Atomic<std::uint64_t> found_{0};

 private:
  // --- adding levels ---
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

  static constexpr std::uint64_t kLeastLoad = 16;  // no level for a batch below a load of 1/16

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

  // The bucket that free_slot() will choose, after those that are planned; 0: none.
  std::uint64_t bucket_for(const Probe& probe, const LevelList& list,
                           const PlannedSlots& planned) const {
    std::uint64_t best = 0;
    int most = 0;
    for (std::uint32_t i = list.count; i-- > (list.growing() ? 1U : 0U);) {
      for (const Bucket* bucket : list.levels[i]->buckets_of(probe)) {
        const std::uint64_t number = offset_of(bucket);
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

  // The last level has gone, and with it the oldest resize under way ends: that of the third level.
  // resize_latch_ is held.
  void end_resize(const LevelList& before) {
    const std::uint64_t moved = moved_.exchange(0, std::memory_order_relaxed);
    if (before.levels[2]->inherited) return;  // another process began it
    resizes_.add_ended(before.levels[2]->resize, before.levels[0]->count, moved, *context_.log,
                       context_.map);
  }

  static void finish_level(void*, std::uint64_t level) { delete reinterpret_cast<Level*>(level); }
  static void finish_list(void*, std::uint64_t list) { delete reinterpret_cast<LevelList*>(list); }
  static constexpr Reclaimer kLevelReclaimer{nullptr, &finish_level};
  static constexpr Reclaimer kListReclaimer{nullptr, &finish_list};

  // --- moving items ---
  struct Move {
    std::uint64_t word = 0;  // of the slot; 0: the slot stays as it is
    std::uint64_t* copy = nullptr;
  };

  static constexpr std::uint64_t kNoRange = ~std::uint64_t{0};
  static constexpr unsigned kRangeBits = 40;
  static constexpr std::uint64_t kTagged = std::uint64_t{1} << 63;

  // Moves an item of the key's buckets in the last level up, if no level drains. Returns false if
  // the buckets have no free slot there. raise() has returned for these buckets: if a drain begins
  // meanwhile, it passes over them. A step loads the list, then raised_; raise() sets that before
  // make_room() loads the list.
  [[gnu::noinline]] Expected<bool> make_room(const Probe& probe, const LevelList* seen) {
    P& platform = context_.platform;
    const Moving moving(*this);
    const LevelList& list = *levels_.load();
    if (&list != seen) return true;
    if (!verified() || !moving.may_copy()) return false;
    const auto buckets = list.levels[0]->buckets_of(probe);
    for (const Bucket* bucket : buckets) prefetch_items(*bucket);
    for (std::uint32_t n = 0; n < 2 * G::kSlots; ++n) {
      std::uint64_t& slot = buckets[n / G::kSlots]->slots[n % G::kSlots];
      std::uint64_t word = platform.load(slot);
      if (word == 0) return true;
      if (!plausible(word)) return fail(damaged_at(offset_of(&slot)));
      const std::uint64_t state = platform.load(item_at(word)->state);
      if (!is_live(state)) continue;
      if (!readable(word, state)) return fail(damaged_at(word & kOffsetMask));
      auto copy = copy_above(probe_of(item_at(word), state), word, list);
      if (!copy) return fail(std::move(copy.error()));
      if (*copy == nullptr) continue;
      Move move{.word = word, .copy = *copy};
      if (!persist(move.copy, sizeof(*move.copy), "clevel.rehash.copy"_site)) {
        return fail(StatusCode::poisoned);
      }
      undo_copies({&move, 1});
      // If the item has died, its eraser clears the slot.
      if (move.word != 0) (void)platform.compare_exchange(slot, word, 0);
      if (!persist(&slot, sizeof(slot), "clevel.move.slot"_site)) return fail(StatusCode::poisoned);
      return true;
    }
    return false;
  }

  // If the failure is one of space, waits until some is freed.
  [[gnu::noinline]] static Step after_failure(const Status& s) {
    const bool later = s == StatusCode::pool_full || s == StatusCode::hash_overflow ||
                       s == StatusCode::out_of_memory;
    return later ? Step::blocked : Step::rest;
  }

  // Drains a range of the last level. Any number of threads may do so, each another range.
  [[gnu::noinline]] Step rehash_range(bool& waits) {
    const Moving moving(*this);
    EpochGuard<P> guard(context_.epochs);
    const LevelList& list = levels();
    if (!moving.may_copy() || !guard.ok() || !list.growing()) return Step::rest;
    const Level& last = *list.levels[0];
    bool was_left = false;
    const std::uint64_t range = take_range(last, was_left);
    if (range == kNoRange) return end_drain(last, waits);
    Step step = Step::more;
    bool whole = true;
    Bucket* const begin = last.buckets + range * G::kBatch;
    const std::uint64_t buckets = std::min<std::uint64_t>(G::kBatch, last.count);
    std::uint64_t sealed = 0;  // bits: the buckets from `begin` that must be written back
    static_assert(G::kBatch <= 64);
    for (std::uint32_t n = 0; n < buckets && whole; ++n) {
      if (n + 2 < buckets) prefetch_items(begin[n + 2]);
      if (n + 1 < buckets) prefetch_above(begin[n + 1], list);
      bool wrote = false;
      auto done = is_raised(last, range * G::kBatch + n) ? Expected<bool>(false)
                                                         : rehash_bucket(begin[n], wrote);
      sealed |= std::uint64_t{wrote} << n;
      whole = done && *done;
      if (!done) step = after_failure(done.error());
      waits = done && !*done && was_left;
    }
    for (std::uint64_t m = sealed; m != 0; m &= m - 1) {
      context_.platform.flush(begin + __builtin_ctzll(m), sizeof(Bucket),
                              "clevel.rehash.seal"_site);
    }
    // clevel.I4. The guard holds back the items that sealed slots named, so the fence comes first.
    if (!context_.platform.fence("clevel.rehash.seal"_site)) return Step::rest;
    for (std::uint64_t m = P::kAsserts ? sealed : 0; m != 0; m &= m - 1) {
      PERDURE_ASSERT(P, "clevel.I4", seals_persisted(begin[__builtin_ctzll(m)]));
    }
    if (!whole) {
      leave_range(last, range);
      return step;
    }
    count_sealed(last);
    return all_sealed(last) ? end_drain(last, waits) : step;
  }

  // --- ranges of the level that drains ---
  // Words of their state begin with a tag of the level. A thread that still has a level that is
  // gone does not count for another one.
  static std::uint64_t tagged(const Level& level, std::uint64_t n) {
    return kTagged | level.number << kRangeBits | n;
  }
  static std::uint64_t number_in(std::uint64_t word) {
    return word & ((std::uint64_t{1} << kRangeBits) - 1);
  }
  static bool names(std::uint64_t word, const Level& level) {
    return word >> kRangeBits == tagged(level, 0) >> kRangeBits;
  }
  // Whether the level is gone: levels drain in the order of their numbers.
  static bool names_later(std::uint64_t word, const Level& level) {
    const auto ahead = static_cast<std::int64_t>((word - tagged(level, 0)) << 1);
    return word != 0 && !names(word, level) && ahead > 0;
  }
  static std::uint64_t ranges_of(const Level& level) {
    return (level.count + G::kBatch - 1) / G::kBatch;
  }
  // A range that no other thread has: the next one, or one that a step has left. The next one comes
  // first: what a step has waited for may never come. If many were left, those come first, so that
  // there is a place for each.
  std::uint64_t take_range(const Level& last, bool& was_left) {
    std::uint32_t left = 0;
    for (const auto& place : left_) left += names(place.load(std::memory_order_acquire), last);
    const std::uint64_t next = left < kMostLeft ? next_range(last) : kNoRange;
    if (next != kNoRange) return next;
    const std::uint32_t turn = turn_.fetch_add(1, std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < kPlaces; ++i) {
      auto& place = left_[(turn + i) % kPlaces];
      std::uint64_t word = place.load(std::memory_order_acquire);
      was_left = names(word, last) && place.compare_exchange_strong(word, 0);
      if (was_left) return number_in(word);
    }
    return next_range(last);
  }
  std::uint64_t next_range(const Level& last) {
    for (std::uint64_t word = claimed_.load(std::memory_order_acquire);;) {
      const std::uint64_t range = names(word, last) ? number_in(word) : 0;
      if (range == ranges_of(last)) return kNoRange;
      if (names_later(word, last) && P::runs("clevel.rehash.gone"_site)) return kNoRange;
      if (claimed_.compare_exchange_strong(word, tagged(last, range + 1))) return range;
    }
  }
  // Some of its slots cannot be sealed yet. A thread has one range at a time, and takes no new one
  // once it counts kMostLeft that were left. It may count too few while others take and leave some,
  // so there are more places than that and the threads need.
  void leave_range(const Level& last, std::uint64_t range) {
    for (std::uint32_t i = 0;; i = (i + 1) % kPlaces) {
      std::uint64_t none = 0;
      if (left_[i].compare_exchange_strong(none, tagged(last, range))) return;
    }
  }
  void count_sealed(const Level& last) {
    std::uint64_t word = sealed_.load(std::memory_order_acquire);
    while (!sealed_.compare_exchange_strong(
        word, tagged(last, (names(word, last) ? number_in(word) : 0) + 1))) {
    }
  }
  // Names the key's buckets, unless another insert has named some: one moves items at a time.
  bool raise(const Probe& probe, const Level& last) {
    std::uint64_t none = 0;
    if (!raised_[0].compare_exchange_strong(none, tagged(last, probe.first(last.mask())))) {
      return false;
    }
    raised_[1].store(tagged(last, probe.second(last.mask())));
    return true;
  }
  // Whether an insert moves an item of the bucket up (make_room).
  bool is_raised(const Level& last, std::uint64_t bucket) const {
    const std::uint64_t word = tagged(last, bucket);
    return (raised_[0].load() == word || raised_[1].load() == word) &&
           P::runs("clevel.rehash.raise"_site);
  }
  bool all_sealed(const Level& last) const {
    return sealed_.load(std::memory_order_acquire) == tagged(last, ranges_of(last));
  }
  // There are no more ranges. Other threads may still be at theirs; then the last one ends it.
  Step end_drain(const Level& last, bool& waits) {
    if (!all_sealed(last)) return Step::rest;
    auto dropped = drop(last);
    if (!dropped) return after_failure(dropped.error());
    waits = !*dropped;
    return Step::more;
  }

  bool seals_persisted(const Bucket& bucket) const {
    const P& platform = context_.platform;
    return std::ranges::all_of(bucket.slots, [&](const std::uint64_t& slot) {
      return platform.load(slot) != kSealed || platform.persisted(&slot, sizeof(slot));
    });
  }

  // Leaves every slot of the bucket sealed. A copy is durable before its old slot is sealed. If
  // `wrote`, the caller writes the seals back: the old slots must not name a block that is reused
  // (clevel.I4). Returns false if the step must be repeated.
  [[gnu::noinline]] Expected<bool> rehash_bucket(Bucket& bucket, bool& wrote) {
    P& platform = context_.platform;
    for (;;) {
      Move moves[8];
      auto all = copy_bucket(bucket, moves);
      const bool copied = std::ranges::any_of(moves, [](const Move& m) { return m.word != 0; });
      if (platform.poisoned()) return fail(StatusCode::poisoned);
      undo_copies(moves);
      for (std::uint32_t i = 0; i < G::kSlots; ++i) {
        if (moves[i].word == 0) continue;
        (void)platform.compare_exchange(bucket.slots[i], moves[i].word, kSealed);
        if (moves[i].copy != nullptr) moved_.fetch_add(1, std::memory_order_relaxed);
      }
      wrote = wrote || copied;
      if (!copied || !all || !*all) return all;
    }
  }

  // Copies the items of a bucket into the levels above. Returns false if some remain. A dead item
  // remains: its eraser is about to clear the slot by a plain store, and a thread that found a seal
  // would not know of the death. A pending item does not: its insert may be stopped.
  [[gnu::noinline]] Expected<bool> copy_bucket(Bucket& bucket, Move (&moves)[8]) {
    P& platform = context_.platform;
    bool wrote = false;
    Expected<bool> all = true;
    for (std::uint32_t i = 0; i < G::kSlots; ++i) {
      std::uint64_t word = platform.load(bucket.slots[i]);
      if (word == kSealed ||
          (word == 0 && platform.compare_exchange(bucket.slots[i], word, kSealed))) {
        continue;
      }
      if (!plausible(word)) {
        all = fail(damaged_at(offset_of(&bucket.slots[i])));
        break;
      }
      Item* item = item_at(word);
      std::uint64_t state = platform.load(item->state);
      if (!is_live(state) && !is_pending(state) && !is_withdrawn(state)) {
        all = false;
        continue;
      }
      if (!is_withdrawn(state) && !readable(word, state)) {
        all = fail(damaged_at(word & kOffsetMask));
        break;
      }
      if (is_pending(state)) state = decide(item, state, bucket.slots[i]);
      if (is_withdrawn(state)) {
        moves[i].word = word;
        continue;
      }
      if (!is_live(state)) {
        all = false;
        continue;
      }
      auto copy = copy_up(probe_of(item, state), word);
      if (!copy || *copy == nullptr) {
        all = copy ? Expected<bool>(false) : fail(std::move(copy.error()));
        break;
      }
      moves[i] = {.word = word, .copy = *copy};
      wrote = true;
    }
    if (!wrote) return all;
    // After all exchanges: a locked instruction waits for the write-backs before it.
    for (const Move& move : moves) {
      if (move.copy != nullptr) {
        platform.flush(move.copy, sizeof(*move.copy), "clevel.rehash.copy"_site);
      }
    }
    if (!platform.fence("clevel.rehash.copy"_site)) return fail(StatusCode::poisoned);
    return all;
  }

  // Ends what an insert has begun that may be stopped between slot and life. If its item is the
  // last one of the stripe, the item becomes live, as its insert would make it. Else the item is
  // withdrawn, and the insert makes another one: none has seen it. Returns the new state.
  [[gnu::noinline, gnu::cold]] std::uint64_t decide(Item* item, std::uint64_t state,
                                                    const std::uint64_t& slot) {
    const bool is_last = this->stripe_of(probe_of(item, state)).last() == offset_of(item);
    const std::uint64_t decided =
        is_last ? toggle_pending(state) : withdrawn_state(offset_of(&slot));
    return context_.platform.compare_exchange(item->state, state, decided) ? decided : state;
  }

  // Names the item by one more slot above the last level. The caller writes that slot back. Returns
  // null if none is free there.
  [[gnu::noinline]] Expected<std::uint64_t*> copy_above(const Probe& probe, std::uint64_t word,
                                                        const LevelList& list) {
    PERDURE_ASSERT(P, "clevel.I9", !clean_ || verified());
    PERDURE_ASSERT(P, "clevel.I7", verified());
    for (;;) {
      // A level that will soon be the last one gets no copies.
      std::uint64_t* slot = free_slot(probe, list, list.growing() ? list.count - 2 : 1);
      if (slot == nullptr) return slot;
      context_.heap.mark_copied(word & kOffsetMask);
      std::uint64_t empty = 0;
      if (context_.platform.compare_exchange(*slot, empty, word)) return slot;
      // No slot is sealed up there.
      if (empty >> kOffsetBits == 0) return fail(damaged_at(offset_of(slot)));
    }
  }
  // As copy_above(), and adds a level if it must. Returns null if the next one does not lie ready.
  [[gnu::noinline]] Expected<std::uint64_t*> copy_up(const Probe& probe, std::uint64_t word) {
    for (;;) {
      const LevelList& list = levels();
      auto copy = copy_above(probe, word, list);
      if (!copy || *copy != nullptr) return copy;
      auto added = expand(list, true);
      if (!added) return fail(std::move(added.error()));
      if (!*added) return copy;
    }
  }
  // Takes back the copies of items that have died meanwhile: their erasers may have missed the
  // copies. The caller fences before its guard ends (clevel.I4).
  [[gnu::noinline]] void undo_copies(std::span<Move> moves) {
    P& platform = context_.platform;
    for (Move& move : moves) {
      if (move.copy == nullptr || is_live(platform.load(item_at(move.word)->state))) continue;
      std::uint64_t word = move.word;
      (void)platform.compare_exchange(*move.copy, word, 0);
      platform.flush(move.copy, sizeof(*move.copy), "clevel.rehash.undo"_site);
      move = {};
    }
  }

  // All slots of the level are sealed: no thread can store into it any more. Does nothing if
  // another thread has dropped it. Returns false if the step must be repeated: a thread may store
  // the level's word yet, drops the level, or reads the history.
  [[gnu::noinline]] Expected<bool> drop(const Level& empty) {
    std::unique_ptr<LevelList> next(new (std::nothrow) LevelList);
    if (next == nullptr) return fail(StatusCode::out_of_memory);
    if (installers_[empty.ring].load() != 0 && P::runs("clevel.ring.held"_site)) return false;
    if (!resize_latch_.try_lock()) return false;
    const LevelList* list = &levels();
    Level* const last = list->levels[0];
    if (last != &empty) {
      resize_latch_.unlock();
      return true;
    }
    context_.heap.mark_copied(last->offset);  // heap.I4
    const bool durable =
        store_ring(last->ring, level_word(last->offset, last->count), 0);  // PP(drop)
    if (durable) {
      do {  // other threads may add levels meanwhile
        list = &levels();
        *next = {.count = list->count - 1, .announced = list->announced};
        std::copy(list->begin() + 1, list->end() + list->announced, next->levels);
      } while (!exchange_list(*list, *next));
      (void)next.release();
      end_resize(*list);
    }
    resize_latch_.unlock();
    if (!durable) return fail(StatusCode::poisoned);
    context_.heap.retire(last->offset);
    context_.epochs.retire(kLevelReclaimer, this, reinterpret_cast<std::uint64_t>(last));
    context_.epochs.retire(kListReclaimer, this, reinterpret_cast<std::uint64_t>(list));
    return true;
  }

  void prefetch_items(const Bucket& bucket) const {
    for (std::uint32_t i = 0; i < G::kSlots; ++i) {
      const std::uint64_t word = context_.platform.load(bucket.slots[i]);
      if (word > kSealed) __builtin_prefetch(item_at(word));
    }
  }
  // Prefetches the buckets that a bucket's items may go to. The items themselves are in the cache.
  [[gnu::noinline]] void prefetch_above(const Bucket& bucket, const LevelList& list) const {
    for (std::uint32_t i = 0; i < G::kSlots; ++i) {
      const std::uint64_t word = context_.platform.load(bucket.slots[i]);
      if (word <= kSealed || !plausible(word)) continue;
      const std::uint64_t state = context_.platform.load(item_at(word)->state);
      if (!is_live(state) || !readable(word, state)) continue;
      const Probe probe = probe_of(item_at(word), state);
      for (std::uint32_t l = list.count - 2; l < list.count; ++l) {
        for (const Bucket* above : list.levels[l]->buckets_of(probe)) __builtin_prefetch(above, 1);
      }
    }
  }

  using Word = typename P::template Atomic<std::uint64_t>;
  static constexpr std::uint32_t kMostLeft = BackgroundWork<P>::kMaxWidth;
  static constexpr std::uint32_t kPlaces = kMostLeft + 4 * BackgroundWork<P>::kMaxWidth;
  Resizes<P> resizes_;                                   // that have ended; under resize_latch_
  typename P::template Atomic<std::uint64_t> moved_{0};  // by the resize under way
  Word raised_[2] = {};      // the buckets from which an insert moves an item up; tagged, or 0
  Word claimed_{0};          // the ranges that steps have taken
  Word sealed_{0};           // those of which all is sealed, durably
  Word left_[kPlaces] = {};  // those that steps have left, or 0
  typename P::template Atomic<std::uint32_t> turn_{0};  // where to look in left_ first
};

}  // namespace perdure::clevel
