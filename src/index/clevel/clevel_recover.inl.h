// Clevel: creation, recovery, end. Included by clevel.h only.
#pragma once

#include <new>

#include "index/clevel/clevel.h"
#include "index/engine_report.h"

namespace perdure::clevel {

template <Platform P, class Codec, class G>
Clevel<P, Codec, G>::Clevel(const EngineContext<P>& context, std::uint64_t root) noexcept
    : Base(context),
      root_offset_(root),
      root_(context.heap.template at<layout::Root>(root)),
      stripes_(new(std::nothrow) Stripe<P>[G::kStripes]) {}

template <Platform P, class Codec, class G>
Clevel<P, Codec, G>::~Clevel() {
  context_.background.remove(rehash_);
  context_.background.remove(ahead_);
  context_.epochs.drain_all();  // reclaimers point here
  const Context* now = levels_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; now != nullptr && i < now->count; ++i) delete now->levels[i];
  delete now;
}

template <Platform P, class Codec, class G>
Expected<std::uint64_t> Clevel<P, Codec, G>::create(const EngineContext<P>& context,
                                                    const MapKinds& kinds, std::uint64_t capacity) {
  P& platform = context.platform;
  // The hint may be wrong: the buckets leave three quarters of what the pool may grow to.
  const std::uint64_t most = context.heap.max_data_bytes() / 4 / sizeof(Bucket);
  std::uint64_t lower = lower_for(std::min(capacity, most * G::kSlots));
  while (lower > kMinBuckets && lower * 3 > most) lower /= 2;
  auto block = context.heap.allocate(sizeof(layout::Root), BlockKind::plain);
  if (!block) return block;
  layout::Root image{};
  image.magic = layout::kRootMagic;
  image.slots = G::kSlots;
  image.flags = (Codec::kBytes ? layout::kBytesKeys : 0) |
                (kinds.value == ValueKind::bytes ? layout::kBytesValues : 0);
  image.seed[0] = P::random();
  image.seed[1] = P::random();
  image.fixed_crc = crc32c(0, &image, offsetof(layout::Root, fixed_crc));
  std::uint64_t made[2] = {0, 0};
  for (std::uint32_t i = 0; i < 2; ++i) {
    const std::uint64_t bytes = (lower << i) * sizeof(Bucket);
    auto level = context.heap.allocate(bytes, BlockKind::plain);
    if (!level) {
      if (made[0] != 0) context.heap.free(made[0]);
      context.heap.free(*block);
      return level;
    }
    made[i] = *level;
    auto* buckets = context.heap.template at<Bucket>(*level);
    platform.zero(buckets, bytes);
    platform.flush(buckets, bytes, "clevel.create.level"_site);
    image.levels[i] = level_word(*level, lower << i);
  }
  auto* root = context.heap.template at<layout::Root>(*block);
  platform.copy(root, &image, sizeof(image));
  platform.flush(root, sizeof(*root), "clevel.create.root"_site);
  if (!platform.fence("clevel.create.root"_site)) return fail(StatusCode::poisoned);
  return block;
}

template <Platform P, class Codec, class G>
Expected<std::unique_ptr<EngineInstance>> Clevel<P, Codec, G>::open(const EngineContext<P>& context,
                                                                    std::uint64_t root) {
  if (Status s = root_may_lie_at(root, sizeof(layout::Root), context.heap); !s.ok())
    return fail(std::move(s));
  std::unique_ptr<Clevel> map(new (std::nothrow) Clevel(context, root));
  if (map == nullptr || map->stripes_ == nullptr) return fail(StatusCode::out_of_memory);
  return std::unique_ptr<EngineInstance>(std::move(map));
}

// The root block is checked whole before anything in it is believed.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::read_root() noexcept {
  if (Status s = context_.heap.mark(root_offset_); !s.ok()) return s;
  if (context_.heap.block_bytes(root_offset_) < sizeof(layout::Root)) return bad_root("size");
  if (!context_.settle(root_offset_, sizeof(layout::Root))) return StatusCode::poisoned;
  const layout::Root image = *root_;
  if (image.magic != layout::kRootMagic) return bad_root("magic");
  if (image.slots != G::kSlots) return bad_root("geometry");
  if (!has_checksum(image)) return bad_root("checksum");
  if (((image.flags & layout::kBytesKeys) != 0) != Codec::kBytes) return bad_root("key kind");
  if (image.opened != 0 && image.opened != layout::kOpened) return bad_root("state");
  if (image.damaged != 0 && image.damaged != layout::kDamaged) return bad_root("state");
  damaged_.store(image.damaged != 0, std::memory_order_relaxed);
  bytes_values_ = (image.flags & layout::kBytesValues) != 0;
  seed_ = {.a = image.seed[0], .b = image.seed[1]};
  return {};
}

// clevel.I1: the run of words in the ring, from the one behind a 0.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::read_levels() noexcept {
  const auto bad = [](const char* what) {
    return Status::format(StatusCode::corruption, "the map's list of levels is damaged (%s)", what);
  };
  const P& platform = context_.platform;
  const auto word_at = [&](std::uint32_t i) { return platform.load(root_->levels[i % kRing]); };
  std::uint32_t begin = 0;
  while (begin < kRing && (word_at(begin) == 0 || word_at(begin + kRing - 1) != 0)) ++begin;
  if (begin == kRing) return bad("no end");
  auto* now = new (std::nothrow) Context;
  if (now == nullptr) return StatusCode::out_of_memory;
  levels_.store(now, std::memory_order_release);
  for (std::uint32_t i = 0; i < kRing; ++i) {
    const std::uint64_t word = word_at(begin + i);
    if (i >= kMaxLevels || word == 0) {
      if (word != 0) return bad("two runs");
      continue;
    }
    if (now->count != i) return bad("two runs");
    const std::uint64_t log = word & 63;
    const std::uint64_t offset = word & kOffsetMask & ~std::uint64_t{63};
    if (log < 1 || log > kMaxLogBuckets || word != level_word(offset, 1ULL << log))
      return bad("checksum");
    if (Status s = context_.heap.mark(offset); !s.ok()) return s;
    if (context_.heap.block_bytes(offset) < (sizeof(Bucket) << log)) return bad("block");
    auto* level = new (std::nothrow) Level;
    if (level == nullptr) return StatusCode::out_of_memory;
    *level = {.buckets = context_.heap.template at<Bucket>(offset),
              .count = 1ULL << log,
              .offset = offset,
              .ring = (begin + i) % kRing,
              .inherited = true};
    now->levels[now->count++] = level;
  }
  return now->count >= 2 ? Status() : bad("too short");
}

template <Platform P, class Codec, class G>
Expected<Recovered> Clevel<P, Codec, G>::recover(bool clean) {
  clean_ = clean;
  if (Status s = read_root(); !s.ok()) return fail(std::move(s));
  if (Status s = read_levels(); !s.ok()) return fail(std::move(s));
  inherited_ = levels_.load(std::memory_order_relaxed)->count - 2;
  if (context_.platform.load(root_->opened) != 0) return Recovered::marking;
  verified_.store(true, std::memory_order_release);  // nothing was ever stored into it
  return Recovered::done;
}

// Slots of the levels found at open. Those made since hold what was marked when it was copied, and
// what is new. No level goes meanwhile (clevel.I7).
template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::mark_some(std::uint64_t budget) noexcept {
  if (damaged_.load(std::memory_order_relaxed)) return fail(known_damage());
  EpochGuard<P> guard(context_.epochs);
  if (!guard.ok()) return fail(StatusCode::out_of_memory);
  const Moving moving(*this);
  const Context& now = *levels_.load(std::memory_order_acquire);
  bool wrote = false;
  Status s;
  const std::uint64_t buckets = std::max<std::uint64_t>(budget / (8 * G::kSlots), 1);
  for (std::uint64_t n = 0; n < buckets && s.ok(); ++n) {
    while (mark_level_ < now.count && now.levels[mark_level_]->inherited &&
           mark_bucket_ == now.levels[mark_level_]->count) {
      ++mark_level_;
      mark_bucket_ = 0;
    }
    if (mark_level_ == now.count || !now.levels[mark_level_]->inherited) break;
    Bucket& bucket = now.levels[mark_level_]->buckets[mark_bucket_];
    if (clean_) sum_bucket(bucket);
    s = mark_bucket(now, bucket, wrote);
    if (!s.ok()) break;
    ++mark_bucket_;
    ++mark_rank_;
  }
  const bool over = mark_level_ == now.count || !now.levels[mark_level_]->inherited ||
                    (mark_bucket_ == now.levels[mark_level_]->count &&
                     (mark_level_ + 1 == now.count || !now.levels[mark_level_ + 1]->inherited));
  if (s.ok() && over) s = verify_sum();
  // A mutation that has failed on the way is not in the sum, and pages that were lost are zeros.
  if (!s.ok() && context_.platform.poisoned()) s = context_.platform.failure();
  if (s == StatusCode::corruption) {
    note_damage();
    wrote = true;
  }
  // What was cleared is durable before the sweep can free what it named (clevel.I4).
  if (wrote && !context_.platform.fence("clevel.mark.slot"_site) && s.ok()) {
    s = StatusCode::poisoned;
  }
  PERDURE_ASSERT(P, "clevel.I10",
                 s != StatusCode::corruption || context_.platform.poisoned() ||
                     context_.platform.persisted(&root_->damaged, sizeof(root_->damaged)));
  if (!s.ok()) return fail(std::move(s));
  if (!over) return true;
  found_.store(marked_ - gained(), std::memory_order_relaxed);
  verified_.store(true, std::memory_order_release);
  context_.background.wake(rehash_);
  return false;
}

// The slots of the bucket that the walk comes to. Changes from here on do not count (clevel.I9).
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::sum_bucket(const Bucket& bucket) noexcept {
  if (summed_.load(std::memory_order_relaxed) > mark_rank_) return;  // a step failed behind it
  const LatchGuard guard(sum_latches_[mark_rank_ % kSumLatches]);
  for (std::uint32_t i = 0; i < G::kSlots; ++i) {
    slots_summed_ += slot_term(bucket.slots[i], context_.platform.load(bucket.slots[i]));
  }
  summed_.store(mark_rank_ + 1, std::memory_order_relaxed);
}

// Every slot is what it was when the map was closed, or was changed since.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::verify_sum() const noexcept {
  const std::uint64_t closed = slots_summed_ - added_ahead_.load(std::memory_order_relaxed);
  if (!clean_ || closed == context_.platform.load(root_->slots_sum) ||
      !P::verifies("clevel.slots.sum"_site)) {
    return {};
  }
  return Status::format(StatusCode::corruption,
                        "the map's slots are not those that were closed: entries are lost; "
                        "restore a copy");
}

// clevel.I10: whoever opens the map next has no other way to know: an item, or a slot, of which
// nothing is left looks after a crash like one that never was. A fence follows.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::note_damage() noexcept {
  damaged_.store(true, std::memory_order_release);
  context_.platform.store(root_->damaged, layout::kDamaged);
  context_.platform.flush(&root_->damaged, sizeof(root_->damaged), "clevel.mark.slot"_site);
}

template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::mark_bucket(const Context& now, Bucket& bucket, bool& wrote) noexcept {
  P& platform = context_.platform;
  Heap<P>& heap = context_.heap;
  // Whether a seal may be here (clevel.I2): levels that were made since the open begin no drain.
  const bool drained = mark_level_ == 0 && now.growing() && now.levels[2]->inherited;
  for (std::uint32_t i = 0; i < G::kSlots; ++i) {
    std::uint64_t& slot = bucket.slots[i];
    std::uint64_t word = platform.load(slot);
    if (word == kSealed && !drained) return damaged(offset_of(&slot));
    while (word != 0 && word != kSealed) {
      const std::uint64_t offset = word & kOffsetMask;
      if ((word & 15) != 0 || word >> kOffsetBits == 0 || !is_item_block(offset)) {
        return damaged(offset);
      }
      const std::uint64_t state = platform.load(item_at(word)->state);
      const Look look = look_at(slot, word, state);
      if (look == Look::changed) {
        word = platform.load(slot);
        continue;
      }
      const bool dead = (state & (kLive | kDead)) == kDead;
      // Of what died since a clean close the state says in which slot it was.
      const bool died_here = dead && (!clean_ || state == dead_state(offset_of(&slot)));
      if (look == Look::damaged && !died_here) return damaged(offset);
      if (dead || look != Look::whole) {
        // Of a dead process, or of an erase of ours that clears it too. Who finds the slot empty
        // knows of no death.
        if (dead) {
          platform.flush(item_at(word), sizeof(Item), "clevel.mark.dead"_site);
          if (!platform.fence("clevel.mark.dead"_site)) return StatusCode::poisoned;
        }
        if (!platform.compare_exchange(slot, word, 0)) continue;
        platform.flush(&slot, sizeof(slot), "clevel.mark.slot"_site);
        wrote = true;
        break;
      }
      const std::uint64_t value = bytes_values_ ? platform.load(item_at(word)->value) : 0;
      const Probe probe = probe_of(item_at(word), state);
      if (value == kGone || probe.tag() != word >> kOffsetBits) {
        if (platform.load(item_at(word)->state) == state) return damaged(offset);
        word = platform.load(slot);
        continue;
      }
      // A move that was cut short; what is above was durable before the mark, and is marked yet.
      if (!clean_ && mark_level_ == 0 && named_above(now, word, probe) &&
          P::runs("clevel.mark.twice"_site)) {
        if (!platform.compare_exchange(slot, word, 0)) continue;
        platform.flush(&slot, sizeof(slot), "clevel.mark.slot"_site);
        wrote = true;
        break;
      }
      ++marked_;
      if (Status s = P::runs("clevel.mark.item"_site) ? heap.mark_serving(offset) : Status();
          !s.ok()) {
        return s;
      }
      if (value != 0) {
        if (Status s = heap.mark_serving(value); !s.ok()) return s;
      }
      break;
    }
  }
  return {};
}

template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::start() noexcept {
  if (context_.platform.load(root_->opened) == 0) {
    context_.platform.store(root_->opened, layout::kOpened);
    context_.platform.flush(&root_->opened, sizeof(root_->opened), "clevel.start.opened"_site);
    (void)context_.platform.fence("clevel.start.opened"_site);
  }
  context_.background.add(ahead_);
  context_.background.add(rehash_);
}

// Closes the items, and answers the sum of the slots. Items are not written back: one that a power
// failure leaves open is as good, but for its value.
template <Platform P, class Codec, class G>
std::uint64_t Clevel<P, Codec, G>::close_level(Level& level) noexcept {
  constexpr std::uint64_t kAheadBuckets = 4;
  P& platform = context_.platform;
  std::uint64_t sum = 0;
  const auto items_of = [&](std::uint64_t bucket, auto&& visit) {
    for (const std::uint64_t& slot : level.buckets[bucket].slots) {
      const std::uint64_t word = platform.load(slot);
      if (word > kSealed && plausible(word)) visit(item_at(word));
    }
  };
  for (std::uint64_t b = 0; b < level.count; ++b) {
    if (b + kAheadBuckets < level.count) {
      items_of(b + kAheadBuckets, [](Item* item) { __builtin_prefetch(item, 1); });
    }
    for (std::uint32_t i = 0; i < G::kSlots; ++i) {
      const std::uint64_t& slot = level.buckets[b].slots[i];
      sum += slot_term(slot, platform.load(slot));
    }
    items_of(b, [&](Item* item) {
      const std::uint64_t state = platform.load(item->state);
      PERDURE_ASSERT(P, "clevel.I8", is_live(state) || platform.poisoned());
      if (!is_live(state) || is_closed(state)) return;
      platform.store(item->state, toggle_closed(state, platform.load(item->value)));
    });
  }
  return sum;
}

// clevel.I8. The walk comes to its end first: what a killed process left in the slots is cleared.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::close() {
  constexpr std::uint64_t kBudget = 1 << 16;
  if (next_.offset != 0) context_.heap.free(next_.offset);
  next_ = {};
  while (!verified_.load(std::memory_order_relaxed)) {
    if (auto more = mark_some(kBudget); !more) return std::move(more.error());
  }
  P& platform = context_.platform;
  const Context& now = *levels_.load(std::memory_order_relaxed);
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < now.count; ++i) sum += close_level(*now.levels[i]);
  if (platform.load(root_->slots_sum) != sum) {
    platform.store(root_->slots_sum, sum);
    platform.flush(&root_->slots_sum, sizeof(sum), "clevel.close.sum"_site);
  }
  return {};
}

}  // namespace perdure::clevel
