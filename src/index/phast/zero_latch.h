// ZeroLatch: of integer key 0, which lies in no leaf. Writers exclude each other across their
// fence; readers take no latch.
//
// INVARIANTS
//   phast.D7  (DRAM) The version is odd while a writer holds the latch, and even otherwise. Each
//       writer makes it larger. So two equal loads of it have at most one writer between them, and
//       none if they are even.
// OPERATIONS
//   A reader loads the version, then the entry, then the version again. If that has changed, it
//   starts again. If it is odd, the entry may not be durable: the reader writes it back and fences
//   before it returns (hazard 1c).
// ORDERING  acquired by a compare-and-swap, so the version is odd before the writer's stores are
//   seen. Released by a store behind them and their fence. A writer that has returned may still
//   have its stores in the store buffer of its core. So a reader that finds the version odd waits
//   for another one, and then fences the holder, as phast.D5 does for stripes.
// PROGRESS  A reader waits a moment for a held latch, not for its fence (without membarrier(2) it
//   waits for the holder). Writers block.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure::phast {

template <Platform P>
class ZeroLatch {
 public:
  void lock() {
    for (unsigned spins = 0;; P::pause(spins++)) {
      std::uint64_t version = version_.load(std::memory_order_relaxed);
      if (!held(version) &&
          version_.compare_exchange_strong(version, version + 1, std::memory_order_acq_rel)) {
        return;
      }
    }
  }
  void unlock() {
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    PERDURE_ASSERT(P, "phast.D7", held(version));
    version_.store(version + 1, std::memory_order_release);
  }
  // Whether a writer held the latch at this version.
  static bool held(std::uint64_t version) { return (version & 1) != 0; }
  // Returns the version for a read of the entry: an odd one only if its writer has not returned, or
  // if all that it stored can be seen.
  std::uint64_t enter() const {
    std::uint64_t version = version_.load(std::memory_order_acquire);
    for (unsigned spins = 0; held(version); ++spins) {
      if (spins >= P::kPatience && P::heavy_fence()) break;
      P::pause(spins);
      version = version_.load(std::memory_order_acquire);
    }
    return version;
  }
  // Whether what was read since enter() belongs together.
  bool unchanged(std::uint64_t version) const {
    return version_.load(std::memory_order_acquire) == version;
  }

 private:
  typename P::template Atomic<std::uint64_t> version_{0};
};

}  // namespace perdure::phast
