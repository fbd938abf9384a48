// Ready: blocks for levels. Background work zeroes the next one ahead of need, and it then lies
// ready. A thread that needs a level takes that one, or makes a small one by itself: it waits for
// no other thread. clevel.I1 (each level was durably empty).
//
// A block has one owner at each moment: the step of the unit (next_, under ahead_latch_), the word
// ready_, the thread that took or made it, or the list. It goes to ready_ and from it by one
// compare-and-swap, and only when it is durably zero. No thread stores into a block that it does
// not own, so one that is stopped harms no level.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "index/clevel/lookup.h"

namespace perdure::clevel {

// A durably empty block that one thread owns; offset 0: there is none.
struct Fresh {
  std::uint64_t offset = 0;
  std::uint64_t buckets = 0;
};

template <class T>
class Ready : public Lookup<T> {
  using Base = Lookup<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;

 protected:
  using Base::Base;
  using Base::context_, Base::levels, Base::persist;

  // Returns the ring's word of a level. ready_ has words of this form, too.
  static std::uint64_t level_word(std::uint64_t offset, std::uint64_t buckets) {
    const std::uint64_t word = offset | static_cast<std::uint64_t>(__builtin_ctzll(buckets));
    return word | std::uint64_t{crc32c(0, &word, sizeof(word)) & 0xFFFF} << kOffsetBits;
  }
  static Fresh fresh_of(std::uint64_t word) {
    return {.offset = word & kOffsetMask & ~std::uint64_t{63},
            .buckets = std::uint64_t{1} << (word & 63)};
  }

  // Called with the slot that an insert has taken. If so few slots of its bucket are free, though
  // it was among the key's emptiest, the table will soon grow: wakes the unit that zeroes the
  // level.
  [[gnu::noinline]] void look_ahead(const LevelList& list, const std::uint64_t* slot) {
    const auto line = reinterpret_cast<std::uintptr_t>(slot) & ~(kLine - 1);
    const std::uint32_t empty =
        P::match_words(reinterpret_cast<const std::uint64_t*>(line), G::kSlots, 0);
    if (__builtin_popcount(empty) > static_cast<int>(G::kSlots / 8)) return;
    const std::uint64_t buckets = list.next_size();
    if (wanted_.load(std::memory_order_relaxed) == buckets || &levels() != &list) return;
    want(buckets);
  }
  void want(std::uint64_t buckets) {
    wanted_.store(buckets, std::memory_order_release);
    context_.background.wake(ahead_);
  }

  // For an insert that found no slot: the block that lies ready, or else one that it makes itself,
  // of 4 KiB, and of four times as much for every level beyond the third. Waits for no thread. Once
  // the pool has refused the next size: one in place of the last level, see in_place_of_last().
  [[gnu::noinline]] Expected<Fresh> block_at_once(const LevelList& list) {
    const std::uint64_t buckets = list.next_size();
    if (const Fresh ready = take_ready(buckets); ready.offset != 0) return ready;
    if (refused_.load(std::memory_order_relaxed) == buckets) {
      // The pool is full, unless the size fits by now.
      auto block = context_.heap.allocate(buckets * sizeof(Bucket), BlockKind::plain);
      if (!block) return in_place_of_last(list, std::move(block.error()));
      context_.heap.free(*block);
      refused_.store(0, std::memory_order_relaxed);
    }
    const std::uint32_t beyond = list.count - std::min<std::uint32_t>(list.count, 3);
    return make_block(std::min(buckets, G::kOwn << 2 * beyond));
  }
  // The free space is too scattered for the next size. A level as large as the last one, which then
  // drains, has slots for this key and for others, and the table is none the smaller afterwards.
  [[gnu::noinline, gnu::cold]] Expected<Fresh> in_place_of_last(const LevelList& list,
                                                                Status&& refused) {
    const std::uint64_t buckets = list.levels[0]->count;
    if (list.growing() || buckets > G::kOwn * kMostInPlace) return fail(std::move(refused));
    return make_block(buckets);
  }
  // For a step of the rehash: the block that lies ready, or none after a step towards it.
  [[gnu::noinline]] Expected<Fresh> block_in_time(const LevelList& list) {
    const std::uint64_t buckets = list.next_size();
    if (const Fresh ready = take_ready(buckets); ready.offset != 0) return ready;
    if (buckets <= G::kOwn) return make_block(buckets);
    if (wanted_.load(std::memory_order_relaxed) != buckets) want(buckets);
    Status failure;
    if (ahead_latch_.try_lock()) {
      (void)prepare_some(failure);
      ahead_latch_.unlock();
    }
    if (!failure.ok()) return fail(std::move(failure));
    return take_ready(buckets);
  }
  // For a shrink or a batch, however long it takes.
  [[gnu::noinline]] Expected<Fresh> make_block(std::uint64_t buckets) {
    auto block = context_.heap.allocate(buckets * sizeof(Bucket), BlockKind::plain);
    if (!block) return fail(std::move(block.error()));
    for (std::uint64_t done = 0; done < buckets; done += G::kAhead) {
      if (!zero_buckets(*block, done, std::min(G::kAhead, buckets - done))) {
        return fail(StatusCode::poisoned);
      }
    }
    return Fresh{.offset = *block, .buckets = buckets};
  }
  [[gnu::noinline]] Fresh take_ready(std::uint64_t buckets) {
    std::uint64_t word = ready_.load(std::memory_order_acquire);
    if (word == 0 || fresh_of(word).buckets != buckets ||
        !ready_.compare_exchange_strong(word, 0, std::memory_order_acq_rel)) {
      return {};
    }
    return fresh_of(word);
  }
  // Puts a block where it lies ready, if its size is the one that will be needed.
  [[gnu::noinline]] void put_back(const Fresh& block) {
    std::uint64_t none = 0;
    if (block.buckets == wanted_.load(std::memory_order_acquire) &&
        ready_.compare_exchange_strong(none, level_word(block.offset, block.buckets),
                                       std::memory_order_acq_rel)) {
      return;
    }
    context_.heap.free(block.offset);
  }

  // Frees the block that is not needed yet. Returns whether there was one.
  bool give_back_ahead() {
    const LatchGuard guard(ahead_latch_);
    wanted_.store(0, std::memory_order_release);
    bool any = false;
    for (const Fresh& block : {fresh_of(ready_.exchange(0, std::memory_order_acq_rel)),
                               std::exchange(next_, {}).block}) {
      if (block.offset == 0) continue;
      context_.heap.free(block.offset);
      any = true;
    }
    return any;
  }
  // Those blocks, or 0. ahead_latch_ is held, or no other thread is there. Another thread may take
  // the one that lies ready.
  std::array<Fresh, 2> ahead() const {
    const std::uint64_t word = ready_.load(std::memory_order_acquire);
    return {word != 0 ? fresh_of(word) : Fresh(), next_.block};
  }

  // Zeroes the next level ahead of need, as a unit of background work.
  struct AheadUnit final : BackgroundWork<P> {
    explicit AheadUnit(Ready* m) : map(m) {}
    Step run_some() noexcept override {
      // The holder may wait for a thread that waits for this step.
      if (!map->ahead_latch_.try_lock()) return Step::more;
      Status failure;  // a thread that needs the level finds the same
      const Step step = map->prepare_some(failure);
      map->ahead_latch_.unlock();
      return step;
    }
    Ready* map;
  };

  // Held across allocations, which may wait for background work: steps only try to take it. No
  // insert takes it.
  typename P::Latch ahead_latch_;
  AheadUnit ahead_{this};

 private:
  // The block has `buckets` from `first` on.
  bool zero_buckets(std::uint64_t block, std::uint64_t first, std::uint64_t buckets) {
    auto* begin = context_.heap.template at<Bucket>(block) + first;
    context_.platform.zero(begin, buckets * sizeof(Bucket));
    return persist(begin, buckets * sizeof(Bucket), "clevel.ahead.zero"_site);
  }

  // Zeroes a part of the next level. When all is zeroed, it lies ready. ahead_latch_ is held.
  [[gnu::noinline]] Step prepare_some(Status& failure) {
    const std::uint64_t buckets = wanted_.load(std::memory_order_acquire);
    std::uint64_t old = ready_.load(std::memory_order_acquire);
    if (buckets == 0 || (old != 0 && fresh_of(old).buckets == buckets)) return Step::rest;
    if (old != 0 && ready_.compare_exchange_strong(old, 0, std::memory_order_acq_rel)) {
      context_.heap.free(fresh_of(old).offset);
    }
    if (next_.block.buckets != buckets) {
      if (next_.block.offset != 0) context_.heap.free(next_.block.offset);
      next_ = {};
      auto block = context_.heap.allocate(buckets * sizeof(Bucket), BlockKind::plain);
      if (!block) {
        if (block.error() == StatusCode::pool_full) {
          refused_.store(buckets, std::memory_order_relaxed);
        }
        failure = std::move(block.error());
        return Step::rest;
      }
      next_.block = {.offset = *block, .buckets = buckets};
    }
    const std::uint64_t n = std::min(G::kAhead, buckets - next_.zeroed);
    if (!zero_buckets(next_.block.offset, next_.zeroed, n)) {
      failure = StatusCode::poisoned;
      return Step::rest;
    }
    next_.zeroed += n;
    if (next_.zeroed != buckets) return Step::more;
    put_back(std::exchange(next_, {}).block);
    return Step::rest;
  }

  static constexpr std::uint64_t kMostInPlace = 16;  // times kOwn: 64 KiB, which an insert zeroes

  struct {  // the next level, as far as it is zeroed; under ahead_latch_
    Fresh block;
    std::uint64_t zeroed = 0;
  } next_;
  typename P::template Atomic<std::uint64_t> wanted_{0};   // buckets of the next level
  typename P::template Atomic<std::uint64_t> refused_{0};  // buckets that the pool had no room for
  typename P::template Atomic<std::uint64_t> ready_{0};    // the word of the one that lies ready
};

}  // namespace perdure::clevel
