// Clevel: insert, update, erase. Included by clevel.h only.
#pragma once

#include "index/clevel/clevel.h"

namespace perdure::clevel {

// Durable when it returns.
template <Platform P, class Codec, class G>
Expected<std::uint64_t> Clevel<P, Codec, G>::make_blob(std::string_view value) noexcept {
  P& platform = context_.platform;
  auto block = context_.heap.allocate(sizeof(layout::Blob) + value.size(), BlockKind::plain);
  if (!block) return block;
  auto* blob = context_.heap.template at<layout::Blob>(*block);
  platform.store(blob->size, value.size());
  platform.store(blob->crc, blob_crc(value));
  if (!value.empty()) platform.copy(blob + 1, value.data(), value.size());
  platform.flush(blob, sizeof(*blob) + value.size(), "clevel.blob.write"_site);
  if (!platform.fence("clevel.blob.write"_site)) return fail(StatusCode::poisoned);
  return block;
}

// An item in a block of its own, complete and not written back; its state is stored last.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline Expected<std::uint64_t> Clevel<P, Codec, G>::make_item(
    const Probe& probe, const detail::Value& value, std::size_t& bytes) noexcept {
  P& platform = context_.platform;
  const bool apart = bytes_values_ && value.bytes.size() > kInlineValue;
  const std::size_t inside = bytes_values_ && !apart ? value.bytes.size() : 0;
  const std::size_t key_size = Codec::kBytes ? probe.bytes.size() : 8;
  const std::uint64_t shape = item_shape(key_size, inside);
  bytes = item_bytes(shape);
  // Every live item's prefix may be looked at as 32 bytes.
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
  if constexpr (Codec::kBytes) {
    if (key_size != 0) platform.copy(key, probe.bytes.data(), key_size);
  } else {
    platform.store(*reinterpret_cast<std::uint64_t*>(key), probe.word);
  }
  if (inside != 0) platform.copy(key + padded(key_size), value.bytes.data(), inside);
  platform.store(item->value, word);
  const char* source =
      Codec::kBytes ? probe.bytes.data() : reinterpret_cast<const char*>(&probe.word);
  platform.store(item->state, shape | item_crc(shape, source, value.bytes.data()));
  return block;
}

// Of an item that was never named by a slot.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::discard_item(std::uint64_t block) noexcept {
  const std::uint64_t blob = bytes_values_ ? context_.platform.load(item_at(block)->value) : 0;
  if (blob != 0) context_.heap.free(blob);
  context_.heap.discard(block);
}

// An empty slot for the key: of its buckets in this level and those above, in the emptiest, the
// highest of those.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline std::uint64_t* Clevel<P, Codec, G>::free_slot(
    const Probe& probe, const Context& now, std::uint32_t lowest) const noexcept {
  std::uint64_t* best = nullptr;
  int most = 0;
  for (std::uint32_t i = now.count; i-- > lowest;) {
    const Level& level = *now.levels[i];
    for (const std::uint64_t number : {probe.first(level.mask()), probe.second(level.mask())}) {
      std::uint64_t* slots = level.buckets[number].slots;
      const std::uint32_t empty = P::match_words(slots, G::kSlots, 0);
      const int free = __builtin_popcount(empty);
      if (free <= most) continue;
      std::uint64_t* slot = &slots[__builtin_ctz(empty)];
      if (context_.platform.load(*slot) == kSealed) continue;  // so is the whole bucket, or will be
      most = free;
      best = slot;
    }
  }
  return best;
}

// Names the item by a slot, if the key is absent: as it was in *seen when its stripe was `before`,
// or as it turns out. `full`: no slot is free in *seen.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline auto Clevel<P, Codec, G>::add(const Probe& probe, std::uint64_t block,
                                                            std::size_t bytes, std::uint64_t before,
                                                            const Context*& seen) noexcept
    -> Expected<Added> {
  P& platform = context_.platform;
  Stripe<P>& stripe = stripe_of(probe);
  stripe.lock();
  bool known = stripe.unchanged(before);
  const auto leave = [&](Added added) {
    stripe.unlock(added == Added::done);
    return added;
  };
  for (;; known = false) {
    Found found;
    Status s = known ? Status() : search(probe, Stripe<P>::kInsert, found);
    // By who held the latch: what it left there does not count.
    if (s.ok() && platform.poisoned()) [[unlikely]]
      s = platform.failure();
    if (!s.ok()) {
      leave(Added::full);
      return fail(std::move(s));
    }
    if (found.item != nullptr) return leave(Added::exists);
    if (!known) seen = found.context;
    std::uint64_t* slot = free_slot(probe, *seen, seen->growing() ? 1 : 0);
    if (slot == nullptr) return leave(Added::full);
    std::uint64_t empty = 0;
    if (!exchange_slot(*slot, empty, block | std::uint64_t{probe.tag()} << kOffsetBits)) {
      // A seal, or another key's item: look again where the key belongs. No item has no tag.
      if (empty == kSealed || empty >> kOffsetBits != 0) continue;
      leave(Added::full);
      return fail(damaged(offset_of(slot)));
    }
    // LP(insert)
    look_ahead(*seen, slot);
    platform.flush(item_at(block), bytes, "clevel.insert.item"_site);
    platform.flush(slot, sizeof(*slot), "clevel.insert.slot"_site);
    const bool durable = platform.fence("clevel.insert.slot"_site);  // PP(insert)
    // All of it that never changes.
    PERDURE_ASSERT(P, "clevel.I5",
                   !durable || platform.persisted(item_at(block) + 1, bytes - sizeof(Item)));
    leave(Added::done);
    if (!durable) return fail(StatusCode::poisoned);
    return Added::done;
  }
}

// The checksum of a closed item covers its value; before that changes.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::open_item(Item* item, std::uint64_t state) noexcept {
  P& platform = context_.platform;
  while (is_live(state) && is_closed(state) && P::runs("clevel.update.open"_site)) {
    const std::uint64_t value = platform.load(item->value);
    // If it is still closed, nobody has replaced the value that was loaded.
    if (platform.compare_exchange(item->state, state, toggle_closed(state, value))) return;
  }
}

// True: replaced. False: the item has died meanwhile.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline Expected<bool> Clevel<P, Codec, G>::replace(
    const Found& found, const Probe& probe, const detail::Value& value) noexcept {
  if (bytes_values_) return replace_bytes(found, probe, value.bytes);
  P& platform = context_.platform;
  Stripe<P>& stripe = stripe_of(probe);
  const unsigned place = stripe.enter();
  if (is_closed(found.state)) [[unlikely]]
    open_item(found.item, found.state);
  // LP(update); after an erase: just before it. Seen by all before the update returns, as a plain
  // store, with no locked instruction behind it, would not be.
  std::uint64_t before = found.value;
  while (!platform.compare_exchange(found.item->value, before, value.word)) {
  }
  platform.flush(found.item, sizeof(Item), "clevel.update.word"_site);
  const bool durable = platform.fence("clevel.update.word"_site);  // PP(update)
  stripe.leave(place);
  if (!durable) return fail(StatusCode::poisoned);
  return true;
}

// What a value word named. Of a damaged one nothing is freed.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::retire_blob(std::uint64_t blob) noexcept {
  if (context_.heap.is_block(blob)) context_.heap.retire(blob);
}

// The only pointer to the old value is replaced: the new one is durable first (2b).
template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::replace_bytes(const Found& found, const Probe& probe,
                                                  std::string_view value) noexcept {
  P& platform = context_.platform;
  auto blob = make_blob(value);
  if (!blob) return fail(std::move(blob.error()));
  Stripe<P>& stripe = stripe_of(probe);
  const unsigned place = stripe.enter();
  open_item(found.item, found.state);
  std::uint64_t before = platform.load(found.item->value);
  do {
    if (before == kGone) {
      stripe.leave(place);
      context_.heap.free(*blob);
      return false;
    }
    if (context_.heap.is_block(before)) context_.heap.mark_copied(before);
  } while (!platform.compare_exchange(found.item->value, before, *blob));  // LP(update)
  platform.flush(found.item, sizeof(Item), "clevel.update.blob"_site);
  const bool durable = platform.fence("clevel.update.blob"_site);  // PP(update)
  stripe.leave(place);
  if (!durable) return fail(StatusCode::poisoned);
  retire_blob(before);
  return true;
}

// What is done outside the guard: background work where no thread does it, and making room.
template <Platform P, class Codec, class G>
template <typename Clevel<P, Codec, G>::Mode kMode>
Expected<bool> Clevel<P, Codec, G>::write(const detail::Key& key, const detail::Value& value) {
  if (Status s = validate(key, value, !bytes_values_, bytes_values_); !s.ok())
    return fail(std::move(s));
  context_.background.help();
  return with_room([&] { return write_once<kMode>(key, value); });
}

template <Platform P, class Codec, class G>
template <typename Clevel<P, Codec, G>::Mode kMode>
[[gnu::always_inline]] inline Expected<bool> Clevel<P, Codec, G>::write_once(
    const detail::Key& key, const detail::Value& value) {
  EpochGuard<P> guard(context_.epochs);
  const bool needs_space = kMode != Mode::update || bytes_values_;
  if (Status s = begin_mutation(guard, needs_space); !s.ok()) return fail(std::move(s));
  const Probe probe = probe_of(key);
  prefetch(probe);
  // Another core may have it; who writes into it need not wait for that alone.
  __builtin_prefetch(&stripe_of(probe), 1);
  std::uint64_t block = 0;  // the item, until a slot names it
  std::size_t bytes = 0;
  const auto end = [&](Expected<bool> answer) {
    if (block != 0) discard_item(block);
    return answer;
  };
  for (;;) {
    const std::uint64_t before = stripe_of(probe).look();
    Found found;
    if (Status s = search(probe, 0, found); !s.ok()) return end(fail(std::move(s)));
    if (found.item != nullptr) {
      if (kMode == Mode::insert) return end(false);
      auto replaced = replace(found, probe, value);
      if (!replaced) return end(fail(std::move(replaced.error())));
      if (*replaced) return end(kMode == Mode::update);
      continue;
    }
    if (kMode == Mode::update) return end(absent());
    if (block == 0) {
      auto made = make_item(probe, value, bytes);
      if (!made) return fail(std::move(made.error()));
      block = *made;
    }
    const Context* seen = found.context;
    auto added = add(probe, block, bytes, before, seen);
    if (!added) {
      if (added.error() == StatusCode::poisoned) block = 0;  // it may be named
      return end(fail(std::move(added.error())));
    }
    if (*added == Added::done) return true;
    if (*added == Added::exists) {
      if (kMode == Mode::insert) return end(false);
      continue;
    }
    const LatchGuard growing(grow_latch_);
    auto room = make_room(probe, seen);
    Status s = room ? Status() : std::move(room.error());
    if (s.ok() && !*room) s = expand(seen);
    if (!s.ok()) return end(fail(std::move(s)));
  }
}

template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::erase(const detail::Key& key) {
  if (Status s = validate(key); !s.ok()) return fail(std::move(s));
  context_.background.help();
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
  P& platform = context_.platform;
  const Probe probe = probe_of(key);
  prefetch(probe);
  Stripe<P>& stripe = stripe_of(probe);
  __builtin_prefetch(&stripe, 1);
  for (;;) {
    Found found;
    if (Status s = search(probe, 0, found); !s.ok()) return fail(std::move(s));
    if (found.item == nullptr) return absent();
    context_.heap.mark_copied(found.word & kOffsetMask);  // limbo will hold it
    const unsigned place = stripe.enter();
    std::uint64_t state = found.state;
    if (!platform.compare_exchange(found.item->state, state, dead_state(offset_of(found.slot)))) {
      stripe.leave(place);
      continue;  // another erase was first; what the key has now is found, or its death helped
    }
    // LP(erase)
    stripe.count_erased();
    platform.flush(found.item, sizeof(Item), "clevel.erase.state"_site);
    bool durable = platform.fence("clevel.erase.state"_site);  // PP(erase)
    PERDURE_ASSERT(P, "clevel.I5",
                   !durable || platform.persisted(&found.item->state, sizeof(found.item->state)));
    if (durable && bytes_values_) {  // whoever takes the blob out of the word retires it
      std::uint64_t blob = platform.load(found.item->value);
      do {
        if (context_.heap.is_block(blob)) context_.heap.mark_copied(blob);
      } while (!platform.compare_exchange(found.item->value, blob, kGone));
      retire_blob(blob);
    }
    durable = durable && clear_slots(found, probe);
    stripe.leave(place);
    if (!durable) return fail(StatusCode::poisoned);
    const std::uint64_t item = found.word & kOffsetMask;
    context_.epochs.retire(kItemReclaimer, this, item,
                           Codec::kBytes ? context_.heap.block_bytes(item) : 0);
    return true;
  }
}

// The slots of an item that is durably dead. The batch that frees it writes back the one that was
// found. If nothing has moved since, that is the only one, and nobody else stores into it before it
// is 0 (clevel.I3): a plain store. Otherwise whatever copies there are, are fenced at once. Moves
// are looked at after the death: those that begin later see it. The walk is over before they are
// looked at: the steps it took since the item was found are among them.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool Clevel<P, Codec, G>::clear_slots(const Found& found,
                                                                    const Probe& probe) noexcept {
  const bool verified = verified_.load(std::memory_order_acquire);
  const std::uint64_t moves = moves_.load(std::memory_order_seq_cst);
  if (verified && moves == found.moves && moves % kMoveBegun == 0) [[likely]] {
    context_.platform.store(*found.slot, 0);
    return true;
  }
  return clear_copies(found, probe);
}
template <Platform P, class Codec, class G>
bool Clevel<P, Codec, G>::clear_copies(const Found& found, const Probe& probe) noexcept {
  P& platform = context_.platform;
  const Context& now = *levels_.load(std::memory_order_acquire);
  std::uint64_t word = found.word;
  (void)exchange_slot(*found.slot, word, 0);
  bool copied = false;
  for (std::uint32_t i = 0; i < now.count; ++i) {
    for_each_match(probe, *now.levels[i], [&](std::uint64_t& slot) {
      word = found.word;
      if (platform.load(slot) != word || !exchange_slot(slot, word, 0)) return false;
      platform.flush(&slot, sizeof(slot), "clevel.erase.copy"_site);
      copied = true;
      return false;
    });
  }
  return !copied || platform.fence("clevel.erase.copy"_site);
}

// The number of a slot's bucket in the order of the walk; beyond all of them if its level was not
// there at open.
template <Platform P, class Codec, class G>
std::uint64_t Clevel<P, Codec, G>::walk_rank(const std::uint64_t& slot) const noexcept {
  const Context& now = *levels_.load(std::memory_order_acquire);
  const std::uint64_t at = offset_of(&slot);
  std::uint64_t rank = 0;
  for (std::uint32_t i = 0; i < now.count && now.levels[i]->inherited; ++i) {
    const Level& level = *now.levels[i];
    const std::uint64_t bucket = (at - level.offset) / sizeof(Bucket);
    if (at >= level.offset && bucket < level.count) return rank + bucket;
    rank += level.count;
  }
  return ~std::uint64_t{0};
}

// clevel.I9.
template <Platform P, class Codec, class G>
[[gnu::cold, gnu::noinline]] bool Clevel<P, Codec, G>::exchange_summed(
    std::uint64_t& slot, std::uint64_t& expected, std::uint64_t word) noexcept {
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

// The first half of freeing an item: its slot, and its own word 0. A fence follows.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::kill_item(std::uint64_t item) noexcept {
  const std::uint64_t slot = slot_of_dead(context_.platform.load(item_at(item)->state));
  context_.platform.flush(context_.heap.template at<std::uint64_t>(slot), sizeof(slot),
                          "clevel.reclaim.slot"_site);
  context_.heap.prepare_free(item);
}

}  // namespace perdure::clevel
