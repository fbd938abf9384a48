// Clevel: the list of levels, and what makes it longer or shorter. Included by clevel.h only.
#pragma once

#include <algorithm>
#include <new>
#include <span>
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
  if (!context_.platform.fence("clevel.ring.word"_site)) return false;
  PERDURE_ASSERT(P, "clevel.I6", ring_persisted(index, word));
  return true;
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

// Buckets of the lower of two levels, the upper twice as large, that are 4/5 full of so many.
template <Platform P, class Codec, class G>
std::uint64_t Clevel<P, Codec, G>::lower_for(std::uint64_t entries) noexcept {
  std::uint64_t lower = kMinBuckets;
  while (lower * 3 * G::kSlots < entries / 4 * 5) lower *= 2;
  return lower;
}

// Entries that came since open, less those that went.
template <Platform P, class Codec, class G>
std::uint64_t Clevel<P, Codec, G>::gained() const noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < G::kStripes; ++i) sum += stripes_[i].gained();
  return sum;
}

// What there is now; while the walk of an open is under way it is not known what was there.
template <Platform P, class Codec, class G>
std::uint64_t Clevel<P, Codec, G>::entries_about() const noexcept {
  const auto entries = static_cast<std::int64_t>(found_.load(std::memory_order_relaxed) + gained());
  return static_cast<std::uint64_t>(std::max<std::int64_t>(entries, 0));
}

// One for each level that is to go. The latch is held.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::begin_resizes(const Context& from, const Context& to,
                                        bool shrink) noexcept {
  ResizeStats resize{.begin_ns = P::now_ns() - opened_ns_,
                     .slots_before = slots_of(from),
                     .slots_after = 0,
                     .entries = entries_about(),
                     .shrink = shrink};
  const std::uint32_t added = to.count - from.count;
  for (std::uint32_t i = shrink ? from.count : to.growing() ? 1 : 0; i < to.count; ++i) {
    resize.slots_after += to.levels[i]->count * G::kSlots;
  }
  for (std::uint32_t i = 0; i < added; ++i) resizes_[begun_++ % MapStats::kMaxResizes] = resize;
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
  log_resize(*context_.log, context_.map, resize);
}

// A bucket this full among a key's emptiest: the table will soon grow.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::look_ahead(const Context& now, const std::uint64_t* slot) noexcept {
  const auto line = reinterpret_cast<std::uintptr_t>(slot) & ~(kLine - 1);
  const std::uint32_t empty =
      P::match_words(reinterpret_cast<const std::uint64_t*>(line), G::kSlots, 0);
  if (__builtin_popcount(empty) > static_cast<int>(G::kSlots / 8) || now.growing()) return;
  const std::uint64_t buckets = now.next_size();
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

// Adds levels of so many buckets, unless the list is another by now. The caller is pinned and holds
// grow_latch_.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::append(const Context& seen, std::span<const std::uint64_t> sizes,
                                   bool shrink) noexcept {
  auto* next = new (std::nothrow) Context(seen);
  if (next == nullptr) return StatusCode::out_of_memory;
  Status s;
  for (std::size_t i = 0; i < sizes.size() && s.ok(); ++i) {
    auto* level = new (std::nothrow) Level;
    auto block = level != nullptr ? take_level(sizes[i]) : fail(StatusCode::out_of_memory);
    if (!block) {
      delete level;
      s = std::move(block.error());
      break;
    }
    *level = {.buckets = context_.heap.template at<Bucket>(*block),
              .count = sizes[i],
              .offset = *block,
              .ring = (next->first().ring + 1) % kRing};
    next->levels[next->count++] = level;
  }
  if (s.ok()) {
    const LatchGuard guard(resize_latch_);
    if (levels_.load(std::memory_order_relaxed) == &seen) {
      for (std::uint32_t i = seen.count; i < next->count && s.ok(); ++i) {
        const Level& level = *next->levels[i];
        PERDURE_ASSERT(P, "clevel.I1",
                       context_.platform.persisted(level.buckets, level.count * sizeof(Bucket)));
        if (!store_ring(level.ring, level_word(level.offset, level.count))) {  // PP(expand)
          s = StatusCode::poisoned;
        }
      }
      if (s.ok()) {
        levels_.store(next, std::memory_order_release);
        begin_resizes(seen, *next, shrink);
        context_.epochs.retire(kContextReclaimer, this, reinterpret_cast<std::uint64_t>(&seen));
        if (next->growing()) context_.background.wake(rehash_);
        return {};
      }
    }
  }
  for (std::uint32_t i = seen.count; i < next->count; ++i) {
    // Nobody else has heard of it; in a poisoned pool the medium may have.
    if (s != StatusCode::poisoned) context_.heap.free(next->levels[i]->offset);
    delete next->levels[i];
  }
  delete next;
  return s;
}

// Adds a level, unless the list is no longer the one in which no slot was free; others that found
// no slot wait for it. As append().
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
  const std::uint64_t buckets = seen->next_size();
  return append(*seen, {&buckets, 1}, false);
}

// Two levels that hold the entries, added behind those that there are, which the rehash empties
// then, one after the other: each moment of it is one of growing. False: they would not take half
// the room.
template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::shrink() noexcept {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
  const LatchGuard growing(grow_latch_);
  const Context& now = *levels_.load(std::memory_order_acquire);
  if (now.growing() || !verified_.load(std::memory_order_acquire)) return false;
  const std::uint64_t lower = lower_for(entries_about());
  if (lower * 3 * 2 * G::kSlots > slots_of(now)) return false;
  const std::uint64_t sizes[] = {lower, lower * 2};
  if (Status s = append(now, sizes, true); !s.ok()) return fail(std::move(s));
  return true;
}

// The level that was made ready ahead of need, but is not needed yet.
template <Platform P, class Codec, class G>
bool Clevel<P, Codec, G>::give_back_ahead() noexcept {
  const LatchGuard guard(ahead_latch_);
  wanted_.store(0, std::memory_order_release);
  if (next_.offset == 0) return false;
  context_.heap.free(std::exchange(next_, {}).offset);
  return true;
}

template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::compact() {
  (void)context_.background.finish(rehash_);
  const bool ahead = give_back_ahead();
  auto begun = with_room([&] { return shrink(); });
  if (!begun) return begun;
  if (*begun) (void)context_.background.finish(rehash_);
  return *begun || ahead;
}

}  // namespace perdure::clevel
