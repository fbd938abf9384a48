// Arena<T>: an array that grows without moving, in DRAM, on huge pages where the system has them.
//
// Address space for `capacity` elements is reserved at once; memory is taken as elements are
// touched. What costs an index time is TLB and cache misses, so nodes are named by number and lie
// densely. Thread safety: operator[] from any thread; reserve and release by one.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "perdure/status.h"

namespace perdure {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Zeroed DRAM, reserved but not yet taken; null if the address space is refused.
inline void* reserve_dram(std::size_t bytes) noexcept {
  if (bytes < kHugePage) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
  }
  // Over-reserve so that the start can be aligned to a huge page, then give the ends back.
  const std::size_t padded = bytes + kHugePage;
  void* p = mmap(nullptr, padded, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(p);
  const auto aligned = (begin + kHugePage - 1) & ~(kHugePage - 1);
  if (aligned > begin) munmap(p, aligned - begin);
  const std::size_t tail = padded - (aligned - begin) - bytes;
  if (tail >= std::size_t{4096}) {
    const auto end = (aligned + bytes + std::size_t{4096} - 1) & ~(std::size_t{4096} - 1);
    munmap(reinterpret_cast<void*>(end), begin + padded - end);
  }
  madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(aligned);
}

template <class T>
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { release(); }

  Status reserve(std::size_t capacity) noexcept {
    release();
    bytes_ = capacity * sizeof(T);
    data_ = static_cast<T*>(reserve_dram(bytes_));
    if (data_ == nullptr) {
      return Status::format(StatusCode::out_of_memory,
                            "cannot reserve %zu bytes of address space; raise RLIMIT_AS or lower "
                            "the pool's max_size",
                            bytes_);
    }
    capacity_ = capacity;
    return {};
  }
  void release() noexcept {
    if (data_ != nullptr) munmap(static_cast<void*>(data_), bytes_);
    data_ = nullptr;
    capacity_ = 0;
  }

  T& operator[](std::size_t i) const noexcept { return data_[i]; }
  T* data() const noexcept { return data_; }
  std::size_t capacity() const noexcept { return capacity_; }

 private:
  T* data_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace perdure
