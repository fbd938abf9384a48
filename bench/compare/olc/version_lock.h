// The lock of a node with optimistic lock coupling (Leis, Haubenschild and Neumann, IEEE Data Eng.
// Bull. 42(1), 2019). A reader takes no lock: it notes the version, reads, and checks that the
// version is the same. A writer locks by raising the version, and raises it again when it unlocks.
//
// Readers read while writers write. Therefore each field of a node is read by get() and written by
// put(); a reader believes what it has read only after check().
#pragma once

#include <emmintrin.h>

#include <atomic>
#include <cstdint>

namespace perdure::bench::olc {

template <class T>
T get(const T& field) noexcept {
  return std::atomic_ref(const_cast<T&>(field)).load(std::memory_order_acquire);
}
template <class T>
void put(T& field, T value) noexcept {
  std::atomic_ref(field).store(value, std::memory_order_release);
}

// A function that returns false has failed: its caller starts again at the root.
class VersionLock {
 public:
  // Waits while a writer holds the lock. False: the node was replaced.
  bool read(std::uint64_t& version) const noexcept {
    version = word_.load(std::memory_order_acquire);
    while ((version & kLocked) != 0) {
      _mm_pause();
      version = word_.load(std::memory_order_acquire);
    }
    return (version & kObsolete) == 0;
  }
  // Whether nothing was written since read() returned `version`.
  bool check(std::uint64_t version) const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    return word_.load(std::memory_order_relaxed) == version;
  }
  // Locks the node if nothing was written since.
  bool upgrade(std::uint64_t version) noexcept {
    return word_.compare_exchange_strong(version, version + kLocked, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  void unlock() noexcept { word_.fetch_add(kLocked, std::memory_order_release); }
  // The node is no longer part of the tree.
  void unlock_obsolete() noexcept {
    word_.fetch_add(kLocked + kObsolete, std::memory_order_release);
  }

 private:
  static constexpr std::uint64_t kObsolete = 1;
  static constexpr std::uint64_t kLocked = 2;

  std::atomic<std::uint64_t> word_ = 4;
};

}  // namespace perdure::bench::olc
