// AfterKill: what a killed process left visible is made durable while the pool serves (X1, lazily).
//
// WHAT  After a kill the last stores of the dead process are visible, but not all are durable.
//   Neither recovery nor a result may rest on content that a power failure would remove. A pool
//   with a map that reads everything at open is written back as a whole before that
//   (write_back_all in recovery.h). If all maps restart at once, the extents are written back one
//   by one: in the background, and before a result rests on one (settle). Headers and root
//   directory are small and come first. The extent table settles its words as it is read
//   (heap.I7).
// INVARIANTS
//   pool.K1  (C) What an operation that returned has read or reported lies in settled extents, or
//       was stored since the open, under the engine's own rules: it is durable.
//   pool.K2  (C) No block is freed, reused or taken for unreachable because of the content of an
//       unsettled extent: the sweep settles everything before it marks (OpenSweep).
//   pool.K3  (DRAM) A thread sets the bit of an extent after it has fenced the write-back of all
//       the extent's lines. Extents that were free at open need none: this process makes its own
//       stores there durable. While the word of an extent is unread, the extent needs a bit.
// CRASHES  The bits are DRAM. After a kill in the middle, the next open begins without any.
//   After a power failure, everything that either process reported is durable (pool.K1). Content
//   that no operation read may be lost, as if the dead process's last operations had not happened:
//   they had not returned, or nothing has read their results. Close and sync settle everything
//   first. Neither a checksum that close writes nor a seal covers content that is not durable.
// ORDERING  settled  set (release) after the fence; read (acquire) before a result is returned.
//           left     cleared (release) when all extents are settled; false most of the time.
// PROGRESS  settle() of an extent that is pending costs its lines and a fence, some ten
//   microseconds for 64 KiB; several threads may settle the same one. No latch.
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
  AfterKill(P& platform, Heap<P>& heap) : platform_(platform), heap_(heap) {}
  AfterKill(const AfterKill&) = delete;
  AfterKill& operator=(const AfterKill&) = delete;

  // From now on every extent that was assigned at open is pending. No other thread uses the pool
  // yet.
  Status begin() {
    PERDURE_ASSERT(P, "pool.K2", heap_.sweeping());
    PERDURE_ASSERT(P, "pool.K3", extents_ == 0);
    first_ = heap_.data_offset();
    extents_ = heap_.extent_count();
    if (Status s = settled_.reserve(extents_ / 64 + 1); !s.ok()) return s;
    left_.store(true, std::memory_order_release);
    return {};
  }

  // Call before a result or a store rests on [offset, offset + n). False: the pool is poisoned.
  [[gnu::always_inline]] bool settle(std::uint64_t offset, std::size_t n) {
    if (done()) [[likely]]
      return true;
    return settle_extents(number_of(offset), number_of(offset + std::max<std::size_t>(n, 1) - 1));
  }
  // Whether everything that the dead process left is durable.
  bool done() const { return !left_.load(std::memory_order_acquire); }

  // A bounded step in the background, once the extent table is read; one thread at a time.
  bool settle_some() {
    const std::uint64_t many = std::max<std::uint64_t>(kStepBytes / heap_.extent_bytes(), 1);
    const std::uint64_t end = std::min(cursor_ + many, extents_);
    if (done()) return true;
    if (!settle_extents(cursor_, end - 1)) return false;
    cursor_ = end;
    if (cursor_ == extents_) left_.store(false, std::memory_order_release);
    return true;
  }
  // For close and sync, once the extent table is read.
  bool settle_all() {
    if (done()) return true;
    if (!settle_extents(0, extents_ - 1)) return false;
    left_.store(false, std::memory_order_release);
    return true;
  }

 private:
  static constexpr std::uint64_t kStepBytes = std::uint64_t{512} << 10;

  std::uint64_t number_of(std::uint64_t offset) const {
    return (offset - first_) / heap_.extent_bytes();
  }
  bool is_pending(std::uint64_t extent) const {
    const bool settled =
        (settled_[extent / 64].load(std::memory_order_acquire) >> (extent % 64) & 1) != 0;
    return !settled && heap_.may_be_old(extent);
  }
  [[gnu::noinline]] bool settle_extents(std::uint64_t first, std::uint64_t last) {
    last = std::min(last, extents_ - 1);  // extents behind it are younger than the open
    bool wrote = false;
    for (std::uint64_t i = first; i <= last; ++i) {
      if (!is_pending(i)) continue;
      platform_.flush(heap_.template at<std::byte>(first_ + i * heap_.extent_bytes()),
                      heap_.extent_bytes(), "pool.settle.extent"_site);
      wrote = true;
    }
    if (!wrote) return !platform_.poisoned();
    if (!platform_.fence("pool.settle.extent"_site)) return false;
    for (std::uint64_t i = first; i <= last; ++i) {
      settled_[i / 64].fetch_or(1ULL << (i % 64), std::memory_order_release);
    }
    return true;
  }

  P& platform_;
  Heap<P>& heap_;
  std::uint64_t first_ = 0;                                    // offset of the first extent
  std::uint64_t extents_ = 0;                                  // at open
  std::uint64_t cursor_ = 0;                                   // of settle_some
  Arena<typename P::template Atomic<std::uint64_t>> settled_;  // bit per extent
  typename P::template Atomic<bool> left_{false};
};

}  // namespace perdure
