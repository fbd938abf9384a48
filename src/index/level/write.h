// Write: insert, put, update and erase. level.I2 and level.I5 for whole operations: a mutation adds
// a key only under the locks of all its candidates, after it has found the key absent.
#pragma once

#include <utility>

#include "index/level/replace.h"

namespace perdure::level {

template <class T>
class Write : public Replace<T> {
 protected:
  using Base = Replace<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::absent, Base::adds, Base::begin_mutation, Base::context_, Base::current,
      Base::find_locked, Base::has_records, Base::kSlots, Base::load, Base::lock_item,
      Base::lock_key, Base::persist, Base::records_, Base::replace_value, Base::seeds_, Base::takes;
  using typename Base::Mode;

 public:
  using Base::Base;

  // In a full pool, memory that this and other threads have freed, but not yet returned to the
  // heap, may suffice. It can be had outside the guard only.
  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value,
                       const detail::Value* expected = nullptr) {
    if (Status s = takes(key, value); !s.ok()) return fail(std::move(s));
    context_.background.help();
    const Probe probe = Codec::probe(key, seeds_);
    typename Base::Room room(*this);
    for (bool helped = false;;) {
      std::uint64_t no_room = 0;
      auto done = write_once<kMode>(probe, value, expected, helped, no_room);
      if (no_room != 0) {
        Status s = this->make_room(no_room, helped);
        helped = true;
        if (s.ok()) continue;
        done = fail(std::move(s));
      }
      if (done || done.error() != StatusCode::pool_full || !room.find()) [[likely]] {
        if (this->lags_.load(std::memory_order_relaxed)) [[unlikely]]
          this->keep_pace();
        return done;
      }
    }
  }

  Expected<bool> remove(const detail::Key& key, const detail::Value* expected) {
    if (Status s = takes(key); !s.ok()) return fail(std::move(s));
    context_.background.help();
    P& platform = context_.platform;
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
    const Probe probe = Codec::probe(key, seeds_);
    Locks<T> locks;
    Place<T> place;
    const bool found = lock_item(probe, locks, place);
    if (platform.poisoned()) [[unlikely]]
      return fail(StatusCode::poisoned);
    if (!found) return absent();
    const std::uint64_t before = load(place).value[0];
    if (expected != nullptr) {
      auto same = holds_value(place, *expected);
      if (!same || !*same) return same;
    }
    Line<T>& line = place.line();
    locks.changed(place.tier, place.bucket);
    const std::int64_t left = place.tier->add(-1);
    this->clear_token(place);
    if (!persist(&line.tokens, 8, "level.erase.token"_site))
      return fail(StatusCode::poisoned);  // PP(erase)
    PERDURE_ASSERT(P, "level.I4", platform.persisted(&line.tokens, 8));
    this->hide(place);
    locks.release();
    if (has_records()) context_.heap.retire(before, "level.erase.retire"_site);
    this->after_erase(left);
    return this->went();
  }

 protected:
  // Whether the item has the value. The caller holds the lock of its bucket.
  [[gnu::noinline]] Expected<bool> holds_value(const Place<T>& place,
                                               const detail::Value& expected) const {
    const Item<T> item = load(place);
    detail::Value value;
    if (!this->value_of(item, value)) return fail(records_.damaged(item.value[0]));
    return detail::same_value(value, expected) ? Expected<bool>(true) : absent();
  }

  // Guesses before any lock is taken whether the operation needs a record, so that no lock is held
  // while the record's fence is waited for.
  bool expects_record(Mode mode, const Probe& probe, const detail::Value& value) const {
    Item<T> item;
    detail::Value before;
    bool readable = false;
    const Looked looked = this->look(*current(), probe, item, before, readable);
    if (looked != Looked::found) return looked == Looked::absent && adds(mode);
    return mode != Mode::insert && readable && !this->in_place(before, value);
  }

  // Keys of one hash share all candidate buckets, in a table of any size. Integers never do. The
  // map refuses more of them than one bucket of each of two levels holds, so that a drain can place
  // them.
  bool too_many_clash(const View<T>& view, const Probe& probe) const {
    return clashes(view, probe) >= 2 * kSlots;
  }
  static Status too_many_clashes() {
    return Status::format(StatusCode::hash_overflow, "%u keys have the hash of this one already",
                          2 * kSlots);
  }
  // Returns the number of keys that have the hash of this one.
  [[gnu::noinline]] std::uint32_t clashes(const View<T>& view, const Probe& probe) const {
    std::uint32_t clashes = 0;
    for (const Tier<T>* tier : view.all()) {
      std::uint64_t last = ~std::uint64_t{0};
      for (const std::uint64_t hash : probe.hashes) {
        const std::uint64_t bucket = tier->index(hash);
        if (bucket == last) continue;
        last = bucket;
        const std::uint64_t prints = tier->metas[bucket].prints.load(std::memory_order_relaxed);
        for (std::uint64_t m = Meta<P>::match(prints, probe.print); m != 0; m &= m - 1) {
          const auto slot = static_cast<std::uint32_t>(__builtin_ctzll(m)) / 8;
          clashes += this->probe_of(load(*tier, bucket, slot)).hashes[0] == probe.hashes[0];
        }
      }
    }
    return clashes;
  }

 private:
  // `no_room`: gets the generation of the view in which the key found no place.
  template <Mode kMode>
  [[gnu::always_inline]] Expected<bool> write_once(const Probe& probe, const detail::Value& value,
                                                   const detail::Value* expected, bool helped,
                                                   std::uint64_t& no_room) {
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
    Fresh fresh;
    Made made =
        has_records() && expects_record(kMode, probe, value) ? Made::wants_record : Made::again;
    for (unsigned spins = 0;; P::pause(spins++)) {
      if (made == Made::wants_record) {
        auto record = records_.make(probe.bytes, value, "level.record.write"_site);
        if (!record) return fail(std::move(record.error()));
        fresh.record = *record;
      }
      made = write_locked<kMode>(probe, value, expected, fresh, helped, no_room);
      if (made != Made::again && made != Made::wants_record) [[likely]]
        break;
    }
    // The medium of a poisoned pool may name the record.
    if (made == Made::failed && fresh.damaged == 0) return fail(StatusCode::poisoned);
    if (fresh.record != 0) context_.heap.discard(fresh.record);
    if (fresh.replaced != 0) context_.heap.retire(fresh.replaced, "level.update.retire"_site);
    if (made == Made::failed) return fail(records_.damaged(fresh.damaged));
    if (made == Made::overflow) return fail(too_many_clashes());
    if (made == Made::full) return false;
    if (!adds(kMode) && !fresh.found) return absent();
    return adds(kMode) ? !fresh.found && this->came() : fresh.found;
  }

  // Makes one attempt under the key's locks. `no_room`: gets the generation of the view, if this
  // returns `full`.
  template <Mode kMode>
  [[gnu::always_inline]] Made write_locked(const Probe& probe, const detail::Value& value,
                                           const detail::Value* expected, Fresh& fresh, bool helped,
                                           std::uint64_t& no_room) {
    Locks<T> locks;
    if constexpr (kMode != Mode::insert) {
      Place<T> place;
      fresh.found = lock_item(probe, locks, place);
      // What an earlier holder of the locks left in a poisoned pool does not count.
      if (context_.platform.poisoned()) [[unlikely]]
        return Made::failed;
      if (kMode == Mode::update && expected != nullptr && fresh.found) [[unlikely]] {
        const auto same = holds_value(place, *expected);
        if (!same && !context_.platform.poisoned()) fresh.damaged = load(place).value[0];
        if (!same) return Made::failed;
        fresh.found = *same;
      }
      if (fresh.found) return replace_value(place, probe, value, fresh, locks);
      if (!adds(kMode)) return Made::done;
      locks.release();
    }
    const View<T>& view = *lock_key(probe, locks);
    if (context_.platform.poisoned()) [[unlikely]]
      return Made::failed;
    const Place<T> place = find_locked(view, probe);
    fresh.found = place.found();
    if (fresh.found) {
      return kMode == Mode::insert ? Made::done : replace_value(place, probe, value, fresh, locks);
    }
    if ((Codec::kBytes || Form::kArrays) && too_many_clash(view, probe)) return Made::overflow;
    if (has_records() && fresh.record == 0) return Made::wants_record;
    PERDURE_ASSERT(P, "level.I3", fresh.record == 0 || this->record_persisted(fresh.record));
    const Item<T> item = this->item_of(probe, value, fresh.record);
    const Made made = this->insert_locked(view, probe, item, helped, locks);
    if (made == Made::done) fresh.record = 0;
    if (made == Made::full) no_room = view.generation;
    return made;
  }
};

}  // namespace perdure::level
