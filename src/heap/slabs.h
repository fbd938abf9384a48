// Slabs: free blocks of a size class, in partial extents and in the caches of threads. Responsible
// for heap.I3.
#pragma once

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
    release_empty();
  }
  // From now on, an allocation of the calling thread takes a free block of a class up to
  // kMostLarger times as large if its own class has none. Only a last resort: classes would use up
  // each other's blocks.
  void take_larger(bool takes) {
    if (Cache* cache = this_cache(); cache != nullptr) cache->takes_larger = takes;
  }
  // Moves all threads' caches back to the bitmaps. Other threads may go on.
  [[gnu::noinline]] void flush_caches() {
    for (auto& slot : caches_) {
      Cache* cache = slot.load(std::memory_order_acquire);
      if (cache == nullptr) continue;
      LatchGuard guard(cache->latch);
      for (auto& row : cache->magazines) {
        for (Magazine* m : row) {
          if (m == nullptr || m->count == 0) continue;
          give_back(m->items, m->count);
          m->count = 0;
        }
      }
    }
    tell_space_freed();
  }
  // Gives free extents back to the file system. Returns the number of bytes.
  [[gnu::noinline]] Expected<std::uint64_t> punch_free() {
    reclaim();
    constexpr std::uint64_t kStep = 4096;  // extents per hold of the latch
    std::uint64_t bytes = 0;
    for (std::uint64_t begin = 0; begin < this->extent_count(); begin += kStep) {
      LatchGuard guard(extent_latch_);
      const std::uint64_t end =
          std::min(begin + kStep, extent_count_.load(std::memory_order_relaxed));
      const auto punchable = [&](std::uint64_t i) {
        // The word says free, or virgin: durable since release_extent.
        return !this->assigned(i) && !extents_[i].has(kPunched);
      };
      for (std::uint64_t i = begin; i < end; ++i) {
        if (!punchable(i)) continue;
        std::uint64_t stop = i + 1;
        while (stop < end && punchable(stop)) ++stop;
        const std::uint64_t length = (stop - i) << extent_shift_;
        if (Status s = this->storage_.punch(offset_of(i), length); !s.ok()) {
          return fail(std::move(s));
        }
        for (std::uint64_t j = i; j < stop; ++j) extents_[j].set(kPunched);
        bytes += length;
        i = stop;
      }
    }
    return bytes;
  }

 protected:
  using Base::bits_of, Base::blocks_in, Base::caches_, Base::clear_bit, Base::extent_count_,
      Base::extent_latch_, Base::extent_of, Base::extent_shift_, Base::extents_, Base::is_used,
      Base::kMagazine, Base::kNone, Base::kPartial, Base::kPunched, Base::kTouched, Base::list_of,
      Base::offset_of, Base::release_extent, Base::tell_space_freed;
  using typename Base::Bits, typename Base::Cache, typename Base::ClassList, typename Base::Extent,
      typename Base::Magazine;

  [[gnu::noinline]] Cache* this_cache() {
    auto& slot = caches_[P::thread_slot()];
    Cache* cache = slot.load(std::memory_order_acquire);
    if (cache != nullptr) [[likely]]
      return cache;
    Cache* fresh = new (std::nothrow) Cache;
    if (fresh != nullptr)
      slot.store(fresh, std::memory_order_release);  // the slot is this thread's own
    return fresh;
  }
  Magazine* magazine(Cache& cache, BlockKind kind, std::uint32_t size_class) {
    Magazine*& m = cache.magazines[static_cast<std::uint32_t>(kind)][size_class];
    if (m == nullptr) [[unlikely]] {
      m = static_cast<Magazine*>(std::calloc(1, sizeof(Magazine)));
    }
    return m;
  }
  static std::uint32_t batch_of(std::uint32_t size_class) {
    const std::uint32_t fit = 16384 / kClassSizes[size_class];
    return fit < 1 ? 1 : (fit > kMagazine / 2 ? kMagazine / 2 : fit);
  }
  // Fills an empty magazine from a partial extent, a new extent, or at last from other threads'
  // caches.
  [[gnu::noinline]] Status refill(Magazine& m, std::uint32_t size_class, BlockKind kind) {
    if (take_partial(m, size_class, kind)) return {};
    const ExtentWord word{.state = ExtentState::slab,
                          .kind = kind,
                          .size_class = static_cast<std::uint8_t>(size_class)};
    auto first = this->take_extents(1, word);
    if (!first) {
      if (first.error() == StatusCode::pool_full &&
          (steal(m, size_class, kind) || take_partial(m, size_class, kind))) {
        return {};
      }
      return std::move(first.error());
    }
    const auto number = static_cast<std::uint32_t>(*first);
    ClassList& list = list_of(kind, size_class);
    LatchGuard guard(list.latch);
    link_partial(list, number);
    m.count = take_from(number, m.items, batch_of(size_class));
    return {};
  }
  [[gnu::noinline]] bool take_partial(Magazine& m, std::uint32_t size_class, BlockKind kind) {
    ClassList& list = list_of(kind, size_class);
    LatchGuard guard(list.latch);
    if (list.partial == kNone) return false;
    m.count = take_from(list.partial, m.items, batch_of(size_class));
    return true;
  }
  // Takes one block from another thread's cache.
  [[gnu::noinline]] bool steal(Magazine& m, std::uint32_t size_class, BlockKind kind) {
    const Cache* own = caches_[P::thread_slot()].load(std::memory_order_relaxed);
    for (auto& slot : caches_) {
      Cache* other = slot.load(std::memory_order_acquire);
      if (other == nullptr || other == own || !other->latch.try_lock()) continue;
      Magazine* victim = other->magazines[static_cast<std::uint32_t>(kind)][size_class];
      if (victim != nullptr && victim->count > 0) {
        m.items[m.count++] = victim->items[--victim->count];
      }
      other->latch.unlock();
      if (m.count > 0) return true;
    }
    return false;
  }
  // Clears the bits of freed blocks, all of one class. An extent that becomes empty is released
  // unless it is the class's last.
  [[gnu::noinline]] void give_back(const std::uint64_t* items, std::uint32_t count) {
    if (count == 0) return;
    const Extent& first = extents_[extent_of(items[0])];
    ClassList& list = list_of(first.kind, first.size_class);
    LatchGuard guard(list.latch);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t number = extent_of(items[i]);
      Extent& extent = extents_[number];
      PERDURE_ASSERT(P, "heap.I3", is_used(items[i]) && extent.count() < blocks_in(extent));
      clear_bit(bits_of(extent), (items[i] - offset_of(number)) / kClassSizes[extent.size_class],
                std::memory_order_relaxed);
      extent.set_count(extent.count() + 1);
      if (!extent.has(kPartial)) link_partial(list, static_cast<std::uint32_t>(number));
      const bool last = list.partial == number && extent.next == kNone;
      if (extent.count() == blocks_in(extent) && !last) {
        unlink_partial(list, static_cast<std::uint32_t>(number));
        release_extent(static_cast<std::uint32_t>(number));
      }
    }
  }
  void link_partial(ClassList& list, std::uint32_t number) {
    Extent& extent = extents_[number];
    extent.prev = kNone;
    extent.next = list.partial;
    if (list.partial != kNone) extents_[list.partial].prev = number;
    list.partial = number;
    extent.set(kPartial);
  }

 private:
  void unlink_partial(ClassList& list, std::uint32_t number) {
    Extent& extent = extents_[number];
    if (extent.prev != kNone) extents_[extent.prev].next = extent.next;
    if (extent.next != kNone) extents_[extent.next].prev = extent.prev;
    if (list.partial == number) list.partial = extent.next;
    extent.next = extent.prev = kNone;
    extent.clear(kPartial);
  }
  // Takes up to `want` free blocks of a partial extent. The class latch is held.
  [[gnu::noinline]] std::uint32_t take_from(std::uint32_t number, std::uint64_t* items,
                                            std::uint32_t want) {
    Extent& extent = extents_[number];
    PERDURE_ASSERT(P, "heap.I4", !extent.has(kTouched));
    Bits* bits = bits_of(extent);
    const std::uint32_t blocks = blocks_in(extent);
    const std::uint32_t size = kClassSizes[extent.size_class];
    std::uint32_t taken = 0;
    for (std::uint32_t w = 0; w * 64 < blocks && taken < want; ++w) {
      std::uint64_t word = bits[w].load(std::memory_order_relaxed);
      while (~word != 0 && taken < want) {
        const auto bit = static_cast<std::uint32_t>(__builtin_ctzll(~word));
        if (w * 64 + bit >= blocks) break;
        word |= 1ULL << bit;
        items[taken++] = offset_of(number) + std::uint64_t{w * 64 + bit} * size;
      }
      bits[w].store(word, std::memory_order_relaxed);
    }
    // Hand out low addresses first: magazines pop from the end.
    for (std::uint32_t i = 0; i < taken / 2; ++i) std::swap(items[i], items[taken - 1 - i]);
    PERDURE_ASSERT(P, "heap.I3", taken != 0 && taken <= extent.count());
    extent.set_count(extent.count() - taken);
    if (extent.count() == 0) unlink_partial(list_of(extent.kind, extent.size_class), number);
    return taken;
  }
  // Releases the empty extents that a class keeps as its last.
  [[gnu::noinline]] void release_empty() {
    for (auto& row : this->lists_) {
      for (ClassList& list : row) {
        LatchGuard guard(list.latch);
        for (std::uint32_t i = list.partial; i != kNone;) {
          const std::uint32_t next = extents_[i].next;
          if (extents_[i].count() == blocks_in(extents_[i])) {
            unlink_partial(list, i);
            release_extent(i);
          }
          i = next;
        }
      }
    }
    tell_space_freed();
  }
};

}  // namespace perdure::heap
