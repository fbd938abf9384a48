// Heap: allocation and freeing. Included by heap.h only.
#pragma once

#include <algorithm>
#include <utility>

#include "heap/heap.h"

namespace perdure {

template <Platform P>
Heap<P>::~Heap() {
  for (auto& slot : caches_) {
    Cache* cache = slot.load(std::memory_order_acquire);
    if (cache == nullptr) continue;
    for (auto& row : cache->magazines) {
      for (Magazine* m : row) std::free(m);
    }
    delete cache;
  }
  const std::uint64_t extents = extent_count_.load(std::memory_order_acquire);
  for (std::uint64_t i = 0; extents_.data() != nullptr && i < extents; ++i) {
    std::free(static_cast<void*>(extents_[i].used));
  }
}

template <Platform P>
Status Heap<P>::attach(const HeapGeometry& geometry, std::uint64_t extents,
                       HeapHost& host) noexcept {
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

template <Platform P>
std::size_t Heap<P>::block_bytes(std::uint64_t offset) const noexcept {
  if (!contains(offset, 16)) return 0;
  const Extent& extent = extents_[extent_of(offset)];
  if (extent.state == static_cast<std::uint8_t>(ExtentState::run)) {
    return static_cast<std::size_t>(extent.count()) << extent_shift_;
  }
  return kClassSizes[extent.size_class];
}

template <Platform P>
typename Heap<P>::Cache* Heap<P>::this_cache() noexcept {
  auto& slot = caches_[P::thread_slot()];
  Cache* cache = slot.load(std::memory_order_acquire);
  if (cache != nullptr) [[likely]]
    return cache;
  Cache* fresh = new (std::nothrow) Cache;
  if (fresh != nullptr)
    slot.store(fresh, std::memory_order_release);  // the slot is this thread's own
  return fresh;
}

template <Platform P>
typename Heap<P>::Magazine* Heap<P>::magazine(Cache& cache, std::uint32_t kind,
                                              std::uint32_t size_class) noexcept {
  Magazine*& m = cache.magazines[kind][size_class];
  if (m == nullptr) [[unlikely]] {
    m = static_cast<Magazine*>(std::calloc(1, sizeof(Magazine)));
  }
  return m;
}

template <Platform P>
Expected<std::uint64_t> Heap<P>::allocate(std::size_t n, BlockKind kind) noexcept {
  for (;;) {
    const bool swept_later = sweeping();  // before the look: the sweep may end meanwhile
    auto block = allocate_now(n, kind);
    if (block.has_value()) [[likely]]
      return block;
    if (block.error() != StatusCode::pool_full) return block;
    // heap.I4: touched extents may have free blocks, but only the sweep's end can tell.
    if (swept_later && help_sweep()) continue;
    if (auto larger = allocate_larger(n, kind); larger.has_value()) return larger;
    // Once more after the watch is set: a free comes before that look, or is heard of.
    if (space_watch_ == nullptr || starved_.exchange(true, std::memory_order_seq_cst)) return block;
    (void)P::heavy_fence();
  }
}

// No latch is held: a step of the sweep frees and allocates, and may wait for another thread that
// wants this one's cache.
template <Platform P>
bool Heap<P>::help_sweep() noexcept {
  return !sweeping() || (helper_ != nullptr && helper_(helper_context_));
}

template <Platform P>
[[gnu::always_inline]] inline Expected<std::uint64_t> Heap<P>::allocate_now(
    std::size_t n, BlockKind kind) noexcept {
  const std::uint32_t size_class = class_of(n);
  if (size_class >= max_class_) {
    return allocate_run((n + geometry_.extent_bytes - 1) >> extent_shift_, kind);
  }
  Cache* cache = this_cache();
  if (cache == nullptr) return fail(StatusCode::out_of_memory);
  LatchGuard guard(cache->latch);
  Magazine* m = magazine(*cache, static_cast<std::uint32_t>(kind), size_class);
  if (m == nullptr) return fail(StatusCode::out_of_memory);
  if (m->count == 0) {
    if (Status s = refill(*m, size_class, kind); !s.ok()) return fail(std::move(s));
  }
  ++P::counters().allocations;
  return m->items[--m->count];
}

template <Platform P>
bool Heap<P>::is_used(std::uint64_t offset) noexcept {
  std::uint64_t number = 0;
  std::uint32_t block = 0;
  return locate(offset, number, block).ok() &&
         (bits_of(extents_[number])[block / 64].load(std::memory_order_acquire) >> (block % 64) &
          1) != 0;
}

// A run that must be zero is zeroed when its extents are used again.
template <Platform P>
bool Heap<P>::is_dead(std::uint64_t offset) noexcept {
  const Extent& extent = extents_[extent_of(offset)];
  const bool run = extent.state == static_cast<std::uint8_t>(ExtentState::run);
  const bool whole = extent.kind == static_cast<std::uint8_t>(BlockKind::zero_on_free);
  return is_plain(offset) || (whole && run) || platform_.poisoned() ||
         platform_.persisted(at<std::byte>(offset), whole ? block_bytes(offset) : 8);
}

template <Platform P>
void Heap<P>::free(std::uint64_t offset) noexcept {
  PERDURE_ASSERT(P, "heap.I2", is_dead(offset));
  const std::uint64_t number = extent_of(offset);
  Extent& extent = extents_[number];
  if (extent.state == static_cast<std::uint8_t>(ExtentState::run)) {
    free_run(number);
    return;
  }
  if (extent.has(kTouched) && sweeping()) {
    // heap.I4: only the mark is cleared; the sweep's end builds the free list from the marks. The
    // latch decides whether it has done so for this extent.
    LatchGuard guard(lists_[extent.kind][extent.size_class].latch);
    if (extent.has(kTouched)) {
      PERDURE_ASSERT(P, "heap.I4", is_used(offset));
      const std::uint64_t block = (offset - offset_of(number)) / kClassSizes[extent.size_class];
      bits_of(extent)[block / 64].fetch_and(~(1ULL << (block % 64)), std::memory_order_acq_rel);
      return;
    }
  }
  PERDURE_ASSERT(P, "heap.I3", is_used(offset));
  Cache* cache = this_cache();
  Magazine* m = nullptr;
  if (cache != nullptr) {
    cache->latch.lock();
    m = magazine(*cache, extent.kind, extent.size_class);
  }
  if (m == nullptr) {
    give_back(&offset, 1);
  } else {
    const std::uint32_t keep = batch_of(extent.size_class) * 2;
    if (m->count >= keep) {
      const std::uint32_t half = keep / 2;
      give_back(m->items, half);  // the coldest half
      std::memmove(m->items, m->items + half, (m->count - half) * sizeof(m->items[0]));
      m->count -= half;
    }
    m->items[m->count++] = offset;
  }
  if (cache != nullptr) cache->latch.unlock();
  tell_space_freed();
}

template <Platform P>
void Heap<P>::prepare_free(std::uint64_t offset) noexcept {
  const Extent& extent = extents_[extent_of(offset)];
  if (extent.kind == static_cast<std::uint8_t>(BlockKind::dead_on_free)) {
    platform_.store(*at<std::uint64_t>(offset), 0);
    platform_.flush(at<std::uint64_t>(offset), 8, "heap.free.dead"_site);
  } else if (extent.kind == static_cast<std::uint8_t>(BlockKind::zero_on_free) &&
             extent.state != static_cast<std::uint8_t>(ExtentState::run)) {
    // The extents of a run become free, and make_ready() zeroes those: not twice.
    platform_.zero(at<std::byte>(offset), block_bytes(offset));
    platform_.flush(at<std::byte>(offset), block_bytes(offset), "heap.free.zero"_site);
  }
}

template <Platform P>
void Heap<P>::touch_free(std::uint64_t offset) const noexcept {
  __builtin_prefetch(at<std::byte>(offset), 1);
  const std::uint64_t number = extent_of(offset);
  const Extent& extent = extents_[number];
  if (extent.used == nullptr) return;
  const std::uint64_t block = (offset - offset_of(number)) / kClassSizes[extent.size_class];
  __builtin_prefetch(&extent.used[block / 64], 1);
}

// One of a larger class, aligned as well.
template <Platform P>
Expected<std::uint64_t> Heap<P>::allocate_larger(std::size_t n, BlockKind kind) noexcept {
  const std::uint32_t own = class_of(n);
  Cache* cache = this_cache();
  if (cache == nullptr || !cache->takes_larger || own >= max_class_)
    return fail(StatusCode::pool_full);
  const std::uint32_t alignment = kClassSizes[own] & -kClassSizes[own];
  for (std::uint32_t c = own + 1; c < max_class_; ++c) {
    if (kClassSizes[c] > kMostLarger * kClassSizes[own]) break;
    if (kClassSizes[c] % alignment != 0) continue;
    LatchGuard guard(cache->latch);
    Magazine* m = magazine(*cache, static_cast<std::uint32_t>(kind), c);
    if (m == nullptr) break;
    if (m->count == 0 && !take_partial(*m, c, kind) && !steal(*m, c, kind)) continue;
    ++P::counters().allocations;
    return m->items[--m->count];
  }
  return fail(StatusCode::pool_full);
}

// Fills an empty magazine from a partial extent, a new extent, or at last from the other threads'
// caches.
template <Platform P>
Status Heap<P>::refill(Magazine& m, std::uint32_t size_class, BlockKind kind) noexcept {
  if (take_partial(m, size_class, kind)) return {};
  const ExtentWord word{.state = ExtentState::slab,
                        .kind = kind,
                        .size_class = static_cast<std::uint8_t>(size_class)};
  auto first = take_extents(1, word);
  if (!first) {
    if (first.error() == StatusCode::pool_full &&
        (steal(m, size_class, kind) || take_partial(m, size_class, kind))) {
      return {};
    }
    return std::move(first.error());
  }
  const auto number = static_cast<std::uint32_t>(*first);
  ClassList& list = lists_[static_cast<std::uint32_t>(kind)][size_class];
  LatchGuard guard(list.latch);
  link_partial(list, number);
  m.count = take_from(number, m.items, batch_of(size_class));
  return {};
}

template <Platform P>
bool Heap<P>::take_partial(Magazine& m, std::uint32_t size_class, BlockKind kind) noexcept {
  ClassList& list = lists_[static_cast<std::uint32_t>(kind)][size_class];
  LatchGuard guard(list.latch);
  if (list.partial == kNone) return false;
  m.count = take_from(list.partial, m.items, batch_of(size_class));
  return true;
}

// One block of another thread's cache.
template <Platform P>
bool Heap<P>::steal(Magazine& m, std::uint32_t size_class, BlockKind kind) noexcept {
  const Cache* own = caches_[P::thread_slot()].load(std::memory_order_relaxed);
  for (auto& slot : caches_) {
    Cache* other = slot.load(std::memory_order_acquire);
    if (other == nullptr || other == own || !other->latch.try_lock()) continue;
    Magazine* victim = other->magazines[static_cast<std::uint32_t>(kind)][size_class];
    if (victim != nullptr && victim->count > 0) m.items[m.count++] = victim->items[--victim->count];
    other->latch.unlock();
    if (m.count > 0) return true;
  }
  return false;
}

// Takes up to `want` free blocks of a partial extent; the class latch is held.
template <Platform P>
std::uint32_t Heap<P>::take_from(std::uint32_t number, std::uint64_t* items,
                                 std::uint32_t want) noexcept {
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
  if (extent.count() == 0) {
    unlink_partial(lists_[extent.kind][extent.size_class], number);
  }
  return taken;
}

// Clears the bits of freed blocks, all of one class; an extent that has become empty goes back
// unless it is the class's last.
template <Platform P>
void Heap<P>::give_back(const std::uint64_t* items, std::uint32_t count) noexcept {
  if (count == 0) return;
  const Extent& first = extents_[extent_of(items[0])];
  ClassList& list = lists_[first.kind][first.size_class];
  LatchGuard guard(list.latch);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t number = extent_of(items[i]);
    Extent& extent = extents_[number];
    PERDURE_ASSERT(P, "heap.I3", is_used(items[i]) && extent.count() < blocks_in(extent));
    const std::uint64_t block = (items[i] - offset_of(number)) / kClassSizes[extent.size_class];
    bits_of(extent)[block / 64].fetch_and(~(1ULL << (block % 64)), std::memory_order_relaxed);
    extent.set_count(extent.count() + 1);
    if (!extent.has(kPartial)) link_partial(list, static_cast<std::uint32_t>(number));
    const bool last = list.partial == number && extent.next == kNone;
    if (extent.count() == blocks_in(extent) && !last) {
      unlink_partial(list, static_cast<std::uint32_t>(number));
      release_extent(static_cast<std::uint32_t>(number));
    }
  }
}

template <Platform P>
void Heap<P>::link_partial(ClassList& list, std::uint32_t number) noexcept {
  Extent& extent = extents_[number];
  extent.prev = kNone;
  extent.next = list.partial;
  if (list.partial != kNone) extents_[list.partial].prev = number;
  list.partial = number;
  extent.set(kPartial);
}

template <Platform P>
void Heap<P>::unlink_partial(ClassList& list, std::uint32_t number) noexcept {
  Extent& extent = extents_[number];
  if (extent.prev != kNone) extents_[extent.prev].next = extent.next;
  if (extent.next != kNone) extents_[extent.next].prev = extent.prev;
  if (list.partial == number) list.partial = extent.next;
  extent.next = extent.prev = kNone;
  extent.clear(kPartial);
}

template <Platform P>
bool Heap<P>::set_up_slab(Extent& extent, std::uint32_t size_class, BlockKind kind) noexcept {
  extent.size_class = static_cast<std::uint8_t>(size_class);
  extent.kind = static_cast<std::uint8_t>(kind);
  extent.state = static_cast<std::uint8_t>(ExtentState::slab);
  extent.next = extent.prev = kNone;
  extent.set_count(blocks_in(extent));
  extent.inline_bits.store(0, std::memory_order_relaxed);
  std::free(static_cast<void*>(extent.used));
  extent.used = nullptr;
  const std::uint32_t words = (extent.count() + 63) / 64;
  if (words == 1) return true;
  extent.used = static_cast<Bits*>(std::calloc(words, sizeof(Bits)));
  if (extent.used == nullptr) return false;
  bitmap_bytes_.fetch_add(words * sizeof(Bits), std::memory_order_relaxed);
  return true;
}

template <Platform P>
void Heap<P>::tear_down(Extent& extent) noexcept {
  if (extent.used != nullptr) {
    bitmap_bytes_.fetch_sub((blocks_in(extent) + 63) / 64 * sizeof(Bits),
                            std::memory_order_relaxed);
    std::free(static_cast<void*>(extent.used));
    extent.used = nullptr;
  }
  extent.clear(kTouched | kPartial | kInside);
  extent.set_count(0);
}

// --- extents ---

template <Platform P>
void Heap<P>::set_in_use(std::uint64_t extent, bool in_use) noexcept {
  const std::uint64_t bit = 1ULL << (extent % 64);
  if (in_use) {
    in_use_[extent / 64] |= bit;
    ++assigned_;
  } else {
    in_use_[extent / 64] &= ~bit;
    --assigned_;
    if (extent < first_free_) first_free_ = extent;
  }
}

// The first run of `count` free extents in the file, on request only such that have space behind
// them; the extent latch is held.
template <Platform P>
bool Heap<P>::find_free(std::uint64_t count, std::uint64_t& first, bool backed_only) noexcept {
  const std::uint64_t end = extent_count_.load(std::memory_order_relaxed);
  std::uint64_t run = 0;
  for (std::uint64_t i = first_free_; i < end; ++i) {
    if (i % 64 == 0 && in_use_[i / 64] == ~std::uint64_t{0}) {
      run = 0;
      i += 63;
      continue;
    }
    const bool used = (in_use_[i / 64] >> (i % 64) & 1) != 0;
    if (used || (backed_only && (extents_[i].has(kPunched) || extents_[i].has(kMaybeHole)))) {
      run = 0;
    } else if (++run == count) {
      first = i + 1 - count;
      if (count == 1 && !backed_only) first_free_ = first;
      return true;
    }
  }
  return false;
}

// How many extents at the end of the file are free: growth continues them.
template <Platform P>
std::uint64_t Heap<P>::free_at_end() const noexcept {
  const std::uint64_t end = extent_count_.load(std::memory_order_relaxed);
  std::uint64_t n = 0;
  while (n < end && (in_use_[(end - 1 - n) / 64] >> ((end - 1 - n) % 64) & 1) == 0) ++n;
  return n;
}

// Assigns `count` adjacent extents, growing the pool if need be.
template <Platform P>
Expected<std::uint64_t> Heap<P>::take_extents(std::uint64_t count,
                                              const ExtentWord& word) noexcept {
  LatchGuard guard(extent_latch_);
  std::uint64_t first = 0;
  if (!find_free(count, first, false)) {
    auto grown = host_->grow(count - std::min(count, free_at_end()));
    if (!grown) return grown;
    extent_count_.store(*grown, std::memory_order_release);
    if (!find_free(count, first, false)) return fail(StatusCode::pool_full);
  }
  Status s = assign(first, count, word);
  // The medium is full where these lie; others may have their space.
  if (s == StatusCode::pool_full && find_free(count, first, true)) s = assign(first, count, word);
  if (!s.ok()) return fail(std::move(s));
  return first;
}

// Persist point: the word of the first extent. The extent latch is held.
template <Platform P>
Status Heap<P>::assign(std::uint64_t first, std::uint64_t count, const ExtentWord& word) noexcept {
  if (Status s = make_ready(first, count, word.kind); !s.ok()) return s;
  Extent& head = extents_[first];
  if (word.state == ExtentState::slab) {
    if (!set_up_slab(head, word.size_class, word.kind)) return StatusCode::out_of_memory;
  } else {
    head.kind = static_cast<std::uint8_t>(word.kind);
    head.state = static_cast<std::uint8_t>(ExtentState::run);
    head.set_count(static_cast<std::uint32_t>(count));  // a run's length
    head.inline_bits.store(1, std::memory_order_relaxed);
    for (std::uint64_t i = first + 1; i < first + count; ++i) extents_[i].set(kInside);
  }
  std::uint64_t& slot = table_word(first);
  platform_.store(slot, word.encode(first));
  platform_.flush(&slot, 8, "heap.extent.assign"_site);
  if (!platform_.fence("heap.extent.assign"_site)) return StatusCode::poisoned;
  PERDURE_ASSERT(P, "heap.I1", platform_.persisted(&slot, 8));
  PERDURE_ASSERT(P, "heap.I2",
                 word.kind == BlockKind::plain ||
                     platform_.persisted(at<std::byte>(offset_of(first)), count << extent_shift_));
  for (std::uint64_t i = first; i < first + count; ++i) set_in_use(i, true);
  return {};
}

// Free extents may be punched (no space behind them) or hold old content (wrong for heap.I2). What
// is zeroed here is fenced with the extent's word: no block is handed out before, and the blocks of
// an extent whose word a crash kept are swept.
template <Platform P>
Status Heap<P>::make_ready(std::uint64_t first, std::uint64_t count, BlockKind kind) noexcept {
  for (std::uint64_t i = first; i < first + count; ++i) {
    Extent& extent = extents_[i];
    PERDURE_ASSERT(P, "heap.I4", !extent.has(kTouched));
    ExtentWord word;
    (void)ExtentWord::decode(platform_.load(table_word(i)), i, word);
    if (extent.has(kPunched) || extent.has(kMaybeHole)) {
      Status s = storage_.allocate(offset_of(i), geometry_.extent_bytes);
      if (!s.ok()) return s;
      extent.clear(kPunched | kMaybeHole);
    }
    if (kind != BlockKind::plain && word.state != ExtentState::virgin) {
      platform_.zero(at<std::byte>(offset_of(i)), geometry_.extent_bytes);
      platform_.flush(at<std::byte>(offset_of(i)), geometry_.extent_bytes, "heap.extent.zero"_site);
    }
    tear_down(extent);
  }
  return {};
}

// Returns extents without blocks. A run's inner words come first: while the head still names the
// run they are ignored, and once it does not they must say `free`, not virgin (heap.I2).
template <Platform P>
void Heap<P>::release_extent(std::uint32_t number) noexcept {
  LatchGuard guard(extent_latch_);
  Extent& extent = extents_[number];
  const bool run = extent.state == static_cast<std::uint8_t>(ExtentState::run);
  const std::uint64_t count = run ? extent.count() : 1;
  const auto release = [&](std::uint64_t i) {
    std::uint64_t& slot = table_word(i);
    platform_.store(slot, ExtentWord{.state = ExtentState::free}.encode(i));
    platform_.flush(&slot, 8, "heap.extent.release"_site);
  };
  for (std::uint64_t i = number + std::uint64_t{1}; i < number + count; ++i) {
    release(i);
    extents_[i].clear(kInside);
  }
  if (count > 1) (void)platform_.fence("heap.run.release"_site);
  release(number);
  (void)platform_.fence("heap.extent.release"_site);
  tear_down(extent);
  extent.state = static_cast<std::uint8_t>(ExtentState::free);
  for (std::uint64_t i = number; i < number + count; ++i) set_in_use(i, false);
}

template <Platform P>
Expected<std::uint64_t> Heap<P>::allocate_run(std::uint64_t extents, BlockKind kind) noexcept {
  const ExtentWord word{
      .state = ExtentState::run, .kind = kind, .run = static_cast<std::uint32_t>(extents)};
  auto first = take_extents(extents, word);
  if (!first) return first;
  ++P::counters().allocations;
  return offset_of(*first);
}

template <Platform P>
void Heap<P>::expect(std::size_t n) noexcept {
  if (class_of(n) < max_class_) return;
  const std::uint64_t count = (n + geometry_.extent_bytes - 1) >> extent_shift_;
  LatchGuard guard(extent_latch_);
  std::uint64_t first = 0;
  if (!find_free(count, first, false)) host_->expect(count - std::min(count, free_at_end()));
}

template <Platform P>
void Heap<P>::free_run(std::uint64_t extent) noexcept {
  {
    LatchGuard guard(extent_latch_);  // as in free(): it decides whether the sweep was here
    if (extents_[extent].has(kTouched) && sweeping()) {
      extents_[extent].inline_bits.store(0, std::memory_order_release);
      return;
    }
  }
  release_extent(static_cast<std::uint32_t>(extent));
  tell_space_freed();
}

}  // namespace perdure
