// Heap: blocks of persistent memory for log-free indexes. Neither allocating nor freeing costs a
// write-back or a fence.
//
// WHAT  Slabs of one size class per extent, runs of extents for large objects, free lists in DRAM.
//   A block is allocated if the indexes can reach it. At open every engine marks its reachable
//   blocks, and the sweep rebuilds the free lists (as Makalu and Ralloc do). docs/design/heap.md.
// LAYOUT  extent_table.h; an extent holds blocks and nothing else.
// INVARIANTS
//   heap.I1  (after any crash) a reachable block lies in an extent whose word says slab or run: the
//       word is fenced before the first block is handed out.
//   heap.I2  (after any crash) an unreachable block of kind dead_on_free or zero_on_free is durably
//       dead (word 0 is 0) or durably zero before it is handed out again.
//   heap.I3  (DRAM) the bit of a block in its extent's `used` bitmap is set iff it is handed out,
//       in a thread's cache or in limbo. Free blocks are taken from the bitmaps only, so a block is
//       never queued twice.
//   heap.I4  (DRAM) during a sweep: allocate only from extents that were free at open
//       ("untouched"); mark a target before copying or removing a persistent reference to it
//       (mark_copied); a free in a touched extent only clears the mark. Otherwise the sweep, which
//       sees the reference nowhere, would hand out a block that is reachable until the store is
//       fenced, or that readers may hold.
//   heap.I5  (DRAM) a slab with free blocks is in exactly one list, which `place` names. Only the
//       holder of that list takes its free blocks, or moves it. A slab without one is in none.
//       From one that is set aside (thin.h), nothing is taken.
// OPERATIONS
//   allocate   from the thread's cache; refilled from the bitmaps of the thread's own extents, then
//              of extents of no thread; then a new extent, for 1 write-back and 1 fence (persist
//              point: the extent word); then extents of other threads; then growth, which comes
//              earlier if others would wait for it; with none left, from other threads' caches,
//              and at last a larger block (take_larger).
//   free       into the thread's cache. kind != plain: prepare_free, a fence, then free; the epoch
//              domain does this in batches (retire).
//   retire     through the epoch domain: the block is freed after three epochs.
// RECOVERY  begin_sweep, mark* (parallel), end_sweep. O(extents + marks). begin_sweep_unread leaves
//   the reading of the extent table to later calls (table.h, heap.I6). If anything could not be
//   enumerated, end_sweep(false) frees nothing: all blocks of old extents stay allocated. The sweep
//   may go on while the pool serves (heap.I4): mark_serving*, then sweep_some until it returns
//   false. Every mark comes before the first sweep_some: a bit that is set then stays set until its
//   block is freed. An extent that was swept is like any other.
// ORDERING  biased_latch.h, for a thread's cache and extents; slabs.h, for a free of a block in
//   another thread's extent: the count by acq_rel, then the bit by acq_rel.
// PROGRESS  blocking: a latch per thread, which costs its owner no locked instruction; latches for
//   the extents of no thread, the table and growth. Nothing is zeroed, written back or added to the
//   file under a latch of an allocation. With no space left allocate returns pool_full. It works
//   again once space is free; the first free after such a failure calls HeapHost::space_freed.
// LAYERS  state.h, table.h, extents.h, slabs.h, thin.h, sweep.h, audit.h, and here allocation and
//   freeing.
#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "heap/audit.h"
#include "heap/block_needs.h"

namespace perdure {

template <Platform P>
class Heap final : public heap::Audit<P> {
  using Base = heap::Audit<P>;

 public:
  using Base::Base, Base::is_plain, Base::mark_copied, Base::sweeping;

  // A block of at least n bytes, 16-aligned (64-aligned if its class is a multiple of 64). Its
  // content is unspecified, but zero for zero_on_free, and word 0 is zero for dead_on_free. Any
  // thread. Errors: pool_full.
  [[gnu::noinline]] Expected<std::uint64_t> allocate(std::size_t n, BlockKind kind) {
    if (stash_ != nullptr) [[unlikely]] {
      if (const std::uint64_t block = take_stashed(n, kind); block != 0) return block;
    }
    for (;;) {
      const bool swept_later = sweeping();  // read first: the sweep may end meanwhile
      auto block = allocate_now(n, kind);
      if (block.has_value()) [[likely]]
        return block;
      if (block.error() != StatusCode::pool_full) return block;
      // heap.I4: touched extents may have free blocks, but only the sweep's end can tell.
      // No latch is held: a step of the sweep frees and allocates, and may wait for another thread
      // that needs this thread's cache.
      if (swept_later && (!sweeping() || this->host_->help_sweep())) continue;
      if (auto larger = allocate_larger(n, kind); larger.has_value()) return larger;
      // Tries once more after `starved_` is set: a free comes before that, or calls the host.
      if (starved_.exchange(true, std::memory_order_seq_cst)) return block;
      (void)P::heavy_fence();
    }
  }
  // Allocates all of `needs`. From now on allocate() returns these blocks first, and a plain block
  // that is discarded is one of them again, until release_stash(). For a thread beside which none
  // allocates. Errors: those of allocate(); then it has none.
  [[gnu::noinline]] Status fill_stash(const BlockNeeds& needs) {
    Status s = begin_stash(true);
    if (!s.ok()) return s;
    (void)needs.for_each([&](std::size_t n, BlockKind kind) {
      s = stash_one(n, kind);
      return s.ok();
    });
    if (!s.ok()) release_stash();
    return s;
  }
  // In a recovery. Takes the runs that the stash of the dead process had, at their places, if they
  // are still free. Nothing gets them before refill_stash(). Errors: out_of_memory, poisoned.
  [[gnu::noinline]] Status find_runs(std::span<const BlockRun> runs) {
    Status s = begin_stash(false);
    for (const BlockRun& run : runs) {
      if (s.ok()) s = stash_again(run);
    }
    return s;
  }
  // After find_runs(): adds as many of the other blocks of `needs` as there are. Errors:
  // out_of_memory, poisoned.
  [[gnu::noinline]] Status refill_stash(const BlockNeeds& needs) {
    Status s;
    (void)needs.for_each([&](std::size_t n, BlockKind kind) {
      if (class_for(n) == kClassCount) return true;
      s = stash_one(n, kind);
      if (s == StatusCode::pool_full || s == StatusCode::read_only) s = {};
      return s.ok();
    });
    stash_->serve();
    return s;
  }
  // The number of runs that fill_stash(needs) takes. Calls visit(run) for each afterwards.
  std::uint32_t count_runs(const BlockNeeds& needs) const {
    std::uint32_t count = 0;
    (void)needs.for_each([&](std::size_t n, BlockKind) {
      count += class_for(n) == kClassCount ? 1 : 0;
      return true;
    });
    return count;
  }
  template <class F>
  void for_each_run(F&& visit) const {
    for (const BlockRun& run : stash_->runs()) visit(run);
  }
  // Frees the blocks that are left. They were not stored to, so they are dead, or zero; or plain.
  [[gnu::noinline]] void release_stash() {
    const std::unique_ptr<BlockStash> stash = std::move(stash_);
    if (stash != nullptr) stash->for_each([this](std::uint64_t block) { free(block); });
  }
  // A plain block that was never published, or whose unlink is durable and which no reader can
  // reach.
  [[gnu::noinline]] void free(std::uint64_t offset) {
    PERDURE_ASSERT(P, "heap.I2", this->is_dead(offset));
    const std::uint64_t number = extent_of(offset);
    if (!this->touch(number)) return;  // the sweep of a later open frees it
    Extent& extent = extents_[number];
    if (extent.state == ExtentState::run) {
      free_run(number);
      return;
    }
    if (extent.has(kTouched) && sweeping()) {
      // heap.I4: only the mark is cleared; the sweep's end builds the free list from the marks. The
      // latch decides whether the sweep has reached this extent.
      LatchGuard guard(this->list_of(extent.kind, extent.size_class).latch);
      if (extent.has(kTouched)) {
        PERDURE_ASSERT(P, "heap.I4", this->is_used(offset));
        Base::clear_bit(this->bits_of(extent), block_in(extent, number, offset),
                        std::memory_order_acq_rel);
        return;
      }
    }
    PERDURE_ASSERT(P, "heap.I3", this->is_used(offset));
    this->release_all(free_to_bin(extent, offset));
    this->tell_space_freed();
  }
  // Before free() of a block of another kind; the caller fences between the two.
  void prepare_free(std::uint64_t offset) {
    if (!this->touch(extent_of(offset))) return;
    const Extent& extent = extents_[extent_of(offset)];
    if (extent.kind == BlockKind::dead_on_free) {
      platform_.store(*this->template at<std::uint64_t>(offset), 0);
      platform_.flush(this->template at<std::uint64_t>(offset), 8, "heap.free.dead"_site);
    } else if (extent.kind == BlockKind::zero_on_free && extent.state != ExtentState::run) {
      // make_ready() zeroes the extents of a run when they are used again.
      const std::size_t bytes = this->block_bytes(offset);
      platform_.zero(this->template at<std::byte>(offset), bytes);
      platform_.flush(this->template at<std::byte>(offset), bytes, "heap.free.zero"_site);
    }
  }
  // Prefetches what the two halves read.
  void touch_free(std::uint64_t offset) const {
    __builtin_prefetch(this->template at<std::byte>(offset), 1);
    const std::uint64_t number = extent_of(offset);
    const Extent& extent = extents_[number];
    if (!this->is_read(number) || extent.used == nullptr) return;
    __builtin_prefetch(&extent.used[block_in(extent, number, offset) / 64], 1);
  }
  // Frees a block once no reader can hold it. The unlink is durable; the caller is pinned.
  void retire(std::uint64_t offset) {
    PERDURE_ASSERT(P, "epoch.I2", epochs_.pinned());
    mark_copied(offset);  // limbo holds it: the end of a sweep must not free it
    const std::size_t bytes = this->block_bytes(offset);
    epochs_.retire(is_plain(offset) ? kPlainReclaimer : kPreparedReclaimer, this, offset, bytes);
    if (bytes >= kLargeRun) [[unlikely]]
      this->note_idle(bytes);  // else limbo could hold it until the next mutation
  }
  template <FixedString Name>
  void retire(std::uint64_t offset, Site<Name> site) {
    if (P::runs(site)) retire(offset);
  }
  // Frees a block that was never published. Blocks of other kinds than plain go through limbo,
  // which fences.
  void discard(std::uint64_t offset) {
    if (is_plain(offset)) {
      if (stash_ == nullptr || !put_back(offset)) free(offset);
    } else {
      mark_copied(offset);
      epochs_.retire(kPreparedReclaimer, this, offset, this->block_bytes(offset));
    }
  }
  // discard() with the signature of mark(), for an engine that gives back all that it reaches.
  // corruption: no such block.
  Status take_back(std::uint64_t offset) noexcept {
    std::uint64_t number = 0;
    std::uint32_t block = 0;
    if (Status s = this->locate(offset, number, block); !s.ok()) return s;
    discard(offset);
    return {};
  }

 private:
  using Base::epochs_, Base::extent_of, Base::extents_, Base::kNone, Base::kTouched,
      Base::max_class_, Base::offset_of, Base::platform_, Base::starved_, Base::this_cache;
  using typename Base::Bin, typename Base::Cache, typename Base::Extent;
  static constexpr std::size_t kLargeRun = 1 << 20;  // bytes
  static constexpr std::uint32_t kMostLarger = 8;    // times the class that was asked for
  static constexpr std::size_t kFetched = 256;       // bytes

  std::uint32_t class_for(std::size_t n) const {
    const std::uint32_t size_class = class_of(n);
    return size_class < max_class_ ? size_class : kClassCount;
  }
  [[gnu::noinline]] std::uint64_t take_stashed(std::size_t n, BlockKind kind) {
    return stash_->take(class_for(n), this->extents_for(n), kind);
  }
  Status begin_stash(bool serves) {
    stash_.reset(new (std::nothrow) BlockStash);
    if (stash_ == nullptr) return StatusCode::out_of_memory;
    if (serves) stash_->serve();
    return {};
  }
  // Not from the stash, which is being filled.
  Status stash_one(std::size_t n, BlockKind kind) {
    std::unique_ptr<BlockStash> stash = std::move(stash_);
    auto block = allocate(n, kind);
    stash_ = std::move(stash);
    if (!block) return std::move(block.error());
    const std::uint32_t size_class = class_for(n);
    const bool put = size_class == kClassCount ? stash_->put({*block, this->extents_for(n), kind})
                                               : stash_->put(size_class, kind, *block);
    if (put) return {};
    free(*block);
    return StatusCode::out_of_memory;
  }
  // Takes the run at its place, if it is free there.
  Status stash_again(const BlockRun& run) {
    const ExtentWord word{.state = ExtentState::run,
                          .kind = run.kind,
                          .run = static_cast<std::uint32_t>(run.extents)};
    auto taken = this->take_extents_at(extent_of(run.offset), run.extents, word);
    if (!taken) return std::move(taken.error());
    if (!*taken || stash_->put(run)) return {};
    free(run.offset);
    return StatusCode::out_of_memory;
  }
  // Returns false if memory is short.
  [[gnu::noinline]] bool put_back(std::uint64_t offset) {
    if (!this->touch(extent_of(offset))) return true;
    const Extent& extent = extents_[extent_of(offset)];
    return extent.state == ExtentState::run
               ? stash_->put(BlockRun{offset, extent.count(), extent.kind})
               : stash_->put(extent.size_class, extent.kind, offset);
  }

  static void prepare_callback(void* heap, std::uint64_t offset) {
    static_cast<Heap*>(heap)->prepare_free(offset);
  }
  static void finish_callback(void* heap, std::uint64_t offset) {
    static_cast<Heap*>(heap)->free(offset);
  }
  static constexpr Reclaimer kPlainReclaimer{nullptr, &finish_callback};
  static constexpr Reclaimer kPreparedReclaimer{&prepare_callback, &finish_callback};

  std::uint64_t block_in(const Extent& extent, std::uint64_t number, std::uint64_t offset) const {
    return (offset - offset_of(number)) / kClassSizes[extent.size_class];
  }
  // Puts a block into the thread's bin. Returns a chain of extents that became empty.
  [[nodiscard, gnu::always_inline]] std::uint32_t free_to_bin(const Extent& extent,
                                                              std::uint64_t offset) {
    const std::uint32_t slot = P::thread_slot();
    Cache* cache = this_cache();
    if (cache == nullptr) [[unlikely]]
      return this->give_back(slot, nullptr, &offset, 1);
    LatchGuard guard(cache->latch);
    Bin* bin = this->bin_of(*cache, extent.kind, extent.size_class);
    // heap.I5: a block of an extent that is set aside goes to the bitmap, not to the cache. The
    // place is read under the latch, so that set_aside() finds what was cached before.
    if (bin == nullptr || extent.place.load(std::memory_order_relaxed) == Base::kAside) [[unlikely]]
      return this->give_back(slot, nullptr, &offset, 1);
    std::uint32_t empty = kNone;
    const std::uint32_t half = this->batch_of(extent.size_class);
    if (bin->count >= 2 * half) {
      empty = this->give_back(slot, bin, bin->items, half);  // the coldest half
      bin->count -= half;
      std::memmove(bin->items, bin->items + half, bin->count * sizeof(bin->items[0]));
    }
    bin->items[bin->count++] = offset;
    return empty;
  }
  [[gnu::always_inline]] Expected<std::uint64_t> allocate_now(std::size_t n, BlockKind kind) {
    const std::uint32_t size_class = class_of(n);
    if (size_class >= max_class_) return allocate_run(this->extents_for(n), kind);
    Cache* cache = this_cache();
    if (cache == nullptr) return fail(StatusCode::out_of_memory);
    for (;;) {
      auto block = take(*cache, size_class, kind);
      if (!block || *block != 0) [[likely]]
        return block;
      if (Status s = this->find_extents(*cache, size_class, kind); !s.ok()) {
        const std::uint64_t stolen = s == StatusCode::pool_full ? this->steal(size_class, kind) : 0;
        if (stolen == 0) return fail(std::move(s));
        ++P::counters().allocations;
        return stolen;
      }
    }
  }
  // A block of the thread's bin, or of an extent that has free ones; 0: there is none.
  [[gnu::always_inline]] Expected<std::uint64_t> take(Cache& cache, std::uint32_t size_class,
                                                      BlockKind kind) {
    LatchGuard guard(cache.latch);
    Bin* bin = this->bin_of(cache, kind, size_class);
    if (bin == nullptr) return fail(StatusCode::out_of_memory);
    if (bin->count == 0 && !this->take_listed(*bin, size_class, kind)) return 0;
    ++P::counters().allocations;
    const std::uint64_t block = bin->items[--bin->count];
    if (bin->count > 0) fetch_for_stores(bin->items[bin->count - 1], kClassSizes[size_class]);
    return block;
  }
  // The thread's next block of this class: the stores of its next allocation would wait for it.
  [[gnu::always_inline]] void fetch_for_stores(std::uint64_t offset, std::size_t bytes) const {
    const auto* block = this->template at<std::byte>(offset);
    for (std::size_t i = 0; i < std::min(bytes, kFetched); i += kLine) {
      __builtin_prefetch(block + i, 1);
    }
  }
  // A block of a larger class, with the same alignment.
  [[gnu::noinline]] Expected<std::uint64_t> allocate_larger(std::size_t n, BlockKind kind) {
    const std::uint32_t own = class_of(n);
    Cache* cache = this_cache();
    if (cache == nullptr || !cache->takes_larger || own >= max_class_)
      return fail(StatusCode::pool_full);
    const std::uint32_t alignment = kClassSizes[own] & -kClassSizes[own];
    for (std::uint32_t c = own + 1; c < max_class_; ++c) {
      if (kClassSizes[c] > kMostLarger * kClassSizes[own]) break;
      if (kClassSizes[c] % alignment != 0) continue;
      auto block = take(*cache, c, kind);
      if (!block) break;
      if (*block == 0 && this->take_over(*cache, c, kind, true)) block = take(*cache, c, kind);
      if (block && *block != 0) return block;
      if (const std::uint64_t stolen = this->steal(c, kind); stolen != 0) {
        ++P::counters().allocations;
        return stolen;
      }
    }
    return fail(StatusCode::pool_full);
  }
  Expected<std::uint64_t> allocate_run(std::uint64_t extents, BlockKind kind) {
    const ExtentWord word{
        .state = ExtentState::run, .kind = kind, .run = static_cast<std::uint32_t>(extents)};
    auto first = this->take_extents(extents, word, false);
    if (!first && first.error() == StatusCode::pool_full) {
      this->release_elsewhere();
      first = this->take_extents(extents, word, true);
    }
    if (!first) return first;
    ++P::counters().allocations;
    return offset_of(*first);
  }
  [[gnu::noinline]] void free_run(std::uint64_t extent) {
    {
      LatchGuard guard(this->extent_latch_);  // as in free(): decides whether the sweep was here
      if (extents_[extent].has(kTouched) && sweeping()) {
        extents_[extent].inline_bits.store(0, std::memory_order_release);
        return;
      }
    }
    this->release_extent(static_cast<std::uint32_t>(extent));
    this->tell_space_freed();
  }

  std::unique_ptr<BlockStash> stash_;  // of the thread that fill_stash() describes
};

}  // namespace perdure
