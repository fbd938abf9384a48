// Level: insert, update, erase. Included by level.h only.
#pragma once

#include "index/level/level.h"

namespace perdure::level {

// Takes the locks of all candidate buckets of the key (level.I5), under the view that it answers
// (level.I6).
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline typename Level<P, Codec, G>::ViewT* Level<P, Codec, G>::lock_key(
    const Probe& probe, Locks& locks) noexcept {
  for (;;) {
    ViewT* view = current();
    prefetch_all<true>(*view, probe);
    for (std::uint32_t i = 0; i < view->levels; ++i) {
      TierT& tier = *view->tiers[i];
      const std::uint64_t a = tier.index(probe.hashes[0]);
      const std::uint64_t b = tier.index(probe.hashes[1]);
      locks.lock(tier, a < b ? a : b);
      if (a != b) locks.lock(tier, a < b ? b : a);
    }
    if (current() == view) [[likely]]
      return view;
    locks.release();
  }
}

// The caller holds the key's locks.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline typename Level<P, Codec, G>::Place Level<P, Codec, G>::find_locked(
    const ViewT& view, const Probe& probe) const noexcept {
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    TierT& tier = *view.tiers[i];
    for (const std::uint64_t hash : probe.hashes) {
      const std::uint64_t bucket = tier.index(hash);
      const std::uint64_t prints = tier.metas[bucket].prints.load(std::memory_order_relaxed);
      const std::uint32_t slot = find_in(tier, bucket, prints, probe);
      if (slot != kSlots) return {&tier, bucket, slot};
    }
  }
  return {};
}

// Takes the lock of the bucket that has the key, as it was when the key was seen there (level.I5);
// those of all candidates if others come between again and again. False: the key is absent.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool Level<P, Codec, G>::lock_item(const Probe& probe, Locks& locks,
                                                                 Place& place) noexcept {
  prefetch_all<false>(*current(), probe);
  for (unsigned tries = 0; tries < kRetries; ++tries) {
    if (tries != 0) P::pause(tries);
    const Looked looked =
        seek(*current(), probe,
             [&](TierT& tier, const MetaT&, std::uint64_t bucket, std::uint32_t slot,
                 std::uint64_t version) {
               place = {&tier, bucket, slot};
               return locks.try_lock(tier, bucket, version) ? Looked::found : Looked::again;
             });
    if (looked == Looked::absent) return false;
    if (looked == Looked::again) continue;
    PERDURE_ASSERT(P, "level.I6", in_table(place.tier));
    return true;
  }
  const ViewT& view = *lock_key(probe, locks);
  place = find_locked(view, probe);
  return place.found();
}

// The less loaded of the key's buckets in the upper of the two levels that take items, then in the
// lower one.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline typename Level<P, Codec, G>::Place Level<P, Codec, G>::free_place(
    const ViewT& view, const Probe& probe) const noexcept {
  for (const std::uint32_t level : {view.target(), view.target() + 1}) {
    TierT& tier = *view.tiers[level];
    const std::uint64_t a = tier.index(probe.hashes[0]);
    const std::uint64_t b = tier.index(probe.hashes[1]);
    const std::uint64_t bucket = tier.used(b) < tier.used(a) ? b : a;
    const std::uint32_t slot = tier.free_slot(bucket, probe.print);
    if (slot != kSlots) return {&tier, bucket, slot};
  }
  return {};
}

// The words of an item and its token, last; the caller writes back and fences.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline void Level<P, Codec, G>::set_item(const Place& place,
                                                                const Item& item) noexcept {
  PERDURE_ASSERT(P, "level.I1", may_hold(*place.tier, place.bucket, probe_of(item)));
  PERDURE_ASSERT(P, "level.I1", (Form::tokens(context_.platform, place.line()) & place.bit()) == 0);
  PERDURE_ASSERT(P, "level.I4", place.meta().locked());
  PERDURE_ASSERT(P, "level.I6", in_table(place.tier));
  Form::put(context_.platform, place.line(), place.in_line(), item);
}

// `record`: of those that have one.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline typename Level<P, Codec, G>::Item Level<P, Codec, G>::item_of(
    const Probe& probe, const detail::Value& value, std::uint64_t record) const noexcept {
  if constexpr (Form::kArrays) {
    Item item{.key = {probe.word, probe.second}, .value = {value.word, 0}};
    if (value_bytes_ != 0) std::memcpy(item.value, value.bytes.data(), value_bytes_);
    return item;
  } else {
    return {.key = {probe.word}, .value = {records() ? record : value.word}};
  }
}

template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline void Level<P, Codec, G>::show(const Place& place,
                                                            std::uint8_t print) noexcept {
  PERDURE_ASSERT(P, "level.I4", place.meta().locked());
  place.meta().set_print(place.slot, print);
}
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline void Level<P, Codec, G>::hide(const Place& place) noexcept {
  PERDURE_ASSERT(P, "level.I4", place.meta().locked());
  place.meta().set_print(place.slot, 0);
}

// A guess before any lock is taken, so that the record's fence is not waited for under it.
template <Platform P, class Codec, class G>
template <typename Level<P, Codec, G>::Mode kMode>
bool Level<P, Codec, G>::expects_record(const Probe& probe,
                                        const detail::Value& value) const noexcept {
  Item item;
  detail::Value before;
  bool readable = false;
  const Looked looked = look(*current(), probe, item, before, readable);
  if (looked != Looked::found) return looked == Looked::absent && kMode != Mode::update;
  return kMode != Mode::insert && readable && !in_place(before, value);
}

// An item of one of the key's buckets that can go elsewhere: in the upper level to its other bucket
// there, in the lower one to its other bucket there, or up (B2T). The lock of where it goes is
// taken. `again`: only where a lock was held by others.
template <Platform P, class Codec, class G>
typename Level<P, Codec, G>::Made Level<P, Codec, G>::find_victim(const ViewT& view,
                                                                  const Probe& probe, Locks& locks,
                                                                  Place& victim,
                                                                  Place& goal) noexcept {
  bool busy = false;
  const auto take = [&](TierT& tier, std::uint64_t bucket, std::uint8_t print) {
    if (locks.has(&tier, bucket) || tier.used(bucket) == kSlots) return false;
    if (!locks.try_lock(tier, bucket)) {
      busy = true;
      return false;
    }
    goal = {&tier, bucket, tier.free_slot(bucket, print)};
    if (goal.found()) return true;
    --locks.count;
    tier.metas[bucket].unlock(false);
    return false;
  };
  for (const std::uint32_t level : {view.target(), view.target() + 1}) {
    TierT& tier = *view.tiers[level];
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

// The victim's copy first, recorded (level.I2); then its slot changes hands within one line.
template <Platform P, class Codec, class G>
typename Level<P, Codec, G>::Made Level<P, Codec, G>::move_and_put(const Place& victim,
                                                                   const Place& goal,
                                                                   const Probe& probe,
                                                                   const Item& item,
                                                                   Locks& locks) noexcept {
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
  platform.flush(&move, sizeof(move), "level.move.record"_site);
  if (!platform.fence("level.move.record"_site)) return Made::failed;
  PERDURE_ASSERT(P, "level.I2", platform.persisted(&move, sizeof(move)));
  set_item(goal, load(victim));
  platform.flush(&goal.line(), sizeof(Line), "level.move.copy"_site);
  if (!platform.fence("level.move.copy"_site)) return Made::failed;
  PERDURE_ASSERT(P, "level.I4", persisted(goal.line()));
  Line& line = victim.line();
  Form::set_tokens(platform, line, Form::tokens(platform, line) & ~victim.bit());
  set_item(victim, item);
  platform.flush(&line, sizeof(line), "level.move.replace"_site);
  if (!platform.fence("level.move.replace"_site)) return Made::failed;  // PP(insert)
  PERDURE_ASSERT(P, "level.I4", persisted(line));
  show(goal, victim.meta().print(victim.slot));
  show(victim, probe.print);
  goal.tier->add(1);
  return Made::done;
}

// The key is absent, or only in the level that is being drained. A caller that has not helped yet
// with a drain moves nothing while one is under way: otherwise the levels that it fills would be
// full before it is over.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline typename Level<P, Codec, G>::Made Level<P, Codec, G>::insert_locked(
    const ViewT& view, const Probe& probe, const Item& item, bool helped, Locks& locks) noexcept {
  P& platform = context_.platform;
  PERDURE_ASSERT(P, "level.I5", all_held(locks, view, probe));
  const Place place = free_place(view, probe);
  if (place.found()) [[likely]] {
    locks.changed(place.tier, place.bucket);
    // Before the write-back: a locked instruction after it would wait for it.
    const std::int64_t count = place.tier->add(1);
    set_item(place, item);
    platform.flush(&place.line(), sizeof(Line), "level.insert.line"_site);
    if (!platform.fence("level.insert.line"_site)) return Made::failed;  // PP(insert)
    PERDURE_ASSERT(P, "level.I4", persisted(place.line()));
    show(place, probe.print);
    if (count % 64 == 0) [[unlikely]]
      after_insert(const_cast<ViewT&>(view));
    return Made::done;
  }
  if (!helped && view.drain == Drain::bottom) return Made::full;
  Place victim;
  Place goal;
  const Made found = find_victim(view, probe, locks, victim, goal);
  if (found != Made::done) return found;
  // level.I6, and no scan is on its way.
  if (current() != &view) return Made::again;
  if (scans_.load(std::memory_order_seq_cst) != 0) return Made::full;
  return move_and_put(victim, goal, probe, item, locks);
}

// When the pool is full, what this and other threads have freed but not yet given back may be
// enough; it can be had outside the guard only.
template <Platform P, class Codec, class G>
template <typename Level<P, Codec, G>::Mode kMode>
Expected<bool> Level<P, Codec, G>::write(const detail::Key& key, const detail::Value& value) {
  if (Status s = takes(key, value); !s.ok()) return fail(std::move(s));
  context_.background.help();
  const Probe probe = Codec::probe(key, seeds_);
  typename Base::Room room(*this);
  for (bool helped = false;;) {
    std::uint64_t no_room = 0;
    auto done = write_once<kMode>(probe, value, helped, no_room);
    if (no_room != 0) {
      Status s = make_room(no_room, helped);
      helped = true;
      if (s.ok()) continue;
      done = fail(std::move(s));
    }
    if (done || done.error() != StatusCode::pool_full || !room.find()) [[likely]] {
      if (lags_.load(std::memory_order_relaxed)) [[unlikely]]
        keep_pace();
      return done;
    }
  }
}

// Keys of one hash share all candidate buckets, in a table of any size; integers never do. More
// than one bucket of each of two levels holds are refused, so that a drain can place them.
template <Platform P, class Codec, class G>
bool Level<P, Codec, G>::too_many_clash(const ViewT& view, const Probe& probe) const noexcept {
  if constexpr (!Codec::kBytes && !Form::kArrays) return false;
  std::uint32_t clashes = 0;
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    const TierT& tier = *view.tiers[i];
    std::uint64_t last = ~std::uint64_t{0};
    for (const std::uint64_t hash : probe.hashes) {
      const std::uint64_t bucket = tier.index(hash);
      if (bucket == last) continue;
      last = bucket;
      const std::uint64_t prints = tier.metas[bucket].prints.load(std::memory_order_relaxed);
      for (std::uint64_t m = MetaT::match(prints, probe.print); m != 0; m &= m - 1) {
        const auto slot = static_cast<std::uint32_t>(__builtin_ctzll(m)) / 8;
        const Item item =
            Form::load(context_.platform, tier.line(bucket, slot), slot % Form::kSlots);
        clashes += probe_of(item).hashes[0] == probe.hashes[0];
      }
    }
  }
  return clashes >= 2 * kSlots;
}

// One turn under the key's locks. `no_room`: the generation of the view, if the answer is `full`.
template <Platform P, class Codec, class G>
template <typename Level<P, Codec, G>::Mode kMode>
[[gnu::always_inline]] inline typename Level<P, Codec, G>::Made Level<P, Codec, G>::write_locked(
    const Probe& probe, const detail::Value& value, Fresh& fresh, bool helped,
    std::uint64_t& no_room) noexcept {
  Locks locks;
  if constexpr (kMode != Mode::insert) {
    Place place;
    fresh.found = lock_item(probe, locks, place);
    // By who held the locks: what it left there does not count.
    if (context_.platform.poisoned()) [[unlikely]]
      return Made::failed;
    if (fresh.found) return replace_value(place, probe, value, fresh, locks);
    if (kMode == Mode::update) return Made::done;
    locks.release();
  }
  const ViewT& view = *lock_key(probe, locks);
  if (context_.platform.poisoned()) [[unlikely]]
    return Made::failed;
  const Place place = find_locked(view, probe);
  fresh.found = place.found();
  if (fresh.found) {
    return kMode == Mode::insert ? Made::done : replace_value(place, probe, value, fresh, locks);
  }
  if (too_many_clash(view, probe)) return Made::overflow;
  if (records() && fresh.record == 0) return Made::wants_record;
  PERDURE_ASSERT(P, "level.I3", fresh.record == 0 || record_persisted(fresh.record));
  const Made made = insert_locked(view, probe, item_of(probe, value, fresh.record), helped, locks);
  if (made == Made::done) fresh.record = 0;
  if (made == Made::full) no_room = view.generation;
  return made;
}

// `no_room`: set to the generation of the view in which the key found no place.
template <Platform P, class Codec, class G>
template <typename Level<P, Codec, G>::Mode kMode>
[[gnu::always_inline]] inline Expected<bool> Level<P, Codec, G>::write_once(
    const Probe& probe, const detail::Value& value, bool helped, std::uint64_t& no_room) noexcept {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
  Fresh fresh;
  Made made = records() && expects_record<kMode>(probe, value) ? Made::wants_record : Made::again;
  for (unsigned spins = 0;; P::pause(spins++)) {
    if (made == Made::wants_record) {
      auto record = records_.make(probe.bytes, value, "level.record.write"_site);
      if (!record) return fail(std::move(record.error()));
      fresh.record = *record;
    }
    made = write_locked<kMode>(probe, value, fresh, helped, no_room);
    if (made != Made::again && made != Made::wants_record) [[likely]]
      break;
  }
  // In a poisoned pool the medium may name the record.
  if (made == Made::failed && fresh.damaged == 0) return fail(StatusCode::poisoned);
  if (fresh.record != 0) context_.heap.discard(fresh.record);
  if (fresh.replaced != 0 && P::runs("level.update.retire"_site)) {
    context_.heap.retire(fresh.replaced);
  }
  if (made == Made::failed) return fail(damaged_record(fresh.damaged));
  if (made == Made::overflow) {
    return fail(StatusCode::hash_overflow, "%u keys have the hash of this one already", 2 * kSlots);
  }
  if (made == Made::full) return false;
  if (kMode == Mode::update && !fresh.found) return absent();
  return kMode == Mode::update ? fresh.found : !fresh.found;
}

template <Platform P, class Codec, class G>
Expected<bool> Level<P, Codec, G>::erase(const detail::Key& key) {
  if (Status s = takes(key); !s.ok()) return fail(std::move(s));
  context_.background.help();
  P& platform = context_.platform;
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
  const Probe probe = Codec::probe(key, seeds_);
  Locks locks;
  Place place;
  const bool found = lock_item(probe, locks, place);
  if (platform.poisoned()) [[unlikely]]
    return fail(StatusCode::poisoned);
  if (!found) return absent();
  const std::uint64_t before = load(place).value[0];
  Line& line = place.line();
  locks.changed(place.tier, place.bucket);
  const std::int64_t left = place.tier->add(-1);
  Form::set_tokens(platform, line, Form::tokens(platform, line) & ~place.bit());
  platform.flush(&line.tokens, 8, "level.erase.token"_site);
  if (!platform.fence("level.erase.token"_site)) return fail(StatusCode::poisoned);  // PP(erase)
  PERDURE_ASSERT(P, "level.I4", platform.persisted(&line.tokens, 8));
  hide(place);
  locks.release();
  if (records() && P::runs("level.erase.retire"_site)) context_.heap.retire(before);
  after_erase(left);
  return true;
}

}  // namespace perdure::level
