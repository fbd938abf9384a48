// Clevel: growing, and the rehash in the background. Included by clevel.h only.
#pragma once

#include <algorithm>
#include <new>
#include <utility>

#include "index/clevel/clevel.h"

namespace perdure::clevel {

// The ring's word of a level.
template <Platform P, class Codec, class G>
std::uint64_t Clevel<P, Codec, G>::level_word(std::uint64_t offset,
                                              std::uint64_t buckets) noexcept {
  const std::uint64_t word = offset | static_cast<std::uint64_t>(__builtin_ctzll(buckets));
  return word | std::uint64_t{crc32c(0, &word, sizeof(word)) & 0xFFFF} << kOffsetBits;
}

template <Platform P, class Codec, class G>
bool Clevel<P, Codec, G>::store_ring(std::uint32_t index, std::uint64_t word) noexcept {
  context_.platform.store(root_->levels[index], word);
  context_.platform.flush(&root_->levels[index], sizeof(word), "clevel.ring.word"_site);
  return context_.platform.fence("clevel.ring.word"_site);
}

// Whether so many of the level's slots are used that a full bucket is no wonder. A key whose
// buckets are full in an empty table shares them with keys that were chosen to.
template <Platform P, class Codec, class G>
bool Clevel<P, Codec, G>::crowded(const Level& level) const noexcept {
  constexpr std::uint64_t kSample = 64;
  if (level.count <= kSample) return true;
  std::uint64_t used = 0;
  for (std::uint64_t i = 0; i < kSample; ++i) {
    const Bucket& bucket = level.buckets[i * (level.count / kSample)];
    for (std::uint32_t s = 0; s < G::kSlots; ++s) {
      used += context_.platform.load(bucket.slots[s]) != 0 ? 1 : 0;
    }
  }
  return used * 4 >= kSample * G::kSlots;
}

template <Platform P, class Codec, class G>
std::uint64_t Clevel<P, Codec, G>::slots_of(const Context& context) noexcept {
  std::uint64_t slots = 0;
  for (std::uint32_t i = 0; i < context.count; ++i) slots += context.levels[i]->count * G::kSlots;
  return slots;
}

// Entries that came since open, less those that went.
template <Platform P, class Codec, class G>
std::uint64_t Clevel<P, Codec, G>::gained() const noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < G::kStripes; ++i) sum += stripes_[i].gained();
  return sum;
}

// The latch is held.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::begin_resize(const Context& from, const Context& to) noexcept {
  resizes_[begun_++ % MapStats::kMaxResizes] = {
      .begin_ns = P::now_ns() - opened_ns_,
      .slots_before = slots_of(from),
      .slots_after = slots_of(to) - (to.growing() ? to.levels[0]->count * G::kSlots : 0),
      .entries = found_.load(std::memory_order_relaxed) + gained()};
}
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::end_resize(const Level& drained) noexcept {
  if (inherited_ != 0) {  // another process began it
    --inherited_;
    moved_ = 0;
    return;
  }
  ResizeStats& resize = resizes_[ended_++ % MapStats::kMaxResizes];
  resize.end_ns = P::now_ns() - opened_ns_;
  resize.buckets = drained.count;
  resize.moved = moved_;
  moved_ = 0;
}

// A bucket this full among a key's emptiest: the table will soon grow.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::look_ahead(const Context& now, const std::uint64_t* slot) noexcept {
  const auto line = reinterpret_cast<std::uintptr_t>(slot) & ~(kLine - 1);
  const std::uint32_t empty =
      P::match_words(reinterpret_cast<const std::uint64_t*>(line), G::kSlots, 0);
  if (__builtin_popcount(empty) > static_cast<int>(G::kSlots / 4) || now.growing()) return;
  const std::uint64_t buckets = now.first().count * 2;
  if (wanted_.load(std::memory_order_relaxed) == buckets ||
      levels_.load(std::memory_order_acquire) != &now) {
    return;
  }
  wanted_.store(buckets, std::memory_order_release);
  context_.background.wake(ahead_);
}

// A step of zeroing the next level, so that no insert has to.
template <Platform P, class Codec, class G>
Step Clevel<P, Codec, G>::prepare_some(Status& failure) noexcept {
  P& platform = context_.platform;
  const LatchGuard guard(ahead_latch_);
  const std::uint64_t buckets = wanted_.load(std::memory_order_acquire);
  if (next_.zeroed == buckets || buckets == 0) return Step::rest;
  if (next_.buckets != buckets) {
    if (next_.offset != 0) context_.heap.free(next_.offset);
    next_ = {};
    auto block = context_.heap.allocate(buckets * sizeof(Bucket), BlockKind::plain);
    if (!block) {
      failure = std::move(block.error());
      return Step::rest;
    }
    next_ = {.offset = *block, .buckets = buckets};
  }
  auto* first = context_.heap.template at<Bucket>(next_.offset) + next_.zeroed;
  const std::uint64_t n = std::min(G::kAhead, buckets - next_.zeroed);
  platform.zero(first, n * sizeof(Bucket));
  platform.flush(first, n * sizeof(Bucket), "clevel.ahead.zero"_site);
  if (!platform.fence("clevel.ahead.zero"_site)) {
    failure = StatusCode::poisoned;
    return Step::rest;
  }
  next_.zeroed += n;
  return next_.zeroed == buckets ? Step::rest : Step::more;
}

// The level of so many buckets, once it lies ready: durably zero.
template <Platform P, class Codec, class G>
Expected<std::uint64_t> Clevel<P, Codec, G>::take_level(std::uint64_t buckets) noexcept {
  for (;;) {
    wanted_.store(buckets, std::memory_order_release);
    Status failure;
    if (prepare_some(failure) == Step::more) continue;
    const LatchGuard guard(ahead_latch_);
    const bool ready = next_.zeroed == buckets;
    if (!ready && failure.ok()) continue;  // somebody who saw an older list wanted another one
    wanted_.store(0, std::memory_order_release);
    if (!ready) return fail(std::move(failure));
    return std::exchange(next_, {}).offset;
  }
}

// Adds a level, unless the list is no longer the one in which no slot was free. The caller is
// pinned; others that found no slot wait for it.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::expand(const Context* seen) noexcept {
  const LatchGuard growing(grow_latch_);
  if (levels_.load(std::memory_order_acquire) != seen) return {};
  if (seen->count == kMaxLevels || !crowded(seen->first())) {
    return Status::format(StatusCode::hash_overflow,
                          "too many keys share their buckets: this one has no slot in %u levels, "
                          "the largest of which is nearly empty",
                          seen->count);
  }
  const std::uint64_t buckets = seen->first().count * 2;
  auto block = take_level(buckets);
  if (!block) return std::move(block.error());
  auto* level = new (std::nothrow) Level;
  auto* next = new (std::nothrow) Context(*seen);
  bool used = false;
  bool durable = true;
  if (level != nullptr && next != nullptr) {
    *level = {.buckets = context_.heap.template at<Bucket>(*block),
              .count = buckets,
              .offset = *block,
              .ring = (seen->first().ring + 1) % kRing};
    next->levels[next->count++] = level;
    LatchGuard guard(resize_latch_);
    if (levels_.load(std::memory_order_relaxed) == seen) {
      used = true;
      durable = store_ring(level->ring, level_word(*block, buckets));  // PP(expand)
      if (durable) {
        levels_.store(next, std::memory_order_release);
        begin_resize(*seen, *next);
      }
    }
  }
  if (used && durable) {
    context_.epochs.retire(kContextReclaimer, this, reinterpret_cast<std::uint64_t>(seen));
    if (next->growing()) context_.background.wake(rehash_);
    return {};
  }
  const bool short_of_memory = level == nullptr || next == nullptr;
  delete level;
  delete next;
  if (!durable) return StatusCode::poisoned;
  context_.heap.free(*block);  // nobody else has heard of it
  return short_of_memory ? Status(StatusCode::out_of_memory) : Status();
}

// --- rehash; one thread at a time ---

template <Platform P, class Codec, class G>
Step Clevel<P, Codec, G>::rehash_some() noexcept {
  // I7; mark_some wakes it.
  if (!verified_.load(std::memory_order_acquire) && P::runs("clevel.rehash.wait"_site)) {
    return Step::rest;
  }
  moving_.fetch_add(1, std::memory_order_seq_cst);
  Step step = Step::rest;
  if (scanners_.load(std::memory_order_seq_cst) == 0 && !context_.platform.poisoned()) {
    EpochGuard<P> guard(context_.epochs);
    const Context& now = *levels_.load(std::memory_order_acquire);
    if (guard.ok() && now.growing()) {
      Level& last = *now.levels[0];
      step = Step::more;
      for (std::uint32_t n = 0; n < G::kBatch && last.next < last.count; ++n, ++last.next) {
        if (last.next + 1 < last.count) {
          for (const std::uint64_t& slot : last.buckets[last.next + 1].slots) {
            const std::uint64_t word = context_.platform.load(slot);
            if (word > kSealed) __builtin_prefetch(item_at(word));
          }
        }
        if (Status s = rehash_bucket(last, last.buckets[last.next]); !s.ok()) {
          const bool later = s == StatusCode::pool_full || s == StatusCode::hash_overflow;
          step = later ? Step::blocked : Step::rest;
          break;
        }
      }
      if (last.next == last.count && !drop_last().ok()) step = Step::rest;
    }
  }
  moving_.fetch_sub(1, std::memory_order_seq_cst);
  return step;
}

// A slot for the item above the last level; `copy` is null if one names it already, as a rehash
// that was cut short leaves it.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::copy_up(const Probe& probe, std::uint64_t word, const Level& last,
                                    std::uint64_t*& copy) noexcept {
  copy = nullptr;
  if (last.inherited && P::runs("clevel.rehash.found"_site) &&
      named_above(*levels_.load(std::memory_order_acquire), word, probe)) {
    return {};
  }
  for (;;) {
    const Context& now = *levels_.load(std::memory_order_acquire);
    std::uint64_t* slot = free_slot(probe, now);
    if (slot == nullptr) {
      if (Status s = expand(&now); !s.ok()) return s;
      continue;
    }
    context_.heap.mark_copied(word & kOffsetMask);
    std::uint64_t empty = 0;
    if (!context_.platform.compare_exchange(*slot, empty, word)) {
      if (empty >> kOffsetBits == 0) return damaged(offset_of(slot));  // nothing is sealed up there
      continue;
    }
    context_.platform.flush(slot, sizeof(*slot), "clevel.rehash.copy"_site);
    copy = slot;
    return {};
  }
}

// Leaves every slot of the bucket sealed. What is copied is durable before its old slot is sealed.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::rehash_bucket(Level& last, Bucket& bucket) noexcept {
  P& platform = context_.platform;
  struct Move {
    std::uint64_t word = 0;
    std::uint64_t* copy = nullptr;
  };
  for (;;) {
    Move moves[8];
    bool open = false;
    bool wrote = false;
    Status s;
    for (std::uint32_t i = 0; i < G::kSlots && s.ok(); ++i) {
      std::uint64_t word = platform.load(bucket.slots[i]);
      if (word == kSealed ||
          (word == 0 && platform.compare_exchange(bucket.slots[i], word, kSealed)))
        continue;
      open = true;
      const std::uint64_t state = platform.load(item_at(word)->state);
      moves[i].word = word;
      if (!is_live(state)) continue;  // sealed below; its eraser does the rest
      s = copy_up(probe_of(item_at(word), state), word, last, moves[i].copy);
      if (!s.ok()) moves[i].word = 0;
      wrote = wrote || moves[i].copy != nullptr;
    }
    if (!open) return {};
    if (wrote && !platform.fence("clevel.rehash.copy"_site)) return StatusCode::poisoned;
    bool undone = false;
    for (Move& move : moves) {  // died since: its eraser may have missed the copy
      if (move.copy == nullptr || is_live(platform.load(item_at(move.word)->state))) continue;
      std::uint64_t word = move.word;
      if (!platform.compare_exchange(*move.copy, word, 0)) continue;
      platform.flush(move.copy, sizeof(*move.copy), "clevel.rehash.undo"_site);
      undone = true;
    }
    if (undone && !platform.fence("clevel.rehash.undo"_site)) return StatusCode::poisoned;
    for (std::uint32_t i = 0; i < G::kSlots; ++i) {
      if (moves[i].word != 0) {
        (void)platform.compare_exchange(bucket.slots[i], moves[i].word, kSealed);
      }
      moved_ += moves[i].copy != nullptr ? 1 : 0;
    }
    if (!s.ok()) return s;
  }
}

// The last level is sealed throughout: nothing can be stored into it any more.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::drop_last() noexcept {
  auto* next = new (std::nothrow) Context;
  if (next == nullptr) return StatusCode::out_of_memory;
  const Context* now = nullptr;
  Level* last = nullptr;
  {
    LatchGuard guard(resize_latch_);
    now = levels_.load(std::memory_order_relaxed);
    last = now->levels[0];
    next->count = now->count - 1;
    std::copy(now->levels + 1, now->levels + now->count, next->levels);
    context_.heap.mark_copied(last->offset);  // I4 of the heap
    if (!store_ring(last->ring, 0)) {         // PP(drop)
      delete next;
      return StatusCode::poisoned;
    }
    levels_.store(next, std::memory_order_release);
    end_resize(*last);
  }
  context_.heap.retire(last->offset);
  context_.epochs.retire(kLevelReclaimer, this, reinterpret_cast<std::uint64_t>(last));
  context_.epochs.retire(kContextReclaimer, this, reinterpret_cast<std::uint64_t>(now));
  return {};
}

}  // namespace perdure::clevel
