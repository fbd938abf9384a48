// Arena<T>: an array in DRAM that grows without moving, on huge pages if the system has them.
//
// reserve() takes address space for `capacity` elements at once; memory is taken as elements are
// touched. Nodes are named by number and lie densely, because TLB and cache misses cost an index
// most of its time.
// Thread safety: operator[] from any thread; reserve and release by one thread.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "perdure/status.h"

namespace perdure {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;
// What begins a large array is on small pages: most arrays stay short, and a huge page each would
// cost a map of one entry megabytes.
inline constexpr std::size_t kSmallStart = std::size_t{256} << 10;

struct GiveBack {
  std::size_t mapped = 0;  // bytes of the mapping; 0: malloc'ed
  void operator()(void* p) const noexcept {
    if (mapped == 0) {
      std::free(p);
    } else {
      munmap(p, mapped);
    }
  }
};
using Dram = std::unique_ptr<void, GiveBack>;

// Decides on which memory nodes the pages of a new mapping will lie. It is in
// platform/memory_nodes.cc, because the decision is one of the open pools.
void place_dram(void* p, std::size_t bytes) noexcept;

// Reserves at least `bytes` of zeroed DRAM from `begin` on; memory is taken when it is touched.
// Returns null if the address space is refused. Less than 64 KiB comes from the C library, aligned
// to a pair of cache lines. A huge page or more is on huge pages behind its start if `huge`.
inline Dram reserve_dram(std::size_t bytes, void*& begin, bool huge = true) noexcept {
  const bool small = bytes < (std::size_t{64} << 10);
  huge = huge && bytes >= kHugePage;
  const std::size_t alignment = small ? 128 : huge ? kHugePage : 1;
  const std::size_t padded = bytes + alignment - 1;
  void* p = small ? std::calloc(1, padded)
                  : mmap(nullptr, padded, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == nullptr || p == MAP_FAILED) return {};
  if (!small) place_dram(p, padded);
  const std::size_t start = huge ? kSmallStart : 0;  // it ends where a huge page begins
  const auto at = reinterpret_cast<std::uintptr_t>(p) + start;
  auto* from = reinterpret_cast<std::byte*>((at + alignment - 1) & ~(alignment - 1));
  if (huge) {
    madvise(from - start, start, MADV_NOHUGEPAGE);
    madvise(from, bytes - start, MADV_HUGEPAGE);
  }
  begin = from - start;
  return Dram(p, {small ? 0 : padded});
}

template <class T>
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `huge`: on huge pages, for elements that are touched all over.
  Status reserve(std::size_t capacity, bool huge = true) noexcept {
    release();
    const std::size_t bytes = capacity * sizeof(T);
    void* begin = nullptr;
    owned_ = reserve_dram(bytes, begin, huge);
    if (begin == nullptr) {
      return Status::format(StatusCode::out_of_memory,
                            "cannot reserve %zu bytes of address space; raise RLIMIT_AS or lower "
                            "the pool's max_size",
                            bytes);
    }
    data_ = static_cast<T*>(begin);
    capacity_ = capacity;
    return {};
  }
  void release() noexcept {
    owned_.reset();
    data_ = nullptr;
    capacity_ = 0;
  }

  T& operator[](std::size_t i) const noexcept { return data_[i]; }
  T* data() const noexcept { return data_; }
  std::size_t capacity() const noexcept { return capacity_; }

 private:
  Dram owned_;
  T* data_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace perdure
