// Clevel: lookups. Included by clevel.h only.
#pragma once

#include <algorithm>

#include "index/clevel/clevel.h"

namespace perdure::clevel {

// visit(slot) for the slots of the key's two buckets that have its tag, until it answers true.
template <Platform P, class Codec, class G>
template <class F>
[[gnu::always_inline]] inline bool Clevel<P, Codec, G>::for_each_match(const Probe& probe,
                                                                       const Level& level,
                                                                       F&& visit) noexcept {
  for (const std::uint64_t number : {probe.first(level.mask()), probe.second(level.mask())}) {
    Bucket& bucket = level.buckets[number];
    std::uint32_t matches = P::match_words(bucket.slots, G::kSlots, probe.tag());
    for (; matches != 0; matches &= matches - 1) {
      if (visit(bucket.slots[__builtin_ctz(matches)])) return true;
    }
  }
  return false;
}

template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool Clevel<P, Codec, G>::same_key(
    const Item* item, std::uint64_t state, const Probe& probe) const noexcept {
  if constexpr (Codec::kBytes) {
    const std::size_t size = key_bytes(state);
    // A damaged length must not lead beyond the file.
    return size == probe.bytes.size() &&
           context_.heap.contains(offset_of(item), sizeof(Item) + size) &&
           std::string_view(key_of(item), size) == probe.bytes;
  } else {
    return context_.platform.load(*reinterpret_cast<const std::uint64_t*>(key_of(item))) ==
           probe.word;
  }
}

template <Platform P, class Codec, class G>
Probe Clevel<P, Codec, G>::probe_of(const Item* item, std::uint64_t state) const noexcept {
  if constexpr (Codec::kBytes) {
    return probe_of(detail::Key{.bytes = {key_of(item), key_bytes(state)}});
  } else {
    (void)state;
    return probe_of(detail::Key{
        .word = context_.platform.load(*reinterpret_cast<const std::uint64_t*>(key_of(item)))});
  }
}

// A dead item of the key's tag: "absent" may rest on it. True: it was written back, a fence is
// owed.
template <Platform P, class Codec, class G>
bool Clevel<P, Codec, G>::note_dead(const Item* item, const Probe& probe,
                                    std::uint32_t own) noexcept {
  (void)context_.settle(offset_of(item), sizeof(Item));
  if (!context_.platform.durable() || !stripe_of(probe).in_flight(own)) return false;
  context_.platform.flush(item, sizeof(Item), "clevel.help.dead"_site);
  return true;
}

// clevel.I7, clevel.I8.
template <Platform P, class Codec, class G>
auto Clevel<P, Codec, G>::look_at(const std::uint64_t& slot, std::uint64_t word,
                                  std::uint64_t state) const noexcept -> Look {
  const P& platform = context_.platform;
  const bool counts = whole(word, state);
  // Whoever replaces the value of a closed item opens it first; whoever frees it, takes its slot.
  if (platform.load(slot) != word || platform.load(item_at(word)->state) != state) {
    return Look::changed;
  }
  if (counts) return Look::whole;
  return clean_ || is_closed(state) ? Look::damaged : Look::torn;
}

// One walk through the levels, last to first: what moves, moves ahead of it. False: the list of
// levels has changed under it, and nothing was found.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool Clevel<P, Codec, G>::walk(const Probe& probe, std::uint32_t own,
                                                             Found& found, bool& wrote) noexcept {
  const P& platform = context_.platform;
  const std::uint64_t moves = moves_.load(std::memory_order_acquire);
  const Context& now = *levels_.load(std::memory_order_acquire);
  const bool verified = verified_.load(std::memory_order_acquire);
  found = {.context = &now, .verified = verified};
  bool again = false;
  const auto matches = [&](std::uint64_t& slot) {
    const std::uint64_t word = platform.load(slot);
    if (word >> kOffsetBits != probe.tag() || !plausible(word)) return false;  // it has changed
    Item* item = item_at(word);
    const std::uint64_t state = platform.load(item->state);  // LP(find), if it is live
    if (!is_live(state)) {
      wrote = note_dead(item, probe, own) || wrote;
      return false;
    }
    if (!same_key(item, state, probe)) return false;
    if (!verified) {  // clevel.I7
      const Look look = look_at(slot, word, state);
      if (look == Look::changed) return again = true;
      if (look == Look::torn) return false;
      if (look == Look::damaged) {
        found.damaged = word & kOffsetMask;
        return true;
      }
    }
    const std::uint64_t value = platform.load(item->value);
    if (bytes_values_ && value == kGone) return false;  // dead, durably
    found = {.item = item,
             .word = word,
             .slot = &slot,
             .state = state,
             .value = value,
             .context = &now,
             .moves = moves};
    return true;
  };
  for (std::uint32_t i = 0; i < now.count; ++i) {
    if (for_each_match(probe, *now.levels[i], matches)) return !again;
  }
  return levels_.load(std::memory_order_acquire) == &now;
}

// Finds the key's item. What it answers is durable, the answer "absent" too. `own`: what the caller
// itself has in the key's stripe. The caller is pinned.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline Status Clevel<P, Codec, G>::search(const Probe& probe,
                                                                 std::uint32_t own,
                                                                 Found& found) noexcept {
  bool wrote = false;
  while (!walk(probe, own, found, wrote)) {
  }
  if (wrote && !context_.platform.fence("clevel.help.dead"_site)) [[unlikely]]
    return StatusCode::poisoned;
  if (found.damaged != 0) [[unlikely]]
    return damaged(found.damaged);
  if (found.item == nullptr) {
    const bool damaged = !found.verified && damaged_.load(std::memory_order_acquire);
    return damaged ? known_damage() : Status();
  }
  return make_durable(found, probe, own);
}

// clevel.I5: looked at after the value was loaded. An insert, an update or an erase of the stripe
// is under way.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline Status Clevel<P, Codec, G>::make_durable(const Found& found,
                                                                       const Probe& probe,
                                                                       std::uint32_t own) noexcept {
  P& platform = context_.platform;
  if (stripe_of(probe).in_flight(own) && platform.durable()) [[unlikely]] {
    write_back(found);
    if (!platform.fence("clevel.help.item"_site)) return StatusCode::poisoned;
  }
  if (context_.after_kill == nullptr) [[likely]]
    return {};
  bool settled = context_.settle(offset_of(found.slot), sizeof(*found.slot)) &&
                 context_.settle(offset_of(found.item), item_bytes(found.state));
  if (settled && bytes_values_ && found.value != 0) {
    settled = context_.settle(found.value, context_.heap.block_bytes(found.value));
  }
  return settled ? Status() : StatusCode::poisoned;
}

// Everything that the item's being there rests on. A blob is durable before it is named.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::write_back(const Found& found) noexcept {
  context_.platform.flush(found.item, item_bytes(found.state), "clevel.help.item"_site);
  context_.platform.flush(found.slot, sizeof(*found.slot), "clevel.help.slot"_site);
}

template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::damaged(std::uint64_t offset) noexcept {
  return Status::format(StatusCode::corruption,
                        "the item at offset %llu is damaged; run `perdure check`, and restore a "
                        "copy",
                        static_cast<unsigned long long>(offset));
}

// clevel.I10.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::known_damage() noexcept {
  return Status::format(StatusCode::corruption,
                        "the map is damaged: what is not found may be lost; run `perdure check`, "
                        "and restore a copy");
}

template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline Status Clevel<P, Codec, G>::value_at(
    const Found& found, detail::Value& value) const noexcept {
  if (!bytes_values_) {
    value = {.word = found.value, .word_size = 8};
    return {};
  }
  if (found.value == 0) {
    if (item_bytes(found.state) > context_.heap.block_bytes(offset_of(found.item))) {
      return damaged(offset_of(found.item));
    }
    value = {.bytes = {clevel::value_of(found.item, found.state), inline_bytes(found.state)}};
    return {};
  }
  if (!context_.heap.is_block(found.value)) return damaged(offset_of(found.item));
  const auto* blob = context_.heap.template at<layout::Blob>(found.value);
  const std::uint64_t size = context_.platform.load(blob->size);
  const std::size_t room = context_.heap.block_bytes(found.value);
  if (room < sizeof(*blob) || size > room - sizeof(*blob)) return damaged(found.value);
  value = {.bytes = {reinterpret_cast<const char*>(blob + 1), size}};
  return {};
}

template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline void Clevel<P, Codec, G>::prefetch(
    const Probe& probe) const noexcept {
  const Context& now = *levels_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < now.count; ++i) {
    const Level& level = *now.levels[i];
    __builtin_prefetch(&level.buckets[probe.first(level.mask())]);
    __builtin_prefetch(&level.buckets[probe.second(level.mask())]);
  }
}

template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline void Clevel<P, Codec, G>::prefetch_items(
    const Probe& probe) const noexcept {
  const Context& now = *levels_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < now.count; ++i) {
    for_each_match(probe, *now.levels[i], [&](const std::uint64_t& slot) {
      __builtin_prefetch(item_at(context_.platform.load(slot)));
      return false;
    });
  }
}

template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::prefetch_items(const Bucket& bucket) const noexcept {
  for (std::uint32_t i = 0; i < G::kSlots; ++i) {
    const std::uint64_t word = context_.platform.load(bucket.slots[i]);
    if (word > kSealed) __builtin_prefetch(item_at(word));
  }
}

template <Platform P, class Codec, class G>
Expected<bool> Clevel<P, Codec, G>::read(const detail::Key& key,
                                         FunctionRef<void(const detail::Value&)> visit) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  const Probe probe = probe_of(key);
  prefetch(probe);
  Found found;
  if (Status s = search(probe, 0, found); !s.ok()) return fail(std::move(s));
  if (found.item == nullptr) return absent();
  detail::Value value;
  Status s = value_at(found, value);
  if (context_.platform.poisoned()) return fail(context_.platform.failure());
  if (!s.ok()) return fail(std::move(s));
  visit(value);
  // What was shown may have come from pages that were lost meanwhile.
  if (context_.platform.poisoned()) [[unlikely]]
    return fail(context_.platform.failure());
  return true;
}

// In steps, a cache miss each; the misses of a group overlap.
template <Platform P, class Codec, class G>
Expected<std::uint64_t> Clevel<P, Codec, G>::read_many(
    std::span<const detail::Key> keys, FunctionRef<void(std::size_t, const detail::Value&)> visit) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  std::uint64_t present = 0;
  Probe probes[kGroup];
  for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
    const std::size_t n = std::min<std::size_t>(kGroup, keys.size() - begin);
    for (std::size_t i = 0; i < n; ++i) {
      probes[i] = probe_of(keys[begin + i]);
      prefetch(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) prefetch_items(probes[i]);
    for (std::size_t i = 0; i < n; ++i) {
      Found found;
      if (Status s = search(probes[i], 0, found); !s.ok()) return fail(std::move(s));
      if (found.item == nullptr) continue;
      detail::Value value;
      Status s = value_at(found, value);
      if (context_.platform.poisoned()) return fail(context_.platform.failure());
      if (!s.ok()) return fail(std::move(s));
      visit(begin + i, value);
      ++present;
    }
  }
  if (context_.platform.poisoned()) [[unlikely]]
    return fail(context_.platform.failure());
  return present;
}

// The entries of one bucket, each durable, each absence too. False: the visitor has had enough, or
// `s` says what is wrong.
template <Platform P, class Codec, class G>
bool Clevel<P, Codec, G>::deliver_bucket(const Context& now, std::uint32_t level, Bucket& bucket,
                                         FunctionRef<bool(std::span<const detail::Entry>)> visit,
                                         Status& s) noexcept {
  P& platform = context_.platform;
  detail::Entry entries[8];
  std::size_t count = 0;
  bool wrote = false;
  // Before the slots: the walk of an open clears one of two that name an item.
  const bool verified = verified_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < G::kSlots && s.ok(); ++i) {
    const std::uint64_t word = platform.load(bucket.slots[i]);
    if (word == 0 || word == kSealed || !plausible(word)) continue;
    Item* item = item_at(word);
    const std::uint64_t state = platform.load(item->state);
    if (!is_live(state)) {  // whose key it was cannot be told any more
      (void)context_.settle(offset_of(item), sizeof(Item));
      platform.flush(item, sizeof(Item), "clevel.scan.dead"_site);
      wrote = true;
      continue;
    }
    if (!verified) {
      const Look look = look_at(bucket.slots[i], word, state);
      if (look == Look::changed) --i;  // once more
      if (look == Look::damaged) s = damaged(word & kOffsetMask);
      if (look != Look::whole) continue;
    }
    const Probe probe = probe_of(item, state);
    if (level == 0 && !verified && named_above(now, word, probe)) continue;
    const std::uint64_t value = platform.load(item->value);
    if (bytes_values_ && value == kGone) continue;
    const Found found{.item = item,
                      .word = word,
                      .slot = &bucket.slots[i],
                      .state = state,
                      .value = value,
                      .context = &now};
    if (s = make_durable(found, probe, 0); !s.ok()) break;
    detail::Entry& entry = entries[count];
    entry.key = {.word = probe.word, .bytes = probe.bytes};
    if (s = value_at(found, entry.value); s.ok()) ++count;
  }
  if (s.ok() && wrote && !platform.fence("clevel.scan.dead"_site)) s = StatusCode::poisoned;
  if (s.ok() && platform.poisoned()) s = platform.failure();
  return s.ok() && (count == 0 || visit({entries, count}));
}

template <Platform P, class Codec, class G>
Expected<void> Clevel<P, Codec, G>::for_each(
    FunctionRef<bool(std::span<const detail::Entry>)> visit) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  const Pause pause(*this);
  const Context& now = *levels_.load(std::memory_order_acquire);
  Status s;
  bool more = true;
  for (std::uint32_t i = 0; i < now.count && more; ++i) {
    const Level& level = *now.levels[i];
    for (std::uint64_t b = 0; b < level.count && more; ++b) {
      more = deliver_bucket(now, i, level.buckets[b], visit, s);
    }
  }
  if (s.ok() && damaged_.load(std::memory_order_acquire)) s = known_damage();
  if (!s.ok()) return fail(std::move(s));
  return {};
}

}  // namespace perdure::clevel
