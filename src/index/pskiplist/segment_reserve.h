// SegmentReserve: a few segments that are kept for erases in a full pool.
//
// While a closed version has the key, an erase appends an entry and so takes space. Without space
// it would fail, and trim, which makes room, would have less to give back. So some segments of the
// smallest size are allocated ahead, while there is room. Only an erase that failed with
// `pool_full` gets one. Nothing in the pool names them: after a crash the sweep frees them.
// PROGRESS  One latch. It is held while blocks are allocated, which may take an extent. A tag does
//   not wait for it, and does not try again in a full pool before something has been freed.
#pragma once

#include <cstdint>

#include "heap/heap.h"
#include "index/pskiplist/layout.h"

namespace perdure::pskiplist {

template <class T>
class SegmentReserve {
  using P = typename T::Platform;
  static constexpr std::uint32_t kMost = T::Geometry::kReservedSegments;

 public:
  explicit SegmentReserve(Heap<P>& heap) : heap_(heap) {}
  SegmentReserve(const SegmentReserve&) = delete;
  SegmentReserve& operator=(const SegmentReserve&) = delete;

  // Call it after an allocation has succeeded: there is room. Does nothing if the reserve is full.
  void refill() {
    if (count() == kMost) [[likely]]
      return;
    LatchGuard guard(latch_);
    fill();
  }
  // Best-effort refill; never waits for the latch.
  void try_refill() {
    if (count() == kMost) [[likely]]
      return;
    if (refused_.load(std::memory_order_relaxed) || !latch_.try_lock()) return;
    fill();
    latch_.unlock();
  }
  // Returns how many segments refill() would allocate.
  std::uint32_t missing() const { return kMost - count(); }
  // Something was freed.
  void room() {
    if (refused_.load(std::memory_order_relaxed)) refused_.store(false, std::memory_order_relaxed);
  }
  // Returns a segment, durably zero, or 0.
  std::uint64_t take() {
    LatchGuard guard(latch_);
    if (count() == 0) return 0;
    const std::uint32_t n = count() - 1;
    count_.store(n, std::memory_order_relaxed);
    return blocks_[n];
  }
  template <class F>
  void for_each(F&& visit) {
    LatchGuard guard(latch_);
    for (std::uint32_t n = 0; n < count(); ++n) visit(blocks_[n]);
  }

 private:
  std::uint32_t count() const { return count_.load(std::memory_order_relaxed); }
  void fill() {
    for (std::uint32_t n = count(); n < kMost; ++n) {
      auto block =
          heap_.allocate(entry_offset(0, T::Geometry::kFirstEntries), BlockKind::zero_on_free);
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
