// Clevel: items that move to another slot: the rehash, and room for an insert. Included by clevel.h
// only.
#pragma once

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "index/clevel/clevel.h"

namespace perdure::clevel {

template <Platform P, class Codec, class G>
Step Clevel<P, Codec, G>::after_failure(const Status& s) noexcept {
  const bool later = s == StatusCode::pool_full || s == StatusCode::hash_overflow ||
                     s == StatusCode::out_of_memory;
  return later ? Step::blocked : Step::rest;
}

template <Platform P, class Codec, class G>
Step Clevel<P, Codec, G>::rehash_some() noexcept {
  // clevel.I7; mark_some wakes it.
  if (!verified_.load(std::memory_order_acquire) && P::runs("clevel.rehash.wait"_site)) {
    return Step::rest;
  }
  bool waits = false;
  const Step step = rehash_batch(waits);
  if (waits) P::pause(kGiveCoreAway);  // an eraser or an insert is to do something first
  return step;
}

template <Platform P, class Codec, class G>
Step Clevel<P, Codec, G>::rehash_batch(bool& waits) noexcept {
  const Moving moving(*this);
  EpochGuard<P> guard(context_.epochs);
  const Context& now = *levels_.load(std::memory_order_acquire);
  if (!moving.may_copy() || !guard.ok() || !now.growing()) return Step::rest;
  Level& last = *now.levels[0];
  Step step = Step::more;
  const std::uint64_t begin = last.next;
  std::uint64_t sealed = 0;  // bits: buckets from there that are to be written back
  static_assert(G::kBatch <= 64);
  for (std::uint32_t n = 0; n < G::kBatch && last.next < last.count; ++n, ++last.next) {
    if (last.next + 2 < last.count) prefetch_items(last.buckets[last.next + 2]);
    if (last.next + 1 < last.count) prefetch_above(last.buckets[last.next + 1], now);
    bool wrote = false;
    auto done = rehash_bucket(last.buckets[last.next], wrote);
    sealed |= std::uint64_t{wrote} << n;
    if (done && *done) continue;
    if (!done) step = after_failure(done.error());
    waits = done.has_value();
    break;
  }
  for (std::uint64_t m = sealed; m != 0; m &= m - 1) {
    const Bucket& bucket = last.buckets[begin + static_cast<unsigned>(__builtin_ctzll(m))];
    context_.platform.flush(&bucket, sizeof(bucket), "clevel.rehash.seal"_site);
  }
  // clevel.I4: before the guard goes, which holds back the items that were named by what is sealed.
  if (!context_.platform.fence("clevel.rehash.seal"_site)) return Step::rest;
  for (std::uint64_t m = P::kAsserts ? sealed : 0; m != 0; m &= m - 1) {
    PERDURE_ASSERT(
        P, "clevel.I4",
        seals_persisted(last.buckets[begin + static_cast<unsigned>(__builtin_ctzll(m))]));
  }
  if (step == Step::more && last.next == last.count) {
    if (Status s = drop_last(); !s.ok()) step = after_failure(s);
  }
  return step;
}

// Where a bucket's items may go; they have come from memory by then.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::prefetch_above(const Bucket& bucket, const Context& now) const noexcept {
  for (std::uint32_t i = 0; i < G::kSlots; ++i) {
    const std::uint64_t word = context_.platform.load(bucket.slots[i]);
    if (word <= kSealed) continue;
    const std::uint64_t state = context_.platform.load(item_at(word)->state);
    if (!is_live(state)) continue;
    const Probe probe = probe_of(item_at(word), state);
    for (std::uint32_t l = now.count - 2; l < now.count; ++l) {
      const Level& level = *now.levels[l];
      __builtin_prefetch(&level.buckets[probe.first(level.mask())], 1);
      __builtin_prefetch(&level.buckets[probe.second(level.mask())], 1);
    }
  }
}

// Names the item by one more slot, above the last level; the caller writes that back. Null: none is
// free there.
template <Platform P, class Codec, class G>
Expected<std::uint64_t*> Clevel<P, Codec, G>::copy_above(const Probe& probe, std::uint64_t word,
                                                         const Context& now) noexcept {
  PERDURE_ASSERT(P, "clevel.I9", !clean_ || verified_.load(std::memory_order_acquire));
  PERDURE_ASSERT(P, "clevel.I7", verified_.load(std::memory_order_acquire));
  for (;;) {
    // A level that will be the last one soon is left alone.
    std::uint64_t* slot = free_slot(probe, now, now.growing() ? now.count - 2 : 1);
    if (slot == nullptr) return slot;
    context_.heap.mark_copied(word & kOffsetMask);
    std::uint64_t empty = 0;
    if (context_.platform.compare_exchange(*slot, empty, word)) return slot;
    // Nothing is sealed up there.
    if (empty >> kOffsetBits == 0) return fail(damaged(offset_of(slot)));
  }
}

// The same, with one more level if need be. Null: an insert is making it; that may wait for whoever
// waits for this step.
template <Platform P, class Codec, class G>
Expected<std::uint64_t*> Clevel<P, Codec, G>::copy_up(const Probe& probe,
                                                      std::uint64_t word) noexcept {
  for (;;) {
    const Context& now = *levels_.load(std::memory_order_acquire);
    auto copy = copy_above(probe, word, now);
    if (!copy || *copy != nullptr || !grow_latch_.try_lock()) return copy;
    Status s = expand(&now);
    grow_latch_.unlock();
    if (!s.ok()) return fail(std::move(s));
  }
}

// What a bucket's slots name, copied into the levels above. False: not all of it. A dead item is
// left: its eraser is about to clear the slot, and whoever met a seal would know of no death.
template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::copy_bucket(Bucket& bucket, Move (&moves)[8]) noexcept {
  P& platform = context_.platform;
  bool wrote = false;
  Expected<bool> all = true;
  for (std::uint32_t i = 0; i < G::kSlots; ++i) {
    std::uint64_t word = platform.load(bucket.slots[i]);
    if (word == kSealed || (word == 0 && platform.compare_exchange(bucket.slots[i], word, kSealed)))
      continue;
    Item* item = item_at(word);
    const std::uint64_t state = platform.load(item->state);
    if (!is_live(state)) {
      all = false;
      continue;
    }
    auto copy = copy_up(probe_of(item, state), word);
    if (!copy || *copy == nullptr) {
      all = copy ? Expected<bool>(false) : fail(std::move(copy.error()));
      break;
    }
    moves[i] = {.word = word, .copy = *copy};
    wrote = true;
  }
  if (!wrote) return all;
  // Behind all exchanges: one that is locked waits for the write-backs before it.
  for (const Move& move : moves) {
    if (move.copy != nullptr) {
      platform.flush(move.copy, sizeof(*move.copy), "clevel.rehash.copy"_site);
    }
  }
  if (!platform.fence("clevel.rehash.copy"_site)) return fail(StatusCode::poisoned);
  return all;
}

// Takes back the copies of items that died since: their erasers may have missed them. A fence
// follows before the caller's guard goes (clevel.I4).
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::undo_copies(std::span<Move> moves) noexcept {
  P& platform = context_.platform;
  for (Move& move : moves) {
    if (move.copy == nullptr || is_live(platform.load(item_at(move.word)->state))) continue;
    std::uint64_t word = move.word;
    (void)platform.compare_exchange(*move.copy, word, 0);
    platform.flush(move.copy, sizeof(*move.copy), "clevel.rehash.undo"_site);
    move = {};
  }
}

// Leaves every slot of the bucket sealed. What is copied is durable before its old slot is sealed.
// `wrote`: the caller writes the seals back, as the old slots must not name a block that is used
// again (clevel.I4). False: later.
template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::rehash_bucket(Bucket& bucket, bool& wrote) noexcept {
  P& platform = context_.platform;
  for (;;) {
    Move moves[8];
    auto all = copy_bucket(bucket, moves);
    const bool copied = std::ranges::any_of(moves, [](const Move& m) { return m.word != 0; });
    if (platform.poisoned()) return fail(StatusCode::poisoned);
    undo_copies(moves);
    for (std::uint32_t i = 0; i < G::kSlots; ++i) {
      if (moves[i].word == 0) continue;
      (void)platform.compare_exchange(bucket.slots[i], moves[i].word, kSealed);
      ++moved_;
    }
    wrote = wrote || copied;
    if (!copied || !all || !*all) return all;
  }
}

// For a key that found no slot in `seen`: moves an item of its buckets in the last level up, if
// nothing drains. False: none has a free slot there. grow_latch_ is held, so that no drain begins.
template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::make_room(const Probe& probe, const Context* seen) noexcept {
  P& platform = context_.platform;
  const Moving moving(*this);
  const Context& now = *levels_.load(std::memory_order_acquire);
  if (&now != seen) return true;
  if (now.growing() || !verified_.load(std::memory_order_acquire) || !moving.may_copy()) {
    return false;
  }
  const Level& last = *now.levels[0];
  Bucket* const buckets[] = {&last.buckets[probe.first(last.mask())],
                             &last.buckets[probe.second(last.mask())]};
  for (const Bucket* bucket : buckets) prefetch_items(*bucket);
  for (std::uint32_t n = 0; n < 2 * G::kSlots; ++n) {
    std::uint64_t& slot = buckets[n / G::kSlots]->slots[n % G::kSlots];
    std::uint64_t word = platform.load(slot);
    if (word == 0) return true;
    const std::uint64_t state = platform.load(item_at(word)->state);
    if (!is_live(state)) continue;
    auto copy = copy_above(probe_of(item_at(word), state), word, now);
    if (!copy) return fail(std::move(copy.error()));
    if (*copy == nullptr) continue;
    Move move{.word = word, .copy = *copy};
    platform.flush(move.copy, sizeof(*move.copy), "clevel.rehash.copy"_site);
    if (!platform.fence("clevel.rehash.copy"_site)) return fail(StatusCode::poisoned);
    undo_copies({&move, 1});
    // Otherwise it has died, and its eraser clears the slot.
    if (move.word != 0) (void)platform.compare_exchange(slot, word, 0);
    platform.flush(&slot, sizeof(slot), "clevel.move.slot"_site);
    if (!platform.fence("clevel.move.slot"_site)) return fail(StatusCode::poisoned);
    return true;
  }
  return false;
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
    context_.heap.mark_copied(last->offset);  // heap.I4
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
