// Slabs: free blocks of a size class, in the threads' caches and in lists of extents. Responsible
// for heap.I3 and heap.I5.
//
// OPERATIONS
//   Only the holder of a list takes blocks of its extents. Any thread frees blocks of any extent:
//   it first raises the count, then clears the bit. So the count is never below the number of clear
//   bits, and an extent whose last block is on its way back cannot be released: the clear bit is
//   the last that a freeing thread touches, and only an extent with all bits clear is released.
//   The holder that takes the last free block (the count becomes 0) unlinks the extent first. The
//   thread that raises the count from 0 puts the extent into its own list.
#pragma once

#include <algorithm>
#include <new>
#include <utility>

#include "heap/extents.h"

namespace perdure::heap {

template <Platform P>
class Slabs : public Extents<P> {
  using Base = Extents<P>;

 public:
  using Base::Base;

  // Makes all free space usable for every class: the caches, and the empty extents that classes
  // keep. Call it when an allocation has failed with pool_full.
  void reclaim() {
    flush_caches();
    return_aside();
    release_empty();
  }
  // --- extents that are set aside (thin.h says which) ---
  bool is_aside(std::uint64_t offset) const {
    return extents_[extent_of(offset)].place.load(std::memory_order_acquire) == Base::kAside;
  }
  // Gives what is left of them back to the lists from which allocations take.
  [[gnu::noinline]] void return_aside() {
    for (;;) {
      std::uint32_t number = kNone;
      {
        LatchGuard guard(aside_.latch);
        number = aside_.partial.first.load(std::memory_order_relaxed);
        if (number == kNone) return;
        unlink(aside_.partial, number);
      }
      link_unowned(number);
    }
  }
  // From now on, an allocation of the calling thread takes a free block of a class up to
  // kMostLarger times as large if its own class has none. Only a last resort: classes would use up
  // each other's blocks.
  void take_larger(bool takes) {
    if (Cache* cache = this_cache(); cache != nullptr) cache->takes_larger = takes;
  }
  // Moves all threads' caches back to the bitmaps. Other threads may go on.
  [[gnu::noinline]] void flush_caches() {
    for_each_bin([this](std::uint32_t slot, Bin& bin) {
      return give_back(slot, &bin, bin.items, std::exchange(bin.count, 0));
    });
    tell_space_freed();
  }
  // Gives free extents back to the file system. Returns the number of bytes.
  [[gnu::noinline]] Expected<std::uint64_t> punch_free() {
    if (Status s = this->read_table(); !s.ok()) return fail(std::move(s));
    reclaim();
    std::uint64_t bytes = 0;
    Status s = visit_free(0, this->extent_count(), kLookedAt, false,
                          [&](std::uint64_t first, std::uint64_t stop) {
                            bytes += (stop - first) << extent_shift_;
                            return punch(first, stop);
                          });
    if (!s.ok()) return fail(std::move(s));
    return bytes;
  }

  // What the extents have, in bytes. Idle: free, and with space of the medium. An extent that was
  // free at the open is not counted, because it may be a hole.
  struct Space {
    std::uint64_t assigned = 0, idle = 0;
    std::uint64_t end = 0;  // so many extents are counted
  };
  // Counts more extents. Returns false at the end; after that the host is told of idle space when a
  // part of the pool has been freed again.
  [[gnu::noinline]] bool count_some(Space& all) {
    const std::uint64_t end = std::min(all.end + kLookedAt, this->extent_count());
    {
      LatchGuard guard(extent_latch_);
      for (; all.end < end; ++all.end) {
        if (is_idle(all.end)) all.idle += this->extent_bytes();
        if (this->assigned(all.end)) all.assigned += this->extent_bytes();
      }
    }
    if (end != this->extent_count()) return true;
    this->idle_step_.store(std::max(Base::kIdleStep, (end << extent_shift_) / 64),
                           std::memory_order_relaxed);
    return false;
  }
  // Gives back up to `most` bytes of the last run of at least `least` idle bytes before extent
  // `end`, which moves to where the next call goes on; 0: all were looked at. Returns the number of
  // bytes.
  [[gnu::noinline]] Expected<std::uint64_t> punch_last(std::uint64_t& end, std::uint64_t most,
                                                       std::uint64_t least) {
    const std::uint64_t most_extents = most >> extent_shift_;
    LatchGuard guard(extent_latch_);
    for (const std::uint64_t last = end - std::min(end, kLookedAt); end != last;) {
      const std::uint64_t stop = end;
      while (end != last && stop - end < most_extents && is_idle(end - 1)) --end;
      if (stop == end) {
        --end;
      } else if ((stop - end) << extent_shift_ >= least) {
        if (Status s = punch(end, stop); !s.ok()) return fail(std::move(s));
        return (stop - end) << extent_shift_;
      }
    }
    return 0;
  }

  // Calls visit(offset, length) for the extents of a range that were punched, and that are free
  // since. Meanwhile no extent is assigned.
  template <class F>
  [[gnu::noinline]] Status visit_punched(std::uint64_t offset, std::uint64_t length, F&& visit) {
    const std::uint64_t all = this->extent_count();
    const std::uint64_t begin = std::min(extent_of(std::max(offset, offset_of(0))), all);
    const std::uint64_t end = begin + std::min(length >> extent_shift_, all - begin);
    return visit_free(begin, end, 256, true, [&](std::uint64_t first, std::uint64_t stop) {
      return visit(offset_of(first), (stop - first) << extent_shift_);
    });
  }

 private:
  static constexpr std::uint64_t kLookedAt = 4096;  // extents per hold of the latch

  // The extent latch is held.
  bool is_idle(std::uint64_t extent) const {
    return this->is_read(extent) && !this->assigned(extent) &&
           !extents_[extent].has(kPunched | Base::kMaybeHole);
  }
  // Punches free extents. Their words say free, or virgin: durable since release_extent. The extent
  // latch is held.
  Status punch(std::uint64_t first, std::uint64_t stop) {
    // Then words may say "free" in the memory of this process only (live_chunks.h).
    if (this->platform_.poisoned()) return StatusCode::poisoned;
    Status s = this->storage_.punch(offset_of(first), (stop - first) << extent_shift_);
    if (!s.ok()) return s;
    for (std::uint64_t i = first; i < stop; ++i) extents_[i].set(kPunched);
    return s;
  }
  // Calls visit(first, stop) for the runs of free extents in [begin, end) that are punched, or are
  // not. `step`: extents per hold of the latch.
  template <class F>
  Status visit_free(std::uint64_t begin, std::uint64_t end, std::uint64_t step, bool punched,
                    F&& visit) {
    for (; begin < end; begin += step) {
      LatchGuard guard(extent_latch_);
      const std::uint64_t last = std::min(begin + step, end);
      const auto matches = [&](std::uint64_t i) {
        return !this->assigned(i) && extents_[i].has(kPunched) == punched;
      };
      for (std::uint64_t i = begin; i < last; ++i) {
        if (!matches(i)) continue;
        std::uint64_t stop = i + 1;
        while (stop < last && matches(stop)) ++stop;
        if (Status s = visit(i, stop); !s.ok()) return s;
        i = stop;
      }
    }
    return {};
  }

 protected:
  using Base::aside_, Base::bits_of, Base::blocks_in, Base::caches_, Base::caches_made_,
      Base::empty_elsewhere_, Base::extent_count_, Base::extent_latch_, Base::extent_of,
      Base::extent_shift_, Base::extents_, Base::is_used, Base::kBatch, Base::kNone, Base::kPunched,
      Base::kTouched, Base::list_of, Base::lists_, Base::offset_of, Base::place_of,
      Base::release_all, Base::take_extents, Base::tell_space_freed;
  using typename Base::Bin, typename Base::Bits, typename Base::Cache, typename Base::ClassList,
      typename Base::Extent, typename Base::List;

  // Returns nullptr if DRAM is short.
  [[gnu::always_inline]] Cache* this_cache() {
    Cache* cache = caches_[P::thread_slot()].load(std::memory_order_acquire);
    return cache != nullptr ? cache : make_cache();
  }
  [[gnu::noinline]] Cache* make_cache() {
    Cache* fresh = new (std::nothrow) Cache;
    if (fresh == nullptr) return nullptr;
    const std::uint32_t least = P::thread_slot() + 1;
    std::uint32_t made = caches_made_.load(std::memory_order_relaxed);
    while (made < least &&
           !caches_made_.compare_exchange_strong(made, least, std::memory_order_acq_rel)) {
    }
    caches_[least - 1].store(fresh, std::memory_order_release);  // the slot is this thread's own
    return fresh;
  }
  // The cache is latched. Returns nullptr if DRAM is short.
  Bin* bin_of(Cache& cache, BlockKind kind, std::uint32_t size_class) {
    Bin*& bin = cache.bins[static_cast<std::uint32_t>(kind)][size_class];
    if (bin == nullptr) [[unlikely]] {
      void* memory = std::malloc(sizeof(Bin));
      if (memory == nullptr) return nullptr;
      bin = new (memory) Bin;
      cache.shown[static_cast<std::uint32_t>(kind)][size_class].store(bin,
                                                                      std::memory_order_release);
    }
    return bin;
  }
  std::uint32_t batch_of(std::uint32_t size_class) const {
    const std::uint64_t quarter = this->extent_bytes() / 4 / kClassSizes[size_class];
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(quarter, 1, kBatch));
  }
  // Fills an empty bin from the thread's own extents, or from one that belongs to no thread. The
  // cache is latched. False: there are none.
  [[gnu::noinline]] bool take_listed(Bin& bin, std::uint32_t size_class, BlockKind kind) {
    const std::uint32_t slot = P::thread_slot();
    const std::uint32_t want = batch_of(size_class);
    take_from_list(slot, bin, want);
    for (std::uint32_t number = kNone; bin.count < want; take_from(slot, bin, number, want)) {
      number = take_unowned(size_class, kind);
      if (number == kNone) break;
      link(bin.partial, number, slot);
    }
    // Hands out low addresses first, because the last item comes first.
    std::reverse(bin.items, bin.items + bin.count);
    return bin.count != 0;
  }
  // A new extent, or extents of other threads, for the calling thread. It holds no latch.
  [[gnu::noinline]] Status find_extents(Cache& cache, std::uint32_t size_class, BlockKind kind) {
    const ExtentWord word{.state = ExtentState::slab,
                          .kind = kind,
                          .size_class = static_cast<std::uint8_t>(size_class)};
    auto first = take_extents(1, word, false);
    if (!first && first.error() == StatusCode::pool_full) {
      release_elsewhere();
      if (take_over(cache, size_class, kind, false)) return {};
      first = take_extents(1, word, true);
    }
    if (!first) {
      const bool taken =
          first.error() == StatusCode::pool_full && take_over(cache, size_class, kind, true);
      return taken ? Status() : std::move(first.error());
    }
    {
      LatchGuard guard(cache.latch);
      Bin* bin = bin_of(cache, kind, size_class);  // exists since the caller looked into it
      link(bin->partial, static_cast<std::uint32_t>(*first), P::thread_slot());
    }
    // Where other threads allocate: they would wait for the one that grows the file. As above, the
    // extents of others come first.
    if (caches_made_.load(std::memory_order_relaxed) > 1 && this->few_free()) {
      release_elsewhere();
      if (this->few_free() && !take_over(cache, size_class, kind, false)) this->grow_early();
    }
    return {};
  }
  // Moves extents from the lists of other threads to the list of this one. A living thread keeps
  // the extent that it takes blocks from, unless `all` is set. True: at least one was moved. The
  // latch of another thread costs a heavy fence. So it is taken only where a list looks long
  // enough, unless `all` is set: before the pool is full the truth is wanted.
  [[gnu::noinline]] bool take_over(Cache& cache, std::uint32_t size_class, BlockKind kind,
                                   bool all) {
    std::uint32_t chain = kNone;
    int taken = 0;
    for_each_other([&](std::uint32_t slot, Cache& other) {
      const bool keeps = !all && P::is_living(slot);
      if (!all && !has_spare(other, size_class, kind, keeps ? 1 : 0)) return true;
      if (!other.latch.lock_outside()) return true;
      Bin* bin = other.bins[static_cast<std::uint32_t>(kind)][size_class];
      for (; bin != nullptr && taken < kMostTaken; ++taken) {
        const std::uint32_t head = bin->partial.first.load(std::memory_order_relaxed);
        const std::uint32_t number = !keeps || head == kNone ? head : extents_[head].next;
        if (number == kNone) break;
        unlink(bin->partial, number);
        extents_[number].next = std::exchange(chain, number);
      }
      other.latch.unlock_outside();
      return taken < kMostTaken;
    });
    LatchGuard guard(cache.latch);
    Bin* bin = bin_of(cache, kind, size_class);
    while (chain != kNone) {
      link(bin->partial, std::exchange(chain, extents_[chain].next), P::thread_slot());
    }
    return taken != 0;
  }
  // Whether a cache, which is not latched, has more extents than its thread keeps.
  static bool has_spare(const Cache& cache, std::uint32_t size_class, BlockKind kind,
                        std::uint64_t kept) {
    const Bin* bin =
        cache.shown[static_cast<std::uint32_t>(kind)][size_class].load(std::memory_order_acquire);
    return bin != nullptr && bin->partial.length.load(std::memory_order_relaxed) > kept;
  }
  // Takes a block from another thread's cache, which may be its last. Returns 0 if there is none.
  // The calling thread holds no latch.
  [[gnu::noinline]] std::uint64_t steal(std::uint32_t size_class, BlockKind kind) {
    std::uint64_t block = 0;
    for_each_other([&](std::uint32_t, Cache& other) {
      if (!other.latch.lock_outside()) return true;
      Bin* bin = other.bins[static_cast<std::uint32_t>(kind)][size_class];
      if (bin != nullptr && bin->count > 0) block = bin->items[--bin->count];
      other.latch.unlock_outside();
      return block == 0;
    });
    return block;
  }
  // Releases the extents that became empty in the lists of other threads.
  void release_elsewhere() {
    if (empty_elsewhere_.load(std::memory_order_relaxed) &&
        empty_elsewhere_.exchange(false, std::memory_order_acq_rel)) {
      release_empty();
    }
  }
  // Clears the bits of freed blocks, all of one class. `bin` is the bin of the slot, whose cache is
  // latched; without one, an extent that was full goes to no thread. Returns a chain of extents
  // that became empty, for release_all() without a latch.
  [[nodiscard, gnu::noinline]] std::uint32_t give_back(std::uint32_t slot, Bin* bin,
                                                       const std::uint64_t* items,
                                                       std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) __builtin_prefetch(&extents_[extent_of(items[i])], 1);
    std::uint32_t empty = kNone;
    for (std::uint32_t i = 0; i < count;) {
      const std::uint64_t number = extent_of(items[i]);
      Extent& extent = extents_[number];
      const std::uint32_t size = kClassSizes[extent.size_class];
      const auto block_of = [&](std::uint64_t item) { return (item - offset_of(number)) / size; };
      const std::uint64_t word = block_of(items[i]) / 64;
      std::uint64_t mask = 0;  // of the items that share the word
      for (; i < count && extent_of(items[i]) == number && block_of(items[i]) / 64 == word; ++i) {
        const std::uint64_t bit = 1ULL << (block_of(items[i]) % 64);
        PERDURE_ASSERT(P, "heap.I3", is_used(items[i]) && (mask & bit) == 0);
        mask |= bit;
      }
      if (return_blocks(slot, bin, number, word, mask)) {
        extents_[number].next = std::exchange(empty, static_cast<std::uint32_t>(number));
      }
    }
    return empty;
  }
  // Calls visit(slot, cache) for the cache of each other thread until it returns false.
  template <class F>
  void for_each_other(F&& visit) {
    const std::uint32_t own = P::thread_slot();
    const std::uint32_t made = caches_made_.load(std::memory_order_acquire);
    for (std::uint32_t slot = 0; slot < made; ++slot) {
      Cache* cache = caches_[slot].load(std::memory_order_acquire);
      if (cache != nullptr && slot != own && !visit(slot, *cache)) return;
    }
  }
  // Calls visit(cache, slot) for every thread's cache, under its latch.
  template <class F>
  void for_each_cache(F&& visit) {
    const std::uint32_t own = P::thread_slot();
    if (Cache* cache = caches_[own].load(std::memory_order_acquire); cache != nullptr) {
      LatchGuard guard(cache->latch);
      visit(*cache, own);
    }
    for_each_other([&](std::uint32_t slot, Cache& cache) {
      if (!cache.latch.lock_outside()) return true;
      visit(cache, slot);
      cache.latch.unlock_outside();
      return true;
    });
  }
  // Puts an extent into a list, which is latched.
  void link(List& list, std::uint32_t number, std::uint32_t place) {
    Extent& extent = extents_[number];
    PERDURE_ASSERT(P, "heap.I5", extent.place.load(std::memory_order_relaxed) == kNone);
    const std::uint32_t head = list.first.load(std::memory_order_relaxed);
    extent.prev = kNone;
    extent.next = head;
    if (head != kNone) extents_[head].prev = number;
    list.first.store(number, std::memory_order_relaxed);
    list.length.store(list.length.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    extent.place.store(place, std::memory_order_release);
  }
  // Of an extent that is in no list.
  void link_unowned(std::uint32_t number) {
    const Extent& extent = extents_[number];
    ClassList& list = list_of(extent.kind, extent.size_class);
    LatchGuard guard(list.latch);
    link(list.partial, number, place_of(extent.kind, extent.size_class));
  }
  void unlink(List& list, std::uint32_t number) {
    Extent& extent = extents_[number];
    if (extent.prev != kNone) extents_[extent.prev].next = extent.next;
    if (extent.next != kNone) extents_[extent.next].prev = extent.prev;
    if (extent.prev == kNone) list.first.store(extent.next, std::memory_order_relaxed);
    list.length.store(list.length.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    extent.next = extent.prev = kNone;
    extent.place.store(kNone, std::memory_order_release);
  }
  // Calls visit(slot, bin) for every bin of all threads, under the latch, and releases the chains
  // of extents that it returns.
  template <class F>
  void for_each_bin(F&& visit) {
    std::uint32_t empty = kNone;
    for_each_cache([&](Cache& cache, std::uint32_t slot) {
      for (auto& row : cache.bins) {
        for (Bin* bin : row) {
          std::uint32_t chain = bin == nullptr ? kNone : visit(slot, *bin);
          while (chain != kNone) {
            const std::uint32_t number = std::exchange(chain, extents_[chain].next);
            extents_[number].next = std::exchange(empty, number);
          }
        }
      }
    });
    release_all(empty);
  }

 private:
  static constexpr int kMostTaken = 16;  // extents that a thread takes over at once

  // Frees blocks of one word of a bitmap. Returns true if the extent is empty and unlinked.
  bool return_blocks(std::uint32_t slot, Bin* bin, std::uint64_t number, std::uint64_t word,
                     std::uint64_t mask) {
    Extent& extent = extents_[number];
    // In a forged pool two references may lead to one block, and both may have been removed.
    if (extent.state != ExtentState::slab) [[unlikely]]
      return false;
    mask &= bits_of(extent)[word].load(std::memory_order_relaxed);
    const auto freed = static_cast<std::uint32_t>(__builtin_popcountll(mask));
    if (freed == 0) [[unlikely]]
      return false;
    const auto n = static_cast<std::uint32_t>(number);
    const std::uint32_t blocks = blocks_in(extent);
    const std::uint32_t of_class = place_of(extent.kind, extent.size_class);
    ClassList& list = list_of(extent.kind, extent.size_class);
    const std::uint32_t before = extent.free_count.fetch_add(freed, std::memory_order_acq_rel);
    PERDURE_ASSERT(P, "heap.I3", before + freed <= blocks);
    if (before == 0) {
      if (bin != nullptr) {
        link(bin->partial, n, slot);
      } else {
        LatchGuard guard(list.latch);
        link(list.partial, n, of_class);
      }
    }
    bits_of(extent)[word].fetch_and(~mask, std::memory_order_acq_rel);
    if (before + freed != blocks) [[likely]]
      return false;
    // From here on, the holder of the list may release the extent.
    const std::uint32_t place = extent.place.load(std::memory_order_acquire);
    if (bin != nullptr && place == slot) return unlink_empty(bin->partial, n);
    if (place == of_class || place == Base::kAside) {
      ClassList& holder = place == of_class ? list : aside_;
      LatchGuard guard(holder.latch);
      return extent.place.load(std::memory_order_relaxed) == place &&
             unlink_empty(holder.partial, n);
    }
    empty_elsewhere_.store(true, std::memory_order_relaxed);
    return false;
  }
  // Unlinks an extent of a list that is latched, if it is empty and not the last one of the list.
  bool unlink_empty(List& list, std::uint32_t number) {
    const Extent& extent = extents_[number];
    const bool last = list.first.load(std::memory_order_relaxed) == number && extent.next == kNone;
    if (last || !is_empty(number)) return false;
    unlink(list, number);
    return true;
  }
  // All bits are clear, so no free is on its way. The extent's list is latched.
  bool is_empty(std::uint32_t number) {
    Extent& extent = extents_[number];
    const std::uint32_t blocks = blocks_in(extent);
    if (extent.count() != blocks) return false;
    for (std::uint32_t w = 0; w * 64 < blocks; ++w) {
      if (bits_of(extent)[w].load(std::memory_order_acquire) != 0) return false;
    }
    return true;
  }
  // An extent of no thread, unlinked, or kNone.
  std::uint32_t take_unowned(std::uint32_t size_class, BlockKind kind) {
    ClassList& list = list_of(kind, size_class);
    if (list.partial.first.load(std::memory_order_relaxed) == kNone) return kNone;
    LatchGuard guard(list.latch);
    const std::uint32_t number = list.partial.first.load(std::memory_order_relaxed);
    if (number != kNone) unlink(list.partial, number);
    return number;
  }
  void take_from_list(std::uint32_t slot, Bin& bin, std::uint32_t want) {
    std::uint32_t next = kNone;
    for (std::uint32_t i = bin.partial.first.load(std::memory_order_relaxed);
         i != kNone && bin.count < want; i = next) {
      next = extents_[i].next;
      take_from(slot, bin, i, want);
    }
  }
  // Takes free blocks of an extent of the bin's list, until the bin has `want`.
  void take_from(std::uint32_t slot, Bin& bin, std::uint32_t number, std::uint32_t want) {
    Extent& extent = extents_[number];
    PERDURE_ASSERT(P, "heap.I4", !extent.has(kTouched));
    PERDURE_ASSERT(P, "heap.I5", extent.place.load(std::memory_order_relaxed) == slot);
    Bits* bits = bits_of(extent);
    const std::uint32_t blocks = blocks_in(extent);
    const std::uint32_t size = kClassSizes[extent.size_class];
    const std::uint32_t before = bin.count;
    for (std::uint32_t w = 0; w * 64 < blocks && bin.count < want; ++w) {
      std::uint64_t free = ~bits[w].load(std::memory_order_acquire);
      if (blocks - w * 64 < 64) free &= (1ULL << (blocks - w * 64)) - 1;
      std::uint64_t taken = 0;
      for (; free != 0 && bin.count < want; free &= free - 1) {
        taken |= free & -free;
        const auto bit = static_cast<std::uint32_t>(__builtin_ctzll(free));
        bin.items[bin.count++] = offset_of(number) + std::uint64_t{w * 64 + bit} * size;
      }
      if (taken != 0) bits[w].fetch_or(taken, std::memory_order_acq_rel);
    }
    const std::uint32_t taken = bin.count - before;
    PERDURE_ASSERT(P, "heap.I3", taken <= extent.count());
    const bool all = taken == extent.count();
    if (all) unlink(bin.partial, number);
    // A free meanwhile saw a count that was not 0, and left the extent in the list.
    const std::uint32_t count = extent.free_count.fetch_sub(taken, std::memory_order_acq_rel);
    if (all && count != taken) link(bin.partial, number, slot);
  }

  // Releases all empty extents, also the last one of each list.
  [[gnu::noinline]] void release_empty() {
    const auto unlink_all = [this](List& list, std::uint32_t chain) {
      std::uint32_t next = kNone;
      for (std::uint32_t i = list.first.load(std::memory_order_relaxed); i != kNone; i = next) {
        next = extents_[i].next;
        if (!is_empty(i)) continue;
        unlink(list, i);
        extents_[i].next = std::exchange(chain, i);
      }
      return chain;
    };
    for_each_bin([&](std::uint32_t, Bin& bin) { return unlink_all(bin.partial, kNone); });
    std::uint32_t empty = kNone;
    for (auto& row : lists_) {
      for (ClassList& list : row) {
        LatchGuard guard(list.latch);
        empty = unlink_all(list.partial, empty);
      }
    }
    release_all(empty);
    tell_space_freed();
  }
};

}  // namespace perdure::heap
