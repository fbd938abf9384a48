// Write: insert, put, update, erase, write_many and the plan of a batch. It makes items, puts them
// into slots, and frees them. clevel.I3 (the last insert), clevel.I4 (items), clevel.I5, clevel.I9
// (slots that change ahead of the walk).
//
// WRITE_MANY  Mutations share a fence. Each has the stores, the linearization point and the persist
//   point of its single call (clevel.I4, clevel.I5). A mutation takes effect in latch(), and its
//   stripe is in flight from there to finish(). So a thread that sees it before the fence writes it
//   back itself. No mutation of a stripe in flight joins the group: its own search would have to
//   write back and fence what the group has not, and mutations of one key take effect in their
//   order.
// PLAN  plan_batch() makes sure that every insert of a batch finds a slot (pool/batch.h), and names
//   the blocks of its items and blobs. It follows free_slot() for one insert after the other. The
//   inserts come in this order later, and nothing else takes a slot meanwhile (batch.I4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "index/blob.h"
#include "index/clevel/growth.h"
#include "util/containers.h"

namespace perdure::clevel {

template <class T>
class Write : public Growth<T> {
  using Base = Growth<T>;
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

  Status plan_batch(const BatchPlan& plan) override {
    Array<Probe> inserts;
    for (std::size_t i = 0; i < plan.mutations.size(); ++i) {
      const detail::Mutation& mutation = plan.mutations[i];
      if (mutation.kind == MutationKind::erase) continue;
      const Probe probe = probe_of(mutation.key);
      const bool added =
          plan.present[i] ? !bytes_values_ || add_blob(mutation.value, plan.needs)
                          : add_item(probe, mutation.value, plan.needs) && inserts.push_back(probe);
      if (!added) return StatusCode::out_of_memory;
    }
    std::uint64_t buckets = 0;
    for (bool fit = inserts.empty(); !fit;) {
      if (Status s = this->rehash_for_room(); !s.ok()) return s;
      if (Status s = this->make_slots(inserts, buckets, fit); !s.ok()) return s;
    }
    return {};
  }

 protected:
  using Base::absent, Base::added_ahead_, Base::adds, Base::begin_mutation, Base::bytes_values_,
      Base::clean_, Base::context_, Base::for_each_match, Base::free_slot, Base::item_at,
      Base::kBytesKeys, Base::kMoveBegun, Base::kSumLatches, Base::levels, Base::look_ahead,
      Base::make_slot, Base::moves_, Base::offset_of, Base::persist, Base::prefetch, Base::probe_of,
      Base::search, Base::slot_term, Base::stripe_of, Base::sum_latches_, Base::summed_,
      Base::validate, Base::verified, Base::with_room;
  using Base::Base;
  using typename Base::Group, typename Base::Mode;

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

  // --- write_many ---
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
      pending.made = make_item(probe, mutation.value, pending.bytes).value_or(0);
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
      pending.step = kill(found, stripe) ? Step::clear : Step::none;
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
        if (durable && bytes_values_) retire_blob(pending.replaced);
        break;
      case Pending::Step::clear:
        durable = bury(pending.found, *pending.probe, stripe, pending.place, durable);
        break;
    }
    if (!durable) result = fail(StatusCode::poisoned);
  }
  static void clean_up(const Pending& /*pending*/) {}
  [[gnu::always_inline]] void discard(const Pending& pending) {
    if (pending.blob != 0) [[unlikely]]
      context_.heap.free(pending.blob);
    if (pending.made != 0) [[unlikely]]
      discard_item(pending.made);
  }

 private:
  enum class Added : std::uint8_t { done, exists, full, again };

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

  // --- items and blobs ---
  // Returns the block of a new item, complete but pending, and not written back. Its state is
  // stored last.
  [[gnu::always_inline]] Expected<std::uint64_t> make_item(const Probe& probe,
                                                           const detail::Value& value,
                                                           std::size_t& bytes) {
    P& platform = context_.platform;
    const bool apart = bytes_values_ && value.bytes.size() > kInlineValue;
    const std::size_t inside = bytes_values_ && !apart ? value.bytes.size() : 0;
    const std::size_t key_size = kBytesKeys ? probe.bytes.size() : 8;
    const std::uint64_t shape = item_shape(key_size, inside);
    bytes = item_bytes(shape);
    // A reader may load 32 bytes of any live item.
    auto block = context_.heap.allocate(bytes < 32 ? 32 : bytes, BlockKind::dead_on_free);
    if (!block) return block;
    std::uint64_t word = bytes_values_ ? 0 : value.word;
    if (apart) {
      auto blob = make_blob(value.bytes);
      if (!blob) {
        context_.heap.discard(*block);
        return blob;
      }
      word = *blob;
    }
    Item* item = item_at(*block);
    auto* key = reinterpret_cast<char*>(item + 1);
    if constexpr (kBytesKeys) {
      if (key_size != 0) platform.copy(key, probe.bytes.data(), key_size);
    } else {
      platform.store(*reinterpret_cast<std::uint64_t*>(key), probe.word);
    }
    if (inside != 0) platform.copy(key + padded(key_size), value.bytes.data(), inside);
    platform.store(item->value, word);
    const char* source =
        kBytesKeys ? probe.bytes.data() : reinterpret_cast<const char*>(&probe.word);
    platform.store(item->state,
                   toggle_pending(shape | item_crc(shape, source, value.bytes.data())));
    return block;
  }
  // For the plan of a batch: what make_item() and replace() allocate. Return false if memory is
  // short.
  [[nodiscard]] bool add_item(const Probe& probe, const detail::Value& value,
                              BlockNeeds& needs) const {
    const bool apart = bytes_values_ && value.bytes.size() > kInlineValue;
    const std::size_t inside = bytes_values_ && !apart ? value.bytes.size() : 0;
    const std::size_t bytes = item_bytes(item_shape(kBytesKeys ? probe.bytes.size() : 8, inside));
    return needs.add(bytes < 32 ? 32 : bytes, BlockKind::dead_on_free) &&
           (!apart || add_blob(value, needs));
  }
  [[nodiscard]] static bool add_blob(const detail::Value& value, BlockNeeds& needs) {
    return needs.add(sizeof(Blob) + value.bytes.size(), BlockKind::plain);
  }
  // For an item that no slot has ever named.
  [[gnu::noinline]] void discard_item(std::uint64_t block) {
    const std::uint64_t blob = bytes_values_ ? context_.platform.load(item_at(block)->value) : 0;
    if (blob != 0) context_.heap.free(blob);
    context_.heap.discard(block);
  }
  // Retires the block that a value word named. A damaged word names none.
  [[gnu::noinline]] void retire_blob(std::uint64_t blob) {
    if (context_.heap.is_block(blob)) context_.heap.retire(blob);
  }
  // The blob is durable when this returns. If its fence fails, the block stays allocated. The pool
  // is poisoned then and makes no other block; the sweep of the next open frees this one.
  [[gnu::noinline]] Expected<std::uint64_t> make_blob(std::string_view value) {
    auto block = Blob::write(context_.platform, context_.heap, value, "clevel.blob.write"_site);
    if (block && !context_.platform.fence("clevel.blob.write"_site)) {
      return fail(StatusCode::poisoned);
    }
    return block;
  }

  // For an item that is dead and forgotten, and that readers may hold.
  [[gnu::always_inline]] void retire_item(std::uint64_t item) {
    context_.epochs.retire(kItemReclaimer, this, item,
                           kBytesKeys ? context_.heap.block_bytes(item) : 0);
  }

  // The first half of freeing an item: writes its slot back and stores 0 into its state. The batch
  // fences.
  static void prepare_item(void* self, std::uint64_t item) {
    auto& context = static_cast<Write*>(self)->context_;
    const auto* block = context.heap.template at<Item>(item);
    const std::uint64_t slot = slot_of_dead(context.platform.load(block->state));
    context.platform.flush(context.heap.template at<std::uint64_t>(slot), sizeof(slot),
                           "clevel.reclaim.slot"_site);
    context.heap.prepare_free(item);
  }
  static void finish_item(void* self, std::uint64_t item) {
    auto& context = static_cast<Write*>(self)->context_;
    PERDURE_ASSERT(P, "clevel.I4",
                   context.platform.poisoned() ||
                       context.platform.persisted(&context.heap.template at<Item>(item)->state,
                                                  sizeof(std::uint64_t)));
    context.heap.free(item);
  }
  static void touch_item(void* self, std::uint64_t item) {
    static_cast<Write*>(self)->context_.heap.touch_free(item);
  }
  static constexpr Reclaimer kItemReclaimer{&prepare_item, &finish_item, &touch_item};

  // --- slots ---
  // As compare_exchange, and keeps clevel.I9 if the walk may not have ended.
  [[gnu::always_inline]] bool exchange_slot(std::uint64_t& slot, std::uint64_t& expected,
                                            std::uint64_t word) {
    if (!clean_ || verified()) [[likely]]
      return context_.platform.compare_exchange(slot, expected, word);
    return exchange_summed(slot, expected, word);
  }

  [[gnu::cold, gnu::noinline]] bool exchange_summed(std::uint64_t& slot, std::uint64_t& expected,
                                                    std::uint64_t word) {
    const std::uint64_t rank = walk_rank(slot);
    const bool walked = rank != ~std::uint64_t{0};
    const LatchGuard guard(sum_latches_[rank % kSumLatches]);
    if (!context_.platform.compare_exchange(slot, expected, word)) return false;
    if (walked && rank >= summed_.load(std::memory_order_relaxed) &&
        P::runs("clevel.slots.ahead"_site)) {
      added_ahead_.fetch_add(slot_term(slot, word) - slot_term(slot, expected),
                             std::memory_order_relaxed);
    }
    return true;
  }
  // Returns the number of a slot's bucket in the order of the walk, or the largest number if its
  // level was not there at open.
  std::uint64_t walk_rank(const std::uint64_t& slot) const {
    const std::uint64_t at = offset_of(&slot);
    std::uint64_t rank = 0;
    for (const Level* level : levels()) {
      if (!level->inherited) break;
      const std::uint64_t bucket = (at - level->offset) / sizeof(Bucket);
      if (at >= level->offset && bucket < level->count) return rank + bucket;
      rank += level->count;
    }
    return ~std::uint64_t{0};
  }

  // --- insert ---
  // Returns the last insert of a stripe, whose item is shown by then. Its thread may have been
  // stopped before it did that itself. The caller searches next.
  [[gnu::always_inline]] std::uint64_t last_insert(const Stripe<P>& stripe) {
    const std::uint64_t last = stripe.last();
    if (stripe.inserting() && Stripe<P>::names_item(last) && P::runs("clevel.insert.help"_site))
        [[unlikely]]
      (void)show(item_at(last));
    return last;
  }
  // LP(insert). The item's insert is the last one of the stripe, or has been. It is pending, or has
  // been shown before. Returns false if the rehash has withdrawn it.
  [[gnu::always_inline]] bool show(Item* item) {
    std::uint64_t state = context_.platform.load(item->state);
    if (is_pending(state) &&
        context_.platform.compare_exchange(item->state, state, toggle_pending(state))) [[likely]]
      return true;
    return !is_withdrawn(state);
  }
  // For a pending item in a slot, whose insert will not become the last one: takes it back. A
  // reader may still look at it. Its blob has no reader. The rehash may do the same.
  [[gnu::noinline]] void withdraw(std::uint64_t block, std::uint64_t& slot, const Probe& probe) {
    P& platform = context_.platform;
    Item* item = item_at(block);
    const std::uint64_t blob = bytes_values_ ? platform.load(item->value) : 0;
    std::uint64_t word = block | std::uint64_t{probe.tag()} << kOffsetBits;
    context_.heap.mark_copied(block);  // limbo will hold it
    (void)exchange_slot(slot, word, 0);
    platform.store(item->state, dead_state(offset_of(&slot)));
    if (blob != 0) context_.heap.free(blob);
    retire_item(block);
  }

  // For an item that the rehash has withdrawn before its insert could show it (clevel.I3).
  [[gnu::noinline, gnu::cold]] void forget_withdrawn(std::uint64_t block, std::uint64_t& slot,
                                                     const Probe& probe) {
    stripe_of(probe).forget(block, this->odd());
    withdraw(block, slot, probe);
  }

  // Inserts the item. The key was absent from `seen` after `before` had been the last insert of its
  // stripe. Returns `full` if no slot is free in `seen`, and `again` if the key must be searched
  // again. If a slot has named the block, sets it to 0.
  [[gnu::always_inline]] Expected<Added> add(const Probe& probe, std::uint64_t& block,
                                             std::size_t bytes, std::uint64_t before,
                                             const LevelList* seen) {
    P& platform = context_.platform;
    Stripe<P>& stripe = stripe_of(probe);
    const unsigned place = stripe.enter_insert();
    const auto leave = [&](Added added) {
      stripe.leave(place);
      return added;
    };
    // Another thread may have poisoned the pool: then its stores do not count.
    if (platform.poisoned()) [[unlikely]] {
      leave(Added::full);
      return fail(platform.failure());
    }
    if (stripe.last() != before) [[unlikely]]
      return leave(Added::again);
    std::uint64_t* slot = free_slot(probe, *seen, seen->growing() ? 1 : 0);
    if (slot == nullptr) return leave(Added::full);
    std::uint64_t empty = 0;
    if (!exchange_slot(*slot, empty, block | std::uint64_t{probe.tag()} << kOffsetBits)) {
      // The slot has a seal or another key's item. Every item has a tag.
      leave(Added::again);
      if (empty == kSealed || empty >> kOffsetBits != 0) return Added::again;
      return fail(this->damaged_item(offset_of(slot)));
    }
    const std::uint64_t item = std::exchange(block, 0);
    if (!stripe.follow(before, item) && P::runs("clevel.insert.follow"_site)) [[unlikely]] {
      auto last = follow_later(probe, item, *slot, place);
      if (!last || !*last) {
        leave(Added::exists);
        return last ? Expected<Added>(Added::exists) : fail(std::move(last.error()));
      }
    }
    if (!show(item_at(item)) && P::runs("clevel.insert.withdrawn"_site)) [[unlikely]] {
      forget_withdrawn(item, *slot, probe);
      return leave(Added::again);
    }
    // LP(insert)
    this->came();
    look_ahead(*seen, slot);
    platform.flush(item_at(item), bytes, "clevel.insert.item"_site);
    const bool durable = persist(slot, sizeof(*slot), "clevel.insert.slot"_site);  // PP(insert)
    // The part of the item that never changes.
    PERDURE_ASSERT(P, "clevel.I5",
                   !durable || platform.persisted(item_at(item) + 1, bytes - sizeof(Item)));
    leave(Added::done);
    if (!durable) return fail(StatusCode::poisoned);
    return Added::done;
  }

  // Another insert of the stripe came between. The item keeps its slot while this searches again.
  // Returns false if the key is there; the item is then withdrawn.
  [[gnu::noinline]] Expected<bool> follow_later(const Probe& probe, std::uint64_t item,
                                                std::uint64_t& slot, unsigned place) {
    Stripe<P>& stripe = stripe_of(probe);
    Status s;
    for (;;) {
      const std::uint64_t before = last_insert(stripe);
      Found found;
      s = search(probe, Stripe<P>::own(place), found);
      if (!s.ok() || found.item != nullptr) break;
      if (stripe.follow(before, item)) return true;
    }
    withdraw(item, slot, probe);
    return s.ok() ? Expected<bool>(false) : fail(std::move(s));
  }

  // --- update ---
  // Whether the item that was found has the value.
  [[gnu::noinline]] Expected<bool> holds_value(const Found& found,
                                               const detail::Value& expected) const {
    detail::Value value;
    if (Status s = this->value_at(found, value); !s.ok()) return fail(std::move(s));
    return detail::same_value(value, expected) ? Expected<bool>(true) : absent();
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

  // Opens a closed item before its value changes: the checksum of a closed item covers the value.
  [[gnu::noinline]] void open_item(Item* item, std::uint64_t state) {
    P& platform = context_.platform;
    while (is_live(state) && is_closed(state) && P::runs("clevel.update.open"_site)) {
      const std::uint64_t value = platform.load(item->value);
      // If the item is still closed, no thread has replaced the value that was loaded.
      if (platform.compare_exchange(item->state, state, toggle_closed(state, value))) return;
    }
  }

  // --- erase ---
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

  // --- write_many ---
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
    if (!bytes_values_) return exchange_word(pending.found, value.word, false);
    if (!exchange_blob(pending.found, pending.blob, false, pending.replaced)) {
      return false;
    }
    pending.blob = 0;
    return true;
  }

  // Whether a slot may name the key.
  [[gnu::always_inline]] bool has_tag(const Probe& probe) const {
    for (const Level* level : levels()) {
      if (for_each_match(probe, *level, [](const std::uint64_t&) { return true; })) return true;
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
      withdraw(item, *pending.slot, probe);
      stripe.leave(pending.place);
      return false;
    }
    if (!show(item_at(item))) {
      forget_withdrawn(item, *pending.slot, probe);
      stripe.leave(pending.place);
      return false;
    }
    // LP(insert)
    this->came();
    look_ahead(list, pending.slot);
    pending.item = item;
    return true;
  }
};

}  // namespace perdure::clevel
