// Write: does insert, put, update, erase and write_many(), and plans the mutations of a batch. It
// keeps level.I2 and level.I5 for whole operations: a mutation adds a key only under the locks of
// all its candidates, after it has found the key absent. It keeps level.I3 and level.I4 for the
// stores that replace a value.
//
// REPLACE  One word is stored in place. An array that differs in its second word goes into a free
//   slot: the line's other one, or one of the bucket's other line. If the bucket is full, it is
//   replaced in place, and an Update line records that, which recovery applies again.
// ORDERING  of replace_elsewhere: the new slot with its token -> fence -> the old slot's token off.
//   A crash between the two leaves both, and recovery drops one. Of replace_in_place; each step
//   comes after the fence of the step before:
//   Update line (its place last) -> the slot's words -> place of the Update 0. A crash keeps a
//   prefix of a line's stores, so an Update that has its place has its value. It names a slot whose
//   lock is held until the Update is gone, so no other value can have come into the slot.
// WRITE_MANY  Several mutations share a fence. Each has the stores, the linearization point and the
//   persist point of its single call (level.I3 to level.I6). A mutation holds the lock of the
//   bucket that it changes from latch() to finish(), and other buckets may be locked meanwhile. So
//   it waits for no lock: the group is divided before a bucket that is locked. To add a key, it
//   locks all candidates, finds the key absent, chooses the bucket, and releases the others:
//   another thread that adds the key waits for the chosen one (level.I5), and a drain empties that
//   only after it was unlocked (level.I6).
// BATCHES  A plan makes sure that no insert of a batch has to move an item or to enlarge the table
//   (pool/batch.h), and names the blocks of its records. The plan follows free_place() for one
//   insert after the other. The inserts come in this order later, and nothing else takes a slot
//   meanwhile (batch.I4).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "index/level/movement.h"
#include "index/planned_slots.h"
#include "util/containers.h"

namespace perdure::level {

// What a mutation passes to an attempt under locks, and what it gets back.
struct Fresh {
  std::uint64_t record = 0;    // a durable record that nothing names
  std::uint64_t replaced = 0;  // a record that nothing names any more
  std::uint64_t damaged = 0;   // a record that cannot be read
  bool found = false;
};

template <class T>
class Write : public Movement<T> {
 protected:
  using Base = Movement<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::absent, Base::adds, Base::after_erase, Base::after_insert, Base::begin_mutation,
      Base::begin_read, Base::came, Base::clear_token, Base::context_, Base::current,
      Base::find_locked, Base::free_place, Base::has_records, Base::hide, Base::insert_locked,
      Base::is_due, Base::kSlots, Base::keep_pace, Base::lags_, Base::load, Base::lock_item,
      Base::lock_key, Base::make_room, Base::move_latches_, Base::persist, Base::persisted,
      Base::planned_, Base::probe_of, Base::records_, Base::seeds_, Base::set_item, Base::show,
      Base::takes, Base::updates, Base::value_bytes_, Base::value_of, Base::went;
  using typename Base::Mode;

 public:
  using Base::Base;
  using typename Base::Group;

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

  Expected<bool> remove(const detail::Key& key, const detail::Value* expected) {
    if (Status s = takes(key); !s.ok()) return fail(std::move(s));
    context_.background.help();
    P& platform = context_.platform;
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
    const Probe probe = Codec::probe(key, seeds_);
    this->template prefetch_all<false>(*current(), probe);
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
    clear_token(place);
    if (!persist(&line.tokens, 8, "level.erase.token"_site))
      return fail(StatusCode::poisoned);  // PP(erase)
    PERDURE_ASSERT(P, "level.I4", platform.persisted(&line.tokens, 8));
    hide(place);
    locks.release();
    if (has_records()) context_.heap.retire(before, "level.erase.retire"_site);
    after_erase(left);
    return went();
  }

  // --- write_many, for MapEngine ---

  // A mutation of write_many.
  struct Pending {
    enum class Step : std::uint8_t { none, fill, replace, clear };
    Step step = Step::none;
    bool in_record = false;  // replace: the word that the record has
    const Probe* probe = nullptr;
    Place<T> place;
    Item<T> item;                     // fill: the new one. replace, clear: the one that was there
    std::uint64_t* target = nullptr;  // replace: the word
    std::uint64_t word = 0;           // .. and what it becomes
    std::uint64_t record = 0;         // a durable record that nothing names
    std::int64_t count = 0;           // fill, clear: of the thread's stripe
  };

  // A value of two words needs fences of its own (replace_array).
  bool begin_group(std::size_t n) {
    if (value_bytes_ > sizeof(std::uint64_t)) return false;
    if (context_.epochs.gate().does_batch()) return false;  // batch.I4
    for (; n > 0; --n) context_.background.help();
    if (lags_.load(std::memory_order_relaxed)) [[unlikely]]
      keep_pace();
    return true;
  }
  bool joins(const detail::Mutation& mutation) const { return takes_all(mutation); }

  // A guess, without a lock: an item that comes or goes meanwhile is for the single call.
  bool prepare(const detail::Mutation& mutation, const Group& group, std::size_t i,
               Pending& pending) {
    const Probe& probe = group.probes[i];
    pending.step = Pending::Step::none;
    pending.probe = &probe;
    pending.record = 0;
    if (mutation.kind == MutationKind::erase || !takes_all(mutation)) return false;
    if (!has_records()) {
      if (mutation.kind != MutationKind::update) {
        const Place<T> place = free_place(*current(), probe);
        if (place.found()) __builtin_prefetch(&place.line(), 1);
      }
      return false;
    }
    if (!expects_record(mode_of(mutation.kind), probe, mutation.value)) return false;
    auto record = records_.write(probe.bytes, mutation.value, "level.many.record"_site);
    if (!record) return false;
    pending.record = *record;
    return true;
  }
  bool settle_records() { return context_.platform.fence("level.many.record"_site); }

  bool latch(const detail::Mutation& mutation, const Group& group, std::size_t i, Pending& pending,
             Expected<bool>& result) {
    const Probe& probe = group.probes[i];
    if (!takes_all(mutation)) return false;
    if (mutation.kind != MutationKind::insert) {
      const Looked looked = this->try_lock_item(probe, pending.place);
      if (looked == Looked::again) return false;
      if (looked == Looked::found) {
        if (!latch_item(mutation, pending)) {
          pending.place.meta().unlock(false);
          return false;
        }
        result = mutation.kind != MutationKind::put;
        return true;
      }
      if (mutation.kind != MutationKind::put) {
        result = false;
        return true;
      }
    }
    const Looked looked = latch_absent(mutation, probe, pending);
    if (looked == Looked::again) return false;
    result = looked == Looked::absent;
    return true;
  }

  [[gnu::always_inline]] void store(Pending& pending) {
    switch (pending.step) {
      case Pending::Step::none:
        return;
      case Pending::Step::fill:
        PERDURE_ASSERT(P, "level.I3", pending.record == 0 || record_persisted(pending.record));
        // Before the write-backs: a locked instruction after one would wait for it.
        pending.count = pending.place.tier->add(1);
        set_item(pending.place, pending.item);
        pending.record = 0;
        return;
      case Pending::Step::replace:
        PERDURE_ASSERT(P, "level.I4", pending.place.meta().locked());
        context_.platform.store(*pending.target, pending.word);
        if (!pending.in_record) pending.record = 0;
        return;
      case Pending::Step::clear:
        PERDURE_ASSERT(P, "level.I4", pending.place.meta().locked());
        pending.count = pending.place.tier->add(-1);
        clear_token(pending.place);
        return;
    }
  }
  [[gnu::always_inline]] bool write_back(const Pending& pending) {
    if (pending.step == Pending::Step::none) return false;
    context_.platform.flush(changed(pending), kLine, "level.many.line"_site);
    return true;
  }
  bool settle() { return context_.platform.fence("level.many.line"_site); }  // PP

  [[gnu::always_inline]] void finish(const Pending& pending, bool durable, Expected<bool>& result) {
    using Step = typename Pending::Step;
    if (pending.step == Step::none) {
      if (!*result && context_.platform.poisoned()) result = fail(context_.platform.failure());
      return;
    }
    if (durable) {
      PERDURE_ASSERT(P, "level.I4", context_.platform.persisted(changed(pending), kLine));
      if (pending.step == Step::fill) {
        show(pending.place, pending.probe->print);
        came();
      } else if (pending.step == Step::clear) {
        hide(pending.place);
        went();
      }
    } else {
      result = fail(StatusCode::poisoned);
    }
    pending.place.meta().unlock(true);  // LP
  }
  [[gnu::always_inline]] void clean_up(const Pending& pending) {
    using Step = typename Pending::Step;
    if (pending.step == Step::none || context_.platform.poisoned()) return;
    const bool drops_record =
        has_records() &&
        (pending.step == Step::clear || (pending.step == Step::replace && !pending.in_record));
    if (drops_record) context_.heap.retire(pending.item.value[0], "level.many.retire"_site);
    if (pending.step == Step::clear) after_erase(pending.count);
    if (pending.step != Step::fill) return;
    View<T>& view = *current();
    if (is_due(view, *pending.place.tier, pending.count)) [[unlikely]]
      after_insert(view);
  }
  [[gnu::always_inline]] void discard(const Pending& pending) {
    if (pending.record != 0) [[unlikely]]
      context_.heap.discard(pending.record);
  }

  // --- batches ---

  Status plan_batch(const BatchPlan& plan) override {
    Array<Probe> inserts;
    for (std::size_t i = 0; i < plan.mutations.size(); ++i) {
      const detail::Mutation& mutation = plan.mutations[i];
      if (mutation.kind == MutationKind::erase) continue;
      const Probe probe = Codec::probe(mutation.key, seeds_);
      const bool added =
          (!has_records() || plan.needs.add(RecordView::bytes_needed(probe.bytes, mutation.value),
                                            BlockKind::plain)) &&
          (plan.present[i] || inserts.push_back(probe));
      if (!added) return StatusCode::out_of_memory;
    }
    planned_ = inserts.size();
    Status s;
    for (bool helped = false; s.ok() && !inserts.empty(); helped = true) {
      std::uint64_t crowded = 0;
      s = find_crowded(inserts, crowded);
      if (crowded == 0) break;
      if (s.ok()) s = make_room(crowded, helped);
    }
    planned_ = 0;
    return s;
  }

 protected:
  // Recovery: stores the value of each Update again, even if its slot has it already. Then clears
  // the Updates, durably: after the next update of the slot, an old one must not count as one in
  // progress.
  [[gnu::noinline]] Status finish_updates()
    requires(Form::kArrays)
  {
    P& platform = context_.platform;
    bool wrote = false;
    for (layout::Update& update : updates()) {
      const std::uint64_t word = platform.load(update.place);
      if (word == 0 || !P::runs("level.recover.update"_site)) continue;
      wrote = true;
      Place<T> place = this->place_of(word & ~std::uint64_t{1});
      if (!place.found()) continue;
      place.slot += static_cast<std::uint32_t>(word & 1);
      Line<T>& line = place.line();
      if ((Form::tokens(platform, line) & place.bit()) == 0) continue;
      Item<T> item = load(place);
      item.value[0] = platform.load(update.value[0]);
      item.value[1] = platform.load(update.value[1]) & Form::kFirstTail;
      Form::put(platform, line, place.in_line(), item);
      platform.flush(&line, sizeof(line), "level.recover.update"_site);
    }
    if (!wrote) return {};
    if (!platform.fence("level.recover.update"_site)) return StatusCode::poisoned;
    for (layout::Update& update : updates()) {
      if (platform.load(update.place) == 0) continue;
      platform.store(update.place, 0);
      platform.flush(&update.place, 8, "level.recover.update_clear"_site);
    }
    return platform.fence("level.recover.update_clear"_site) ? Status() : StatusCode::poisoned;
  }

 private:
  // `no_room`: gets the generation of the view in which the key found no place.
  template <Mode kMode>
  [[gnu::always_inline]] Expected<bool> write_once(const Probe& probe, const detail::Value& value,
                                                   const detail::Value* expected, bool helped,
                                                   std::uint64_t& no_room) {
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
    if (kMode != Mode::insert || has_records()) {
      this->template prefetch_all<false>(*current(), probe);
    }
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
    if (made == Made::failed) return fail(this->damaged_record(fresh.damaged));
    if (made == Made::overflow) return fail(too_many_clashes());
    if (made == Made::full) return false;
    if (!adds(kMode) && !fresh.found) return absent();
    return adds(kMode) ? !fresh.found && came() : fresh.found;
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
    PERDURE_ASSERT(P, "level.I3", fresh.record == 0 || record_persisted(fresh.record));
    const Item<T> item = item_of(probe, value, fresh.record);
    const Made made = insert_locked(view, probe, item, helped, locks);
    if (made == Made::done) fresh.record = 0;
    if (made == Made::full) no_room = view.generation;
    return made;
  }

  // Whether the item has the value. The caller holds the lock of its bucket.
  [[gnu::noinline]] Expected<bool> holds_value(const Place<T>& place,
                                               const detail::Value& expected) const {
    const Item<T> item = load(place);
    detail::Value value;
    if (!value_of(item, value)) return fail(this->damaged_record(item.value[0]));
    return detail::same_value(value, expected) ? Expected<bool>(true) : absent();
  }

  // Guesses before any lock is taken whether the operation needs a record, so that no lock is held
  // while the record's fence is waited for. A put of bytes always needs one: the misses of its
  // buckets overlap with the making of the record.
  bool expects_record(Mode mode, const Probe& probe, const detail::Value& value) const {
    if (mode == Mode::put && !in_place(value, value)) return true;
    Item<T> item;
    detail::Value before;
    bool readable = false;
    const Looked looked = this->look(*current(), probe, item, before, readable);
    if (looked != Looked::found) return looked == Looked::absent && adds(mode);
    return mode != Mode::insert && readable && !in_place(before, value);
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
        for (std::uint32_t m = Meta<P>::match(prints, probe.print); m != 0; m &= m - 1) {
          const auto slot = static_cast<std::uint32_t>(__builtin_ctz(m));
          clashes += probe_of(load(*tier, bucket, slot)).hashes[0] == probe.hashes[0];
        }
      }
    }
    return clashes;
  }

  // --- the value of an item ---

  // `record`: for maps whose values have one.
  [[gnu::always_inline]] Item<T> item_of(const Probe& probe, const detail::Value& value,
                                         std::uint64_t record) const {
    if constexpr (Form::kArrays) {
      Item<T> item{.key = {probe.word, probe.second}, .value = {value.word, 0}};
      if (value_bytes_ != 0) std::memcpy(item.value, value.bytes.data(), value_bytes_);
      return item;
    } else {
      return {.key = {probe.word}, .value = {has_records() ? record : value.word}};
    }
  }

  // Returns whether one store of a word can replace the value, in the slot or in its record.
  [[gnu::always_inline]] bool in_place(const detail::Value& before,
                                       const detail::Value& value) const {
    if (!has_records()) return true;
    return Codec::kBytes && value.word_size != 0 && before.word_size == value.word_size;
  }

  // For an assertion.
  bool record_persisted(std::uint64_t record) const {
    const auto* prefix = records_.at(record);
    return context_.platform.persisted(prefix, RecordView::read(context_.platform, prefix).size());
  }

  // The caller holds the lock of the item's bucket. `fresh.record` is durable, or 0; if it is 0,
  // this may return `wants_record`.
  [[gnu::always_inline]] Made replace_value(const Place<T>& place, const Probe& probe,
                                            const detail::Value& value, Fresh& fresh,
                                            Locks<T>& locks) {
    if constexpr (Form::kArrays) {
      return replace_array(place, load(place), item_of(probe, value, 0), locks);
    } else {
      std::uint64_t& head = Form::head(place.line(), place.in_line());
      if (!has_records()) return store_word(place, head, value.word, locks);
      return replace_record(place, head, value, fresh, locks);
    }
  }

  // Stores one word, which the medium then has as it was or as it is.
  [[gnu::always_inline]] Made store_word(const Place<T>& place, std::uint64_t& target,
                                         std::uint64_t word, Locks<T>& locks) {
    P& platform = context_.platform;
    locks.changed(place.tier, place.bucket);
    platform.store(target, word);
    if (!persist(&target, sizeof(target), "level.update.value"_site))
      return Made::failed;  // PP(update)
    PERDURE_ASSERT(P, "level.I4", platform.persisted(&target, sizeof(target)));
    return Made::done;
  }

  [[gnu::noinline]] Made replace_record(const Place<T>& place, std::uint64_t& head,
                                        const detail::Value& value, Fresh& fresh, Locks<T>& locks) {
    const Item<T> item = load(place);
    const std::uint64_t link = item.value[0];
    detail::Value before;
    if (!value_of(item, before)) {
      fresh.damaged = link;
      return Made::failed;
    }
    if (in_place(before, value)) {
      return store_word(place, const_cast<RecordPrefix*>(records_.at(link))->value, value.word,
                        locks);
    }
    if (fresh.record == 0) return Made::wants_record;
    PERDURE_ASSERT(P, "level.I3", record_persisted(fresh.record));
    const Made made = store_word(place, head, fresh.record, locks);
    if (made == Made::done) {
      fresh.record = 0;
      fresh.replaced = link;
    }
    return made;
  }

  // Replaces a value of two words. If only the first word differs, one store does it. If the line's
  // other slot is free, the value goes there: one store sets that slot's token and clears this
  // one's.
  [[gnu::noinline]] Made replace_array(const Place<T>& place, const Item<T>& before,
                                       const Item<T>& item, Locks<T>& locks)
    requires(Form::kArrays)
  {
    P& platform = context_.platform;
    Line<T>& line = place.line();
    if (item.value[1] == before.value[1]) {
      return store_word(place, Form::head(line, place.in_line()), item.value[0], locks);
    }
    locks.changed(place.tier, place.bucket);
    const std::uint32_t own = place.in_line();
    const Place<T> other{place.tier, place.bucket, place.slot - own + (1 - own)};
    if ((Form::tokens(platform, line) & other.bit()) != 0) return replace_elsewhere(place, item);
    Form::put(platform, line, other.in_line(), item, place.bit());
    if (!persist(&line, sizeof(line), "level.update.slot"_site)) return Made::failed;  // PP(update)
    PERDURE_ASSERT(P, "level.I4", persisted(line));
    show(other, place.meta().print(place.slot));
    hide(place);
    return Made::done;
  }

  // The line is full. Stores the new item into the bucket's other line, then clears the token of
  // the old one: two lines have no common store. In between the key counts twice (E30).
  [[gnu::noinline]] Made replace_elsewhere(const Place<T>& place, const Item<T>& item)
    requires(Form::kArrays)
  {
    P& platform = context_.platform;
    const std::uint8_t print = place.meta().print(place.slot);
    const Place<T> other{place.tier, place.bucket, place.tier->free_slot(place.bucket, print)};
    if (other.slot == kSlots) return replace_in_place(place, item);
    set_item(other, item);
    if (!persist(&other.line(), sizeof(Line<T>), "level.update.copy"_site)) return Made::failed;
    PERDURE_ASSERT(P, "level.I4", persisted(other.line()));
    clear_token(place);
    std::uint64_t& tokens = place.line().tokens;
    if (!persist(&tokens, sizeof(tokens), "level.update.old"_site))
      return Made::failed;  // PP(update)
    PERDURE_ASSERT(P, "level.I4", platform.persisted(&tokens, sizeof(tokens)));
    show(other, print);
    hide(place);
    return Made::done;
  }

  // Stores the Update, then the value, then clears the Update. All that happens under the lock of
  // the slot: otherwise recovery could bring this value back after a later change of the slot.
  [[gnu::noinline]] Made replace_in_place(const Place<T>& place, const Item<T>& item)
    requires(Form::kArrays)
  {
    P& platform = context_.platform;
    const std::uint32_t number = P::thread_slot() % kMoveLines;
    LatchGuard latch(move_latches_[number]);
    layout::Update& update = updates()[number];
    platform.store(update.value[0], item.value[0]);
    platform.store(update.value[1], item.value[1]);
    platform.store(update.place, place.line_offset() | place.in_line());
    if (!persist(&update, sizeof(update), "level.update.record"_site))
      return Made::failed;  // PP(update)
    PERDURE_ASSERT(P, "level.I3", platform.persisted(&update, sizeof(update)));
    Form::put(platform, place.line(), place.in_line(), item);
    if (!persist(&place.line(), sizeof(Line<T>), "level.update.array"_site)) return Made::failed;
    PERDURE_ASSERT(P, "level.I4", persisted(place.line()));
    platform.store(update.place, 0);
    if (!persist(&update.place, 8, "level.update.clear"_site)) return Made::failed;
    PERDURE_ASSERT(P, "level.I4", platform.persisted(&update.place, 8));
    return Made::done;
  }

  // --- write_many ---

  static constexpr Mode mode_of(MutationKind kind) {
    return kind == MutationKind::insert ? Mode::insert
           : kind == MutationKind::put  ? Mode::put
                                        : Mode::update;
  }
  [[gnu::always_inline]] bool takes_all(const detail::Mutation& mutation) const {
    return mutation.kind == MutationKind::erase ? takes(mutation.key).ok()
                                                : takes(mutation.key, mutation.value).ok();
  }

  // The item's bucket is locked. Returns false if the single call must do it.
  [[gnu::always_inline]] bool latch_item(const detail::Mutation& mutation, Pending& pending) {
    if (context_.platform.poisoned()) return false;
    const Place<T>& place = pending.place;
    pending.item = load(place);
    if (mutation.kind == MutationKind::erase) {
      pending.step = Pending::Step::clear;
      return true;
    }
    pending.in_record = false;
    pending.target = &Form::head(place.line(), place.in_line());
    pending.word = item_of(*pending.probe, mutation.value, pending.record).value[0];
    if (has_records()) {
      detail::Value before;
      if (!value_of(pending.item, before)) return false;
      pending.in_record = in_place(before, mutation.value);
      if (pending.in_record) {
        pending.target = &const_cast<RecordPrefix*>(records_.at(pending.item.value[0]))->value;
        pending.word = mutation.value.word;
      } else if (pending.record == 0) {
        return false;
      }
      PERDURE_ASSERT(P, "level.I3", pending.in_record || record_persisted(pending.record));
    }
    pending.step = Pending::Step::replace;
    return true;
  }

  // Locks the key's candidates and finds it absent. Keeps the lock of the bucket that the key goes
  // into. `again`: the single call must do it, and no lock is kept.
  [[gnu::noinline]] Looked latch_absent(const detail::Mutation& mutation, const Probe& probe,
                                        Pending& pending) {
    const View<T>& view = *current();
    Locks<T> locks;
    for (std::uint32_t i = 0; i < view.levels; ++i) {
      Tier<T>& tier = *view.tiers[i];
      const std::uint64_t a = tier.index(probe.hashes[0]);
      const std::uint64_t b = tier.index(probe.hashes[1]);
      if (!locks.try_lock(tier, a) || (a != b && !locks.try_lock(tier, b))) return Looked::again;
    }
    if (current() != &view || context_.platform.poisoned()) return Looked::again;
    if (find_locked(view, probe).found()) {
      return mutation.kind == MutationKind::insert ? Looked::found : Looked::again;
    }
    if ((Codec::kBytes || Form::kArrays) && too_many_clash(view, probe)) {
      return Looked::again;
    }
    if (has_records() && pending.record == 0) return Looked::again;
    pending.place = free_place(view, probe);
    if (!pending.place.found()) return Looked::again;  // an item must move
    __builtin_prefetch(&pending.place.line(), 1);
    pending.item = item_of(probe, mutation.value, pending.record);
    pending.step = Pending::Step::fill;
    locks.keep(*pending.place.tier, pending.place.bucket);
    return Looked::absent;
  }

  const void* changed(const Pending& pending) const {
    const void* at = &pending.place.line();
    if (pending.step == Pending::Step::replace && pending.in_record) at = pending.target;
    return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at) & ~(kLine - 1));
  }

  // --- batches ---

  // `crowded`: gets the generation of the view if one of the inserts finds no free slot; or 0.
  [[gnu::noinline]] Status find_crowded(const Array<Probe>& inserts, std::uint64_t& crowded) const {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return s;
    const View<T>& view = *current();
    PlannedSlots planned;
    if (!planned.reset(inserts.size())) return StatusCode::out_of_memory;
    for (const Probe& probe : inserts) {
      if (!take_place(view, probe, planned)) crowded = view.generation;
    }
    if constexpr (Codec::kBytes || Form::kArrays) return find_clashes(view, inserts);
    return {};
  }
  // Plans the slot that free_place() will choose. Returns false if there is none.
  static bool take_place(const View<T>& view, const Probe& probe, PlannedSlots& planned) {
    for (std::uint32_t level = 0; level < 2; ++level) {
      const Tier<T>& tier = *view.tiers[view.target() + level];
      const auto number = [&](std::uint64_t bucket) { return bucket * 2 + level + 1; };
      const auto used = [&](std::uint64_t bucket) {
        return tier.used(bucket) + planned.taken(number(bucket));
      };
      const std::uint64_t a = tier.index(probe.hashes[0]);
      const std::uint64_t b = tier.index(probe.hashes[1]);
      const std::uint64_t bucket = used(b) < used(a) ? b : a;
      if (used(bucket) >= kSlots) continue;
      planned.take(number(bucket));
      return true;
    }
    return false;
  }
  // Whether too many keys would have one hash.
  Status find_clashes(const View<T>& view, const Array<Probe>& inserts) const {
    Array<std::uint64_t> hashes;
    for (const Probe& probe : inserts) {
      if (!hashes.push_back(probe.hashes[0])) return StatusCode::out_of_memory;
    }
    std::sort(hashes.begin(), hashes.end());
    for (const Probe& probe : inserts) {
      const auto [first, last] = std::equal_range(hashes.begin(), hashes.end(), probe.hashes[0]);
      const auto same = static_cast<std::uint64_t>(last - first) - 1;
      if (clashes(view, probe) + same >= 2 * kSlots) return too_many_clashes();
    }
    return {};
  }
};

}  // namespace perdure::level
