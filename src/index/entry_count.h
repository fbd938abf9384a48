// EntryCount: how many entries a map has, for size(): those that it had when they were counted, and
// what the tally has gained since. In DRAM.
//
// INVARIANT  With no mutation in a guard, known() implies that sum() is the number of entries.
// OPERATIONS
//   sum    O(threads that have ever used the map)
//   start  by recovery, or with the gate closed: no thread is in the guard of a mutation. A thread
//          that has left its guard has released what it added, and the gate has acquired it.
#pragma once

#include <cstdint>

#include "index/tally.h"
#include "platform/platform.h"

namespace perdure {

template <Platform P>
class EntryCount {
 public:
  explicit EntryCount(const Tally<P>& tally) : tally_(tally) {}

  bool known() const noexcept { return known_.load(std::memory_order_acquire); }
  std::uint64_t sum() const noexcept {
    const std::int64_t n = start_.load(std::memory_order_relaxed) + gained();
    return n < 0 ? 0 : static_cast<std::uint64_t>(n);  // while mutations are under way
  }
  void start(std::uint64_t entries) noexcept {
    start_.store(static_cast<std::int64_t>(entries) - gained(), std::memory_order_relaxed);
    known_.store(true, std::memory_order_release);
  }
  void forget() noexcept { known_.store(false, std::memory_order_relaxed); }

 private:
  std::int64_t gained() const noexcept { return tally_.sum(Tally<P>::kEntries); }

  const Tally<P>& tally_;
  typename P::template Atomic<std::int64_t> start_{0};
  typename P::template Atomic<bool> known_{false};
};

}  // namespace perdure
