// Stripe: what is under way among the keys of one stripe, and how many came and went. In DRAM.
//
// Four latches, a byte each, taken before the stores that they announce and released by a plain
// store after the fence (docs/decisions/0006). The first excludes inserts from each other. Of the
// others every update and erase takes one that is free, so that they wait for nobody: who finds
// none joins the crowd, which is counted.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure::clevel {

template <Platform P>
class Stripe {
 public:
  static constexpr std::uint32_t kInsert = 0xFF;  // an insert's own, as in_flight() is told

  // Something is under way but for what the caller has in it.
  bool in_flight(std::uint32_t own) const noexcept {
    return (latches_.load() & ~own) != 0 || crowd_.load(std::memory_order_acquire) != 0;
  }

  // How far inserts are; for unchanged(), once the caller holds their latch: nobody has inserted
  // since, nor had begun to.
  std::uint64_t look() const noexcept {
    if ((latches_.load() & kInsert) != 0) return kBusy;
    return inserted_.load(std::memory_order_acquire);
  }
  bool unchanged(std::uint64_t before) const noexcept {
    return before == inserted_.load(std::memory_order_relaxed);
  }
  void lock() noexcept {
    for (unsigned spins = 0;; P::pause(spins++)) {
      std::uint32_t word = latches_.load();
      if ((word & kInsert) == 0 && latches_.compare_exchange(word, word | kTaken)) return;
    }
  }
  void unlock(bool inserted) noexcept {
    if (inserted) {
      inserted_.store(inserted_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    latches_.release(0);
  }

  // An update or an erase begins; answers what leave() needs.
  unsigned enter() noexcept {
    for (std::uint32_t word = latches_.load();;) {
      unsigned i = 1;
      while (i < P::ByteLatches::kCount && (word >> (8 * i) & 0xFF) != 0) ++i;
      if (i == P::ByteLatches::kCount) {
        crowd_.fetch_add(1, std::memory_order_acq_rel);
        return kCrowd;
      }
      if (latches_.compare_exchange(word, word | kTaken << (8 * i))) return i;
    }
  }
  void leave(unsigned i) noexcept {
    if (i != kCrowd) return latches_.release(i);
    crowd_.fetch_sub(1, std::memory_order_release);
  }
  void count_erased() noexcept { erased_.fetch_add(1, std::memory_order_relaxed); }

  // Inserted and not erased; of what was there before the open, too.
  std::int64_t gained() const noexcept {
    return static_cast<std::int32_t>(inserted_.load(std::memory_order_relaxed) -
                                     erased_.load(std::memory_order_relaxed));
  }

 private:
  using Count = typename P::template Atomic<std::uint32_t>;
  static constexpr unsigned kCrowd = 0;
  static constexpr std::uint32_t kTaken = 1;
  static constexpr std::uint64_t kBusy = ~std::uint64_t{0};

  typename P::ByteLatches latches_;
  Count crowd_{0};
  Count inserted_{0};
  Count erased_{0};
};

}  // namespace perdure::clevel
