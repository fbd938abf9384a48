// Many: the mutations of write_many() that share a fence. Each has the stores, the linearization
// point and the persist point of its single call (level.I3 to level.I6).
//
// OPERATIONS  A mutation holds the lock of the bucket that it changes from latch() to finish(), and
//   other buckets may be locked meanwhile. So it waits for no lock: the group is divided before a
//   bucket that is locked. To add a key, it locks all candidates, finds the key absent, chooses the
//   bucket, and releases the others: another thread that adds the key waits for the chosen one
//   (level.I5), and a drain empties that only after it was unlocked (level.I6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "index/level/write.h"

namespace perdure::level {

template <class T>
class Many : public Write<T> {
 protected:
  using Base = Write<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::clear_token, Base::context_, Base::current, Base::find_locked, Base::free_place,
      Base::has_records, Base::hide, Base::in_place, Base::item_of, Base::kSlots, Base::load,
      Base::persisted, Base::records_, Base::set_item, Base::show, Base::takes, Base::value_bytes_;
  using typename Base::Mode;

 public:
  using Base::Base;
  using typename Base::Group;

  // For MapEngine.
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
    if (this->lags_.load(std::memory_order_relaxed)) [[unlikely]]
      this->keep_pace();
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
    if (!this->expects_record(mode_of(mutation.kind), probe, mutation.value)) return false;
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
        PERDURE_ASSERT(P, "level.I3",
                       pending.record == 0 || this->record_persisted(pending.record));
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
        this->came();
      } else if (pending.step == Step::clear) {
        hide(pending.place);
        this->went();
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
    if (pending.step == Step::clear) this->after_erase(pending.count);
    if (pending.step != Step::fill) return;
    View<T>& view = *current();
    if (this->is_due(view, *pending.place.tier, pending.count)) [[unlikely]]
      this->after_insert(view);
  }
  [[gnu::always_inline]] void discard(const Pending& pending) {
    if (pending.record != 0) [[unlikely]]
      context_.heap.discard(pending.record);
  }

 private:
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
      if (!this->value_of(pending.item, before)) return false;
      pending.in_record = in_place(before, mutation.value);
      if (pending.in_record) {
        pending.target = &const_cast<RecordPrefix*>(records_.at(pending.item.value[0]))->value;
        pending.word = mutation.value.word;
      } else if (pending.record == 0) {
        return false;
      }
      PERDURE_ASSERT(P, "level.I3", pending.in_record || this->record_persisted(pending.record));
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
    if ((Codec::kBytes || Form::kArrays) && this->too_many_clash(view, probe)) {
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
};

}  // namespace perdure::level
