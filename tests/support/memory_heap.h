// HeapFixture: a Heap<RealPlatform> over ordinary memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include "heap/heap.h"
#include "perdure/pool.h"
#include "platform/real_platform.h"

namespace perdure::test {

class MemoryStorage final : public Storage {
 public:
  explicit MemoryStorage(std::uint64_t bytes) : bytes_(bytes) {
    base_ = static_cast<std::byte*>(std::aligned_alloc(1 << 16, bytes));
    std::memset(base_, 0, bytes);
  }
  ~MemoryStorage() override { std::free(base_); }
  std::byte* base() const noexcept override { return base_; }
  std::uint64_t size() const noexcept override { return bytes_; }
  std::uint64_t capacity() const noexcept override { return bytes_; }
  Status allocate(std::uint64_t offset, std::uint64_t) noexcept override {
    return offset < full_below ? StatusCode::pool_full : StatusCode::ok;
  }
  Status punch(std::uint64_t offset, std::uint64_t length) noexcept override {
    std::memset(base_ + offset, 0, length);
    punched += length;
    return {};
  }
  Status sync(std::uint64_t, std::uint64_t) noexcept override { return {}; }

  std::uint64_t punched = 0;
  std::uint64_t full_below = 0;  // holes below this cannot be filled: others took the space

 private:
  std::uint64_t bytes_;
  std::byte* base_;
};

inline constexpr std::uint64_t kExtent = 64_KiB;

// A heap of at most `max` extents. It grows by what is needed.
class HeapFixture : public HeapHost {
 public:
  explicit HeapFixture(std::uint64_t max, std::uint64_t extents = 1)
      : storage((max + 1) * kExtent), max_(max), extents_(extents) {
    platform.configure(FlushMode::cache_line, best_flush_instruction(), 0);
    attach();
  }
  // As a new process. `reads_later`: the extent table is not read yet.
  void attach(bool reads_later = false) {
    epochs = std::make_unique<EpochDomain<RealPlatform>>(platform);
    heap = std::make_unique<Heap<RealPlatform>>(platform, storage, *epochs);
    const HeapGeometry geometry{
        .extent_bytes = kExtent, .table_offset = 0, .data_offset = kExtent, .max_extents = max_};
    EXPECT_TRUE(heap->attach(geometry, extents_, *this).ok());
    EXPECT_TRUE((reads_later ? heap->begin_sweep_unread(false) : heap->begin_sweep()).ok());
  }
  Expected<std::uint64_t> grow(std::uint64_t extents) noexcept override {
    if (extents_ + extents > max_) return fail(StatusCode::pool_full);
    return extents_ += extents;
  }
  bool help_sweep() override { return help && help(); }

  std::function<bool()> help;

  RealPlatform platform;
  MemoryStorage storage;
  std::unique_ptr<EpochDomain<RealPlatform>> epochs;
  std::unique_ptr<Heap<RealPlatform>> heap;

 private:
  std::uint64_t max_;
  std::uint64_t extents_;
};

}  // namespace perdure::test
