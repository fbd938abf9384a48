// MemoryHeap: the heap of a pool over DRAM without a file, for measurements of blocks and tables.
#pragma once

#include <cstdint>
#include <cstring>

#include "heap/heap.h"
#include "platform/real_platform.h"
#include "util/arena.h"

namespace perdure::bench {

// All space is there and touched from the start, because growth and page faults are costs of the
// medium.
template <Platform P>
class BasicMemoryHeap final : private Storage, private HeapHost {
 public:
  // Call it once, before any other. Errors: out_of_memory.
  Status open(std::uint64_t extent_bytes, std::uint64_t extents) noexcept {
    const std::uint64_t table = (extents * 8 + extent_bytes - 1) / extent_bytes * extent_bytes;
    if (Status s = arena_.reserve(table + extents * extent_bytes); !s.ok()) return s;
    std::memset(arena_.data(), 0, arena_.capacity());
    const HeapGeometry geometry{
        .extent_bytes = extent_bytes, .data_offset = table, .max_extents = extents};
    if (Status s = heap_.attach(geometry, extents, *this); !s.ok()) return s;
    if (Status s = heap_.begin_sweep(); !s.ok()) return s;
    return heap_.end_sweep(true);
  }
  P& platform() noexcept { return platform_; }
  EpochDomain<P>& epochs() noexcept { return epochs_; }
  Heap<P>& heap() noexcept { return heap_; }

 private:
  std::byte* base() const noexcept override { return arena_.data(); }
  std::uint64_t size() const noexcept override { return arena_.capacity(); }
  std::uint64_t capacity() const noexcept override { return arena_.capacity(); }
  Status allocate(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  Status punch(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  Status sync(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  Expected<std::uint64_t> grow(std::uint64_t) noexcept override {
    return fail(StatusCode::pool_full);
  }

  Arena<std::byte> arena_;
  P platform_;
  EpochDomain<P> epochs_{platform_};
  Heap<P> heap_{platform_, *this, epochs_};
};
using MemoryHeap = BasicMemoryHeap<RealPlatform>;

}  // namespace perdure::bench
