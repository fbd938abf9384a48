// BiasedLatch: a latch for state that its owner uses all the time, and other threads seldom.
//
// WHAT  The owner locks and unlocks with plain stores. Another thread pays for that with a heavy
//   fence, which interrupts the cores of the process (see epoch.h for its cost).
// INVARIANT  At most one thread is inside.
// ORDERING
//   Each side stores its flag, passes a fence and loads the flag of the other: the owner `held_`
//   and a light fence, an outsider `wanted_` and a heavy one. So at least one of them sees the
//   other. The owner gives way, because an outsider waits for an owner that is inside already.
//   Every release is a release store of the flag that the other side loads with acquire.
// PROGRESS  blocking. The owner waits for one outsider at a time.
#pragma once

#include "platform/platform.h"

namespace perdure {

template <Platform P>
class BiasedLatch {
 public:
  // Only the owner: the thread of the slot that the latch belongs to.
  [[gnu::always_inline]] void lock() noexcept {
    held_.store(true, std::memory_order_relaxed);
    P::light_fence();
    if (wanted_.load(std::memory_order_acquire)) [[unlikely]]
      give_way();
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

  // Any other thread. Returns false, without the latch, if the system refused the heavy fence.
  [[nodiscard]] bool lock_outside() noexcept {
    outsiders_.lock();
    wanted_.store(true, std::memory_order_relaxed);
    if (!P::heavy_fence() && !P::full_light_fences()) {
      unlock_outside();
      return false;
    }
    for (unsigned spins = 0; held_.load(std::memory_order_acquire);) P::pause(spins++);
    return true;
  }
  void unlock_outside() noexcept {
    wanted_.store(false, std::memory_order_release);
    outsiders_.unlock();
  }

 private:
  [[gnu::noinline]] void give_way() noexcept {
    do {
      held_.store(false, std::memory_order_release);
      for (unsigned spins = 0; wanted_.load(std::memory_order_relaxed);) P::pause(spins++);
      held_.store(true, std::memory_order_relaxed);
      P::light_fence();
    } while (wanted_.load(std::memory_order_acquire));
  }

  typename P::template Atomic<bool> held_{false};
  typename P::template Atomic<bool> wanted_{false};
  typename P::Latch outsiders_;
};

}  // namespace perdure
