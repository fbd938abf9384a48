// Heap: blocks of persistent memory for log-free indexes. Allocating and freeing cost no
// write-back and no fence.
//
// WHAT  Slabs of one size class per extent, runs of extents for large objects, free lists in DRAM.
//   What is allocated is what the indexes can reach: at open every engine marks its reachable
//   blocks and the sweep rebuilds the free lists (as Makalu and Ralloc do). docs/design/heap.md.
// LAYOUT  extent_table.h; an extent holds blocks and nothing else.
// INVARIANTS
//   heap.I1  (after any crash) a reachable block lies in an extent whose word says slab or run: the
//       word is fenced before the first block is handed out.
//   heap.I2  (after any crash) a block of kind dead_on_free or zero_on_free that is not reachable
//       is durably dead (word 0 is 0) or durably zero before it is handed out again.
//   heap.I3  (DRAM) the bit of a block in its extent's `used` bitmap is set iff it is handed out,
//       in a thread's cache or in limbo. Free lists are built from the bitmaps only, so a block is
//       never queued twice.
//   heap.I4  (DRAM) while a sweep runs, allocation takes extents that were free at open only
//       ("untouched"), whoever copies a persistent reference or takes one away marks its target
//       before that store (mark_copied), and a free in a touched extent only clears the mark. Or
//       the sweep, which sees the reference nowhere, would hand out what is reachable until the
//       store is fenced, and what readers may hold.
// OPERATIONS
//   allocate   from the thread's cache; refilled from the bitmap of a partial extent under the
//              class latch; a new extent costs 1 write-back and 1 fence (persist point: the extent
//              word); with none left, from other threads' caches, and at last a larger block
//              (take_larger).
//   free       into the thread's cache. kind != plain: prepare_free, a fence, then finish_free;
//              the epoch domain batches these (reclaimer()).
//   retire     through the epoch domain: finish after three epochs.
// RECOVERY  begin_sweep, mark* (parallel), end_sweep. O(extents + marks). If anything could not be
//   enumerated, end_sweep(false) frees nothing: all blocks of old extents stay allocated. The sweep
//   may go on while the pool serves (heap.I4): mark_serving*, then sweep_some until it answers
//   false. Every mark comes before the first sweep_some, so a bit that is set there stays until its
//   block is freed; an extent that was swept is like any other.
// PROGRESS  blocking: a latch per class, one for extents. With no space left allocate answers
//   pool_full; it works again once space is free, and the space watch hears of the first free after
//   such an answer.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "heap/extent_table.h"
#include "heap/size_classes.h"
#include "perdure/status.h"
#include "platform/platform.h"
#include "platform/storage.h"
#include "reclaim/epoch.h"
#include "util/arena.h"

namespace perdure {

// Where the heap's parts lie in the pool; fixed when the pool is created.
struct HeapGeometry {
  std::uint64_t extent_bytes = 0;  // power of two
  std::uint64_t table_offset = 0;
  std::uint64_t data_offset = 0;  // first extent; a multiple of extent_bytes
  std::uint64_t max_extents = 0;
};

// Lengthens the pool. Implemented by the pool, which owns the header.
class HeapHost {
 public:
  virtual ~HeapHost() = default;
  // Adds at least `extents` extents at the end, durably; answers the new count, or pool_full.
  virtual Expected<std::uint64_t> grow(std::uint64_t extents) noexcept = 0;
  // A hint: so many will be asked for soon.
  virtual void expect(std::uint64_t /*extents*/) noexcept {}
};

struct HeapStats {
  std::uint64_t extents = 0;
  std::uint64_t assigned_extents = 0;
  std::uint64_t punched_extents = 0;
  std::uint64_t allocated_bytes = 0;  // blocks with the used bit, caches and limbo included
  std::uint64_t cached_bytes = 0;     // of those, in threads' caches
  std::uint64_t dram_bytes = 0;
};

template <Platform P>
class Heap {
 public:
  Heap(P& platform, Storage& storage, EpochDomain<P>& epochs) noexcept
      : platform_(platform), storage_(storage), epochs_(epochs) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  // Takes DRAM for a pool of this shape with `extents` extents in the file.
  Status attach(const HeapGeometry& geometry, std::uint64_t extents, HeapHost& host) noexcept;

  // --- allocation; any thread ---
  // A block of at least n bytes, 16-aligned (64-aligned if its class is a multiple of 64); its
  // content is unspecified, zero for zero_on_free, word 0 zero for dead_on_free. Errors: pool_full.
  Expected<std::uint64_t> allocate(std::size_t n, BlockKind kind) noexcept;
  // A hint: a block of n bytes will be wanted soon. The pool gets space for it in the background.
  void expect(std::size_t n) noexcept;
  // A plain block that was never published or whose unlink is durable and unreachable for every
  // reader.
  void free(std::uint64_t offset) noexcept;
  // discard() with the signature of mark(): for whoever gives back everything it reaches.
  // corruption: no such block.
  Status take_back(std::uint64_t offset) noexcept {
    std::uint64_t number = 0;
    std::uint32_t block = 0;
    if (Status s = locate(offset, number, block); !s.ok()) return s;
    discard(offset);
    return {};
  }
  // The two halves of freeing a block of another kind; a fence belongs between them.
  void prepare_free(std::uint64_t offset) noexcept;
  void finish_free(std::uint64_t offset) noexcept { free(offset); }
  // Prefetches what both come to.
  void touch_free(std::uint64_t offset) const noexcept;
  // Frees a block once no reader can hold it. The unlink is durable; the caller is pinned.
  void retire(std::uint64_t offset) noexcept {
    PERDURE_ASSERT(P, "epoch.I2", epochs_.pinned());
    mark_copied(offset);  // limbo holds it: the end of a sweep must not free it
    epochs_.retire(is_plain(offset) ? kPlainReclaimer : kPreparedReclaimer, this, offset,
                   block_bytes(offset));
  }
  template <FixedString Name>
  void retire(std::uint64_t offset, Site<Name> site) noexcept {
    if (P::runs(site)) retire(offset);
  }
  // Frees a block that was never published. Kinds other than plain go through limbo for their
  // fence.
  void discard(std::uint64_t offset) noexcept {
    if (is_plain(offset)) {
      free(offset);
    } else {
      mark_copied(offset);
      epochs_.retire(kPreparedReclaimer, this, offset, block_bytes(offset));
    }
  }
  // 0 if no extent lies there.
  std::size_t block_bytes(std::uint64_t offset) const noexcept;

  // --- recovery ---
  // Reads the extent table; afterwards nothing of the old extents is allocated until marked.
  Status begin_sweep() noexcept;
  // Declares a block reachable. Thread-safe. corruption: no such block, or reached twice.
  Status mark(std::uint64_t offset) noexcept;
  template <FixedString Name>
  Status mark(std::uint64_t offset, Site<Name> site) noexcept {
    return P::runs(site) ? mark(offset) : Status();
  }
  // The same for a reference that is about to be copied elsewhere, or taken away, while a sweep
  // runs (heap.I4); idempotent.
  void mark_copied(std::uint64_t offset) noexcept;
  // mark() for a map that serves already; idempotent. corruption: no such block.
  Status mark_serving(std::uint64_t offset) noexcept;
  template <FixedString Name>
  Status mark_serving(std::uint64_t offset, Site<Name> site) noexcept {
    return P::runs(site) ? mark_serving(offset) : Status();
  }
  bool sweeping() const noexcept { return sweeping_.load(std::memory_order_acquire); }
  // Builds the free lists. `complete` is false if some map could not be enumerated.
  Status end_sweep(bool complete) noexcept;
  // A part of it: up to so many extents. True: there are more. One thread at a time.
  Expected<bool> sweep_some(bool complete, std::uint64_t extents) noexcept;
  // While a background sweep runs: what an allocation calls, with no latch of the heap held, when
  // no untouched extent is left. It must bring the sweep to its end or answer false; what it runs
  // may allocate, retire and free, and may not wait for a latch that its caller's engine holds.
  void set_sweep_helper(void* context, bool (*help)(void* context)) noexcept {
    helper_context_ = context;
    helper_ = help;
  }

  // Called, with latches of the heap held, when memory is freed after an allocation answered
  // pool_full; before the heap is shared.
  void set_space_watch(void* context, void (*freed)(void* context)) noexcept {
    watch_context_ = context;
    space_watch_ = freed;
  }

  // --- maintenance ---
  // Makes all free space usable for every class: caches, and the empty extents that classes keep.
  // For when an allocation answered pool_full.
  void reclaim() noexcept {
    flush_caches();
    release_empty();
  }
  // From here on the calling thread's allocations take a free block of a class up to kMostLarger
  // times as large where their own has none: when all else failed, or classes would eat each other.
  void take_larger(bool takes) noexcept {
    if (Cache* cache = this_cache(); cache != nullptr) cache->takes_larger = takes;
  }
  // Moves all threads' caches back to the bitmaps. Other threads may go on.
  void flush_caches() noexcept;
  // Gives free extents back to the file system; answers bytes.
  Expected<std::uint64_t> punch_free() noexcept;
  // Calls visit(first byte, length) for every stretch of assigned extents.
  template <class F>
  void for_each_assigned(F&& visit) noexcept;
  // The next such stretch at or behind extent `cursor`, of at most `most` extents; moves the cursor
  // behind it. False: there is none.
  bool next_assigned(std::uint64_t& cursor, std::uint64_t most, std::uint64_t& offset,
                     std::uint64_t& bytes) noexcept;
  // Blocks that are allocated but not in `reachable` (a second marking): call quiesced, caches
  // flushed. begin_audit, audit_mark*, end_audit(leaked).
  Status begin_audit() noexcept;
  Status audit_mark(std::uint64_t offset) noexcept;
  std::uint64_t end_audit() noexcept;
  HeapStats stats() noexcept;
  // bad(what) if a word of the extent table is damaged or differs from what is in DRAM.
  template <class F>
  void verify_table(F&& bad) noexcept;

  bool contains(std::uint64_t offset, std::size_t n) const noexcept {
    const std::uint64_t end = data_end();
    return offset >= geometry_.data_offset && offset < end && n <= end - offset;
  }
  template <class T>
  T* at(std::uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(base_ + offset);
  }
  std::uint64_t extent_bytes() const noexcept { return geometry_.extent_bytes; }
  std::uint64_t extent_count() const noexcept {
    return extent_count_.load(std::memory_order_acquire);
  }
  std::uint64_t data_offset() const noexcept { return geometry_.data_offset; }
  std::uint64_t max_data_bytes() const noexcept {
    return geometry_.max_extents * geometry_.extent_bytes;
  }
  // Whether a block of an assigned extent starts here.
  bool is_block(std::uint64_t offset) const noexcept {
    std::uint64_t number = 0;
    std::uint32_t block = 0;
    return locate(offset, number, block).ok();
  }
  // Of a block: nothing is promised about its content after it was freed.
  bool is_plain(std::uint64_t offset) const noexcept {
    return extents_[extent_of(offset)].kind == static_cast<std::uint8_t>(BlockKind::plain);
  }

 private:
  using Bits = typename P::template Atomic<std::uint64_t>;
  using Count = typename P::template Atomic<std::uint32_t>;
  using Flags = typename P::template Atomic<std::uint8_t>;
  static constexpr std::uint32_t kNone = ~0U;
  static constexpr std::uint32_t kMagazine = 24;
  static constexpr std::uint32_t kMostLarger = 8;  // times the class that a block was asked of

  // DRAM state of one extent. `used` has a bit per block; inline when 64 bits are enough.
  struct Extent {
    Bits* used = nullptr;
    Bits inline_bits{0};
    Count free_count{0};         // changed under the class latch; a run's length
    std::uint32_t next = kNone;  // in the class's list of partial extents
    std::uint32_t prev = kNone;
    std::uint8_t state = 0;  // ExtentState
    std::uint8_t size_class = 0;
    std::uint8_t kind = 0;
    Flags flags{0};

    bool has(std::uint8_t flag) const noexcept {
      return (flags.load(std::memory_order_relaxed) & flag) != 0;
    }
    void set(std::uint8_t flag) noexcept { flags.fetch_or(flag, std::memory_order_relaxed); }
    void clear(std::uint8_t flag) noexcept {
      flags.fetch_and(static_cast<std::uint8_t>(~flag), std::memory_order_relaxed);
    }
    std::uint32_t count() const noexcept { return free_count.load(std::memory_order_relaxed); }
    void set_count(std::uint32_t n) noexcept { free_count.store(n, std::memory_order_relaxed); }
  };
  static constexpr std::uint8_t kTouched = 1;  // assigned before this open
  static constexpr std::uint8_t kPartial = 2;  // in a partial list
  static constexpr std::uint8_t kPunched = 4;  // space given back
  static constexpr std::uint8_t kInside = 8;   // inside a run, not its head
  static constexpr std::uint8_t kMaybeHole =
      16;  // free since open: an earlier process may have punched it

  struct alignas(64) ClassList {
    typename P::Latch latch;
    std::uint32_t partial = kNone;
  };
  struct Magazine {
    std::uint32_t count = 0;
    std::uint64_t items[kMagazine];
  };
  struct Cache {
    typename P::Latch latch;
    bool takes_larger = false;  // owner only
    Magazine* magazines[kBlockKinds][kClassCount] = {};
  };

  static void prepare_callback(void* heap, std::uint64_t offset) {
    static_cast<Heap*>(heap)->prepare_free(offset);
  }
  static void finish_callback(void* heap, std::uint64_t offset) {
    static_cast<Heap*>(heap)->finish_free(offset);
  }
  static constexpr Reclaimer kPlainReclaimer{nullptr, &finish_callback};
  static constexpr Reclaimer kPreparedReclaimer{&prepare_callback, &finish_callback};

  std::uint64_t data_end() const noexcept {
    return geometry_.data_offset +
           extent_count_.load(std::memory_order_acquire) * geometry_.extent_bytes;
  }
  std::uint64_t extent_of(std::uint64_t offset) const noexcept {
    return (offset - geometry_.data_offset) >> extent_shift_;
  }
  std::uint64_t offset_of(std::uint64_t extent) const noexcept {
    return geometry_.data_offset + (extent << extent_shift_);
  }
  std::uint64_t& table_word(std::uint64_t extent) const noexcept {
    return *at<std::uint64_t>(geometry_.table_offset + extent * 8);
  }
  std::uint32_t blocks_in(const Extent& extent) const noexcept {
    return static_cast<std::uint32_t>(geometry_.extent_bytes / kClassSizes[extent.size_class]);
  }
  Bits* bits_of(Extent& extent) const noexcept {
    return extent.used != nullptr ? extent.used : &extent.inline_bits;
  }

  Status locate(std::uint64_t offset, std::uint64_t& extent, std::uint32_t& block) const noexcept;
  // For assertions, of a block that the caller owns: its bit is set; it is durably dead if its kind
  // wants that.
  bool is_used(std::uint64_t offset) noexcept;
  bool is_dead(std::uint64_t offset) noexcept;
  bool set_up_slab(Extent& extent, std::uint32_t size_class, BlockKind kind) noexcept;
  void tear_down(Extent& extent) noexcept;

  Expected<std::uint64_t> allocate_now(std::size_t n, BlockKind kind) noexcept;
  bool help_sweep() noexcept;
  void tell_space_freed() noexcept {
    P::light_fence();  // what was freed, before the look; allocate() does it the other way round
    if (!starved_.load(std::memory_order_relaxed)) [[likely]]
      return;
    if (starved_.exchange(false, std::memory_order_seq_cst)) space_watch_(watch_context_);
  }
  Cache* this_cache() noexcept;
  Magazine* magazine(Cache& cache, std::uint32_t kind, std::uint32_t size_class) noexcept;
  static std::uint32_t batch_of(std::uint32_t size_class) noexcept {
    const std::uint32_t fit = 16384 / kClassSizes[size_class];
    return fit < 1 ? 1 : (fit > kMagazine / 2 ? kMagazine / 2 : fit);
  }
  Expected<std::uint64_t> allocate_larger(std::size_t n, BlockKind kind) noexcept;
  Status refill(Magazine& magazine, std::uint32_t size_class, BlockKind kind) noexcept;
  bool take_partial(Magazine& magazine, std::uint32_t size_class, BlockKind kind) noexcept;
  bool steal(Magazine& magazine, std::uint32_t size_class, BlockKind kind) noexcept;
  std::uint32_t take_from(std::uint32_t number, std::uint64_t* items, std::uint32_t want) noexcept;
  void give_back(const std::uint64_t* items, std::uint32_t count) noexcept;
  void link_partial(ClassList& list, std::uint32_t number) noexcept;
  void unlink_partial(ClassList& list, std::uint32_t number) noexcept;

  Expected<std::uint64_t> allocate_run(std::uint64_t extents, BlockKind kind) noexcept;
  void free_run(std::uint64_t extent) noexcept;
  Expected<std::uint64_t> take_extents(std::uint64_t count, const ExtentWord& word) noexcept;
  bool find_free(std::uint64_t count, std::uint64_t& first, bool backed_only) noexcept;
  Status assign(std::uint64_t first, std::uint64_t count, const ExtentWord& word) noexcept;
  Status make_ready(std::uint64_t first, std::uint64_t count, BlockKind kind) noexcept;
  void release_extent(std::uint32_t number) noexcept;
  void release_empty() noexcept;
  std::uint64_t free_at_end() const noexcept;
  void set_in_use(std::uint64_t extent, bool in_use) noexcept;
  Status sweep_slab(std::uint32_t number, bool complete) noexcept;
  Status sweep_extent(std::uint32_t number, bool complete) noexcept;

  P& platform_;
  Storage& storage_;
  std::byte* base_ = nullptr;  // the storage's, from attach() on: the range is reserved as a whole
  EpochDomain<P>& epochs_;
  HeapHost* host_ = nullptr;
  HeapGeometry geometry_;
  std::uint32_t extent_shift_ = 0;
  std::uint32_t max_class_ = 0;  // classes that fit an extent at least twice
  typename P::template Atomic<std::uint64_t> extent_count_{0};
  typename P::template Atomic<bool> sweeping_{false};
  void* helper_context_ = nullptr;
  bool (*helper_)(void*) = nullptr;
  void* watch_context_ = nullptr;
  void (*space_watch_)(void*) = nullptr;
  typename P::template Atomic<bool> starved_{false};  // pool_full was answered, nothing freed since
  std::uint64_t sweep_cursor_ = 0;

  Arena<Extent> extents_;
  Arena<std::uint64_t> in_use_;   // bit per extent; under extent_latch_
  std::uint64_t first_free_ = 0;  // no free extent lies before it
  std::uint64_t assigned_ = 0;
  typename P::Latch extent_latch_;
  ClassList lists_[kBlockKinds][kClassCount];
  typename P::template Atomic<Cache*> caches_[kMaxThreadSlots] = {};
  typename P::template Atomic<std::uint64_t> bitmap_bytes_{0};
  Arena<Bits> audit_;  // bit per 16 bytes of the data area, during an audit
};

}  // namespace perdure

#include "heap/heap_alloc.inl.h"  // IWYU pragma: keep
#include "heap/heap_sweep.inl.h"  // IWYU pragma: keep
