// Movement: gives an item a place among the candidate buckets of its key. If all are full, it moves
// one other item to the latter's other bucket, or from the bottom level to the top level. A Move
// line records that, and recovery ends it. A movement keeps level.I1, level.I2 and level.I5 to
// level.I7.
//
// RESIZES  An expansion makes the table twice as large: it adds a new top level, and drains the
//   bottom level. A shrink makes the table smaller by half, when erases have left it too large or
//   at compact(): it adds a new bottom level, and drains the top level. Both keep level.I3 through
//   publish(). A shrink that is undone keeps level.I2.
// DRAIN  A drain empties the source level of a resize, batch by batch: in the background, and by
//   inserts. A batch copies items with their tokens, then clears the tokens in the source. So the
//   drain keeps level.I2 and level.I7 for items in two levels, and level.I3 when a level leaves. It
//   also keeps level.I6.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "index/level/lookup.h"

namespace perdure::level {

template <class T>
class Movement : public Lookup<T> {
 protected:
  using Base = Lookup<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::at_expansion_, Base::begin_change, Base::begin_resize, Base::context_, Base::current,
      Base::in_table, Base::kSlots, Base::lags_, Base::load, Base::may_hold, Base::move_latches_,
      Base::moved_, Base::moves_begun_, Base::moves_ended_, Base::persist, Base::persisted,
      Base::probe_of, Base::publish, Base::resize_ends, Base::resize_latch_, Base::resizes_,
      Base::root_, Base::scans_, Base::wants_level_, Base::wants_shrink_, Base::work_;
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
      if (auto begun = shrink(5); !begun) {
        wants_shrink_.store(true, std::memory_order_relaxed);
        return Step::blocked;
      }
    }
    Status failure;
    return drain_some(T::Geometry::kStepBatches, failure);
  }

  // Begins an expansion at any load. For benchmarks. Errors: those of an insert.
  Status expand() {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_change(guard, true); !s.ok()) return s;
    return grow(current()->generation);
  }

  Expected<bool> compact() override {
    const auto size = [&] {
      EpochGuard<P> guard(context_.epochs);
      return guard.ok() ? current()->tiers[0]->log : kMaxLog + 1;
    };
    (void)context_.background.finish(work_);
    std::uint32_t log = size();
    for (bool smaller = false;; smaller = true) {
      auto begun = this->with_room([&] { return shrink(8); });
      if (!begun) return begun;
      if (!*begun) return smaller;
      (void)context_.background.finish(work_);
      // The shrink was undone, and the next one would be, too.
      if (size() >= log) return smaller;
      log = size();
    }
  }

 protected:
  // Stores the words of an item, then its token. The caller writes back and fences.
  [[gnu::always_inline]] void set_item(const Place<T>& place, const Item<T>& item) {
    PERDURE_ASSERT(P, "level.I1", may_hold(*place.tier, place.bucket, probe_of(item)));
    PERDURE_ASSERT(P, "level.I1",
                   (Form::tokens(context_.platform, place.line()) & place.bit()) == 0);
    PERDURE_ASSERT(P, "level.I4", place.meta().locked());
    PERDURE_ASSERT(P, "level.I6", in_table(place.tier));
    Form::put(context_.platform, place.line(), place.in_line(), item);
  }
  // Stores the cleared token. The caller writes back and fences.
  [[gnu::always_inline]] void clear_token(const Place<T>& place) {
    Line<T>& line = place.line();
    Form::set_tokens(context_.platform, line, Form::tokens(context_.platform, line) & ~place.bit());
  }
  // Sets the fingerprint, which makes the item visible to lookups.
  [[gnu::always_inline]] static void show(const Place<T>& place, std::uint8_t print) {
    PERDURE_ASSERT(P, "level.I4", place.meta().locked());
    place.meta().set_print(place.slot, print);
  }
  [[gnu::always_inline]] static void hide(const Place<T>& place) { show(place, 0); }

  // Returns a slot in the less loaded bucket of the key: first in the upper of the two levels that
  // take items, then in the lower one.
  [[gnu::always_inline]] Place<T> free_place(const View<T>& view, const Probe& probe) const {
    for (const std::uint32_t level : {view.target(), view.target() + 1}) {
      Tier<T>& tier = *view.tiers[level];
      const std::uint64_t a = tier.index(probe.hashes[0]);
      const std::uint64_t b = tier.index(probe.hashes[1]);
      const std::uint64_t bucket = tier.used(b) < tier.used(a) ? b : a;
      const std::uint32_t slot = tier.free_slot(bucket, probe.print);
      if (slot != kSlots) return {&tier, bucket, slot};
    }
    return {};
  }

  // Inserts an item whose key is absent, or only in the level that is being drained. A caller that
  // has not helped with a drain yet moves nothing during one. Otherwise the levels that the drain
  // fills would be full before it ends.
  [[gnu::always_inline]] Made insert_locked(const View<T>& view, const Probe& probe,
                                            const Item<T>& item, bool helped, Locks<T>& locks) {
    PERDURE_ASSERT(P, "level.I5", all_held(locks, view, probe));
    const Place<T> place = free_place(view, probe);
    if (place.found()) [[likely]] {
      locks.changed(place.tier, place.bucket);
      // Before the write-back: a locked instruction after it would wait for it.
      const std::int64_t count = place.tier->add(1);
      set_item(place, item);
      if (!persist(&place.line(), sizeof(Line<T>), "level.insert.line"_site))
        return Made::failed;  // PP(insert)
      PERDURE_ASSERT(P, "level.I4", persisted(place.line()));
      show(place, probe.print);
      if (is_due(view, *place.tier, count)) [[unlikely]]
        after_insert(const_cast<View<T>&>(view));
      return Made::done;
    }
    if (!helped && view.drain == Drain::bottom) return Made::full;
    Place<T> victim;
    Place<T> goal;
    const Made found = find_victim(view, probe, locks, victim, goal);
    if (found != Made::done) return found;
    // level.I6; and a movement must not happen during a scan.
    if (current() != &view) return Made::again;
    if (scans_.load(std::memory_order_seq_cst) != 0) return Made::full;
    return move_and_put(victim, goal, probe, item, locks);
  }

  // Returns the place of a line, with the line's first slot. It is not found() if the line is in
  // none of the levels.
  Place<T> place_of(std::uint64_t line) const {
    for (Tier<T>* tier : current()->all()) {
      const std::uint64_t at = line - tier->offset;
      if (line < tier->offset || at >= Tier<T>::line_bytes(tier->log)) continue;
      if (at % sizeof(Line<T>) != 0) return {};
      const std::uint64_t number = at / sizeof(Line<T>);
      return {tier, number / Tier<T>::kLines,
              static_cast<std::uint32_t>(number % Tier<T>::kLines) * Form::kSlots};
    }
    return {};
  }

  // Returns whether two slots that both count hold the same item. Byte strings of one hash differ
  // by their record, which a copy shares.
  static bool same_item(const Item<T>& a, const Item<T>& b) {
    return std::ranges::equal(a.key, b.key) && (!Codec::kBytes || a.value[0] == b.value[0]);
  }

  // Recovery: a key that is valid in both lines of a Move loses its slot in the first. The Moves
  // are handled one after the other, because a stale one may name the lines of another in reverse
  // order. Nothing else makes a stale Move name a key twice, and then either copy will do
  // (level.I2).
  [[gnu::noinline]] Status finish_moves() {
    P& platform = context_.platform;
    bool wrote = false;
    for (layout::Move& move : root_->moves) {
      const std::uint64_t from_offset = platform.load(move.from);
      const std::uint64_t to_offset = platform.load(move.to);
      if (to_offset == 0 || from_offset == to_offset) continue;
      const Place<T> from = place_of(from_offset);
      const Place<T> to = place_of(to_offset);
      if (!from.found() || !to.found() || !P::runs("level.recover.move"_site)) continue;
      Line<T>& a = from.line();
      const Line<T>& b = to.line();
      for (std::uint32_t i = 0; i < Form::kSlots; ++i) {
        for (std::uint32_t j = 0; j < Form::kSlots; ++j) {
          const std::uint64_t tokens = Form::tokens(platform, a);
          if ((tokens >> i & 1) == 0 || (Form::tokens(platform, b) >> j & 1) == 0) continue;
          if (!same_item(Form::load(platform, a, i), Form::load(platform, b, j))) continue;
          Form::set_tokens(platform, a, tokens & ~(1ULL << i));
          platform.flush(&a.tokens, 8, "level.recover.move"_site);
          wrote = true;
        }
      }
    }
    // A Move stays until another movement takes its line. A second recovery finds nothing to do.
    return !wrote || platform.fence("level.recover.move"_site) ? Status() : StatusCode::poisoned;
  }

  // --- resizes ---

  // Whether the insert that has raised the count of its stripe to this number looks. During a drain
  // often, because inserts help to keep its pace (E19).
  static bool is_due(const View<T>& view, const Tier<T>& tier, std::int64_t count) {
    return view.drain == Drain::bottom ? count % 64 == 0 : tier.is_due(count, 64);
  }
  // Inserts for which is_due() holds call this. During a drain of the bottom level it checks
  // whether the drain lags behind the inserts, which fill the other levels (E19). Without a drain,
  // it asks for the space of the next level when the table is three quarters full: the system needs
  // long to make that space.
  [[gnu::noinline]] void after_insert(View<T>& view) {
    view.turn_search();
    const std::uint64_t items = view.items();
    if (view.drain == Drain::bottom) {
      const std::uint64_t before = at_expansion_.load(std::memory_order_relaxed);
      const std::uint64_t room = view.target_slots() * 3 / 4;  // from here on inserts move items
      if (items <= before || room <= before) return;
      const std::uint64_t filled = (items - before) * 256 / (room - before);
      const std::uint64_t begun = view.cursor.load(std::memory_order_relaxed) * 256;
      if (begun < filled * view.source().buckets()) lags_.store(true, std::memory_order_relaxed);
      return;
    }
    if (view.drain != Drain::none || items * 4 < view.slots() * 3) return;
    if (view.fills_up.load(std::memory_order_relaxed) ||
        view.fills_up.exchange(true, std::memory_order_relaxed)) {
      return;
    }
    wants_level_.store(true, std::memory_order_relaxed);
    context_.background.wake(work_);
  }

  // Erases call this now and then. It takes the current view, not the view under which the erase
  // held its lock: a drain that has ended since may have summed the counts before the erase lowered
  // its count (E20).
  [[gnu::noinline]] void after_erase(std::int64_t left) {
    View<T>& view = *current();
    static_assert(std::has_single_bit(T::Geometry::kLookEvery));
    if (!view.upper().is_due(left, T::Geometry::kLookEvery)) [[likely]]
      return;
    view.turn_search();
    if (!too_large(view)) return;
    wants_shrink_.store(true, std::memory_order_relaxed);
    context_.background.wake(work_);
  }

  // Counts as if the table had just grown to this size, at a load of 0.9.
  void expect_growth(const View<T>& view) {
    at_expansion_.store(view.slots() * 9 / 20, std::memory_order_relaxed);
  }

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

  std::uint64_t planned_ = 0;  // inserts of a batch that is being planned

 private:
  static constexpr std::uint64_t kLeastLoad = 16;  // no expansion below a load of 1/16
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

  // For an assertion.
  static bool all_held(const Locks<T>& locks, const View<T>& view, const Probe& probe) {
    return std::ranges::all_of(view.all(), [&](const Tier<T>* tier) {
      return locks.has(tier, tier->index(probe.hashes[0])) &&
             locks.has(tier, tier->index(probe.hashes[1]));
    });
  }

  // Finds an item in one of the key's buckets that can go elsewhere: to its other bucket in the
  // same level, or from the lower level to the upper one (B2T). Acquires the lock of the bucket
  // that the item goes to. Returns `again` only if another thread held a lock.
  [[gnu::noinline]] Made find_victim(const View<T>& view, const Probe& probe, Locks<T>& locks,
                                     Place<T>& victim, Place<T>& goal) {
    bool busy = false;
    const auto take = [&](Tier<T>& tier, std::uint64_t bucket, std::uint8_t print) {
      if (locks.has(&tier, bucket) || tier.used(bucket) == kSlots) return false;
      if (!locks.try_lock(tier, bucket)) {
        busy = true;
        return false;
      }
      goal = {&tier, bucket, tier.free_slot(bucket, print)};
      if (goal.found()) return true;
      locks.release_last();
      return false;
    };
    for (const std::uint32_t level : {view.target(), view.target() + 1}) {
      Tier<T>& tier = *view.tiers[level];
      for (const std::uint64_t hash : probe.hashes) {
        const std::uint64_t bucket = tier.index(hash);
        for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
          victim = {&tier, bucket, slot};
          const Probe other = probe_of(load(victim));
          for (const std::uint64_t to : other.hashes) {
            if (take(tier, tier.index(to), other.print)) return Made::done;
          }
          if (&tier != &view.lower()) continue;
          for (const std::uint64_t to : other.hashes) {
            if (take(view.upper(), view.upper().index(to), other.print)) return Made::done;
          }
        }
      }
    }
    return busy ? Made::again : Made::full;
  }

  // Stores the victim's copy first, which the Move line names (level.I2). Then the victim's slot
  // gets the new item, within one line.
  [[gnu::noinline]] Made move_and_put(const Place<T>& victim, const Place<T>& goal,
                                      const Probe& probe, const Item<T>& item, Locks<T>& locks) {
    P& platform = context_.platform;
    PERDURE_ASSERT(P, "level.I7",
                   locks.has(victim.tier, victim.bucket) && locks.has(goal.tier, goal.bucket));
    const std::uint32_t number = P::thread_slot() % kMoveLines;
    LatchGuard latch(move_latches_[number]);
    layout::Move& move = root_->moves[number];
    locks.changed(victim.tier, victim.bucket);
    locks.changed(goal.tier, goal.bucket);
    platform.store(move.from, victim.line_offset());
    platform.store(move.to, goal.line_offset());
    if (!persist(&move, sizeof(move), "level.move.record"_site)) return Made::failed;
    PERDURE_ASSERT(P, "level.I2", platform.persisted(&move, sizeof(move)));
    set_item(goal, load(victim));
    if (!persist(&goal.line(), sizeof(Line<T>), "level.move.copy"_site)) return Made::failed;
    PERDURE_ASSERT(P, "level.I4", persisted(goal.line()));
    clear_token(victim);
    set_item(victim, item);
    if (!persist(&victim.line(), sizeof(Line<T>), "level.move.replace"_site))
      return Made::failed;  // PP(insert)
    PERDURE_ASSERT(P, "level.I4", persisted(victim.line()));
    show(goal, victim.meta().print(victim.slot));
    show(victim, probe.print);
    goal.tier->add(1);
    return Made::done;
  }

  // --- resizes ---

  // Does one of three things, if the view is still of this generation: begins an expansion; adds
  // one more level for a drain that cannot place an item; or ends a shrink, whose source then takes
  // items again. The caller is pinned.
  [[gnu::noinline]] Status grow(std::uint64_t generation) {
    LatchGuard latch(resize_latch_);
    if (context_.platform.poisoned()) return context_.platform.failure();
    View<T>& view = *current();
    if (view.generation != generation) return {};
    if (view.drain == Drain::top) return undo_shrink(view);
    const std::uint64_t items = view.items();
    if ((items + planned_) * kLeastLoad < view.slots()) {
      return Status::format(
          StatusCode::hash_overflow,
          "too many keys have hashes alike: no table of %lu items is large enough", items);
    }
    const std::uint32_t log = view.tiers[0]->log + 1;
    // The last level is for items that the drain after the scan cannot place.
    const bool scan = scans_.load(std::memory_order_seq_cst) != 0;
    if (view.levels + (scan ? 1 : 0) >= kMaxLevels || log > kMaxLog) {
      return Status::format(StatusCode::pool_full, "the table cannot grow by more levels at once%s",
                            scan ? "; a scan holds items where they are" : "");
    }
    if (Status s = begin_resize(view, log, Drain::bottom); !s.ok()) return s;
    at_expansion_.store(items, std::memory_order_relaxed);
    context_.background.wake(work_);
    return {};
  }

  bool is_smallest(const View<T>& view) const { return view.tiers[0]->log <= root_->first_log; }
  // Returns whether the table has become too large. It is not while it holds more than half of what
  // it held when it grew, or when a shrink was undone.
  [[gnu::noinline]] bool too_large(const View<T>& view) const {
    if (!this->may_shrink_ || view.drain != Drain::none || is_smallest(view)) return false;
    const std::uint64_t items = view.items();
    return items * 4 < view.slots() && items * 2 <= at_expansion_.load(std::memory_order_relaxed);
  }

  // Begins a shrink to half the slots if at most `fill` tenths of them will be full then.
  [[gnu::noinline]] Expected<bool> shrink(std::uint64_t fill) {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_change(guard, true); !s.ok()) return fail(std::move(s));
    LatchGuard latch(resize_latch_);
    View<T>& view = *current();
    if (view.drain != Drain::none || is_smallest(view)) return false;
    if (view.items() * 20 > view.slots() * fill) return false;
    if (Status s = begin_resize(view, view.tiers[1]->log - 1, Drain::top); !s.ok()) {
      return fail(std::move(s));
    }
    context_.background.wake(work_);
    return true;
  }

  // For inserts that find no place during a shrink: drains the new bottom level instead of the top
  // level, which takes items again. Items that were moved down may stay. A batch in progress may
  // hold an item twice, in two levels neither of which is drained afterwards (level.I2). So this
  // waits until no batch is in progress. The caller holds the latch and is pinned.
  [[gnu::noinline]] Status undo_shrink(View<T>& view) {
    view.closed.store(true, std::memory_order_seq_cst);
    for (unsigned spins = 0; view.inside.load(std::memory_order_seq_cst) != 0;) P::pause(spins++);
    if (Status s = publish(view, view.all(), Drain::bottom); !s.ok()) {
      view.closed.store(false, std::memory_order_seq_cst);
      return s;
    }
    ResizeStats& undone = resizes_.newest();
    undone.slots_after = undone.slots_before;
    at_expansion_.store(view.items(), std::memory_order_relaxed);
    context_.background.wake(work_);
    return {};
  }

  // --- the drain ---

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
        resize_ends(view);
        if (top) expect_growth(*current());
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
      set_item(goal, item);
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
    const Made made = insert_locked(view, probe, load(from), true, locks);
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
