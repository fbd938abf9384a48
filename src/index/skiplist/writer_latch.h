// WriterLatch: the latch of a stripe, and of the walk behind an open. For assertions it knows the
// thread that holds it. If the Platform has no assertions, it is a plain Latch.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "platform/platform.h"

namespace perdure::skiplist {

template <Platform P>
class WriterLatch {
 public:
  void lock() {
    latch_.lock();
    note(true);
  }
  bool try_lock() {
    const bool taken = latch_.try_lock();
    note(taken);
    return taken;
  }
  void unlock() {
    if constexpr (P::kAsserts) {
      [[maybe_unused]] const typename P::Unobserved unobserved{};
      owner_.thread.store(0, std::memory_order_relaxed);
    }
    latch_.unlock();
  }
  // For assertions: whether the calling thread holds it.
  bool mine() const {
    return owner_.thread.load(std::memory_order_relaxed) == P::thread_slot() + 1;
  }

 private:
  struct Owner {
    typename P::template Atomic<std::uint32_t> thread{0};  // its slot, + 1; 0: none
  };
  struct NoOwner {};

  void note([[maybe_unused]] bool taken) {
    if constexpr (P::kAsserts) {
      [[maybe_unused]] const typename P::Unobserved unobserved{};
      if (taken) owner_.thread.store(P::thread_slot() + 1, std::memory_order_relaxed);
    }
  }

  typename P::Latch latch_;
  [[no_unique_address]] std::conditional_t<P::kAsserts, Owner, NoOwner> owner_;
};

}  // namespace perdure::skiplist
