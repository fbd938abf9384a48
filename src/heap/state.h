// The lowest layer of the heap: its state in DRAM. Responsible for the `used` bitmaps of heap.I3
// and for the lists of heap.I5.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "heap/extent_table.h"
#include "heap/geometry.h"
#include "heap/size_classes.h"
#include "perdure/status.h"
#include "platform/biased_latch.h"
#include "platform/platform.h"
#include "platform/storage.h"
#include "reclaim/epoch.h"
#include "util/arena.h"

namespace perdure {

// The pool, as the heap calls it: the only way up from the heap. None of it is on a fast path.
class HeapHost {
 public:
  virtual ~HeapHost() = default;
  // Adds at least `extents` extents at the end, durably. Returns the new count, or pool_full.
  virtual Expected<std::uint64_t> grow(std::uint64_t extents) = 0;
  // Before a grow(): gets a piece of the space for so many extents. False: it is there, or grow()
  // gets the rest. The caller holds no latch, so other allocations may call grow() meanwhile.
  virtual bool prepare(std::uint64_t /*extents*/) { return false; }
  // A hint: allocations will soon need so many extents. The caller holds no latch.
  virtual void expect(std::uint64_t /*extents*/) {}
  // Memory was freed after an allocation failed with pool_full. The caller holds latches of the
  // heap.
  virtual void space_freed() {}
  // Much was freed, or will be once readers have left their guards. The caller holds no latch of
  // the heap.
  virtual void space_idle() {}
  // An allocation calls this during a sweep when no untouched extent is left; it holds no latch of
  // the heap then. The host must finish the sweep or return false. What it runs may allocate,
  // retire and free, and must not wait for a latch that its caller's engine holds.
  virtual bool help_sweep() { return false; }
};

}  // namespace perdure

namespace perdure::heap {

template <Platform P>
class State {
 public:
  State(P& platform, Storage& storage, EpochDomain<P>& epochs)
      : platform_(platform), storage_(storage), epochs_(epochs) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    for (auto& slot : caches_) {
      Cache* cache = slot.load(std::memory_order_acquire);
      if (cache == nullptr) continue;
      for (auto& row : cache->bins) {
        for (Bin* bin : row) std::free(bin);
      }
      delete cache;
    }
    for (std::uint64_t i = 0; extents_.data() != nullptr && i < extent_count(); ++i) {
      if (is_own(extents_[i].used)) std::free(static_cast<void*>(extents_[i].used));
    }
  }

  // Reserves DRAM for a pool of this shape with `extents` extents in the file.
  [[gnu::noinline]] Status attach(const HeapGeometry& geometry, std::uint64_t extents,
                                  HeapHost& host) {
    base_ = storage_.base();
    geometry_ = geometry;
    host_ = &host;
    extent_shift_ = static_cast<std::uint32_t>(__builtin_ctzll(geometry.extent_bytes));
    max_class_ = 0;
    while (max_class_ < kClassCount && kClassSizes[max_class_] * 2 <= geometry.extent_bytes) {
      ++max_class_;
    }
    if (Status s = extents_.reserve(geometry.max_extents); !s.ok()) return s;
    if (Status s = in_use_.reserve((geometry.max_extents + 63) / 64); !s.ok()) return s;
    extent_count_.store(extents, std::memory_order_release);
    return {};
  }

  // For tests: another host than that of attach().
  void set_host(HeapHost& host) { host_ = &host; }

  [[gnu::always_inline]] bool contains(std::uint64_t offset, std::size_t n) const {
    const std::uint64_t bytes = data_bytes();
    const std::uint64_t place = offset - geometry_.data_offset;
    return place < bytes && n <= bytes - place;
  }
  template <class T>
  T* at(std::uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  // Storage::read_alone().
  void read_alone(bool alone) { storage_.read_alone(alone); }
  std::uint64_t extent_bytes() const { return geometry_.extent_bytes; }
  std::uint64_t extent_count() const { return extent_count_.load(std::memory_order_acquire); }
  std::uint64_t data_offset() const { return geometry_.data_offset; }
  std::uint64_t max_data_bytes() const { return geometry_.max_extents * geometry_.extent_bytes; }
  // Whether an extent of the file starts here.
  bool is_extent(std::uint64_t offset) const {
    return contains(offset, geometry_.extent_bytes) &&
           (offset - geometry_.data_offset) % geometry_.extent_bytes == 0;
  }
  // True while blocks of extents that were assigned before the open may still be unmarked.
  bool sweeping() const { return sweeping_.load(std::memory_order_acquire); }

 protected:
  using Bits = typename P::template Atomic<std::uint64_t>;
  using Count = typename P::template Atomic<std::uint32_t>;
  using Flags = typename P::template Atomic<std::uint8_t>;
  using Place = typename P::template Atomic<std::uint32_t>;
  static constexpr std::uint32_t kNone = ~0U;
  static constexpr std::uint32_t kBatch = 64;  // the most blocks that a refill takes

  // DRAM state of one extent. `used` has a bit per block; inline_bits replaces it when 64 bits are
  // enough.
  struct alignas(64) Extent {  // so that threads do not write to one line
    Bits* used = nullptr;
    Bits inline_bits{0};
    // Blocks whose bit is clear or about to be cleared; a run's length.
    Count free_count{0};
    // The list that the extent is in (heap.I5): a thread's slot, the number of a ClassList beyond
    // those, or kNone.
    Place place{kNone};
    std::uint32_t next = kNone;  // in that list, or in a chain of empty extents
    std::uint32_t prev = kNone;
    ExtentState state = ExtentState::virgin;
    std::uint8_t size_class = 0;
    BlockKind kind = BlockKind::plain;
    Flags flags{0};

    bool has(std::uint8_t flag) const {
      return (flags.load(std::memory_order_acquire) & flag) != 0;
    }
    void set(std::uint8_t flag) { flags.fetch_or(flag, std::memory_order_release); }
    void clear(std::uint8_t flag) {
      flags.fetch_and(static_cast<std::uint8_t>(~flag), std::memory_order_release);
    }
    std::uint32_t count() const { return free_count.load(std::memory_order_acquire); }
    void set_count(std::uint32_t n) { free_count.store(n, std::memory_order_relaxed); }
  };
  static constexpr std::uint8_t kTouched = 1;     // assigned before this open
  static constexpr std::uint8_t kChanging = 2;    // a thread assigns or releases it right now
  static constexpr std::uint8_t kPunched = 4;     // space given back
  static constexpr std::uint8_t kInside = 8;      // inside a run, not its head; or holds a table
  static constexpr std::uint8_t kMaybeHole = 16;  // free since open, maybe punched earlier
  static constexpr std::uint8_t kKnown = 32;      // set up from its word: a slab or a run (table.h)
  static constexpr std::uint8_t kOld = 64;        // has content from before this open

  // Extents with free blocks. Under a latch; the length is also read without it.
  struct List {
    Place first{kNone};
    Count length{0};
  };
  // Those that belong to no thread: found by the sweep.
  struct alignas(64) ClassList {
    typename P::Latch latch;
    List partial;
  };
  // The blocks and extents of one thread, for one kind and class. Under the latch of the cache.
  struct Bin {
    std::uint32_t count = 0;
    List partial;
    std::uint64_t items[2 * kBatch];
  };
  struct Cache {
    BiasedLatch<P> latch;
    bool takes_larger = false;  // owner only
    Bin* bins[kBlockKinds][kClassCount] = {};
    // The same for other threads, which look before they pay for the latch.
    typename P::template Atomic<const Bin*> shown[kBlockKinds][kClassCount] = {};
  };

  std::uint64_t data_bytes() const { return extent_count() << extent_shift_; }
  std::uint64_t extent_of(std::uint64_t offset) const {
    return (offset - geometry_.data_offset) >> extent_shift_;
  }
  std::uint64_t offset_of(std::uint64_t extent) const {
    return geometry_.data_offset + (extent << extent_shift_);
  }
  std::uint64_t& table_word(std::uint64_t extent) const {
    return *at<std::uint64_t>(geometry_.word_offset(extent));
  }
  std::uint32_t blocks_in(const Extent& extent) const {
    return static_cast<std::uint32_t>(geometry_.extent_bytes / kClassSizes[extent.size_class]);
  }
  Bits* bits_of(Extent& extent) const {
    return extent.used != nullptr ? extent.used : &extent.inline_bits;
  }
  // The extent belongs to a slab or a run, or holds a table; under the extent latch.
  bool assigned(std::uint64_t extent) const {
    return (in_use_[extent / 64] >> (extent % 64) & 1) != 0;
  }
  // Whether the bitmap is an allocation of its own.
  bool is_own(const Bits* used) const {
    return used < places_.data() || used >= places_.data() + places_.capacity();
  }
  static bool is_set(Bits* bits, std::uint64_t n, std::memory_order order) {
    return (bits[n / 64].load(order) >> (n % 64) & 1) != 0;
  }
  static void clear_bit(Bits* bits, std::uint64_t n, std::memory_order order) {
    bits[n / 64].fetch_and(~(1ULL << (n % 64)), order);
  }
  static Status twice(std::uint64_t offset) {
    return Status::format(StatusCode::corruption, "the block at offset %lu is reached twice",
                          offset);
  }
  ClassList& list_of(BlockKind kind, std::uint32_t size_class) {
    return lists_[static_cast<std::uint32_t>(kind)][size_class];
  }
  static std::uint32_t place_of(BlockKind kind, std::uint32_t size_class) {
    return kMaxThreadSlots + static_cast<std::uint32_t>(kind) * kClassCount + size_class;
  }
  // The place of extents that are set aside.
  static constexpr std::uint32_t kAside = kMaxThreadSlots + kBlockKinds * kClassCount;

  // Call after memory was freed.
  void tell_space_freed() {
    P::light_fence();  // orders the free before the load; allocate() does it the other way round
    if (!starved_.load(std::memory_order_relaxed)) [[likely]]
      return;
    if (starved_.exchange(false, std::memory_order_seq_cst)) host_->space_freed();
  }

  // Extents were released, or a run was retired, which counts again when it is released. No latch
  // of the heap is held.
  void note_idle(std::uint64_t bytes) {
    const std::uint64_t before = idle_.fetch_add(bytes, std::memory_order_relaxed);
    if (before + bytes < idle_step_.load(std::memory_order_relaxed)) return;
    idle_.store(0, std::memory_order_relaxed);
    host_->space_idle();
  }

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
  // An allocation has failed with pool_full, and nothing was freed since.
  typename P::template Atomic<bool> starved_{false};
  std::uint64_t sweep_cursor_ = 0;
  static constexpr std::uint64_t kIdleStep = std::uint64_t{16} << 20;
  typename P::template Atomic<std::uint64_t> idle_{0};               // bytes, by note_idle()
  typename P::template Atomic<std::uint64_t> idle_step_{kIdleStep};  // the host is told each time

  // The extents before this one are unread (heap.I6). Changed under both latches of table.h.
  typename P::template Atomic<std::uint64_t> unread_{0};
  Arena<Extent> extents_;
  Arena<Bits> places_;            // the bitmaps of extents that were assigned before the open
  Arena<std::uint64_t> in_use_;   // bit per extent: assigned, or holds a table; under extent_latch_
  std::uint64_t first_free_ = 0;  // no free extent lies before it
  std::uint64_t assigned_ = 0;
  typename P::Latch extent_latch_;
  typename P::Latch growth_latch_;  // taken before extent_latch_
  std::uint32_t refused_at_ = 0;    // extents when an early growth failed last; under it
  // A thread has freed the last block of an extent in another thread's list.
  typename P::template Atomic<bool> empty_elsewhere_{false};
  ClassList lists_[kBlockKinds][kClassCount];
  ClassList aside_;  // extents that are being emptied (thin.h): nothing is allocated from them
  typename P::template Atomic<Cache*> caches_[kMaxThreadSlots] = {};
  typename P::template Atomic<std::uint32_t> caches_made_{0};  // none at or after this slot
  typename P::template Atomic<std::uint64_t> bitmap_bytes_{0};
  Arena<Bits> audit_;  // bit per 16 bytes of the data area, during an audit
};

}  // namespace perdure::heap
