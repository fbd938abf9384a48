// Heap: recovery sweep, audit and statistics. Included by heap.h only.
#pragma once

#include "heap/heap.h"

namespace perdure {

template <Platform P>
Status Heap<P>::begin_sweep() noexcept {
  const std::uint64_t count = extent_count_.load(std::memory_order_relaxed);
  for (std::uint64_t i = 0; i < count; ++i) {
    ExtentWord word;
    if (!ExtentWord::decode(platform_.load(table_word(i)), i, word,
                            P::verifies("heap.extent.crc"_site))) {
      return Status::format(StatusCode::corruption, "extent table: word %llu is damaged",
                            static_cast<unsigned long long>(i));
    }
    Extent& extent = extents_[i];
    if (word.state == ExtentState::virgin || word.state == ExtentState::free) {
      if (P::runs("heap.sweep.holes"_site)) extent.set(kMaybeHole);
      continue;
    }
    std::uint64_t length = 1;
    if (word.state == ExtentState::slab) {
      if (word.size_class >= max_class_) {
        return Status::format(StatusCode::corruption, "extent table: word %llu names size class %u",
                              static_cast<unsigned long long>(i), word.size_class);
      }
      if (!set_up_slab(extent, word.size_class, word.kind)) return StatusCode::out_of_memory;
    } else {
      length = word.run;
      if (length == 0 || length > count - i) {
        return Status::format(StatusCode::corruption, "extent table: run at %llu is too long",
                              static_cast<unsigned long long>(i));
      }
      extent.state = static_cast<std::uint8_t>(ExtentState::run);
      extent.kind = static_cast<std::uint8_t>(word.kind);
      extent.set_count(word.run);
      extent.inline_bits.store(0, std::memory_order_relaxed);
    }
    extent.set(kTouched);
    for (std::uint64_t j = i; j < i + length; ++j) {
      set_in_use(j, true);
      if (j != i) extents_[j].set(kInside);
    }
    i += length - 1;
  }
  sweeping_.store(true, std::memory_order_release);
  return {};
}

// Finds the block at `offset`, or says what is wrong with it.
template <Platform P>
Status Heap<P>::locate(std::uint64_t offset, std::uint64_t& number,
                       std::uint32_t& block) const noexcept {
  const auto bad = [offset](const char* what) {
    return Status::format(StatusCode::corruption, "offset %llu %s",
                          static_cast<unsigned long long>(offset), what);
  };
  if (!contains(offset, 16)) return bad("lies outside the pool's extents");
  number = extent_of(offset);
  const Extent& extent = extents_[number];
  const std::uint64_t inside = offset - offset_of(number);
  if (extent.state == static_cast<std::uint8_t>(ExtentState::run)) {
    if (inside != 0) return bad("points into a large object");
    block = 0;
    return {};
  }
  if (extent.state != static_cast<std::uint8_t>(ExtentState::slab) || extent.has(kInside)) {
    return bad("points into a free extent");
  }
  const std::uint32_t size = kClassSizes[extent.size_class];
  if (inside % size != 0 || inside / size >= blocks_in(extent))
    return bad("is not a block's start");
  block = static_cast<std::uint32_t>(inside / size);
  return {};
}

template <Platform P>
Status Heap<P>::mark(std::uint64_t offset) noexcept {
  std::uint64_t number = 0;
  std::uint32_t block = 0;
  if (Status s = locate(offset, number, block); !s.ok()) return s;
  // Of a map made since open: its blocks are allocated already, also while a sweep runs.
  if (!sweeping() || !extents_[number].has(kTouched)) return {};
  const std::uint64_t bit = 1ULL << (block % 64);
  const std::uint64_t before =
      bits_of(extents_[number])[block / 64].fetch_or(bit, std::memory_order_acq_rel);
  if ((before & bit) != 0 && P::verifies("heap.mark.once"_site)) {
    return Status::format(StatusCode::corruption, "the block at offset %llu is reached twice",
                          static_cast<unsigned long long>(offset));
  }
  return {};
}

template <Platform P>
Status Heap<P>::mark_serving(std::uint64_t offset) noexcept {
  std::uint64_t number = 0;
  std::uint32_t block = 0;
  if (Status s = locate(offset, number, block); !s.ok()) return s;
  if (!extents_[number].has(kTouched)) return {};
  bits_of(extents_[number])[block / 64].fetch_or(1ULL << (block % 64), std::memory_order_acq_rel);
  return {};
}

template <Platform P>
void Heap<P>::mark_copied(std::uint64_t offset) noexcept {
  if (sweeping()) (void)mark_serving(offset);
}

// Turns one touched slab's marks into free blocks; the class latch is held, so that a free() that
// comes meanwhile either clears its mark before or frees normally after. heap.I2: unreachable
// blocks that look alive are made durably dead before they can be handed out.
template <Platform P>
Status Heap<P>::sweep_slab(std::uint32_t number, bool complete) noexcept {
  Extent& extent = extents_[number];
  const std::uint32_t blocks = blocks_in(extent);
  const std::uint32_t size = kClassSizes[extent.size_class];
  Bits* bits = bits_of(extent);
  std::uint32_t used = 0;
  bool wrote = false;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    if (!complete) bits[b / 64].fetch_or(1ULL << (b % 64), std::memory_order_relaxed);
    if ((bits[b / 64].load(std::memory_order_acquire) >> (b % 64) & 1) != 0) {
      ++used;
      continue;
    }
    if (extent.kind == static_cast<std::uint8_t>(BlockKind::plain)) continue;
    if (!P::runs("heap.sweep.dead"_site)) continue;
    auto* words = at<std::uint64_t>(offset_of(number) + std::uint64_t{b} * size);
    const std::size_t count =
        extent.kind == static_cast<std::uint8_t>(BlockKind::dead_on_free) ? 1 : size / 8;
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
  extent.set_count(blocks - used);
  extent.clear(kTouched);
  return {};
}

template <Platform P>
Status Heap<P>::sweep_extent(std::uint32_t number, bool complete) noexcept {
  Extent& extent = extents_[number];
  if (extent.state == static_cast<std::uint8_t>(ExtentState::run)) {
    bool reached = true;
    {
      LatchGuard guard(extent_latch_);
      extent.clear(kTouched);
      reached = extent.inline_bits.load(std::memory_order_acquire) != 0;
    }
    if (!reached && complete && P::runs("heap.sweep.run"_site)) release_extent(number);
    return {};
  }
  ClassList& list = lists_[extent.kind][extent.size_class];
  LatchGuard guard(list.latch);
  if (Status s = sweep_slab(number, complete); !s.ok()) return s;
  if (extent.count() == blocks_in(extent)) {
    if (P::runs("heap.sweep.slab"_site)) release_extent(number);
  } else if (extent.count() > 0 && P::runs("heap.sweep.partial"_site)) {
    link_partial(list, number);
  }
  return {};
}

template <Platform P>
Expected<bool> Heap<P>::sweep_some(bool complete, std::uint64_t extents) noexcept {
  if (!sweeping()) return false;
  const std::uint64_t count = extent_count_.load(std::memory_order_relaxed);
  const std::uint64_t end = std::min(count, sweep_cursor_ + std::min(extents, count));
  for (; sweep_cursor_ < end; ++sweep_cursor_) {
    if (!extents_[sweep_cursor_].has(kTouched)) continue;
    Status s = sweep_extent(static_cast<std::uint32_t>(sweep_cursor_), complete);
    if (!s.ok()) return fail(std::move(s));
  }
  if (end < count) return true;
  sweeping_.store(false, std::memory_order_release);
  tell_space_freed();
  return false;
}

template <Platform P>
Status Heap<P>::end_sweep(bool complete) noexcept {
  auto more = sweep_some(complete, ~std::uint64_t{0});
  return more ? Status() : std::move(more.error());
}

template <Platform P>
void Heap<P>::flush_caches() noexcept {
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

// Gives back the empty extents that a class keeps as its last.
template <Platform P>
void Heap<P>::release_empty() noexcept {
  for (auto& row : lists_) {
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

template <Platform P>
Expected<std::uint64_t> Heap<P>::punch_free() noexcept {
  reclaim();
  constexpr std::uint64_t kStep = 4096;  // extents per hold of the latch
  std::uint64_t bytes = 0;
  for (std::uint64_t begin = 0; begin < extent_count_.load(std::memory_order_acquire);
       begin += kStep) {
    LatchGuard guard(extent_latch_);
    const std::uint64_t end =
        std::min(begin + kStep, extent_count_.load(std::memory_order_relaxed));
    const auto punchable = [&](std::uint64_t i) {
      // The word says free, or virgin: durable since release_extent.
      return (in_use_[i / 64] >> (i % 64) & 1) == 0 && !extents_[i].has(kPunched);
    };
    for (std::uint64_t i = begin; i < end; ++i) {
      if (!punchable(i)) continue;
      std::uint64_t stop = i + 1;
      while (stop < end && punchable(stop)) ++stop;
      const std::uint64_t length = (stop - i) << extent_shift_;
      if (Status s = storage_.punch(offset_of(i), length); !s.ok()) return fail(std::move(s));
      for (std::uint64_t j = i; j < stop; ++j) extents_[j].set(kPunched);
      bytes += length;
      i = stop;
    }
  }
  return bytes;
}

template <Platform P>
template <class F>
void Heap<P>::for_each_assigned(F&& visit) noexcept {
  const std::uint64_t count = extent_count_.load(std::memory_order_acquire);
  const auto assigned = [&](std::uint64_t i) {
    return i < count && (in_use_[i / 64] >> (i % 64) & 1) != 0;
  };
  for (std::uint64_t i = 0, end = 0; i < count; i = end + 1) {
    {
      LatchGuard guard(extent_latch_);
      while (i < count && !assigned(i)) ++i;
      for (end = i; assigned(end); ++end) {
      }
    }
    if (end > i) visit(at<std::byte>(offset_of(i)), (end - i) << extent_shift_);
  }
}

template <Platform P>
bool Heap<P>::next_assigned(std::uint64_t& cursor, std::uint64_t most, std::uint64_t& offset,
                            std::uint64_t& bytes) noexcept {
  LatchGuard guard(extent_latch_);
  const std::uint64_t count = extent_count_.load(std::memory_order_relaxed);
  const auto assigned = [&](std::uint64_t i) { return (in_use_[i / 64] >> (i % 64) & 1) != 0; };
  while (cursor < count && !assigned(cursor)) ++cursor;
  const std::uint64_t first = cursor;
  while (cursor < count && cursor - first < most && assigned(cursor)) ++cursor;
  offset = offset_of(first);
  bytes = (cursor - first) << extent_shift_;
  return bytes != 0;
}

template <Platform P>
template <class F>
void Heap<P>::verify_table(F&& bad) noexcept {
  LatchGuard guard(extent_latch_);
  for (std::uint64_t i = 0; i < extent_count_.load(std::memory_order_relaxed); ++i) {
    if (extents_[i].has(kInside)) continue;  // its word is not read while the run lives
    ExtentWord word;
    if (!ExtentWord::decode(platform_.load(table_word(i)), i, word,
                            P::verifies("heap.extent.crc"_site))) {
      bad("a word of the extent table is damaged");
      continue;
    }
    const bool assigned = word.state == ExtentState::slab || word.state == ExtentState::run;
    if (assigned != ((in_use_[i / 64] >> (i % 64) & 1) != 0)) {
      bad("a word of the extent table differs from its extent's use");
    }
  }
}

template <Platform P>
Status Heap<P>::begin_audit() noexcept {
  const std::uint64_t bytes = data_end() - geometry_.data_offset;
  return audit_.reserve(bytes / 16 / 64 + 1);
}

template <Platform P>
Status Heap<P>::audit_mark(std::uint64_t offset) noexcept {
  std::uint64_t number = 0;
  std::uint32_t block = 0;
  if (Status s = locate(offset, number, block); !s.ok()) return s;
  if ((bits_of(extents_[number])[block / 64].load(std::memory_order_acquire) >> (block % 64) & 1) ==
      0) {
    return Status::format(StatusCode::corruption, "the block at offset %llu is in use but free",
                          static_cast<unsigned long long>(offset));
  }
  const std::uint64_t at16 = (offset - geometry_.data_offset) / 16;
  const std::uint64_t bit = 1ULL << (at16 % 64);
  if ((audit_[at16 / 64].fetch_or(bit, std::memory_order_acq_rel) & bit) != 0) {
    return Status::format(StatusCode::corruption, "the block at offset %llu is reached twice",
                          static_cast<unsigned long long>(offset));
  }
  return {};
}

template <Platform P>
std::uint64_t Heap<P>::end_audit() noexcept {
  const std::uint64_t count = extent_count_.load(std::memory_order_acquire);
  std::uint64_t leaked = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    Extent& extent = extents_[i];
    if ((in_use_[i / 64] >> (i % 64) & 1) == 0 || extent.has(kInside)) continue;
    const bool slab = extent.state == static_cast<std::uint8_t>(ExtentState::slab);
    const std::uint32_t blocks = slab ? blocks_in(extent) : 1;
    const std::uint64_t size = slab ? kClassSizes[extent.size_class] : 0;
    for (std::uint32_t b = 0; b < blocks; ++b) {
      if ((bits_of(extent)[b / 64].load(std::memory_order_relaxed) >> (b % 64) & 1) == 0) continue;
      const std::uint64_t at16 = ((i << extent_shift_) + b * size) / 16;
      if ((audit_[at16 / 64].load(std::memory_order_relaxed) >> (at16 % 64) & 1) == 0) ++leaked;
    }
  }
  audit_.release();
  return leaked;
}

template <Platform P>
HeapStats Heap<P>::stats() noexcept {
  HeapStats out;
  {
    LatchGuard guard(extent_latch_);
    out.extents = extent_count_.load(std::memory_order_relaxed);
    out.assigned_extents = assigned_;
    for (std::uint64_t i = 0; i < out.extents; ++i) {
      const Extent& extent = extents_[i];
      if (extent.has(kPunched)) ++out.punched_extents;
      if ((in_use_[i / 64] >> (i % 64) & 1) == 0 || extent.has(kInside)) continue;
      if (extent.state == static_cast<std::uint8_t>(ExtentState::slab)) {
        out.allocated_bytes +=
            std::uint64_t{blocks_in(extent) - extent.count()} * kClassSizes[extent.size_class];
      } else {
        out.allocated_bytes += std::uint64_t{extent.count()} << extent_shift_;
      }
    }
    out.dram_bytes = out.extents * sizeof(Extent) + out.extents / 8;
  }
  for (auto& slot : caches_) {
    Cache* cache = slot.load(std::memory_order_acquire);
    if (cache == nullptr) continue;
    out.dram_bytes += sizeof(Cache);
    LatchGuard guard(cache->latch);
    for (auto& row : cache->magazines) {
      for (std::uint32_t c = 0; c < kClassCount; ++c) {
        if (row[c] == nullptr) continue;
        out.dram_bytes += sizeof(Magazine);
        out.cached_bytes += std::uint64_t{row[c]->count} * kClassSizes[c];
      }
    }
  }
  out.dram_bytes += bitmap_bytes_.load(std::memory_order_relaxed);
  return out;
}

}  // namespace perdure
