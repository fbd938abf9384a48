// Locks in words of a baseline's nodes, which lie in the heap, as in the authors' code.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "evaluation/in_heap.h"

namespace perdure::paper {

// A thread that waits gives its core away now and then: the holder may have none.
class Backoff {
 public:
  void pause() noexcept {
    if (++spins_ % 64 == 0) std::this_thread::yield();
  }

 private:
  std::uint32_t spins_ = 0;
};

// 0: free; kWriter: one writer; else the number of readers.
class SharedWordLock {
 public:
  explicit SharedWordLock(Word& word) noexcept : word_(word) {}
  void lock() noexcept {
    for (Backoff backoff; !try_lock(); backoff.pause()) {
    }
  }
  bool try_lock() noexcept {
    Word free = 0;
    return word_.compare_exchange_strong(free, kWriter, std::memory_order_acquire);
  }
  void unlock() noexcept { word_.store(0, std::memory_order_release); }
  void lock_shared() noexcept {
    for (Backoff backoff;; backoff.pause()) {
      Word readers = word_.load(std::memory_order_relaxed);
      if (readers != kWriter &&
          word_.compare_exchange_weak(readers, readers + 1, std::memory_order_acquire)) {
        return;
      }
    }
  }
  void unlock_shared() noexcept { word_.fetch_sub(1, std::memory_order_release); }

 private:
  static constexpr Word kWriter = ~Word{0};
  std::atomic_ref<Word> word_;
};

}  // namespace perdure::paper
