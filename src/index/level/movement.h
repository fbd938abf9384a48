// Movement: gives an item a place among the candidate buckets of its key. If all are full, it moves
// one other item to the latter's other bucket, or from the bottom level to the top level. A Move
// line records that, and recovery ends it. level.I1, level.I2 for movements, level.I5 to level.I7.
#pragma once

#include <algorithm>

#include "index/level/expansion.h"

namespace perdure::level {

template <class T>
class Movement : public Expansion<T> {
 protected:
  using Base = Expansion<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::context_, Base::current, Base::kSlots, Base::load, Base::may_hold,
      Base::move_latches_, Base::persist, Base::persisted, Base::probe_of, Base::root_,
      Base::scans_;
  friend struct Peek;

 public:
  using Base::Base;

 protected:
  // Stores the words of an item, then its token. The caller writes back and fences.
  [[gnu::always_inline]] void set_item(const Place<T>& place, const Item<T>& item) {
    PERDURE_ASSERT(P, "level.I1", may_hold(*place.tier, place.bucket, probe_of(item)));
    PERDURE_ASSERT(P, "level.I1",
                   (Form::tokens(context_.platform, place.line()) & place.bit()) == 0);
    PERDURE_ASSERT(P, "level.I4", place.meta().locked());
    PERDURE_ASSERT(P, "level.I6", this->in_table(place.tier));
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
      if (this->is_due(view, *place.tier, count)) [[unlikely]]
        this->after_insert(const_cast<View<T>&>(view));
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

 private:
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
};

}  // namespace perdure::level
