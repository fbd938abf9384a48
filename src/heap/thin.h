// Thin: sets thin extents aside, so that maps can empty them.
//
// WHAT  Blocks that are erased here and there leave many extents half full, and only an empty one
//   can be given back. For Pool::compact(), set_aside() takes the thinnest extents of each class of
//   plain blocks out of the lists. Nothing is allocated from them until return_aside(), so they
//   only lose blocks. A map that can move a block copies it to another extent and retires it
//   (is_aside). What becomes empty is released as ever.
// WHICH  Those with the fewest blocks, as long as the free blocks of the others have room for
//   theirs: to empty them takes no new extent. And none that is 7/8 full, because to move seven
//   blocks to win the room of one does not pay. The counts may change meanwhile; then an extent
//   stays, or the pool takes a new one.
// RULES  Extents that are set aside are in a list of their own, whose holder takes no blocks
//   (heap.I5). A block that is freed in one goes to its bitmap and not into a thread's cache, from
//   where it would be allocated (Heap::free_to_bin).
// CRASHES  Nothing here is on media.
// A FULL POOL  reclaim(), which allocations try before they fail, ends it: all blocks serve again.
#pragma once

#include <algorithm>
#include <cstdint>

#include "heap/slabs.h"

namespace perdure::heap {

template <Platform P>
class Thin : public Slabs<P> {
  using Base = Slabs<P>;

 public:
  using Base::Base;

  // Sets extents aside; those of an earlier call come back first. Returns whether there are any.
  // One thread at a time; others may allocate and free.
  [[gnu::noinline]] bool set_aside() {
    this->reclaim();
    disown_extents();
    bool any = false;
    for (std::uint32_t c = 0; c < max_class_; ++c) {
      if (list_of(BlockKind::plain, c).partial.length.load(std::memory_order_relaxed) > 1) {
        any |= set_aside_of(c);
      }
    }
    // What threads took from the extents before, or freed in them.
    if (any) this->flush_caches();
    return any;
  }

 protected:
  using Base::aside_, Base::blocks_in, Base::extents_, Base::list_of, Base::max_class_,
      Base::place_of;
  using typename Base::Bin, typename Base::Cache, typename Base::ClassList, typename Base::Extent;

 private:
  static constexpr std::uint32_t kParts = 64;  // steps of how full an extent is
  static constexpr std::uint32_t kThin = kParts * 7 / 8;
  static constexpr int kMoved = 64;  // extents per hold of a thread's latch

  // Moves the extents of all threads to the lists of no thread, where all can take them.
  void disown_extents() {
    const std::uint64_t rounds = this->extent_count() / kMoved + 1;
    bool more = true;
    for (std::uint64_t round = 0; more && round < rounds; ++round) {
      more = false;
      this->for_each_cache([&](Cache& cache, std::uint32_t) {
        for (Bin* bin : cache.bins[static_cast<std::uint32_t>(BlockKind::plain)]) {
          if (bin == nullptr) continue;
          for (int i = 0; i < kMoved; ++i) {
            const std::uint32_t number = bin->partial.first.load(std::memory_order_relaxed);
            if (number == Base::kNone) break;
            this->unlink(bin->partial, number);
            this->link_unowned(number);
          }
          more |= bin->partial.first.load(std::memory_order_relaxed) != Base::kNone;
        }
      });
    }
  }
  // Calls visit(number, used, free) for the extents of a class that are in the list of no thread.
  template <class F>
  void for_each_unowned(std::uint32_t size_class, F&& visit) {
    const std::uint64_t count = this->extent_count();
    const std::uint32_t place = place_of(BlockKind::plain, size_class);
    const auto blocks = static_cast<std::uint32_t>(this->extent_bytes() / kClassSizes[size_class]);
    for (std::uint64_t i = 0; i < count; ++i) {
      const Extent& extent = extents_[i];
      if (extent.place.load(std::memory_order_acquire) != place) continue;
      const std::uint32_t free = std::min(extent.count(), blocks);
      visit(static_cast<std::uint32_t>(i), blocks - free, free);
    }
  }
  static std::uint32_t part_of(std::uint32_t used, std::uint32_t free) {
    return static_cast<std::uint32_t>(std::uint64_t{used} * kParts / (used + free));
  }
  bool set_aside_of(std::uint32_t size_class) {
    std::uint64_t used_in[kParts + 1] = {};
    std::uint64_t free_in[kParts + 1] = {};
    std::uint64_t room = 0;  // of the extents that stay
    for_each_unowned(size_class, [&](std::uint32_t, std::uint32_t used, std::uint32_t free) {
      used_in[part_of(used, free)] += used;
      free_in[part_of(used, free)] += free;
      room += free;
    });
    std::uint64_t moved = 0;
    std::uint32_t whole = 0;  // of the parts below, all extents go; of this part, as many as fit
    for (; whole < kThin && moved + used_in[whole] + free_in[whole] <= room; ++whole) {
      moved += used_in[whole];
      room -= free_in[whole];
    }
    bool any = false;
    for_each_unowned(size_class, [&](std::uint32_t number, std::uint32_t used, std::uint32_t free) {
      const std::uint32_t part = part_of(used, free);
      if (part > whole || part >= kThin) return;
      if (part == whole) {
        if (moved + used + free > room) return;
        moved += used;
        room -= free;
      }
      any |= move_aside(number, size_class);
    });
    return any;
  }
  bool move_aside(std::uint32_t number, std::uint32_t size_class) {
    ClassList& list = list_of(BlockKind::plain, size_class);
    LatchGuard guard(list.latch);
    // A thread may have taken it.
    if (extents_[number].place.load(std::memory_order_relaxed) !=
        place_of(BlockKind::plain, size_class)) {
      return false;
    }
    this->unlink(list.partial, number);
    LatchGuard aside(aside_.latch);
    this->link(aside_.partial, number, Base::kAside);
    return true;
  }
};

}  // namespace perdure::heap
