// Write: insert, put, update, erase. clevel.I5.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "index/clevel/insert.h"

namespace perdure::clevel {

template <class T>
class Write : public Insert<T> {
  using Base = Insert<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;

 public:
  Expected<bool> remove(const detail::Key& key, const detail::Value* expected) {
    if (Status s = validate(key); !s.ok()) return fail(std::move(s));
    context_.background.help();
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
    const Probe probe = probe_of(key);
    prefetch(probe);
    Stripe<P>& stripe = stripe_of(probe);
    __builtin_prefetch(&stripe, 1);
    for (;;) {
      Found found;
      if (Status s = search(probe, 0, found); !s.ok()) return fail(std::move(s));
      if (found.item == nullptr) return absent();
      unsigned place = 0;
      if (expected == nullptr) [[likely]] {
        place = stripe.enter();
      } else {
        auto same = enter_alone(found, *expected, stripe, place);
        if (!same || !*same) return same;
      }
      // Otherwise another erase came first; the search helps its death, or finds a new item.
      if (!kill(found, stripe)) {
        stripe.leave(place);
        continue;
      }
      const bool durable = persist(found.item, sizeof(Item), "clevel.erase.state"_site);
      if (!bury(found, probe, stripe, place, durable)) return fail(StatusCode::poisoned);
      return true;
    }
  }

 protected:
  using Base::absent, Base::add, Base::adds, Base::begin_mutation, Base::bytes_values_,
      Base::context_, Base::discard_item, Base::exchange_slot, Base::for_each_match,
      Base::kMoveBegun, Base::last_insert, Base::levels, Base::make_blob, Base::make_item,
      Base::make_slot, Base::moves_, Base::offset_of, Base::persist, Base::prefetch, Base::probe_of,
      Base::retire_blob, Base::retire_item, Base::search, Base::stripe_of, Base::validate,
      Base::verified, Base::with_room;
  using Base::Base;
  using typename Base::Added, typename Base::Mode;

  // Does outside the guard what must not be under it: background work that no thread does, and
  // making room in a full pool.
  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value,
                       const detail::Value* expected = nullptr) {
    if (Status s = validate(key, value, !bytes_values_, bytes_values_); !s.ok())
      return fail(std::move(s));
    context_.background.help();
    return with_room([&] { return write_once<kMode>(key, value, expected); });
  }

  // Whether the item that was found has the value.
  [[gnu::noinline]] Expected<bool> holds_value(const Found& found,
                                               const detail::Value& expected) const {
    detail::Value value;
    if (Status s = this->value_at(found, value); !s.ok()) return fail(std::move(s));
    return detail::same_value(value, expected) ? Expected<bool>(true) : absent();
  }

  // For an erase with a condition: nothing may come between the look at the value and the death.
  // Returns false, and does not enter, if the item does not have the value. If it has changed since
  // then, kill() will fail.
  [[gnu::noinline]] Expected<bool> enter_alone(Found& found, const detail::Value& expected,
                                               Stripe<P>& stripe, unsigned& place) {
    auto same = holds_value(found, expected);
    if (!same || !*same) return same;
    place = stripe.enter_alone();
    if (context_.platform.load(found.item->value) != found.value) found.state = 0;
    return true;
  }

  // The first part of an erase, which has entered the stripe: kills the item. The caller then
  // writes its state back, fences and calls bury(). Returns false if another thread has changed the
  // state.
  [[gnu::always_inline]] bool kill(const Found& found, Stripe<P>& stripe) {
    context_.heap.mark_copied(found.word & kOffsetMask);  // limbo will hold it
    std::uint64_t state = found.state;
    if (!context_.platform.compare_exchange(found.item->state, state,
                                            dead_state(offset_of(found.slot)))) {
      return false;
    }
    // LP(erase)
    this->went();
    const std::uint64_t item = found.word & kOffsetMask;
    if (stripe.last() == item && P::runs("clevel.erase.forget"_site)) [[unlikely]]
      stripe.forget(item, this->odd());
    return true;
  }
  // The second part, after the fence (PP(erase)). Returns false if the pool is poisoned.
  [[gnu::always_inline]] bool bury(const Found& found, const Probe& probe, Stripe<P>& stripe,
                                   unsigned place, bool durable) {
    P& platform = context_.platform;
    PERDURE_ASSERT(P, "clevel.I5",
                   !durable || platform.persisted(&found.item->state, sizeof(found.item->state)));
    if (durable && bytes_values_) {  // the thread that takes the blob out of the word retires it
      std::uint64_t blob = platform.load(found.item->value);
      do {
        if (context_.heap.is_block(blob)) context_.heap.mark_copied(blob);
      } while (!platform.compare_exchange(found.item->value, blob, kGone));
      retire_blob(blob);
    }
    durable = durable && clear_slots(found, probe);
    stripe.leave(place);
    if (!durable) return false;
    const std::uint64_t item = found.word & kOffsetMask;
    retire_item(item);
    return true;
  }

  // LP(update); if the item is erased meanwhile, the update is ordered just before the erase. All
  // threads must see the value before the update returns. A plain store, with no locked instruction
  // behind it, does not ensure that. The caller has entered the stripe, and writes the item back.
  // Returns false if the item was dead by then: the erase may have had a condition, and then no
  // update is ordered before it. With `unchanged`, also if it does not have the value any more that
  // was found.
  [[gnu::always_inline]] bool exchange_word(const Found& found, std::uint64_t word,
                                            bool unchanged) {
    P& platform = context_.platform;
    if (!is_live(platform.load(found.item->state))) return false;
    if (is_closed(found.state)) [[unlikely]]
      open_item(found.item, found.state);
    std::uint64_t before = found.value;
    while (!platform.compare_exchange(found.item->value, before, word)) {
      if (unchanged) return false;
    }
    return true;
  }
  // The same for a durable blob; `before`: gets the one that was there.
  [[gnu::noinline]] bool exchange_blob(const Found& found, std::uint64_t blob, bool unchanged,
                                       std::uint64_t& before) {
    P& platform = context_.platform;
    if (!is_live(platform.load(found.item->state))) return false;
    open_item(found.item, found.state);
    before = platform.load(found.item->value);
    do {
      if (before == kGone || (unchanged && before != found.value)) return false;
      if (context_.heap.is_block(before)) context_.heap.mark_copied(before);
    } while (!platform.compare_exchange(found.item->value, before, blob));  // LP(update)
    return true;
  }

 private:
  template <Mode kMode>
  [[gnu::always_inline]] Expected<bool> write_once(const detail::Key& key,
                                                   const detail::Value& value,
                                                   const detail::Value* expected) {
    MutationGuard<P> guard(context_.epochs);
    const bool needs_space = adds(kMode) || bytes_values_;
    if (Status s = begin_mutation(guard, needs_space); !s.ok()) return fail(std::move(s));
    const Probe probe = probe_of(key);
    prefetch(probe);
    // Another core may hold the line. A store into it need not wait for that miss alone.
    __builtin_prefetch(&stripe_of(probe), 1);
    std::uint64_t block = 0;  // the item, until a slot names it
    std::size_t bytes = 0;
    const auto end = [&](Expected<bool> result) {
      if (block != 0) discard_item(block);
      return result;
    };
    for (;;) {
      const std::uint64_t before = adds(kMode) ? last_insert(stripe_of(probe)) : 0;
      Found found;
      if (Status s = search(probe, 0, found); !s.ok()) return end(fail(std::move(s)));
      if (found.item != nullptr) {
        if (kMode == Mode::insert) return end(false);
        if (kMode == Mode::update && expected != nullptr) [[unlikely]] {
          auto same = holds_value(found, *expected);
          if (!same || !*same) return end(std::move(same));
        }
        auto replaced = replace(found, probe, value, kMode == Mode::update && expected != nullptr);
        if (!replaced) return end(fail(std::move(replaced.error())));
        if (*replaced) return end(!adds(kMode));
        continue;
      }
      if (!adds(kMode)) return end(absent());
      if (block == 0) {
        auto made = make_item(probe, value, bytes);
        if (!made) return fail(std::move(made.error()));
        block = *made;
      }
      const LevelList* seen = found.list;
      auto added = add(probe, block, bytes, before, seen);
      if (!added) return end(fail(std::move(added.error())));
      if (*added == Added::done) return true;
      if (*added == Added::exists && kMode == Mode::insert) return end(false);
      if (*added != Added::full) continue;
      if (Status s = make_slot(probe, seen); !s.ok()) return end(fail(std::move(s)));
    }
  }

  // Returns false if the item has died meanwhile, or does not have the value any more.
  [[gnu::always_inline]] Expected<bool> replace(const Found& found, const Probe& probe,
                                                const detail::Value& value, bool unchanged) {
    if (bytes_values_) return replace_bytes(found, probe, value.bytes, unchanged);
    Stripe<P>& stripe = stripe_of(probe);
    const unsigned place = stripe.enter();
    if (!exchange_word(found, value.word, unchanged)) {
      stripe.leave(place);
      return false;
    }
    const bool durable =
        persist(found.item, sizeof(Item), "clevel.update.word"_site);  // PP(update)
    stripe.leave(place);
    if (!durable) return fail(StatusCode::poisoned);
    return true;
  }
  // Replaces the only pointer to the old value, so the new one is durable first (2b).
  [[gnu::noinline]] Expected<bool> replace_bytes(const Found& found, const Probe& probe,
                                                 std::string_view value, bool unchanged) {
    auto blob = make_blob(value);
    if (!blob) return fail(std::move(blob.error()));
    Stripe<P>& stripe = stripe_of(probe);
    const unsigned place = stripe.enter();
    std::uint64_t before = 0;
    if (!exchange_blob(found, *blob, unchanged, before)) {
      stripe.leave(place);
      context_.heap.free(*blob);
      return false;
    }
    const bool durable =
        persist(found.item, sizeof(Item), "clevel.update.blob"_site);  // PP(update)
    stripe.leave(place);
    if (!durable) return fail(StatusCode::poisoned);
    retire_blob(before);
    return true;
  }
  // Opens a closed item before its value changes: the checksum of a closed item covers the value.
  [[gnu::noinline]] void open_item(Item* item, std::uint64_t state) {
    P& platform = context_.platform;
    while (is_live(state) && is_closed(state) && P::runs("clevel.update.open"_site)) {
      const std::uint64_t value = platform.load(item->value);
      // If the item is still closed, no thread has replaced the value that was loaded.
      if (platform.compare_exchange(item->state, state, toggle_closed(state, value))) return;
    }
  }
  // Clears the slots of an item that is durably dead. If no item has moved since it was found, it
  // has one slot, and no other thread stores into that before it is 0 (clevel.I3): a plain store
  // suffices, and the batch that frees the item writes it back. Otherwise clears all copies and
  // fences at once. Looks at the moves after the death: a move that begins later sees the death.
  // Looks at verified_ before the moves: the steps that the walk took since the item was found then
  // count as moves.
  [[gnu::always_inline]] bool clear_slots(const Found& found, const Probe& probe) {
    const bool walked = verified();
    const std::uint64_t moves = moves_.load(std::memory_order_seq_cst);
    if (walked && moves == found.moves && moves % kMoveBegun == 0) [[likely]] {
      context_.platform.store(*found.slot, 0);
      return true;
    }
    return clear_copies(found, probe);
  }
  [[gnu::noinline]] bool clear_copies(const Found& found, const Probe& probe) {
    P& platform = context_.platform;
    std::uint64_t word = found.word;
    const LevelList& list = levels();
    (void)exchange_slot(*found.slot, word, 0);
    bool copied = false;
    for (const Level* level : list) {
      for_each_match(probe, *level, [&](std::uint64_t& slot) {
        word = found.word;
        if (platform.load(slot) != word || !exchange_slot(slot, word, 0)) return false;
        platform.flush(&slot, sizeof(slot), "clevel.erase.copy"_site);
        copied = true;
        return false;
      });
    }
    return !copied || platform.fence("clevel.erase.copy"_site);
  }
};

}  // namespace perdure::clevel
