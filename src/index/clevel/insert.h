// Insert: makes items, puts them into slots, and frees them. clevel.I3 (the last insert), clevel.I4
// (items) and clevel.I9 (slots that change ahead of the walk).
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "index/blob.h"
#include "index/clevel/rehash.h"

namespace perdure::clevel {

template <class T>
class Insert : public Rehash<T> {
  using Base = Rehash<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;

 protected:
  using Base::added_ahead_, Base::bytes_values_, Base::clean_, Base::context_, Base::free_slot,
      Base::item_at, Base::kBytesKeys, Base::kSumLatches, Base::levels, Base::look_ahead,
      Base::offset_of, Base::persist, Base::search, Base::slot_term, Base::stripe_of,
      Base::sum_latches_, Base::summed_, Base::verified;
  using Base::Base;
  enum class Added : std::uint8_t { done, exists, full, again };

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
  // Returns the last insert of a stripe, whose item is shown by then. Its thread may have been
  // stopped before it did that itself. The caller searches next.
  [[gnu::always_inline]] std::uint64_t last_insert(const Stripe<P>& stripe) {
    const std::uint64_t last = stripe.last();
    if (stripe.inserting() && Stripe<P>::names_item(last) && P::runs("clevel.insert.help"_site))
        [[unlikely]]
      show(item_at(last));
    return last;
  }
  // LP(insert). The item's insert is the last one of the stripe, or has been. It is pending, or has
  // been shown before.
  [[gnu::always_inline]] void show(Item* item) {
    std::uint64_t state = context_.platform.load(item->state);
    if (is_pending(state)) {
      (void)context_.platform.compare_exchange(item->state, state, toggle_pending(state));
    }
  }
  // For a pending item in a slot, whose insert will not become the last one: takes it back. A
  // reader may still look at it. Its blob has no reader.
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
  // As compare_exchange, and keeps clevel.I9 if the walk may not have ended.
  [[gnu::always_inline]] bool exchange_slot(std::uint64_t& slot, std::uint64_t& expected,
                                            std::uint64_t word) {
    if (!clean_ || verified()) [[likely]]
      return context_.platform.compare_exchange(slot, expected, word);
    return exchange_summed(slot, expected, word);
  }
  // For an item that is dead and forgotten, and that readers may hold.
  [[gnu::always_inline]] void retire_item(std::uint64_t item) {
    context_.epochs.retire(kItemReclaimer, this, item,
                           kBytesKeys ? context_.heap.block_bytes(item) : 0);
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
      return fail(damaged_at(offset_of(slot)));
    }
    const std::uint64_t item = std::exchange(block, 0);
    if (!stripe.follow(before, item) && P::runs("clevel.insert.follow"_site)) [[unlikely]] {
      auto last = follow_later(probe, item, *slot, place);
      if (!last || !*last) {
        leave(Added::exists);
        return last ? Expected<Added>(Added::exists) : fail(std::move(last.error()));
      }
    }
    show(item_at(item));  // LP(insert)
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

 private:
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

  // The first half of freeing an item: writes its slot back and stores 0 into its state. The batch
  // fences.
  static void prepare_item(void* self, std::uint64_t item) {
    auto& context = static_cast<Insert*>(self)->context_;
    const auto* block = context.heap.template at<Item>(item);
    const std::uint64_t slot = slot_of_dead(context.platform.load(block->state));
    context.platform.flush(context.heap.template at<std::uint64_t>(slot), sizeof(slot),
                           "clevel.reclaim.slot"_site);
    context.heap.prepare_free(item);
  }
  static void finish_item(void* self, std::uint64_t item) {
    auto& context = static_cast<Insert*>(self)->context_;
    PERDURE_ASSERT(P, "clevel.I4",
                   context.platform.poisoned() ||
                       context.platform.persisted(&context.heap.template at<Item>(item)->state,
                                                  sizeof(std::uint64_t)));
    context.heap.free(item);
  }
  static void touch_item(void* self, std::uint64_t item) {
    static_cast<Insert*>(self)->context_.heap.touch_free(item);
  }
  static constexpr Reclaimer kItemReclaimer{&prepare_item, &finish_item, &touch_item};
};

}  // namespace perdure::clevel
