// AfterKill: what a killed process left visible is made durable while the pool serves (X1, lazily).
//
// WHAT  After a kill the last stores of the dead process are visible, but not all are durable, and
//   neither recovery nor an answer may rest on what a power failure would take away. A pool with a
//   map that reads everything at open is written back as a whole before that
//   (PoolCore::write_back_all). Where all maps restart at once the extents are written back one by
//   one: in the background, and before an answer rests on one (settle). Headers, root directory and
//   extent table are small and always come first.
// INVARIANTS
//   pool.K1  (C) What an operation that returned has seen or told lies in settled extents, or was
//       stored since the open, under the engine's own rules: it is durable.
//   pool.K2  (C) Nothing is freed, reused or taken for unreachable on account of what an unsettled
//       extent says: the sweep settles everything before it marks (OpenSweep).
//   pool.K3  (DRAM) The bit of an extent is cleared after the thread that clears it has fenced the
//       write-back of all its lines. Extents that were free at open have none: what is stored there
//       later is this process's own.
// CRASHES  The bits are DRAM. A kill in the middle: the next open begins with all of them again. A
//   power failure after that: what was told by either process was durable when it was told
//   (pool.K1); what nobody asked for may be lost, as if the dead process's last operations, which
//   had not returned or whose results nobody saw, had not been. Close and a sync settle everything
//   first, so neither a checksum that close writes nor a seal speaks of content that is not
//   durable.
// ORDERING  pending  cleared (release) after the fence; read (acquire) before an answer is told.
//           left     as pending, for all at once: 0 is what everybody sees most of the time.
// PROGRESS  settle() of an extent that is pending costs its lines and a fence, some ten
//   microseconds for 64 KiB; several threads may do the same one. No latch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "heap/heap.h"
#include "platform/platform.h"
#include "util/arena.h"

namespace perdure {

template <Platform P>
class AfterKill {
 public:
  AfterKill(P& platform, Heap<P>& heap) noexcept : platform_(platform), heap_(heap) {}
  AfterKill(const AfterKill&) = delete;
  AfterKill& operator=(const AfterKill&) = delete;

  // From now on every extent that is assigned is pending. Nobody else knows the pool yet.
  Status begin() noexcept {
    PERDURE_ASSERT(P, "pool.K2", heap_.sweeping());
    PERDURE_ASSERT(P, "pool.K3", extents_ == 0);
    first_ = heap_.data_offset();
    extents_ = heap_.extent_count();
    if (Status s = pending_.reserve(extents_ / 64 + 1); !s.ok()) return s;
    std::uint64_t count = 0;
    heap_.for_each_assigned([&](const std::byte* p, std::uint64_t bytes) {
      const auto begin = number_of(static_cast<std::uint64_t>(p - heap_.template at<std::byte>(0)));
      for (std::uint64_t i = begin; i < begin + bytes / heap_.extent_bytes(); ++i, ++count) {
        pending_[i / 64].fetch_or(1ULL << (i % 64), std::memory_order_relaxed);
      }
    });
    left_.store(count, std::memory_order_release);
    return {};
  }

  // Before an answer, or a store, rests on [offset, offset + n): false if the pool is poisoned.
  [[gnu::always_inline]] bool settle(std::uint64_t offset, std::size_t n) noexcept {
    if (done()) [[likely]]
      return true;
    return settle_extents(number_of(offset), number_of(offset + std::max<std::size_t>(n, 1) - 1));
  }
  // Everything is durable that was left.
  bool done() const noexcept { return left_.load(std::memory_order_acquire) == 0; }

  // A bounded step in the background; one thread at a time.
  bool settle_some() noexcept {
    const std::uint64_t many = std::max<std::uint64_t>(kStepBytes / heap_.extent_bytes(), 1);
    const std::uint64_t end = std::min(cursor_ + many, extents_);
    if (done() || cursor_ == end) return true;
    if (!settle_extents(cursor_, end - 1)) return false;
    cursor_ = end;
    return true;
  }
  // For close and sync.
  bool settle_all() noexcept { return done() || settle_extents(0, extents_ - 1); }

 private:
  static constexpr std::uint64_t kStepBytes = std::uint64_t{512} << 10;

  std::uint64_t number_of(std::uint64_t offset) const noexcept {
    return (offset - first_) / heap_.extent_bytes();
  }
  bool is_pending(std::uint64_t extent) const noexcept {
    return (pending_[extent / 64].load(std::memory_order_acquire) >> (extent % 64) & 1) != 0;
  }
  [[gnu::noinline]] bool settle_extents(std::uint64_t first, std::uint64_t last) noexcept {
    last = std::min(last, extents_ - 1);  // what lies behind is younger than the open
    bool wrote = false;
    for (std::uint64_t i = first; i <= last; ++i) {
      if (!is_pending(i)) continue;
      platform_.flush(heap_.template at<std::byte>(first_ + i * heap_.extent_bytes()),
                      heap_.extent_bytes(), "pool.settle.extent"_site);
      wrote = true;
    }
    if (!wrote) return !platform_.poisoned();
    if (!platform_.fence("pool.settle.extent"_site)) return false;
    for (std::uint64_t i = first; i <= last; ++i) clear(i);
    return true;
  }
  void clear(std::uint64_t extent) noexcept {
    const std::uint64_t bit = 1ULL << (extent % 64);
    if (!is_pending(extent)) return;
    if ((pending_[extent / 64].fetch_and(~bit, std::memory_order_acq_rel) & bit) != 0) {
      left_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  P& platform_;
  Heap<P>& heap_;
  std::uint64_t first_ = 0;                                    // offset of the first extent
  std::uint64_t extents_ = 0;                                  // at open
  std::uint64_t cursor_ = 0;                                   // of settle_some
  Arena<typename P::template Atomic<std::uint64_t>> pending_;  // bit per extent
  typename P::template Atomic<std::uint64_t> left_{0};
};

}  // namespace perdure
