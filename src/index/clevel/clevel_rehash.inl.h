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
  // While the walk of an open is under way it is not known what was there.
  const auto entries = static_cast<std::int64_t>(found_.load(std::memory_order_relaxed) + gained());
  resizes_[begun_++ % MapStats::kMaxResizes] = {
      .begin_ns = P::now_ns() - opened_ns_,
      .slots_before = slots_of(from),
      .slots_after = slots_of(to) - (to.growing() ? to.levels[0]->count * G::kSlots : 0),
      .entries = static_cast<std::uint64_t>(std::max<std::int64_t>(entries, 0))};
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

// A step of zeroing the next level, so that no insert has to. The latch is held.
template <Platform P, class Codec, class G>
Step Clevel<P, Codec, G>::prepare_some(Status& failure) noexcept {
  P& platform = context_.platform;
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
    const LatchGuard guard(ahead_latch_);
    if (prepare_some(failure) == Step::more) continue;
    const bool ready = next_.zeroed == buckets;
    if (!ready && failure.ok()) continue;  // somebody who saw an older list wanted another one
    wanted_.store(0, std::memory_order_release);
    if (!ready) return fail(std::move(failure));
    return std::exchange(next_, {}).offset;
  }
}

// Adds a level, unless the list is no longer the one in which no slot was free. The caller is
// pinned and holds grow_latch_; others that found no slot wait for it.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::expand(const Context* seen) noexcept {
  if (levels_.load(std::memory_order_acquire) != seen) return {};
  if (seen->count == kMaxLevels) {
    return Status::format(StatusCode::hash_overflow,
                          "this key has no slot, and %u levels, the most there can be, wait to be "
                          "rehashed",
                          seen->count);
  }
  if (!crowded(seen->first())) {
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
Step Clevel<P, Codec, G>::after_failure(const Status& s) noexcept {
  const bool later = s == StatusCode::pool_full || s == StatusCode::hash_overflow ||
                     s == StatusCode::out_of_memory;
  return later ? Step::blocked : Step::rest;
}

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
        auto sealed = rehash_bucket(last, last.buckets[last.next]);
        if (!sealed) step = after_failure(sealed.error());
        if (!sealed || !*sealed) break;
      }
      // I4: before the guard goes, which holds back the items that were named by what is sealed.
      if (!context_.platform.fence("clevel.rehash.seal"_site)) step = Step::rest;
      if (step == Step::more && last.next == last.count) {
        if (Status s = drop_last(); !s.ok()) step = after_failure(s);
      }
    }
  }
  moving_.fetch_sub(1, std::memory_order_seq_cst);
  return step;
}

// A slot for the item above the last level; `copy` is null if one names it already, as a rehash
// that was cut short leaves it. False: an insert is making the level that this waits for; it may
// wait for whoever waits for this step.
template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::copy_up(const Probe& probe, std::uint64_t word,
                                            const Level& last, std::uint64_t*& copy) noexcept {
  copy = nullptr;
  if (last.inherited && P::runs("clevel.rehash.found"_site) &&
      named_above(*levels_.load(std::memory_order_acquire), word, probe)) {
    return true;
  }
  for (;;) {
    const Context& now = *levels_.load(std::memory_order_acquire);
    std::uint64_t* slot = free_slot(probe, now);
    if (slot == nullptr) {
      if (!grow_latch_.try_lock()) return false;
      Status s = expand(&now);
      grow_latch_.unlock();
      if (!s.ok()) return fail(std::move(s));
      continue;
    }
    context_.heap.mark_copied(word & kOffsetMask);
    std::uint64_t empty = 0;
    if (!context_.platform.compare_exchange(*slot, empty, word)) {
      if (empty >> kOffsetBits != 0) continue;
      return fail(damaged(offset_of(slot)));  // nothing is sealed up there
    }
    context_.platform.flush(slot, sizeof(*slot), "clevel.rehash.copy"_site);
    copy = slot;
    return true;
  }
}

// What a bucket's slots name, copied into the levels above. An item that is dead already needs no
// copy: its eraser does the rest. But whoever meets the seal knows of no death, so this is durable
// first.
template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::copy_bucket(const Level& last, Bucket& bucket,
                                                Move (&moves)[8]) noexcept {
  P& platform = context_.platform;
  bool wrote = false;
  Expected<bool> went = true;
  for (std::uint32_t i = 0; i < G::kSlots && went && *went; ++i) {
    std::uint64_t word = platform.load(bucket.slots[i]);
    if (word == kSealed || (word == 0 && platform.compare_exchange(bucket.slots[i], word, kSealed)))
      continue;
    Item* item = item_at(word);
    const std::uint64_t state = platform.load(item->state);
    if (is_live(state)) {
      went = copy_up(probe_of(item, state), word, last, moves[i].copy);
      wrote = wrote || moves[i].copy != nullptr;
    } else {
      platform.flush(item, sizeof(*item), "clevel.rehash.dead"_site);
      wrote = true;
    }
    if (went && *went) moves[i].word = word;
  }
  if (wrote && !platform.fence("clevel.rehash.copy"_site)) return fail(StatusCode::poisoned);
  return went;
}

// Takes back the copies of items that died since: their erasers may have missed them.
template <Platform P, class Codec, class G>
bool Clevel<P, Codec, G>::undo_copies(Move (&moves)[8]) noexcept {
  P& platform = context_.platform;
  bool undone = false;
  for (Move& move : moves) {
    if (move.copy == nullptr) continue;
    Item* item = item_at(move.word);
    if (is_live(platform.load(item->state))) continue;
    std::uint64_t word = move.word;
    if (platform.compare_exchange(*move.copy, word, 0)) {
      platform.flush(item, sizeof(*item), "clevel.rehash.late"_site);
      platform.flush(move.copy, sizeof(*move.copy), "clevel.rehash.undo"_site);
      undone = true;
    }
    move.copy = nullptr;
  }
  return !undone || platform.fence("clevel.rehash.undo"_site);
}

// Leaves every slot of the bucket sealed. What is copied is durable before its old slot is sealed,
// and the seal is written back: the old slot must not name a block that is used again (I4). False:
// later.
template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::rehash_bucket(const Level& last, Bucket& bucket) noexcept {
  P& platform = context_.platform;
  for (;;) {
    Move moves[8];
    auto went = copy_bucket(last, bucket, moves);
    if (platform.poisoned() || !undo_copies(moves)) return fail(StatusCode::poisoned);
    bool named = false;
    for (std::uint32_t i = 0; i < G::kSlots; ++i) {
      if (moves[i].word == 0) continue;
      named = true;
      (void)platform.compare_exchange(bucket.slots[i], moves[i].word, kSealed);
      moved_ += moves[i].copy != nullptr ? 1 : 0;
    }
    if (named) platform.flush(&bucket, sizeof(bucket), "clevel.rehash.seal"_site);
    if (!went || !*went || !named) return went;
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
