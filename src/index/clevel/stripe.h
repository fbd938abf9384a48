// Stripe: the operations in flight on the keys of one stripe, and counts of completed ones. In
// DRAM.
//
// A stripe has four latches of one byte each. A thread takes one before the stores that it
// announces, and releases it by a plain store after the fence (docs/decisions/0006). The first
// latch excludes inserts from each other. An update or erase takes any of the other three that is
// free, so it never waits for one: if none is free, it joins the crowd, which is a counter. An
// erase with a condition takes the first latch, marks it, and waits until the others are free.
// Threads that come later wait for it.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure::clevel {

template <Platform P>
class Stripe {
 public:
  static constexpr std::uint32_t kInsert = 0xFF;  // the insert latch, for in_flight()

  // Returns whether an operation is in flight. `own` masks the caller's own latch.
  [[gnu::always_inline]] bool in_flight(std::uint32_t own) const {
    return (latches_.load() & ~own) != 0 || crowd_.load(std::memory_order_acquire) != 0;
  }

  // Returns the number of inserts. unchanged(look()) under the insert latch is true if no insert
  // has completed since look(), and none was in flight then.
  [[gnu::always_inline]] std::uint64_t look() const {
    if ((latches_.load() & kInsert) != 0) return kBusy;
    return inserted_.load(std::memory_order_acquire);
  }
  [[gnu::always_inline]] bool unchanged(std::uint64_t before) const {
    return before == inserted_.load(std::memory_order_relaxed);
  }
  [[gnu::always_inline]] void lock() {
    for (unsigned spins = 0;; P::pause(spins++)) {
      std::uint32_t word = latches_.load();
      if ((word & kInsert) == 0 && latches_.compare_exchange(word, word | kTaken)) return;
    }
  }
  bool try_lock() {
    std::uint32_t word = latches_.load();
    return (word & kInsert) == 0 && latches_.compare_exchange(word, word | kTaken);
  }
  [[gnu::always_inline]] void unlock(bool inserted) {
    if (inserted) {
      inserted_.store(inserted_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    latches_.release(0);
  }

  // Begins an update or an erase. Sets the argument for leave(). Returns false if another thread is
  // alone in the stripe.
  [[gnu::always_inline]] bool try_enter(unsigned& place) {
    for (std::uint32_t word = latches_.load();;) {
      if ((word & kInsert) == kAlone) return false;
      unsigned i = 1;
      while (i < P::ByteLatches::kCount && (word >> (8 * i) & 0xFF) != 0) ++i;
      place = i;
      if (i == kCrowd) return join_crowd();
      if (latches_.compare_exchange(word, word | kTaken << (8 * i))) return true;
    }
  }
  [[gnu::always_inline]] unsigned enter() {
    unsigned place = 0;
    for (unsigned spins = 0; !try_enter(place);) P::pause(spins++);
    return place;
  }
  // Begins an erase that no insert, update or other erase of the stripe overlaps.
  unsigned enter_alone() {
    for (unsigned spins = 0;; P::pause(spins++)) {
      std::uint32_t word = latches_.load();
      if ((word & kInsert) == 0 && latches_.compare_exchange(word, word | kAlone)) break;
    }
    for (unsigned spins = 0; in_flight(kInsert);) P::pause(spins++);
    return 0;
  }
  [[gnu::always_inline]] void leave(unsigned place) {
    if (place != kCrowd) [[likely]]
      return latches_.release(place);
    crowd_.fetch_sub(1, std::memory_order_release);
  }
  void count_erased() { erased_.fetch_add(1, std::memory_order_relaxed); }

  // Returns the inserts less the erases since the open. Erases of older entries count, too.
  std::int64_t gained() const {
    return static_cast<std::int32_t>(inserted_.load(std::memory_order_relaxed) -
                                     erased_.load(std::memory_order_relaxed));
  }

 private:
  using Count = typename P::template Atomic<std::uint32_t>;
  static constexpr unsigned kCrowd = P::ByteLatches::kCount;  // as a place; others are latches
  static constexpr std::uint32_t kTaken = 1;
  static constexpr std::uint32_t kAlone = 3;

  // enter_alone() marks its latch, then looks at the crowd. This raises the crowd, then looks at
  // the mark: one of the two sees the other, because both begin with a locked instruction.
  [[gnu::noinline]] bool join_crowd() {
    crowd_.fetch_add(1, std::memory_order_seq_cst);
    if ((latches_.load() & kInsert) != kAlone) return true;
    crowd_.fetch_sub(1, std::memory_order_release);
    return false;
  }
  static constexpr std::uint64_t kBusy = ~std::uint64_t{0};

  typename P::ByteLatches latches_;
  Count crowd_{0};
  Count inserted_{0};
  Count erased_{0};
};

}  // namespace perdure::clevel
