// Level: expansion, shrink, and the batches that empty a level. Included by level.h only.
#pragma once

#include <algorithm>
#include <new>

#include "index/engine_report.h"
#include "index/level/level.h"

namespace perdure::level {

// The history of resizes, under their latch. Each drains a level; that of the oldest leaves first.
template <Platform P, class Codec, class G>
void Level<P, Codec, G>::resize_begins(const ViewT& before, const ViewT& after,
                                       bool shrink) noexcept {
  resizes_[resizes_begun_++ % MapStats::kMaxResizes] = {.begin_ns = P::now_ns() - opened_ns_,
                                                        .slots_before = before.slots(),
                                                        .slots_after = after.target_slots(),
                                                        .entries = before.items(),
                                                        .shrink = shrink};
}

template <Platform P, class Codec, class G>
void Level<P, Codec, G>::resize_ends(const ViewT& drained) noexcept {
  ResizeStats& resize = resizes_[resizes_ended_++ % MapStats::kMaxResizes];
  resize.end_ns = P::now_ns() - opened_ns_;
  resize.buckets = drained.source().buckets();
  resize.moved = items_.exchange(0, std::memory_order_relaxed);
  log_resize(*context_.log, context_.map, resize);
}

// A level of zeros, in nothing yet.
template <Platform P, class Codec, class G>
Expected<typename Level<P, Codec, G>::TierT*> Level<P, Codec, G>::make_tier(
    std::uint32_t log) noexcept {
  auto block = context_.heap.allocate(TierT::bytes_of(log), BlockKind::zero_on_free);
  if (!block) return fail(std::move(block.error()));
  TierT* tier = TierT::make(*block, log, context_.heap.template at<Line>(*block));
  if (tier != nullptr) return tier;
  context_.heap.discard(*block);
  return fail(StatusCode::out_of_memory);
}

// It could not be published. In a poisoned pool the medium may name it.
template <Platform P, class Codec, class G>
void Level<P, Codec, G>::drop_tier(TierT* tier, const Status& why) noexcept {
  if (why != StatusCode::poisoned) context_.heap.discard(tier->offset);
  delete tier;
}

// Makes these the levels: durably, then for everybody. The caller holds the latch and is pinned.
// What is no longer among them is retired.
template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::publish(ViewT& before, TierT* const* tiers, std::uint32_t levels,
                                   Drain drain) noexcept {
  P& platform = context_.platform;
  auto* view = new (std::nothrow) ViewT;
  if (view == nullptr) return StatusCode::out_of_memory;
  auto block = context_.heap.allocate(sizeof(layout::Descriptor), BlockKind::plain);
  if (!block) {
    delete view;
    return std::move(block.error());
  }
  layout::Descriptor image{};
  image.top_log = static_cast<std::uint8_t>(tiers[0]->log);
  image.levels = static_cast<std::uint8_t>(levels);
  image.drain = static_cast<std::uint8_t>(drain);
  image.generation = before.generation + 1;
  for (std::uint32_t i = 0; i < levels; ++i) {
    image.offsets[i] = tiers[i]->offset;
    view->tiers[i] = tiers[i];
  }
  image.crc = descriptor_crc(image);
  view->descriptor = *block;
  view->generation = image.generation;
  view->levels = levels;
  view->drain = drain;
  auto* descriptor = context_.heap.template at<layout::Descriptor>(*block);
  platform.copy(descriptor, &image, sizeof(image));
  platform.flush(descriptor, sizeof(image), "level.resize.descriptor"_site);
  bool durable = platform.fence("level.resize.descriptor"_site);
  if (durable) {
    PERDURE_ASSERT(P, "level.I3", platform.persisted(descriptor, sizeof(image)));
    PERDURE_ASSERT(P, "level.I3", std::all_of(tiers, tiers + levels, [&](const TierT* tier) {
                     return in_table(tier) ||
                            platform.persisted(tier->lines, TierT::bytes_of(tier->log));
                   }));
    platform.store(root_->descriptor, *block);
    platform.flush(&root_->descriptor, 8, "level.resize.root"_site);
    durable = platform.fence("level.resize.root"_site);  // PP(resize)
  }
  if (!durable) {
    delete view;
    return StatusCode::poisoned;
  }
  PERDURE_ASSERT(P, "level.I3", platform.persisted(&root_->descriptor, 8));
  turn_search(*view);
  view_.store(view, std::memory_order_release);  // LP(resize)
  for (std::uint32_t i = 0; i < before.levels; ++i) {
    TierT* tier = before.tiers[i];
    if (std::find(tiers, tiers + levels, tier) != tiers + levels) continue;
    context_.heap.retire(tier->offset);
    context_.epochs.retire(kTierReclaimer, this, reinterpret_cast<std::uint64_t>(tier));
  }
  context_.heap.retire(before.descriptor);
  context_.epochs.retire(kViewReclaimer, this, reinterpret_cast<std::uint64_t>(&before));
  return {};
}

// The paper's dynamic search: where more items lie is looked at first.
template <Platform P, class Codec, class G>
void Level<P, Codec, G>::turn_search(ViewT& view) noexcept {
  view.upwards.store(view.lower().items() > view.upper().items(), std::memory_order_relaxed);
}

// Now and then an insert looks. While a level is drained: whether that lags behind the inserts that
// fill the others (E19). Else, from three quarters on the space of the next level is wanted, which
// takes the system long to make.
template <Platform P, class Codec, class G>
void Level<P, Codec, G>::after_insert(ViewT& view) noexcept {
  turn_search(view);
  const std::uint64_t items = view.items();
  if (view.drain == Drain::bottom) {
    const std::uint64_t before = at_expansion_.load(std::memory_order_relaxed);
    const std::uint64_t room = view.target_slots() * 3 / 4;  // then items begin to be moved
    if (items <= before || room <= before) return;
    const std::uint64_t filled = (items - before) * 256 / (room - before);
    const std::uint64_t begun = view.cursor.load(std::memory_order_relaxed) * 256;
    if (begun < filled * view.source().buckets()) lags_.store(true, std::memory_order_relaxed);
    return;
  }
  if (view.drain != Drain::none || items * 4 < view.slots() * 3) return;
  if (view.fills_up.exchange(true, std::memory_order_relaxed)) return;
  wants_level_.store(true, std::memory_order_relaxed);
  context_.background.wake(work_);
}

// By who has ended an insert: a little, so that none has to wait for all that is left. One insert
// in 40 would have to do a batch, if nobody else does anything; two for each that looks catch up.
template <Platform P, class Codec, class G>
void Level<P, Codec, G>::keep_pace() noexcept {
  if (!lags_.exchange(false, std::memory_order_relaxed)) return;
  Status failure;
  if (drain_some(2, failure) == Step::blocked) context_.background.wake(work_);
}

// For an insert that found no place under the view of this generation; the caller is in no guard.
// Ok: it may try again. `helped`: it was here before, and cannot go on before the drain is over.
template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::make_room(std::uint64_t generation, bool helped) noexcept {
  const std::uint64_t begin = P::now_ns();
  for (unsigned spins = 0;; P::pause(spins++)) {
    // Then a batch has perhaps failed, and nobody ends the drain.
    if (context_.platform.poisoned()) return context_.platform.failure();
    {
      EpochGuard<P> guard(context_.epochs);
      if (!guard.ok()) return StatusCode::out_of_memory;
      const ViewT& view = *current();
      if (view.generation != generation) return {};
      const bool scan = scans_.load(std::memory_order_seq_cst) != 0;
      const bool may_grow = view.levels < kMaxLevels - 1;
      if (scan ? may_grow || P::now_ns() - begin > kScanPatienceNs : view.drain != Drain::bottom) {
        return grow(generation);
      }
    }
    Status failure;
    // Who is not in the background does not wait for space: the background shall.
    if (drain_some(1, failure) == Step::blocked) context_.background.wake(work_);
    if (!failure.ok()) return failure;
    if (!helped) return {};
  }
}

// An expansion; or one more level for a drain that cannot place an item; or the end of a shrink,
// whose source then takes items again. The caller is pinned.
template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::grow(std::uint64_t generation) noexcept {
  LatchGuard latch(resize_latch_);
  if (context_.platform.poisoned()) return context_.platform.failure();
  ViewT& view = *current();
  if (view.generation != generation) return {};
  if (view.drain == Drain::top) return undo_shrink(view);
  const std::uint64_t items = view.items();
  if (items * kLeastLoad < view.slots()) {
    return Status::format(StatusCode::hash_overflow,
                          "too many keys have hashes alike: no table of %llu items is large enough",
                          static_cast<unsigned long long>(items));
  }
  const std::uint32_t log = view.tiers[0]->log + 1;
  // The last level is for what the drain after the scan cannot place.
  const bool scan = scans_.load(std::memory_order_seq_cst) != 0;
  if (view.levels + (scan ? 1 : 0) >= kMaxLevels || log > kMaxLog) {
    return Status::format(StatusCode::pool_full, "the table cannot grow by more levels at once%s",
                          scan ? "; a scan holds items where they are" : "");
  }
  auto top = make_tier(log);
  if (!top) return std::move(top.error());
  TierT* tiers[kMaxLevels] = {*top};
  std::copy(view.tiers, view.tiers + view.levels, tiers + 1);
  if (Status s = publish(view, tiers, view.levels + 1, Drain::bottom); !s.ok()) {
    drop_tier(*top, s);
    return s;
  }
  resize_begins(view, *current(), false);
  at_expansion_.store(items, std::memory_order_relaxed);
  context_.background.wake(work_);
  return {};
}

template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::expand() noexcept {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, true); !s.ok()) return s;
  return grow(current()->generation);
}

// What was moved down stays legal; the new bottom level is drained instead. A batch in flight may
// hold an item twice, in levels neither of which is drained afterwards (level.I2): it is waited
// for.
template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::undo_shrink(ViewT& view) noexcept {
  view.closed.store(true, std::memory_order_seq_cst);
  for (unsigned spins = 0; view.inside.load(std::memory_order_seq_cst) != 0;) P::pause(spins++);
  Status s = publish(view, view.tiers, view.levels, Drain::bottom);
  if (!s.ok()) {
    view.closed.store(false, std::memory_order_seq_cst);
    return s;
  }
  ResizeStats& shrink = resizes_[(resizes_begun_ - 1) % MapStats::kMaxResizes];
  shrink.slots_after = shrink.slots_before;
  at_expansion_.store(view.items(), std::memory_order_relaxed);
  context_.background.wake(work_);
  return {};
}

// As if it had just grown to this size, at a load of 0.9.
template <Platform P, class Codec, class G>
void Level<P, Codec, G>::expect_growth(const ViewT& view) noexcept {
  at_expansion_.store(view.slots() * 9 / 20, std::memory_order_relaxed);
}

// Whether the table has become too large; never within a factor of two of what it held when it
// grew, or when a shrink was undone.
template <Platform P, class Codec, class G>
bool Level<P, Codec, G>::too_large(const ViewT& view) const noexcept {
  if (!may_shrink_ || view.drain != Drain::none || view.tiers[0]->log <= root_->first_log) {
    return false;
  }
  const std::uint64_t items = view.items();
  return items * 4 < view.slots() && items * 2 <= at_expansion_.load(std::memory_order_relaxed);
}

// Now and then an erase looks. Not at the view under which it locked: a drain that has ended since
// has perhaps summed the counts before this one was lowered (E20).
template <Platform P, class Codec, class G>
void Level<P, Codec, G>::after_erase(std::int64_t left) noexcept {
  ViewT& view = *current();
  if (left % 64 == 0) [[unlikely]]
    turn_search(view);
  if (left % G::kLookEvery != 0 || !too_large(view)) return;
  wants_shrink_.store(true, std::memory_order_relaxed);
  context_.background.wake(work_);
}

// Begins a shrink to half the slots, of which at most `load` in tenths are full then.
template <Platform P, class Codec, class G>
Expected<bool> Level<P, Codec, G>::shrink(std::uint64_t load) noexcept {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
  LatchGuard latch(resize_latch_);
  ViewT& view = *current();
  if (view.drain != Drain::none || view.tiers[0]->log <= root_->first_log) return false;
  if (view.items() * 20 > view.slots() * load) return false;
  auto bottom = make_tier(view.tiers[1]->log - 1);
  if (!bottom) return fail(std::move(bottom.error()));
  TierT* const tiers[3] = {view.tiers[0], view.tiers[1], *bottom};
  if (Status s = publish(view, tiers, 3, Drain::top); !s.ok()) {
    drop_tier(*bottom, s);
    return fail(std::move(s));
  }
  resize_begins(view, *current(), true);
  context_.background.wake(work_);
  return true;
}

template <Platform P, class Codec, class G>
Expected<bool> Level<P, Codec, G>::compact() {
  const auto size = [&] {
    EpochGuard<P> guard(context_.epochs);
    return guard.ok() ? current()->tiers[0]->log : kMaxLog + 1;
  };
  (void)context_.background.finish(work_);
  std::uint32_t log = size();
  for (bool smaller = false;; smaller = true) {
    auto begun = with_room([&] { return shrink(8); });
    if (!begun) return begun;
    if (!*begun) return smaller;
    (void)context_.background.finish(work_);
    // It was undone, and would be again.
    if (size() >= log) return smaller;
    log = size();
  }
}

// A step in the background.
template <Platform P, class Codec, class G>
Step Level<P, Codec, G>::work() noexcept {
  if (context_.platform.poisoned()) return Step::rest;
  if (wants_level_.exchange(false, std::memory_order_relaxed)) {
    EpochGuard<P> guard(context_.epochs);
    if (guard.ok() && current()->fills_up.load(std::memory_order_relaxed)) {
      context_.heap.expect(TierT::bytes_of(current()->tiers[0]->log + 1));
    }
  }
  if (wants_shrink_.exchange(false, std::memory_order_relaxed)) {
    if (auto begun = shrink(5); !begun) {
      wants_shrink_.store(true, std::memory_order_relaxed);
      return Step::blocked;
    }
  }
  Status failure;
  return drain_some(kStepBatches, failure);
}

// Some batches of the drain under way. `more`: there may be others; `rest`: no drain is under way,
// or others do what is left of it; `blocked`: for space, and `failure` says why if this thread
// asked for it.
template <Platform P, class Codec, class G>
Step Level<P, Codec, G>::drain_some(std::uint32_t batches, Status& failure) noexcept {
  for (; batches > 0; --batches) {
    EpochGuard<P> guard(context_.epochs);
    if (!guard.ok()) return Step::rest;
    ViewT& view = *current();
    if (view.drain == Drain::none || scans_.load(std::memory_order_seq_cst) != 0) {
      return Step::rest;
    }
    view.inside.fetch_add(1, std::memory_order_seq_cst);
    if (view.closed.load(std::memory_order_seq_cst)) {
      view.inside.fetch_sub(1, std::memory_order_seq_cst);
      return Step::more;
    }
    const std::uint64_t buckets = view.source().buckets();
    const std::uint64_t first = view.cursor.fetch_add(kBatchBuckets, std::memory_order_acquire);
    if (first >= buckets) {
      view.inside.fetch_sub(1, std::memory_order_seq_cst);
      return Step::rest;
    }
    const std::uint64_t end = std::min(first + kBatchBuckets, buckets);
    const Made made = drain_batch(view, first, end);
    view.inside.fetch_sub(1, std::memory_order_seq_cst);
    if (made == Made::failed) {
      failure = StatusCode::poisoned;
      return Step::blocked;
    }
    if (made == Made::full) {
      // The view changes, and with it the drain begins anew; or this batch has to be done again.
      failure = grow(view.generation);
      if (!failure.ok()) {
        view.starved.store(true, std::memory_order_relaxed);
        view.failed.store(true, std::memory_order_relaxed);
      }
    } else if (made == Made::again) {  // a scan, or another view
      view.failed.store(true, std::memory_order_relaxed);
    }
    const std::uint64_t done = view.done.fetch_add(end - first, std::memory_order_acq_rel);
    const bool last = done + (end - first) == buckets;
    const Step step = last ? finish_drain(view, failure) : Step::more;
    if (step == Step::blocked || !failure.ok()) return Step::blocked;
  }
  return Step::more;
}

// Every bucket was looked at under this view, by batches that are over.
template <Platform P, class Codec, class G>
Step Level<P, Codec, G>::finish_drain(ViewT& view, Status& failure) noexcept {
  LatchGuard latch(resize_latch_);
  if (current() != &view) return Step::more;
  const bool scanned = scans_.load(std::memory_order_seq_cst) != 0;
  bool starved = view.starved.load(std::memory_order_relaxed);
  if (!view.failed.load(std::memory_order_relaxed) && !scanned) {
    const bool top = view.drain == Drain::top;
    const std::uint32_t levels = view.levels - 1;
    PERDURE_ASSERT(P, "level.I3", is_drained(view.source()) || context_.platform.poisoned());
    Status s = publish(view, view.tiers + (top ? 1 : 0), levels,
                       levels == 2 ? Drain::none : Drain::bottom);
    if (s.ok()) {
      resize_ends(view);
      if (top) expect_growth(*current());
      // What was erased meanwhile found no settled table.
      if (too_large(*current())) wants_shrink_.store(true, std::memory_order_relaxed);
      context_.background.wake(work_);
      return Step::more;
    }
    failure = std::move(s);
    starved = true;
  }
  // Once more, from the first bucket.
  view.starved.store(false, std::memory_order_relaxed);
  view.failed.store(false, std::memory_order_relaxed);
  view.done.store(0, std::memory_order_relaxed);
  view.cursor.store(0, std::memory_order_release);
  if (starved) return Step::blocked;
  context_.background.wake(work_);  // it has perhaps found nothing left, and rests
  return Step::more;
}

// The misses of a batch side by side: fingerprints of the buckets that its items may go to, then
// the lines that they would take. No lock is held, so this is a guess.
template <Platform P, class Codec, class G>
void Level<P, Codec, G>::prefetch_goals(const ViewT& view, std::uint64_t first,
                                        std::uint64_t end) const noexcept {
  const TierT& source = view.source();
  Probe probes[kBatchBuckets * kSlots];
  std::uint32_t count = 0;
  for (std::uint64_t bucket = first; bucket < end; ++bucket) {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      if (source.metas[bucket].print(slot) == 0) continue;
      Probe& probe = probes[count++];
      probe = Codec::probe_of(
          Form::load(context_.platform, source.line(bucket, slot), slot % Form::kSlots), seeds_);
      for (const TierT* tier : {&view.upper(), &view.lower()}) {
        __builtin_prefetch(&tier->metas[tier->index(probe.hashes[0])], 1);
        __builtin_prefetch(&tier->metas[tier->index(probe.hashes[1])], 1);
      }
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const Place goal = free_place(view, probes[i]);
    if (goal.found()) __builtin_prefetch(&goal.line(), 1);
  }
}

// Empties source buckets [first, end). `full`: an item has no place.
template <Platform P, class Codec, class G>
typename Level<P, Codec, G>::Made Level<P, Codec, G>::drain_batch(ViewT& view, std::uint64_t first,
                                                                  std::uint64_t end) noexcept {
  prefetch_goals(view, first, end);
  std::uint64_t bucket = first;
  for (unsigned spins = 0; bucket < end;) {
    moves_begun_.fetch_add(1, std::memory_order_acq_rel);
    const Made made = drain_round(view, bucket, end);
    moves_ended_.fetch_add(1, std::memory_order_release);
    if (made == Made::failed || made == Made::full) return made;
    if (made == Made::again) {
      if (current() != &view || scans_.load(std::memory_order_seq_cst) != 0) return made;
      P::pause(spins++);
    }
  }
  return Made::done;
}

// As many buckets as can be locked: all copies, a fence, all source tokens, a fence.
template <Platform P, class Codec, class G>
typename Level<P, Codec, G>::Made Level<P, Codec, G>::drain_round(ViewT& view,
                                                                  std::uint64_t& bucket,
                                                                  std::uint64_t end) noexcept {
  P& platform = context_.platform;
  TierT& source = view.source();
  const std::uint64_t begin = bucket;
  Copied copied;
  Probe stuck;
  Made made = Made::done;
  {
    Locks locks;
    for (; bucket < end && made == Made::done; ++bucket) {
      if (bucket == begin) {
        locks.lock(source, bucket);
      } else if (!locks.try_lock(source, bucket)) {
        break;
      }
      // level.I6; and a scan that began before has passed nothing that this holds.
      if (current() != &view || scans_.load(std::memory_order_seq_cst) != 0) {
        made = Made::again;
        break;
      }
      made = copy_bucket(view, bucket, locks, copied, &copied.slots[bucket - begin], stuck);
      if (made != Made::done) break;
    }
    if (copied.count == 0 && made == Made::done) return made;
    if (copied.count != 0) {
      // Counts before write-backs, and those behind the last lock: what is locked waits for them.
      view.upper().add(copied.to_upper);
      view.lower().add(copied.count - copied.to_upper);
      for (std::uint32_t i = 0; i < copied.count; ++i) {
        platform.flush(copied.lines[i], sizeof(Line), "level.drain.copy"_site);
      }
      if (!platform.fence("level.drain.copy"_site)) return Made::failed;
      PERDURE_ASSERT(P, "level.I4",
                     std::all_of(copied.lines, copied.lines + copied.count,
                                 [&](const Line* line) { return persisted(*line); }));
      for (std::uint64_t b = begin; b < std::min(begin + kBatchBuckets, end); ++b) {
        clear_slots(source, b, copied.slots[b - begin]);
      }
      if (!platform.fence("level.drain.clear"_site)) return Made::failed;
    }
    for (std::uint64_t b = begin; b < end; ++b) {
      if (copied.slots[b - begin] != 0) locks.changed(&source, b);
      for (std::uint32_t m = copied.slots[b - begin]; m != 0; m &= m - 1) {
        const Place from{&source, b, static_cast<std::uint32_t>(__builtin_ctz(m))};
        PERDURE_ASSERT(P, "level.I4", persisted(from.line()));
        hide(from);
      }
    }
    if (copied.count != 0) source.add(-static_cast<std::int64_t>(copied.count));
    items_.fetch_add(copied.count, std::memory_order_relaxed);
  }
  return made == Made::full ? relocate(view, bucket, stuck) : made;
}

// Tokens of copied slots off, line by line; the caller fences.
template <Platform P, class Codec, class G>
void Level<P, Codec, G>::clear_slots(TierT& source, std::uint64_t bucket,
                                     std::uint32_t bits) noexcept {
  P& platform = context_.platform;
  for (std::uint32_t first = 0; bits >> first != 0 && first < kSlots; first += Form::kSlots) {
    const std::uint32_t mine = bits >> first & ((1U << Form::kSlots) - 1);
    if (mine == 0) continue;
    Line& line = source.line(bucket, first);
    Form::set_tokens(platform, line, Form::tokens(platform, line) & ~std::uint64_t{mine});
    platform.flush(&line.tokens, 8, "level.drain.clear"_site);
  }
}

// Copies the items of a locked source bucket to where they belong; the caller counts them there,
// writes them back and fences. `full`: `stuck` has no place.
template <Platform P, class Codec, class G>
typename Level<P, Codec, G>::Made Level<P, Codec, G>::copy_bucket(ViewT& view, std::uint64_t bucket,
                                                                  Locks& locks, Copied& copied,
                                                                  std::uint32_t* slots,
                                                                  Probe& stuck) noexcept {
  TierT& source = view.source();
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const std::uint8_t print = source.metas[bucket].print(slot);
    if (print == 0) continue;
    const Item item = load({&source, bucket, slot});
    const Probe probe = probe_of(item);
    Place goal = free_place(view, probe);
    if (!goal.found()) {
      stuck = probe;
      return Made::full;
    }
    if (!locks.has(goal.tier, goal.bucket)) {
      if (!locks.try_lock(*goal.tier, goal.bucket)) return Made::again;
      // level.I6; and a scan that has passed it must not miss what comes into it.
      if (current() != &view || scans_.load(std::memory_order_seq_cst) != 0) return Made::again;
      goal.slot = goal.tier->free_slot(goal.bucket, print);
      if (!goal.found()) return Made::again;
    }
    PERDURE_ASSERT(P, "level.I2", goal.tier != &source);
    PERDURE_ASSERT(P, "level.I7", locks.has(&source, bucket));
    locks.changed(goal.tier, goal.bucket);
    set_item(goal, item);
    show(goal, print);
    copied.lines[copied.count++] = &goal.line();
    copied.to_upper += goal.tier == &view.upper() ? 1 : 0;
    *slots |= 1U << slot;
  }
  return Made::done;
}

// One item of a source bucket that found no free place: like an insert, with a movement.
template <Platform P, class Codec, class G>
typename Level<P, Codec, G>::Made Level<P, Codec, G>::relocate(ViewT& view, std::uint64_t bucket,
                                                               const Probe& probe) noexcept {
  P& platform = context_.platform;
  Locks locks;
  if (lock_key(probe, locks) != &view || scans_.load(std::memory_order_seq_cst) != 0) {
    return Made::again;
  }
  TierT& source = view.source();
  std::uint32_t slot = 0;
  for (; slot < kSlots; ++slot) {
    if (source.metas[bucket].print(slot) != 0 &&
        Form::holds(platform, source.line(bucket, slot), slot % Form::kSlots, probe.word,
                    probe.second)) {
      break;
    }
  }
  if (slot == kSlots) return Made::again;  // erased meanwhile; the bucket is looked at again
  const Place from{&source, bucket, slot};
  const Made made = insert_locked(view, probe, load(from), true, locks);
  if (made == Made::full && scans_.load(std::memory_order_seq_cst) != 0) return Made::again;
  if (made != Made::done) return made;
  clear_slots(source, bucket, 1U << slot);
  if (!platform.fence("level.drain.clear"_site)) return Made::failed;
  PERDURE_ASSERT(P, "level.I4", persisted(from.line()));
  locks.changed(&source, bucket);
  hide(from);
  source.add(-1);
  items_.fetch_add(1, std::memory_order_relaxed);
  return Made::again;  // the bucket is looked at again
}

}  // namespace perdure::level
