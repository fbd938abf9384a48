// SegmentReserve: a few segments kept for erases, which append, for when the pool is full.
//
// A version that is closed keeps the key, so its erase takes space; without any it could not be
// done, and trim, which makes room, would have less to give back. So some segments of the smallest
// size are taken ahead, where there is room, and only an erase that was told `pool_full` gets one.
// Nothing names them: after a crash the sweep has them.
// PROGRESS  a latch; held while blocks are allocated, which may take an extent. A tag does not wait
//   for it, and does not ask a full pool again before something has been freed.
#pragma once

#include <cstdint>

#include "heap/heap.h"
#include "index/pskiplist/layout.h"

namespace perdure::pskiplist {

template <Platform P, class G>
class SegmentReserve {
 public:
  static constexpr std::uint32_t kMost = G::kReservedSegments;
  static constexpr std::size_t kBytes =
      sizeof(layout::Segment) + G::kFirstEntries * sizeof(layout::Entry);

  explicit SegmentReserve(Heap<P>& heap) noexcept : heap_(heap) {}
  SegmentReserve(const SegmentReserve&) = delete;
  SegmentReserve& operator=(const SegmentReserve&) = delete;

  // For who has just been given a block: there is room. Takes none if it has enough.
  void refill() noexcept {
    if (count_.load(std::memory_order_relaxed) == kMost) [[likely]]
      return;
    LatchGuard guard(latch_);
    fill();
  }
  // For who can do without, and does not know.
  void try_refill() noexcept {
    if (count_.load(std::memory_order_relaxed) == kMost) [[likely]]
      return;
    if (refused_.load(std::memory_order_relaxed) || !latch_.try_lock()) return;
    fill();
    latch_.unlock();
  }
  // Something was freed.
  void room() noexcept {
    if (refused_.load(std::memory_order_relaxed)) refused_.store(false, std::memory_order_relaxed);
  }
  // A segment, durably zero, or 0.
  std::uint64_t take() noexcept {
    LatchGuard guard(latch_);
    if (count() == 0) return 0;
    const std::uint32_t n = count() - 1;
    count_.store(n, std::memory_order_relaxed);
    return blocks_[n];
  }
  template <class F>
  void for_each(F&& visit) noexcept {
    LatchGuard guard(latch_);
    for (std::uint32_t n = 0; n < count(); ++n) visit(blocks_[n]);
  }

 private:
  std::uint32_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  void fill() noexcept {
    for (std::uint32_t n = count(); n < kMost; ++n) {
      auto block = heap_.allocate(kBytes, BlockKind::zero_on_free);
      refused_.store(!block, std::memory_order_relaxed);
      if (!block) return;
      blocks_[n] = *block;
      count_.store(n + 1, std::memory_order_relaxed);
    }
  }

  Heap<P>& heap_;
  typename P::Latch latch_;
  typename P::template Atomic<std::uint32_t> count_{0};
  typename P::template Atomic<bool> refused_{false};
  std::uint64_t blocks_[kMost] = {};
};

}  // namespace perdure::pskiplist
