// Stripe: what is under way among the keys of one stripe, and how many came and went. In DRAM.
//
// A word: bit 0 an insert holds the latch; bits 1 to 15 updates and erases under way; the rest
// counts inserts that are over, so that whoever found a key absent can tell that none was since.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure::clevel {

template <Platform P>
class Stripe {
 public:
  static constexpr std::uint64_t kLatch = 1;
  static constexpr std::uint64_t kMutation = 2;
  static constexpr std::uint64_t kInserted = std::uint64_t{1} << 16;

  std::uint64_t load() const noexcept { return word_.load(std::memory_order_acquire); }
  // Others than the caller, who has `own` in it.
  bool in_flight(std::uint64_t own) const noexcept { return load() % kInserted != own; }

  // Answers the word as it was.
  std::uint64_t lock() noexcept {
    for (unsigned spins = 0;;) {
      std::uint64_t word = word_.load(std::memory_order_relaxed);
      if ((word & kLatch) == 0 &&
          word_.compare_exchange_strong(word, word | kLatch, std::memory_order_acq_rel)) {
        return word;
      }
      P::pause(spins++);
    }
  }
  void unlock(bool inserted) noexcept {
    word_.fetch_add((inserted ? kInserted : 0) - kLatch, std::memory_order_release);
  }
  // Nobody has inserted, nor begun to, between two looks at the word.
  static bool unchanged(std::uint64_t before, std::uint64_t now) noexcept {
    return before / kInserted == now / kInserted && ((before | now) & kLatch) == 0;
  }

  void enter() noexcept { word_.fetch_add(kMutation, std::memory_order_acq_rel); }
  void leave() noexcept { word_.fetch_sub(kMutation, std::memory_order_release); }
  void count_erased() noexcept { erased_.fetch_add(1, std::memory_order_relaxed); }

  // Inserted and not erased, modulo 2^64.
  std::uint64_t gained() const noexcept {
    return load() / kInserted - erased_.load(std::memory_order_relaxed);
  }

 private:
  typename P::template Atomic<std::uint64_t> word_{0};
  typename P::template Atomic<std::uint64_t> erased_{0};
};

}  // namespace perdure::clevel
