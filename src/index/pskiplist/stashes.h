// Stashes: free items of one kind (slots, numbers of nodes), kept where the next thread that needs
// one finds it without a line that other threads write.
//
// WHAT  A stack of up to kMost items per stripe of threads, as the magazines of Bonwick and Adams
//   (USENIX 2001). The owner keeps the other free items in common: an empty stash is filled from
//   there, and a full one gives back half, kBatch items at a time. So a thread comes to the owner's
//   latch at most once in kBatch calls of one kind.
//   A stash belongs to the threads whose slot numbers are equal modulo kThreadStripes, not to one
//   thread. The next thread of that stripe uses what a thread has left that ended; other threads
//   get it by steal() or give_back_all().
// LAYOUT  kThreadStripes stashes in an arena, each in lines of its own.
// INVARIANTS (DRAM)
//   pskiplist.F1  A free item is in one place: a stash, what the owner keeps in common, or the
//       hands of the thread that moves it. Items move between the two in batches.
// ORDERING  Items are plain: the latch of their stash, or that of the owner, orders them. A thread
//   holds at most one stash's latch, and takes the owner's latch while it fills a stash. It waits
//   for no fence meanwhile. `used_` is raised before the first item comes into a stash.
// PROGRESS  A call waits for the threads of its own stripe: none, while there are at most
//   kThreadStripes. steal() and give_back_all() wait for each stash in turn.
#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/platform.h"
#include "util/arena.h"

namespace perdure::pskiplist {

inline constexpr std::uint32_t kThreadStripes = 128;

template <Platform P, class Item, std::uint32_t Batch>
class Stashes {
 public:
  static constexpr std::uint32_t kBatch = Batch;
  static constexpr std::uint32_t kMost = 2 * kBatch;

  Status reserve() { return stashes_.reserve(kThreadStripes); }

  // Takes an item from the calling thread's stash. If that is empty, fill(items) stores up to
  // kBatch items, the one to take first in front, and returns their number. False: there was none.
  template <class F>
  [[gnu::always_inline]] bool take(Item& item, F&& fill) {
    Stash& stash = own();
    LatchGuard guard(stash.latch);
    if (stash.count == 0) [[unlikely]] {
      use(stash);
      stash.count = fill(stash.items);
      if (stash.count == 0) return false;
      std::reverse(stash.items, stash.items + stash.count);
    }
    item = stash.items[--stash.count];
    return true;
  }
  // Puts an item into the calling thread's stash. If that is full, give_back(items, kBatch) gets
  // those that have been there longest, while no latch is held.
  template <class F>
  [[gnu::always_inline]] void give(const Item& item, F&& give_back) {
    Stash& stash = own();
    {
      LatchGuard guard(stash.latch);
      if (stash.count == 0) [[unlikely]]
        use(stash);
      if (stash.count < kMost) [[likely]] {
        stash.items[stash.count++] = item;
        return;
      }
    }
    give_to_full(stash, item, give_back);
  }
  // Takes an item from any stash. False: there was none.
  [[gnu::noinline]] bool steal(Item& item) {
    const std::uint32_t used = used_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < used; ++i) {
      Stash& stash = stashes_[i];
      LatchGuard guard(stash.latch);
      if (stash.count == 0) continue;
      item = stash.items[--stash.count];
      return true;
    }
    return false;
  }
  // Empties all stashes: give_back(items, count) for each that has some, while no latch is held.
  template <class F>
  [[gnu::noinline]] void give_back_all(F&& give_back) {
    const std::uint32_t used = used_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < used; ++i) {
      Item items[kMost];
      std::uint32_t count = 0;
      {
        Stash& stash = stashes_[i];
        LatchGuard guard(stash.latch);
        std::swap(count, stash.count);
        std::copy_n(stash.items, count, items);
      }
      if (count != 0) give_back(items, count);
    }
  }
  // Returns the number of items in all stashes.
  std::uint64_t count() {
    std::uint64_t sum = 0;
    const std::uint32_t used = used_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < used; ++i) {
      LatchGuard guard(stashes_[i].latch);
      sum += stashes_[i].count;
    }
    return sum;
  }

 private:
  struct alignas(kLine) Stash {
    typename P::Latch latch;
    std::uint32_t count = 0;
    Item items[kMost];
  };

  Stash& own() const { return stashes_[P::thread_slot() % kThreadStripes]; }
  // Before an item comes into a stash that is empty.
  void use(const Stash& stash) {
    const auto least = static_cast<std::uint32_t>(&stash - &stashes_[0]) + 1;
    std::uint32_t used = used_.load(std::memory_order_relaxed);
    while (used < least && !used_.compare_exchange_strong(used, least, std::memory_order_acq_rel)) {
    }
  }
  template <class F>
  [[gnu::noinline]] void give_to_full(Stash& stash, const Item& item, F& give_back) {
    Item items[kBatch];  // the oldest, if the stash is still full
    std::uint32_t count = 0;
    {
      LatchGuard guard(stash.latch);
      if (stash.count == kMost) {
        count = kBatch;
        std::copy_n(stash.items, count, items);
        std::copy(stash.items + count, stash.items + kMost, stash.items);
        stash.count -= count;
      }
      stash.items[stash.count++] = item;
    }
    if (count != 0) give_back(items, count);
  }

  Arena<Stash> stashes_;
  typename P::template Atomic<std::uint32_t> used_{0};  // no stash at or after this one has items
};

}  // namespace perdure::pskiplist
