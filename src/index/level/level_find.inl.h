// Level: lookups and scans. Included by level.h only.
#pragma once

#include <algorithm>

#include "index/level/level.h"

namespace perdure::level {

template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool Level<P, Codec, G>::key_matches(
    const Line& line, std::uint32_t slot, const Probe& probe) const noexcept {
  if (!Form::holds(context_.platform, line, slot, probe.word, probe.second)) return false;
  if constexpr (Codec::kBytes) {
    const std::uint64_t offset = Form::load(context_.platform, line, slot).value[0];
    if (!context_.heap.contains(offset, sizeof(RecordPrefix))) return false;
    const auto record = RecordView::read(context_.platform, record_at(offset));
    // A damaged length must not lead beyond the file; whether it fits the block is for value_of().
    return record.key_size() == probe.bytes.size() &&
           context_.heap.contains(offset, sizeof(RecordPrefix) + record.key_size()) &&
           record.key() == probe.bytes;
  }
  return true;
}

// The slot of the bucket that holds the key, of those that `prints` shows; kSlots if none does.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline std::uint32_t Level<P, Codec, G>::find_in(
    const TierT& tier, std::uint64_t bucket, std::uint64_t prints,
    const Probe& probe) const noexcept {
  for (std::uint64_t m = MetaT::match(prints, probe.print); m != 0; m &= m - 1) {
    const auto slot = static_cast<std::uint32_t>(__builtin_ctzll(m)) / 8;
    if (slot < kSlots && key_matches(tier.line(bucket, slot), slot % Form::kSlots, probe)) {
      return slot;
    }
  }
  return kSlots;
}

// The value may look into the item. False if that names no record whose lengths fit its block.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool Level<P, Codec, G>::value_of(
    const Item& item, detail::Value& value) const noexcept {
  if (records()) return records_.read(item.value[0], value);
  if (value_bytes_ != 0) {
    value = {.bytes = {reinterpret_cast<const char*>(item.value), value_bytes_}};
  } else {
    value = {.word = item.value[0], .word_size = 8};
  }
  return true;
}

// May look into the item. Of a record that value_of() has read.
template <Platform P, class Codec, class G>
detail::Key Level<P, Codec, G>::key_of(const Item& item) const noexcept {
  if constexpr (Codec::kBytes) {
    return {.bytes = RecordView::read(context_.platform, record_at(item.value[0])).key()};
  } else if (key_bytes_ != 0) {
    return {.bytes = {reinterpret_cast<const char*>(item.key), key_bytes_}};
  }
  return {.word = item.key[0]};
}

// Arrays have the map's lengths; who knows them at run time only may be wrong.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline Status Level<P, Codec, G>::takes(
    const detail::Key& key) const noexcept {
  if (Form::kArrays && key.bytes.size() != key_bytes_) return StatusCode::invalid_argument;
  return validate(key);
}
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline Status Level<P, Codec, G>::takes(
    const detail::Key& key, const detail::Value& value) const noexcept {
  if constexpr (Form::kArrays) {
    const bool fits = value.word_size == 0 ? value_bytes_ != 0 && value.bytes.size() == value_bytes_
                                           : value_bytes_ == 0;
    return fits ? takes(key) : Status(StatusCode::invalid_argument);
  } else {
    return validate(key, value, true, records());
  }
}

template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline void Level<P, Codec, G>::prefetch(const ViewT& view,
                                                                const Probe& probe) const noexcept {
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    const TierT& tier = *view.tiers[i];
    __builtin_prefetch(&tier.metas[tier.index(probe.hashes[0])]);
    __builtin_prefetch(&tier.metas[tier.index(probe.hashes[1])]);
  }
}

// The same, and the home lines: one round of misses, if the key lies at home. For who will lock all
// buckets their words are fetched for writing: another core may have them.
template <Platform P, class Codec, class G>
template <bool kLocks>
[[gnu::always_inline]] inline void Level<P, Codec, G>::prefetch_all(
    const ViewT& view, const Probe& probe) const noexcept {
  const std::uint32_t home = TierT::home(probe.print);
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    const TierT& tier = *view.tiers[i];
    for (const std::uint64_t hash : probe.hashes) {
      const std::uint64_t bucket = tier.index(hash);
      __builtin_prefetch(&tier.metas[bucket], kLocks);
      __builtin_prefetch(&tier.line(bucket, home));
    }
  }
}

// The lines that the fingerprints show.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline void Level<P, Codec, G>::prefetch_items(
    const ViewT& view, const Probe& probe) const noexcept {
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    const TierT& tier = *view.tiers[i];
    for (const std::uint64_t hash : probe.hashes) {
      const std::uint64_t bucket = tier.index(hash);
      const std::uint64_t prints = tier.metas[bucket].prints.load(std::memory_order_relaxed);
      const std::uint64_t m = MetaT::match(prints, probe.print);
      if (m == 0) continue;
      const auto slot = static_cast<std::uint32_t>(__builtin_ctzll(m)) / 8;
      if (slot < kSlots) __builtin_prefetch(&tier.line(bucket, slot));
    }
  }
}

// One look at all candidates. Where the key was seen, `found` says what to answer: it is there if
// the bucket still has that version. `again`: something has changed meanwhile, or is being changed.
template <Platform P, class Codec, class G>
template <class Found>
[[gnu::always_inline]] inline typename Level<P, Codec, G>::Looked Level<P, Codec, G>::seek(
    const ViewT& view, const Probe& probe, Found&& found) const noexcept {
  struct Seen {
    const MetaT* meta;
    std::uint64_t version;
  };
  Seen seen[2 * kMaxLevels];
  std::uint32_t count = 0;
  const bool upwards = view.upwards.load(std::memory_order_relaxed);
  for (std::uint32_t n = 0; n < view.levels; ++n) {
    TierT& tier = *view.tiers[upwards ? view.levels - 1 - n : n];
    std::uint64_t last = ~std::uint64_t{0};
    for (const std::uint64_t hash : probe.hashes) {
      const std::uint64_t bucket = tier.index(hash);
      if (bucket == last) continue;
      last = bucket;
      const MetaT& meta = tier.metas[bucket];
      const std::uint64_t version = meta.version.load(std::memory_order_seq_cst);
      if ((version & 1) != 0) return Looked::again;
      const std::uint64_t prints = meta.prints.load(std::memory_order_acquire);
      const std::uint32_t slot = find_in(tier, bucket, prints, probe);
      if (slot != kSlots) return found(tier, meta, bucket, slot, version);
      seen[count++] = {&meta, version};
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (seen[i].meta->version.load(std::memory_order_acquire) != seen[i].version) {
      return Looked::again;
    }
  }
  return current() == &view ? Looked::absent : Looked::again;
}

// The same, with the item. The value may look into it.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline typename Level<P, Codec, G>::Looked Level<P, Codec, G>::look(
    const ViewT& view, const Probe& probe, Item& item, detail::Value& value,
    bool& readable) const noexcept {
  return seek(view, probe,
              [&] [[gnu::always_inline]] (TierT & tier, const MetaT& meta, std::uint64_t bucket,
                                          std::uint32_t slot, std::uint64_t version) {
                item = Form::load(context_.platform, tier.line(bucket, slot), slot % Form::kSlots);
                readable = value_of(item, value);
                // The loads before were acquire: this one comes after them.
                const bool same = meta.version.load(std::memory_order_acquire) == version;
                return same ? Looked::found : Looked::again;
              });
}

// LP(find): between the first and the second look at the versions; nothing was stored there in
// between. The caller is pinned.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline Expected<bool> Level<P, Codec, G>::read_probe(
    const Probe& probe, FunctionRef<void(const detail::Value&)> visit) noexcept {
  Item item;
  detail::Value value;
  bool readable = true;
  Looked looked = Looked::again;
  for (unsigned tries = 0; looked == Looked::again; ++tries) {
    if (tries != 0) P::pause(tries);
    if (tries < kRetries) {
      looked = look(*current(), probe, item, value, readable);
      continue;
    }
    Locks locks;
    const ViewT& view = *lock_key(probe, locks);
    const Place place = find_locked(view, probe);
    looked = place.found() ? Looked::found : Looked::absent;
    if (!place.found()) break;
    item = load(place);
    readable = value_of(item, value);
  }
  // What was read may have come from pages that were lost meanwhile.
  if (context_.platform.poisoned()) [[unlikely]]
    return fail(context_.platform.failure());
  if (looked == Looked::absent) return false;
  if (!readable) return fail(damaged_record(item.value[0]));
  visit(value);
  if (context_.platform.poisoned()) [[unlikely]]
    return fail(context_.platform.failure());
  return true;
}

template <Platform P, class Codec, class G>
Expected<bool> Level<P, Codec, G>::read(const detail::Key& key,
                                        FunctionRef<void(const detail::Value&)> visit) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  if (Form::kArrays && !takes(key).ok()) return fail(takes(key));
  const Probe probe = Codec::probe(key, seeds_);
  prefetch_all<false>(*current(), probe);
  return read_probe(probe, visit);
}

// In steps, a cache miss each; the misses of a group overlap.
template <Platform P, class Codec, class G>
Expected<std::uint64_t> Level<P, Codec, G>::read_many(
    std::span<const detail::Key> keys, FunctionRef<void(std::size_t, const detail::Value&)> visit) {
  constexpr std::size_t kGroup = 16;
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  std::uint64_t present = 0;
  Probe probes[kGroup];
  for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
    const std::size_t n = std::min(kGroup, keys.size() - begin);
    const ViewT& view = *current();
    for (std::size_t i = 0; i < n; ++i) {
      if (Form::kArrays && !takes(keys[begin + i]).ok()) return fail(takes(keys[begin + i]));
      probes[i] = Codec::probe(keys[begin + i], seeds_);
      prefetch(view, probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) prefetch_items(view, probes[i]);
    for (std::size_t i = 0; i < n; ++i) {
      auto found =
          read_probe(probes[i], [&](const detail::Value& value) { visit(begin + i, value); });
      if (!found) return fail(std::move(found.error()));
      present += *found ? 1 : 0;
    }
  }
  return present;
}

// While scans_ is not 0 nothing moves and no level leaves: what is there throughout stays in its
// bucket, and is delivered once.
template <Platform P, class Codec, class G>
Expected<void> Level<P, Codec, G>::for_each(
    FunctionRef<bool(std::span<const detail::Entry>)> visit) {
  Expected<void> result{};
  TierT* tiers[kMaxLevels];
  std::uint32_t levels = 0;
  {
    EpochGuard<P> guard(context_.epochs);
    LatchGuard latch(resize_latch_);  // a level that is just leaving is not among them
    scans_.fetch_add(1, std::memory_order_seq_cst);
    const ViewT& view = *current();
    levels = view.levels;
    std::copy(view.tiers, view.tiers + levels, tiers);
    if (!guard.ok()) result = fail(StatusCode::out_of_memory);
  }
  bool more = result.has_value();
  for (std::uint32_t i = 0; i < levels && more; ++i) {
    TierT& tier = *tiers[i];
    for (std::uint64_t bucket = 0; bucket < tier.buckets() && more; ++bucket) {
      const MetaT& meta = tier.metas[bucket];
      // In this order: a mover that has locked it before the scan began is done, or seen.
      if ((meta.version.load(std::memory_order_seq_cst) & 1) == 0 &&
          meta.prints.load(std::memory_order_acquire) == 0) {
        continue;
      }
      EpochGuard<P> guard(context_.epochs);
      Item items[kSlots];
      detail::Entry entries[kSlots];
      auto count = snapshot(tier, bucket, items, entries);
      if (!count) {
        result = fail(std::move(count.error()));
        more = false;
      } else if (*count > 0) {
        more = visit({entries, *count});
      }
    }
  }
  if (result && context_.platform.poisoned()) result = fail(context_.platform.failure());
  if (scans_.fetch_sub(1, std::memory_order_seq_cst) == 1) context_.background.wake(work_);
  return result;
}

// What a bucket held at one moment; the entries look into `items`. The caller is pinned.
template <Platform P, class Codec, class G>
Expected<std::uint32_t> Level<P, Codec, G>::snapshot(const TierT& tier, std::uint64_t bucket,
                                                     Item* items,
                                                     detail::Entry* entries) const noexcept {
  const P& platform = context_.platform;
  const MetaT& meta = tier.metas[bucket];
  for (unsigned spins = 0;; P::pause(spins++)) {
    const std::uint64_t version = meta.version.load(std::memory_order_seq_cst);
    if ((version & 1) != 0) continue;
    const std::uint64_t prints = meta.prints.load(std::memory_order_acquire);
    std::uint32_t count = 0;
    std::uint64_t damaged = 0;
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      if ((prints >> 8 * slot & 0xFF) == 0) continue;
      Item& item = items[count];
      item = Form::load(platform, tier.line(bucket, slot), slot % Form::kSlots);
      detail::Entry& entry = entries[count];
      if (!value_of(item, entry.value)) {
        damaged = item.value[0];
        continue;
      }
      entry.key = key_of(item);
      ++count;
    }
    if (meta.version.load(std::memory_order_acquire) != version) continue;
    if (damaged != 0) return fail(damaged_record(damaged));
    return count;
  }
}

}  // namespace perdure::level
