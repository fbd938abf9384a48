// Phast: lookups. Included by phast.h only.
#pragma once

#include "index/phast/phast.h"

namespace perdure::phast {

// The leaf whose range holds the key, starting from a hint. ordered.N1: the descriptor decides.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline typename Phast<P, Codec, G>::Entered Phast<P, Codec, G>::enter(
    const Probe& probe, std::uint32_t number) const noexcept {
  for (unsigned misses = 0;;) {
    const Desc& desc = table_[number];
    const std::uint64_t version = desc.version.load(std::memory_order_acquire);
    __builtin_prefetch(&desc.search);
    if ((version & 1) != 0 || desc.below(probe)) [[unlikely]] {
      // Unlinked, or landed right of the key (ordered.N3). The partition's first leaf is always
      // left of it.
      number = ++misses < 4 ? inner_.search(probe)
                            : inner_.first_leaf(inner_.partitioning().of(probe.word));
      if (misses > 4) P::pause(misses);
      continue;
    }
    if (!desc.above(probe)) [[likely]]
      return {number, version};
    const std::uint32_t next = desc.next.load(std::memory_order_acquire);
    number = next != kNoLeaf ? next : inner_.search(probe);
  }
}

// Whether the entry's key is the probe's; `value` is its second word, loaded after the first for
// integers, before the record for byte strings.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool Phast<P, Codec, G>::key_matches(
    const Entry& entry, const Probe& probe, std::uint64_t& value) const noexcept {
  if constexpr (Codec::kBytes) {
    value = context_.platform.load(entry.value);  // commit word
    if (value == 0 || context_.platform.load(entry.key) != probe.word) return false;
    // Where the value lies is known only when the record has come: ask for both at once.
    __builtin_prefetch(reinterpret_cast<const char*>(record_at(value)) + sizeof(RecordPrefix) +
                       probe.bytes.size());
    const auto record = RecordView::read(context_.platform, record_at(value));
    // A damaged length must not lead beyond the file; whether it fits the block is for value_of().
    return record.key_size() == probe.bytes.size() &&
           context_.heap.contains(value & kOffsetMask, sizeof(RecordPrefix) + record.key_size()) &&
           record.key() == probe.bytes;
  } else {
    if (context_.platform.load(entry.key) != probe.word) return false;
    value = context_.platform.load(entry.value);
    return true;
  }
}

template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline std::uint32_t Phast<P, Codec, G>::find_slot(
    const Desc& desc, const Probe& probe, std::uint64_t& value) const noexcept {
  const Leaf& leaf = leaf_of(desc);
  for (std::uint64_t m = desc.matches(probe.fingerprint); m != 0; m &= m - 1) {
    const auto slot = static_cast<std::uint32_t>(__builtin_ctzll(m));
    if (key_matches(leaf.entries[slot], probe, value)) return slot;
  }
  return kNoSlot;
}

// Makes durable what was seen of slots in flight: the entries' lines, and the records' value words
// (X3).
template <Platform P, class Codec, class G>
bool Phast<P, Codec, G>::help(const Desc& desc, std::uint64_t slots) noexcept {
  P& platform = context_.platform;
  if (!platform.durable()) return true;
  const Leaf& leaf = leaf_of(desc);
  const void* last_line = nullptr;
  for (; slots != 0; slots &= slots - 1) {
    const Entry& entry = leaf.entries[__builtin_ctzll(slots)];
    const void* line =
        reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(&entry) & ~(kLine - 1));
    if (line != last_line) platform.flush(line, kLine, "phast.help.entry"_site);
    last_line = line;
    if constexpr (Codec::kBytes) {
      const std::uint64_t word = platform.load(entry.value);
      if (word != 0) {
        platform.flush(record_at(word), sizeof(RecordPrefix), "phast.help.record"_site);
      }
    }
  }
  return platform.fence("phast.help.entry"_site);
}

// False if the word names no record whose lengths fit its block.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool Phast<P, Codec, G>::value_of(
    std::uint64_t word, detail::Value& value) const noexcept {
  if (!records()) {
    value = {.word = word, .word_size = 8};
    return true;
  }
  return records_.read(word & kOffsetMask, value);
}

// LP(find): the load of the entry's words, or of the fingerprints if none matched. The caller is
// pinned.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline Expected<bool> Phast<P, Codec, G>::read_from(
    const Probe& probe, std::uint32_t start,
    FunctionRef<void(const detail::Value&)> visit) noexcept {
  for (;;) {
    const Entered entered = enter(probe, start);
    const Desc& desc = table_[entered.number];
    start = entered.number;
    desc.let_go(stripe_of(probe));
    const std::uint64_t candidates = desc.matches(probe.fingerprint);
    const Leaf& leaf = leaf_of(desc);
    bool found = false;
    std::uint64_t word = 0;
    std::uint64_t left = candidates;
    for (; left != 0 && !found; left &= left - 1) {
      found = key_matches(leaf.entries[__builtin_ctzll(left)], probe, word);
    }
    detail::Value value;
    // A record stays readable: its retirement waits for this guard.
    const bool readable = !found || value_of(word, value);
    // phast.I4: loaded after the value. All candidates are of the key's stripe.
    if (desc.holder(stripe_of(probe)) != 0 && candidates != 0) [[unlikely]] {
      if (!help(desc, candidates)) return fail(StatusCode::poisoned);
      // Erased meanwhile, the slot taken again, and what was read there not shown yet.
      if (found && (candidates & ~left & ~desc.matches(probe.fingerprint)) != 0) continue;
    }
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    if (desc.version.load(std::memory_order_acquire) != entered.version) continue;
    if (!readable) return fail(damaged_record(word));
    if (!found) return false;
    visit(value);
    // What was shown may have come from pages that were lost meanwhile.
    if (context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    return true;
  }
}

template <Platform P, class Codec, class G>
Expected<bool> Phast<P, Codec, G>::read(const detail::Key& key,
                                        FunctionRef<void(const detail::Value&)> visit) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  const Probe probe = Codec::probe(key);
  if constexpr (!Codec::kBytes) {
    if (probe.word == 0) return read_zero(visit);
  }
  const std::uint32_t number = inner_.locate(probe);
  prefetch_home(number, probe);
  return read_from(probe, number, visit);
}

// In steps, a cache miss each; the misses of a group overlap.
template <Platform P, class Codec, class G>
Expected<std::uint64_t> Phast<P, Codec, G>::read_many(
    std::span<const detail::Key> keys, FunctionRef<void(std::size_t, const detail::Value&)> visit) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  std::uint64_t present = 0;
  Probe probes[kGroup];
  typename Inner::Step steps[kGroup];
  std::uint32_t leaves[kGroup];
  for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
    const std::size_t n = std::min<std::size_t>(kGroup, keys.size() - begin);
    for (std::size_t i = 0; i < n; ++i) {
      probes[i] = Codec::probe(keys[begin + i]);
      inner_.prefetch_shortcut(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      leaves[i] = inner_.shortcut_to(probes[i]);
      if (leaves[i] == kNoLeaf) steps[i] = inner_.locate_node(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (leaves[i] == kNoLeaf) inner_.locate_group(probes[i], steps[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (leaves[i] == kNoLeaf) leaves[i] = inner_.locate_leaf(probes[i], steps[i]);
      __builtin_prefetch(&table_[leaves[i]]);
      __builtin_prefetch(&table_[leaves[i]].search);
      prefetch_home(leaves[i], probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const Desc& desc = table_[leaves[i]];
      const std::uint64_t m = desc.matches(probes[i].fingerprint);
      if (m != 0) __builtin_prefetch(&leaf_of(desc).entries[__builtin_ctzll(m)]);
    }
    if (records()) {
      for (std::size_t i = 0; i < n; ++i) {
        const Desc& desc = table_[leaves[i]];
        const std::uint64_t m = desc.matches(probes[i].fingerprint);
        if (m == 0) continue;
        const Entry& entry = leaf_of(desc).entries[__builtin_ctzll(m)];
        const std::uint64_t word = context_.platform.load(entry.value);
        __builtin_prefetch(record_at(word));
        __builtin_prefetch(reinterpret_cast<const char*>(record_at(word)) + kLine);
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      const auto deliver = [&](const detail::Value& value) { visit(begin + i, value); };
      Expected<bool> found = !Codec::kBytes && probes[i].word == 0
                                 ? read_zero(deliver)
                                 : read_from(probes[i], leaves[i], deliver);
      if (!found) return fail(std::move(found.error()));
      present += *found ? 1 : 0;
    }
  }
  return present;
}

// The integer key 0 lives in the root; a latch held across the fence orders everything about it.
template <Platform P, class Codec, class G>
Expected<bool> Phast<P, Codec, G>::read_zero(
    FunctionRef<void(const detail::Value&)> visit) noexcept {
  std::uint64_t word = 0;
  {
    LatchGuard latch(zero_latch_);
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    if (context_.platform.load(root_->zero_present) == 0) return absent();
    word = context_.platform.load(root_->zero_value);
  }
  detail::Value value;
  if (!value_of(word, value)) return fail(damaged_record(word));
  visit(value);
  if (context_.platform.poisoned()) return fail(context_.platform.failure());
  return true;
}

}  // namespace perdure::phast
