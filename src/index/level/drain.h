// Drain: empties the source level of a resize, batch by batch: in the background, and by inserts.
// A batch copies items with their tokens, then clears the tokens in the source. level.I2 and
// level.I7 for items in two levels; level.I3 when a level leaves; level.I6.
#pragma once

#include <algorithm>
#include <utility>

#include "index/level/movement.h"

namespace perdure::level {

template <class T>
class Drainer : public Movement<T> {
 protected:
  using Base = Movement<T>;
  using P = typename T::Platform;
  using Form = typename T::Codec::Form;
  using Base::context_, Base::current, Base::free_place, Base::grow, Base::hide, Base::kSlots,
      Base::lags_, Base::load, Base::moved_, Base::moves_begun_, Base::moves_ended_,
      Base::persisted, Base::probe_of, Base::publish, Base::resize_latch_, Base::scans_, Base::show,
      Base::too_large, Base::wants_level_, Base::wants_shrink_, Base::work_;
  friend struct Peek;

 public:
  using Base::Base;

  // A step in the background.
  Step work() {
    if (context_.platform.poisoned()) return Step::rest;
    if (wants_level_.exchange(false, std::memory_order_relaxed)) {
      EpochGuard<P> guard(context_.epochs);
      if (guard.ok() && current()->fills_up.load(std::memory_order_relaxed)) {
        context_.heap.expect(Tier<T>::bytes_of(current()->tiers[0]->log + 1));
      }
    }
    if (wants_shrink_.exchange(false, std::memory_order_relaxed)) {
      if (auto begun = this->shrink(5); !begun) {
        wants_shrink_.store(true, std::memory_order_relaxed);
        return Step::blocked;
      }
    }
    Status failure;
    return drain_some(T::Geometry::kStepBatches, failure);
  }

 protected:
  // For an insert that found no place under the view of this generation. The caller is in no guard.
  // Ok: the insert may try again. `helped`: the insert was here before, so it cannot go on before
  // the drain ends.
  [[gnu::noinline]] Status make_room(std::uint64_t generation, bool helped) {
    const std::uint64_t begin = P::now_ns();
    for (unsigned spins = 0;; P::pause(spins++)) {
      // A batch may have failed in a poisoned pool, and then the drain never ends.
      if (context_.platform.poisoned()) return context_.platform.failure();
      {
        MutationGuard<P> guard(context_.epochs);
        if (!guard.ok()) return StatusCode::out_of_memory;
        if (!guard.pass_gate()) return Base::not_passed();
        const View<T>& view = *current();
        if (view.generation != generation) return {};
        const bool scan = scans_.load(std::memory_order_seq_cst) != 0;
        const bool may_grow = view.levels < kMaxLevels - 1;
        if (scan ? may_grow || P::now_ns() - begin > kScanPatienceNs
                 : view.drain != Drain::bottom) {
          return grow(generation);
        }
        Status failure;
        // An insert does not wait for space. The background does.
        if (drain_some(1, failure) == Step::blocked) context_.background.wake(work_);
        if (!failure.ok()) return failure;
      }
      if (!helped) return {};
    }
  }

  // For a thread that has ended an insert during a drain that lags: does a few batches, so that no
  // insert has to wait for all that is left. Without any other thread's help, one insert in 40
  // would have to do a batch. Two batches by one of the 64 inserts that look catch up.
  void keep_pace() {
    // A batch has counted the free slots.
    if (context_.epochs.gate().does_batch()) return;
    if (!lags_.exchange(false, std::memory_order_relaxed)) return;
    MutationGuard<P> guard(context_.epochs);
    if (!guard.ok() || !guard.pass_gate()) return;
    Status failure;
    if (drain_some(2, failure) == Step::blocked) context_.background.wake(work_);
  }

 private:
  static constexpr std::uint32_t kBatchBuckets = T::Geometry::kBatchBuckets;
  // An insert that cannot move an item during a scan fails after this time.
  static constexpr std::uint64_t kScanPatienceNs = 1'000'000'000;
  // What a round of a drain has copied, and not written back yet.
  struct Copied {
    std::uint32_t slots[kBatchBuckets] = {};  // of each source bucket, as bits
    Line<T>* lines[kBatchBuckets * kSlots];   // where the copies lie
    std::uint32_t count = 0;
    std::uint32_t to_upper = 0;  // of them, those in the upper level
  };

  bool is_scanned() const { return scans_.load(std::memory_order_seq_cst) != 0; }
  bool must_stop(const View<T>& view) const { return current() != &view || is_scanned(); }
  // For an assertion: whether no token of the level is set, durably. All its buckets were looked
  // at. Inserts, erases and batches change the count before they release their locks.
  bool is_drained(const Tier<T>& tier) const {
    return tier.items() == 0 &&
           context_.platform.persisted(tier.lines, Tier<T>::line_bytes(tier.log));
  }

  // Does some batches of the drain in progress. `more`: there may be others. `rest`: there is no
  // drain, or other threads do the rest of it. `blocked`: the drain needs space; `failure` says
  // why, if this thread asked for it.
  [[gnu::noinline]] Step drain_some(std::uint32_t batches, Status& failure) {
    for (; batches > 0; --batches) {
      EpochGuard<P> guard(context_.epochs);
      if (!guard.ok()) return Step::rest;
      View<T>& view = *current();
      if (view.drain == Drain::none || is_scanned()) return Step::rest;
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
        // Either the view changes, and the drain begins anew; or this batch must be done again.
        failure = grow(view.generation);
        if (!failure.ok()) {
          view.starved.store(true, std::memory_order_relaxed);
          view.failed.store(true, std::memory_order_relaxed);
        }
      } else if (made == Made::again) {  // because of a scan, or of another view
        view.failed.store(true, std::memory_order_relaxed);
      }
      const std::uint64_t done = view.done.fetch_add(end - first, std::memory_order_acq_rel);
      const bool last = done + (end - first) == buckets;
      const Step step = last ? finish_drain(view, failure) : Step::more;
      if (step == Step::blocked || !failure.ok()) return Step::blocked;
    }
    return Step::more;
  }

  // Batches that have ended have looked at every bucket under this view. The source leaves, or the
  // drain begins once more at the first bucket.
  [[gnu::noinline]] Step finish_drain(View<T>& view, Status& failure) {
    LatchGuard latch(resize_latch_);
    if (current() != &view) return Step::more;
    const bool scanned = is_scanned();
    bool starved = view.starved.load(std::memory_order_relaxed);
    if (!view.failed.load(std::memory_order_relaxed) && !scanned) {
      const bool top = view.drain == Drain::top;
      const std::uint32_t levels = view.levels - 1;
      PERDURE_ASSERT(P, "level.I3", is_drained(view.source()) || context_.platform.poisoned());
      Status s = publish(view, view.all().subspan(top ? 1 : 0, levels),
                         levels == 2 ? Drain::none : Drain::bottom);
      if (s.ok()) {
        this->resize_ends(view);
        if (top) this->expect_growth(*current());
        // Erases during the drain found a table that was not settled.
        if (too_large(*current())) wants_shrink_.store(true, std::memory_order_relaxed);
        context_.background.wake(work_);
        return Step::more;
      }
      failure = std::move(s);
      starved = true;
    }
    view.starved.store(false, std::memory_order_relaxed);
    view.failed.store(false, std::memory_order_relaxed);
    view.done.store(0, std::memory_order_relaxed);
    view.cursor.store(0, std::memory_order_release);
    if (starved) return Step::blocked;
    context_.background.wake(work_);  // it may have found nothing to do, and rests
    return Step::more;
  }

  // Empties the source buckets [first, end). Returns `full` if an item has no place.
  [[gnu::noinline]] Made drain_batch(View<T>& view, std::uint64_t first, std::uint64_t end) {
    prefetch_goals(view, first, end);
    std::uint64_t bucket = first;
    for (unsigned spins = 0; bucket < end;) {
      moves_begun_.fetch_add(1, std::memory_order_acq_rel);
      const Made made = drain_round(view, bucket, end);
      moves_ended_.fetch_add(1, std::memory_order_release);
      if (made == Made::failed || made == Made::full) return made;
      if (made == Made::again) {
        if (must_stop(view)) return made;
        P::pause(spins++);
      }
    }
    return Made::done;
  }

  // Makes the misses of a batch overlap. It fetches the fingerprints of the buckets that the items
  // may go to, then the lines that they would take. It holds no lock, so the lines are a guess.
  [[gnu::noinline]] void prefetch_goals(const View<T>& view, std::uint64_t first,
                                        std::uint64_t end) const {
    const Tier<T>& source = view.source();
    Probe probes[kBatchBuckets * kSlots];
    std::uint32_t count = 0;
    for (std::uint64_t bucket = first; bucket < end; ++bucket) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        if (source.metas[bucket].print(slot) == 0) continue;
        Probe& probe = probes[count++];
        probe = probe_of(load(source, bucket, slot));
        for (const Tier<T>* tier : {&view.upper(), &view.lower()}) {
          __builtin_prefetch(&tier->metas[tier->index(probe.hashes[0])], 1);
          __builtin_prefetch(&tier->metas[tier->index(probe.hashes[1])], 1);
        }
      }
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const Place<T> goal = free_place(view, probes[i]);
      if (goal.found()) __builtin_prefetch(&goal.line(), 1);
    }
  }

  // Empties as many buckets as can be locked: stores all copies, fences, clears all source tokens,
  // and fences.
  [[gnu::noinline]] Made drain_round(View<T>& view, std::uint64_t& bucket, std::uint64_t end) {
    Tier<T>& source = view.source();
    const std::uint64_t begin = bucket;
    Copied copied;
    Probe stuck;
    Made made = Made::done;
    {
      Locks<T> locks;
      for (; bucket < end && made == Made::done; ++bucket) {
        if (bucket == begin) {
          locks.lock(source, bucket);
        } else if (!locks.try_lock(source, bucket)) {
          break;
        }
        // level.I6; and a scan that began earlier has passed no bucket that this thread holds.
        made = must_stop(view)
                   ? Made::again
                   : copy_bucket(view, bucket, locks, copied, &copied.slots[bucket - begin], stuck);
        if (made != Made::done) break;
      }
      if (copied.count == 0 && made == Made::done) return made;
      if (copied.count != 0 && !commit(view, begin, end, copied)) return Made::failed;
      for (std::uint64_t b = begin; b < end; ++b) {
        if (copied.slots[b - begin] != 0) locks.changed(&source, b);
        for (std::uint32_t m = copied.slots[b - begin]; m != 0; m &= m - 1) {
          const Place<T> from{&source, b, static_cast<std::uint32_t>(__builtin_ctz(m))};
          PERDURE_ASSERT(P, "level.I4", persisted(from.line()));
          hide(from);
        }
      }
      if (copied.count != 0) source.add(-static_cast<std::int64_t>(copied.count));
      moved_.fetch_add(copied.count, std::memory_order_relaxed);
    }
    return made == Made::full ? relocate(view, bucket, stuck) : made;
  }

  // Copies the items of a locked source bucket to their places. The caller counts the items there,
  // writes them back and fences. Returns `full` if the key `stuck` has no place.
  [[gnu::noinline]] Made copy_bucket(View<T>& view, std::uint64_t bucket, Locks<T>& locks,
                                     Copied& copied, std::uint32_t* slots, Probe& stuck) {
    Tier<T>& source = view.source();
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      const std::uint8_t print = source.metas[bucket].print(slot);
      if (print == 0) continue;
      const Item<T> item = load(source, bucket, slot);
      const Probe probe = probe_of(item);
      Place<T> goal = free_place(view, probe);
      if (!goal.found()) {
        stuck = probe;
        return Made::full;
      }
      if (!locks.has(goal.tier, goal.bucket)) {
        if (!locks.try_lock(*goal.tier, goal.bucket)) return Made::again;
        // level.I6; and a scan that has passed the bucket must not miss an item that comes into it.
        if (must_stop(view)) return Made::again;
        goal.slot = goal.tier->free_slot(goal.bucket, print);
        if (!goal.found()) return Made::again;
      }
      PERDURE_ASSERT(P, "level.I2", goal.tier != &source);
      PERDURE_ASSERT(P, "level.I7", locks.has(&source, bucket));
      locks.changed(goal.tier, goal.bucket);
      this->set_item(goal, item);
      show(goal, print);
      copied.lines[copied.count++] = &goal.line();
      copied.to_upper += goal.tier == &view.upper() ? 1 : 0;
      *slots |= 1U << slot;
    }
    return Made::done;
  }

  // Makes the copies of a round durable, then the cleared tokens in the source. Returns false if
  // the pool is poisoned.
  [[gnu::always_inline]] bool commit(View<T>& view, std::uint64_t begin, std::uint64_t end,
                                     const Copied& copied) {
    P& platform = context_.platform;
    // The counts change before the write-backs, which are behind the last lock: a locked
    // instruction waits for write-backs before it.
    view.upper().add(copied.to_upper);
    view.lower().add(copied.count - copied.to_upper);
    for (std::uint32_t i = 0; i < copied.count; ++i) {
      platform.flush(copied.lines[i], sizeof(Line<T>), "level.drain.copy"_site);
    }
    if (!platform.fence("level.drain.copy"_site)) return false;
    PERDURE_ASSERT(P, "level.I4",
                   std::all_of(copied.lines, copied.lines + copied.count,
                               [&](const Line<T>* line) { return persisted(*line); }));
    for (std::uint64_t b = begin; b < std::min(begin + kBatchBuckets, end); ++b) {
      clear_slots(view.source(), b, copied.slots[b - begin]);
    }
    return platform.fence("level.drain.clear"_site);
  }

  // Clears the tokens of copied slots, line by line, and writes them back. The caller fences.
  [[gnu::noinline]] void clear_slots(Tier<T>& source, std::uint64_t bucket, std::uint32_t bits) {
    P& platform = context_.platform;
    for (std::uint32_t first = 0; bits >> first != 0 && first < kSlots; first += Form::kSlots) {
      const std::uint32_t mine = bits >> first & ((1U << Form::kSlots) - 1);
      if (mine == 0) continue;
      Line<T>& line = source.line(bucket, first);
      Form::set_tokens(platform, line, Form::tokens(platform, line) & ~std::uint64_t{mine});
      platform.flush(&line.tokens, 8, "level.drain.clear"_site);
    }
  }

  // Moves one item of a source bucket that found no free place: like an insert with a movement.
  // Returns `again` on success, since the bucket must be looked at again.
  [[gnu::noinline]] Made relocate(View<T>& view, std::uint64_t bucket, const Probe& probe) {
    Locks<T> locks;
    if (this->lock_key(probe, locks) != &view || is_scanned()) return Made::again;
    Tier<T>& source = view.source();
    Place<T> from{&source, bucket, 0};
    for (; from.found(); ++from.slot) {
      if (from.meta().print(from.slot) != 0 &&
          Form::holds(context_.platform, from.line(), from.in_line(), probe.word, probe.second)) {
        break;
      }
    }
    if (!from.found()) return Made::again;  // another thread has erased it
    const Made made = this->insert_locked(view, probe, load(from), true, locks);
    if (made == Made::full && is_scanned()) return Made::again;
    if (made != Made::done) return made;
    clear_slots(source, bucket, 1U << from.slot);
    if (!context_.platform.fence("level.drain.clear"_site)) return Made::failed;
    PERDURE_ASSERT(P, "level.I4", persisted(from.line()));
    locks.changed(&source, bucket);
    hide(from);
    source.add(-1);
    moved_.fetch_add(1, std::memory_order_relaxed);
    return Made::again;
  }
};

}  // namespace perdure::level
