// Many: the mutations of write_many() that share a fence. Each has the stores, the linearization
// point and the persist point of its single call (clevel.I4, clevel.I5).
//
// OPERATIONS  A mutation takes effect in latch(), and its stripe is in flight from there to
//   finish(). So a thread that sees it before the fence writes it back itself. No mutation of a
//   stripe in flight joins the group: its own search would have to write back and fence what the
//   group has not, and mutations of one key take effect in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "index/clevel/write.h"

namespace perdure::clevel {

template <class T>
class Many : public Write<T> {
  using Base = Write<T>;
  using P = typename T::Platform;

 protected:
  using Base::absent, Base::bytes_values_, Base::context_, Base::discard_item, Base::exchange_slot,
      Base::free_slot, Base::item_at, Base::make_item, Base::search, Base::stripe_of,
      Base::validate;
  using Base::Base;
  using typename Base::Group;

  // A mutation of write_many.
  struct Pending {
    enum class Step : std::uint8_t { none, fill, replace, clear };
    Step step = Step::none;
    unsigned place = 0;  // in the stripe
    const Probe* probe = nullptr;
    std::uint64_t* slot = nullptr;  // fill
    std::uint64_t made = 0;         // an item that no slot names
    std::uint64_t item = 0;         // fill: the item
    std::size_t bytes = 0;          // .. and its length
    std::uint64_t blob = 0;         // a durable blob that nothing names
    std::uint64_t replaced = 0;     // the blob that nothing names any more
    Found found;
  };

  bool begin_group(std::size_t n) {
    if (context_.epochs.gate().does_batch()) return false;  // batch.I4
    for (; n > 0; --n) context_.background.help();
    return true;
  }
  // A value that needs a blob at once needs a fence for it.
  bool joins(const detail::Mutation& mutation) const {
    return takes(mutation) && (!bytes_values_ || mutation.kind == MutationKind::erase ||
                               mutation.value.bytes.size() <= kInlineValue);
  }

  // The item of a new key, or the blob of a value that is replaced. A guess: a key that comes or
  // goes meanwhile is for the single call.
  bool prepare(const detail::Mutation& mutation, const Group& group, std::size_t i,
               Pending& pending) {
    const Probe& probe = group.probes[i];
    __builtin_prefetch(&stripe_of(probe), 1);
    pending.step = Pending::Step::none;
    pending.probe = &probe;
    pending.blob = 0;
    pending.item = 0;
    pending.made = 0;
    if (inserts(mutation.kind) && !has_tag(probe)) {
      pending.made = this->make_item(probe, mutation.value, pending.bytes).value_or(0);
      return false;
    }
    if (!bytes_values_ || !replaces(mutation.kind)) return false;
    if (!search(probe, 0, pending.found).ok() || pending.found.item == nullptr) return false;
    auto blob = Blob::write(context_.platform, context_.heap, mutation.value.bytes,
                            "clevel.many.blob"_site);
    if (!blob) return false;
    pending.blob = *blob;
    return true;
  }
  bool settle_records() { return context_.platform.fence("clevel.many.blob"_site); }

  bool latch(const detail::Mutation& mutation, const Group& group, std::size_t i, Pending& pending,
             Expected<bool>& result) {
    using Step = typename Pending::Step;
    const Probe& probe = group.probes[i];
    Stripe<P>& stripe = stripe_of(probe);
    const std::uint64_t before = stripe.last();
    if (stripe.in_flight(0)) return false;  // so the last insert is shown
    Found& found = pending.found;
    if (!search(probe, 0, found).ok()) return false;
    if (found.item == nullptr) {
      if (!inserts(mutation.kind)) {
        result = absent();
      } else {
        if (pending.made == 0 || !fill(probe, before, pending)) return false;
        pending.step = Step::fill;
        result = true;
      }
      return true;
    }
    result = mutation.kind == MutationKind::update || mutation.kind == MutationKind::erase;
    if (mutation.kind == MutationKind::insert) return true;
    if (mutation.kind == MutationKind::erase) {
      if (!stripe.try_enter(pending.place)) return false;
      pending.step = this->kill(found, stripe) ? Step::clear : Step::none;
    } else {
      if ((bytes_values_ && pending.blob == 0) || !stripe.try_enter(pending.place)) return false;
      pending.step = exchange(mutation.value, pending) ? Step::replace : Step::none;
    }
    if (pending.step == Step::none) stripe.leave(pending.place);
    return pending.step != Step::none;
  }
  static void store(const Pending& /*pending*/) {}

  [[gnu::always_inline]] bool write_back(const Pending& pending) {
    P& platform = context_.platform;
    switch (pending.step) {
      case Pending::Step::none:
        return false;
      case Pending::Step::fill:
        platform.flush(item_at(pending.item), pending.bytes, "clevel.many.item"_site);
        platform.flush(pending.slot, sizeof(*pending.slot), "clevel.many.slot"_site);
        return true;
      case Pending::Step::replace:
      case Pending::Step::clear:
        platform.flush(pending.found.item, sizeof(Item), "clevel.many.item"_site);
        return true;
    }
    return false;
  }
  bool settle() { return context_.platform.fence("clevel.many.item"_site); }  // PP

  [[gnu::always_inline]] void finish(const Pending& pending, bool durable, Expected<bool>& result) {
    Stripe<P>& stripe = stripe_of(*pending.probe);
    switch (pending.step) {
      case Pending::Step::none:
        if (result && !*result && context_.platform.poisoned()) {
          result = fail(context_.platform.failure());
        }
        return;
      case Pending::Step::fill:
        // The part of the item that never changes.
        PERDURE_ASSERT(P, "clevel.I5",
                       !durable || context_.platform.persisted(item_at(pending.item) + 1,
                                                               pending.bytes - sizeof(Item)));
        stripe.leave(pending.place);
        break;
      case Pending::Step::replace:
        stripe.leave(pending.place);
        if (durable && bytes_values_) this->retire_blob(pending.replaced);
        break;
      case Pending::Step::clear:
        durable = this->bury(pending.found, *pending.probe, stripe, pending.place, durable);
        break;
    }
    if (!durable) result = fail(StatusCode::poisoned);
  }
  static void clean_up(const Pending& /*pending*/) {}
  [[gnu::always_inline]] void discard(const Pending& pending) {
    if (pending.blob != 0) [[unlikely]]
      context_.heap.free(pending.blob);
    if (pending.made != 0) [[unlikely]]
      this->discard_item(pending.made);
  }

 private:
  static bool inserts(MutationKind kind) {
    return kind == MutationKind::put || kind == MutationKind::insert;
  }
  static bool replaces(MutationKind kind) {
    return kind == MutationKind::put || kind == MutationKind::update;
  }
  [[gnu::always_inline]] bool takes(const detail::Mutation& mutation) const {
    if (mutation.kind == MutationKind::erase) return validate(mutation.key).ok();
    return validate(mutation.key, mutation.value, !bytes_values_, bytes_values_).ok();
  }

  // Returns false if the item has died meanwhile.
  [[gnu::always_inline]] bool exchange(const detail::Value& value, Pending& pending) {
    if (!bytes_values_) return this->exchange_word(pending.found, value.word, false);
    if (!this->exchange_blob(pending.found, pending.blob, false, pending.replaced)) {
      return false;
    }
    pending.blob = 0;
    return true;
  }

  // Whether a slot may name the key.
  [[gnu::always_inline]] bool has_tag(const Probe& probe) const {
    for (const Level* level : this->levels()) {
      if (this->for_each_match(probe, *level, [](const std::uint64_t&) { return true; }))
        return true;
    }
    return false;
  }

  // Inserts the new item. Returns false, and leaves the stripe, if the single call must do it. The
  // key was absent after `before` had been the last insert of its stripe.
  [[gnu::always_inline]] bool fill(const Probe& probe, std::uint64_t before, Pending& pending) {
    Stripe<P>& stripe = stripe_of(probe);
    pending.place = stripe.enter_insert();
    const LevelList& list = *pending.found.list;
    pending.slot = nullptr;
    if (stripe.last() == before && !context_.platform.poisoned()) {
      pending.slot = free_slot(probe, list, list.growing() ? 1 : 0);
    }
    std::uint64_t empty = 0;
    if (pending.slot == nullptr ||
        !exchange_slot(*pending.slot, empty,
                       pending.made | std::uint64_t{probe.tag()} << kOffsetBits)) {
      stripe.leave(pending.place);
      return false;
    }
    const std::uint64_t item = std::exchange(pending.made, 0);
    if (!stripe.follow(before, item)) {
      this->withdraw(item, *pending.slot, probe);
      stripe.leave(pending.place);
      return false;
    }
    this->show(item_at(item));  // LP(insert)
    this->came();
    this->look_ahead(list, pending.slot);
    pending.item = item;
    return true;
  }
};

}  // namespace perdure::clevel
