// Sweep: marks and the recovery of the free lists. Responsible for heap.I4, and for heap.I2 of
// blocks that no map reaches.
#pragma once

#include <utility>

#include "heap/thin.h"

namespace perdure::heap {

template <Platform P>
class Sweep : public Thin<P> {
  using Base = Thin<P>;

 public:
  using Base::Base, Base::sweeping;

  // From now on no block of the old extents is allocated until it is marked. Reads the extent
  // table, or leaves that to read_some(). `settles`: a killed process may have left words of the
  // table that are not durable.
  Status begin_sweep() {
    Status s = begin_sweep_unread(false);
    return s.ok() ? this->read_table() : s;
  }
  Status begin_sweep_unread(bool settles) {
    sweeping_.store(true, std::memory_order_release);
    return this->begin_table(settles);
  }
  // Declares a block reachable. Thread-safe. corruption: no such block, or reached twice.
  [[gnu::noinline]] Status mark(std::uint64_t offset) noexcept {
    std::uint64_t number = 0;
    std::uint32_t block = 0;
    if (Status s = this->locate(offset, number, block); !s.ok()) return s;
    if (!this->touch(number)) return this->damaged(number);
    // A map that was made since the open has allocated its blocks already, also during a sweep.
    if (!sweeping() || !extents_[number].has(kTouched)) return {};
    const std::uint64_t bit = 1ULL << (block % 64);
    const std::uint64_t before =
        bits_of(extents_[number])[block / 64].fetch_or(bit, std::memory_order_acq_rel);
    if (!matches<P>((before & bit) == 0, "heap.mark.once"_site)) return this->twice(offset);
    return {};
  }
  template <FixedString Name>
  Status mark(std::uint64_t offset, Site<Name> site) {
    return P::runs(site) ? mark(offset) : Status();
  }
  // Prefetches what mark() writes for a block of a class with few blocks per extent.
  void prefetch_mark(std::uint64_t offset) const {
    __builtin_prefetch(&extents_[this->extent_of(offset)], 1);
  }
  // mark() for a map that serves already; idempotent. corruption: no such block.
  [[gnu::noinline]] Status mark_serving(std::uint64_t offset) noexcept {
    std::uint64_t number = 0;
    std::uint32_t block = 0;
    if (Status s = this->locate(offset, number, block); !s.ok()) return s;
    if (!this->touch(number)) return this->damaged(number);
    if (!extents_[number].has(kTouched)) return {};
    bits_of(extents_[number])[block / 64].fetch_or(1ULL << (block % 64), std::memory_order_acq_rel);
    return {};
  }
  template <FixedString Name>
  Status mark_serving(std::uint64_t offset, Site<Name> site) {
    return P::runs(site) ? mark_serving(offset) : Status();
  }
  // Whether the sweep will free the block unless it is marked. If so, no thread has allocated it
  // since the open.
  bool unmarked(std::uint64_t offset) {
    std::uint64_t number = 0;
    std::uint32_t block = 0;
    return this->locate(offset, number, block).ok() && this->touch(number) &&
           extents_[number].has(kTouched) &&
           !Base::is_set(bits_of(extents_[number]), block, std::memory_order_acquire);
  }
  // The same before a reference is copied or removed while a sweep runs (heap.I4); idempotent.
  void mark_copied(std::uint64_t offset) {
    if (sweeping()) (void)mark_serving(offset);
  }
  // Builds the free lists. `complete` is false if some map could not be enumerated.
  Status end_sweep(bool complete) {
    auto more = sweep_some(complete, ~std::uint64_t{0});
    return more ? Status() : std::move(more.error());
  }
  // Sweeps up to `extents` more extents. True: there are more. One thread at a time.
  [[gnu::noinline]] Expected<bool> sweep_some(bool complete, std::uint64_t extents) {
    if (!sweeping()) return false;
    if (Status s = this->read_table(); !s.ok()) return fail(std::move(s));
    const std::uint64_t count = extent_count_.load(std::memory_order_relaxed);
    const std::uint64_t end = std::min(count, sweep_cursor_ + std::min(extents, count));
    for (; sweep_cursor_ < end; ++sweep_cursor_) {
      if (!extents_[sweep_cursor_].has(kTouched)) continue;
      Status s = sweep_extent(static_cast<std::uint32_t>(sweep_cursor_), complete);
      if (!s.ok()) return fail(std::move(s));
    }
    if (end < count) return true;
    sweeping_.store(false, std::memory_order_release);
    this->tell_space_freed();
    return false;
  }

 protected:
  using Base::bits_of, Base::blocks_in, Base::extent_count_, Base::extent_latch_, Base::extents_,
      Base::kTouched, Base::list_of, Base::offset_of, Base::platform_, Base::release_extent;
  using typename Base::Bits, typename Base::ClassList, typename Base::Extent;

 private:
  using Base::sweep_cursor_, Base::sweeping_;

  // Turns one touched slab's marks into free blocks. The class latch is held: a concurrent free()
  // clears its mark before this, or frees normally after it. heap.I2: an unreachable block that
  // looks alive is made durably dead before it can be handed out.
  [[gnu::noinline]] Status sweep_slab(std::uint32_t number, bool complete, std::uint32_t& free) {
    Extent& extent = extents_[number];
    const std::uint32_t blocks = blocks_in(extent);
    const std::uint32_t size = kClassSizes[extent.size_class];
    Bits* bits = bits_of(extent);
    std::uint32_t used = 0;
    bool wrote = false;
    for (std::uint32_t b = 0; b < blocks; ++b) {
      if (!complete) bits[b / 64].fetch_or(1ULL << (b % 64), std::memory_order_relaxed);
      if (Base::is_set(bits, b, std::memory_order_acquire)) {
        ++used;
        continue;
      }
      if (extent.kind == BlockKind::plain) continue;
      if (!P::runs("heap.sweep.dead"_site)) continue;
      auto* words = this->template at<std::uint64_t>(offset_of(number) + std::uint64_t{b} * size);
      const std::size_t count = extent.kind == BlockKind::dead_on_free ? 1 : size / 8;
      bool alive = false;
      for (std::size_t w = 0; w < count; ++w) {
        if (platform_.load(words[w]) == 0) continue;
        platform_.store(words[w], 0);
        alive = true;
      }
      if (alive) platform_.flush(words, count * 8, "heap.sweep.dead"_site);
      wrote = wrote || alive;
    }
    if (wrote && !platform_.fence("heap.sweep.dead"_site)) return StatusCode::poisoned;
    free = blocks - used;
    extent.set_count(free);
    extent.clear(kTouched);  // from here on, threads free its blocks
    return {};
  }
  [[gnu::noinline]] Status sweep_extent(std::uint32_t number, bool complete) {
    Extent& extent = extents_[number];
    if (extent.state == ExtentState::run) {
      bool reached = true;
      {
        LatchGuard guard(extent_latch_);
        extent.clear(kTouched);
        reached = extent.inline_bits.load(std::memory_order_acquire) != 0;
      }
      if (!reached && complete && P::runs("heap.sweep.run"_site)) release_extent(number);
      return {};
    }
    bool empty = false;
    {
      ClassList& list = list_of(extent.kind, extent.size_class);
      LatchGuard guard(list.latch);
      std::uint32_t free = 0;
      if (Status s = sweep_slab(number, complete, free); !s.ok()) return s;
      empty = free == blocks_in(extent) && P::runs("heap.sweep.slab"_site);
      if (free > 0 && free != blocks_in(extent) && P::runs("heap.sweep.partial"_site)) {
        this->link(list.partial, number, Base::place_of(extent.kind, extent.size_class));
      }
    }
    if (empty) release_extent(number);
    return {};
  }
};

}  // namespace perdure::heap
