// PSkipList: lookups and scans, of the latest state and of closed versions. Included by pskiplist.h
// only.
#pragma once

#include <algorithm>

#include "index/pskiplist/pskiplist.h"

namespace perdure::pskiplist {

// False if the word names no record whose lengths fit its block.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool PSkipList<P, Codec, G>::value_of(
    std::uint64_t word, detail::Value& value) const noexcept {
  if (!record_values_) {
    value = {.word = word, .word_size = 8};
    return true;
  }
  return word % 16 == 0 && records_.read(word, value);
}

// The key's node, or 0, for who goes on to its slot: both misses side by side, where the guess is
// right.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline std::uint32_t PSkipList<P, Codec, G>::find_with_slot(
    const Probe& probe) const noexcept {
  return directory_.find(
      probe, [&](std::uint32_t node) { __builtin_prefetch(&slot_at(nodes_.likely_slot(node))); });
}

// The node's state, once no write of a version up to this one is on its way there but one that is
// stored (pskiplist.I3).
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline State PSkipList<P, Codec, G>::settle_state(
    Node& node, std::uint64_t version) const noexcept {
  for (unsigned spins = 0;; P::pause(spins++)) {
    State seen = node.load();
    if (seen.phase() == Phase::unstamped) {
      (void)node.change(seen, State::of(Phase::stamped, clock()));
      seen = node.load();
    }
    if (seen.phase() == Phase::unstamped) continue;
    if (seen.phase() != Phase::stamped || seen.number() > version) return seen;
  }
}

// LP: the second look at the state.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline End PSkipList<P, Codec, G>::latest(Node& node) const noexcept {
  for (;;) {
    const State state = settle_state(node, kLatest);
    if (state.phase() == Phase::dead) return {};
    const End end = node.end();
    if (state.phase() == Phase::stored) help(end.entry);
    if (node.load() == state) return end;
  }
}

// Makes an entry durable whose writer is about to.
template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::help(std::uint64_t entry) const noexcept {
  context_.platform.flush(&entry_at(entry), sizeof(Entry), "pskiplist.find.help"_site);
  (void)context_.platform.fence("pskiplist.find.help"_site);
}

// The entry that counts at a closed version. What comes meanwhile is of later versions, and stands
// behind: so a node that is being written says where the history begins, and it is searched.
template <Platform P, class Codec, class G>
typename PSkipList<P, Codec, G>::Found PSkipList<P, Codec, G>::as_of(
    Node& node, std::uint64_t version) const noexcept {
  const State state = settle_state(node, version);
  if (state.phase() == Phase::dead) return {};
  const std::uint64_t slot = node.slot.load(std::memory_order_acquire);
  const End end = node.end();
  if (state.phase() == Phase::idle && node.load() == state) {  // pskiplist.N2
    if (end.version() <= version) return found_in(end);
    return end.entries != 1 ? search(slot, version, end.entries - 1) : Found{};
  }
  if (state.phase() == Phase::stored) help(end.entry);
  return slot != 0 ? search(slot, version, ~0U) : Found{};
}

// Among at most `most` entries, as far as is known, and those that have come since. `more` is
// loaded before the first entry (W15): trims that drop the first and then removed entries leave a
// reader that came between them the removed ones.
template <Platform P, class Codec, class G>
typename PSkipList<P, Codec, G>::Found PSkipList<P, Codec, G>::search(
    std::uint64_t offset, std::uint64_t version, std::uint32_t most) const noexcept {
  const P& platform = context_.platform;
  const auto counts = [&](std::uint64_t stamp) {
    return stamp != 0 && version_of(stamp) <= version;
  };
  const auto found = [&](std::uint64_t entry, std::uint64_t stamp) -> Found {
    if (entry == 0) return {};
    return {entry, platform.load(entry_at(entry).value), (stamp & layout::kRemoved) == 0};
  };
  const Slot& slot = slot_at(offset);
  Steps steps;
  std::uint64_t next = linked(slot.more, steps);
  std::uint64_t stamp = platform.load(slot.first.stamp);
  if (!counts(stamp)) return {};
  std::uint64_t entry = stamp == layout::kDropped ? 0 : offset + offsetof(Slot, first);
  if (most == 1 && entry != 0) return found(entry, stamp);
  // The segment in which the version lies begins with an entry that counts, and the next does not.
  std::uint64_t segment = 0;
  while (next != 0 && counts(platform.load(entry_at(entry_offset(next, 0)).stamp))) {
    segment = next;
    next = linked(segment_at(segment).next, steps);
  }
  if (segment == 0) return found(entry, stamp);
  std::uint32_t low = 0;
  std::uint32_t high = capacity_of(segment);
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    if (counts(platform.load(entry_at(entry_offset(segment, middle)).stamp))) {
      low = middle;
    } else {
      high = middle;
    }
  }
  entry = entry_offset(segment, low);
  stamp = platform.load(entry_at(entry).stamp);
  return found(entry, stamp);
}

// Where a history goes on. Who looks at a pool in use may be led by what its owner has stored since
// anywhere, and in circles, and so may a check of what is damaged: then the history ends.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline std::uint64_t PSkipList<P, Codec, G>::linked(
    const std::uint64_t& link, Steps& steps) const noexcept {
  const std::uint64_t segment = context_.platform.load(link);
  if (!context_.read_only && !steps.wary) [[likely]]
    return segment;
  return segment != 0 && steps.left-- != 0 && is_segment(segment) ? segment : 0;
}

// Calls visit(offset, stamp) for every entry of the history that counts, until it answers false.
// The order of the first two loads: search().
template <Platform P, class Codec, class G>
template <class F>
void PSkipList<P, Codec, G>::for_each_entry(const Slot& slot, F&& visit,
                                            Steps steps) const noexcept {
  const P& platform = context_.platform;
  const auto offset_of = [&](const void* p) {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(p) -
                                      context_.heap.template at<std::byte>(0));
  };
  std::uint64_t s = linked(slot.more, steps);
  const std::uint64_t first = platform.load(slot.first.stamp);
  if (first == 0) return;
  if (first != layout::kDropped && !visit(offset_of(&slot.first), first)) return;
  for (; s != 0; s = linked(segment_at(s).next, steps)) {
    const std::uint32_t capacity = capacity_of(s);
    for (std::uint32_t i = 0; i < capacity; ++i) {
      const std::uint64_t entry = entry_offset(s, i);
      const std::uint64_t stamp = platform.load(entry_at(entry).stamp);
      if (stamp == 0 || !visit(entry, stamp)) return;
    }
  }
}

// At a version, the horizon is looked at last (pskiplist.I6): what was trimmed may have been
// reused.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline Expected<bool> PSkipList<P, Codec, G>::show(
    const Found& found, std::uint64_t version,
    FunctionRef<void(const detail::Value&)> visit) noexcept {
  detail::Value value;
  const bool readable = !found.present || value_of(found.word, value);
  if (version != kLatest) {
    if (Status s = this->readable(version); !s.ok()) return fail(std::move(s));
  }
  // What was read may have come from pages that were lost meanwhile.
  if (context_.platform.poisoned()) [[unlikely]]
    return fail(context_.platform.failure());
  if (!found.present) return false;
  if (!readable) return fail(Records<P>::damaged(found.word));
  visit(value);
  if (context_.platform.poisoned()) [[unlikely]]
    return fail(context_.platform.failure());
  return true;
}

template <Platform P, class Codec, class G>
Expected<bool> PSkipList<P, Codec, G>::read(const detail::Key& key,
                                            FunctionRef<void(const detail::Value&)> visit) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  const std::uint32_t number = directory_.find(Codec::probe(key));
  if (number == 0) return absent();
  return show(found_in(latest(nodes_[number])), kLatest, visit);
}

// In steps, a cache miss each; the misses of a group overlap.
template <Platform P, class Codec, class G>
Expected<std::uint64_t> PSkipList<P, Codec, G>::read_many(
    std::span<const detail::Key> keys, FunctionRef<void(std::size_t, const detail::Value&)> visit) {
  constexpr std::size_t kGroup = 16;
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  std::uint64_t present = 0;
  Probe probes[kGroup];
  std::uint32_t numbers[kGroup];
  for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
    const std::size_t n = std::min(kGroup, keys.size() - begin);
    for (std::size_t i = 0; i < n; ++i) {
      probes[i] = Codec::probe(keys[begin + i]);
      directory_.prefetch_hint(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      numbers[i] = directory_.prefetch_node(probes[i]);
      if (numbers[i] == 0) directory_.prefetch_shortcut(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) directory_.prefetch_key(numbers[i]);
    for (std::size_t i = 0; i < n; ++i) {
      numbers[i] = directory_.find_hinted(probes[i]);
      if (numbers[i] == 0) directory_.prefetch_leaf(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (numbers[i] != 0) continue;
      numbers[i] = directory_.find_listed(probes[i]);
      __builtin_prefetch(&nodes_[numbers[i]]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (numbers[i] == 0) continue;
      auto found = show(found_in(latest(nodes_[numbers[i]])), kLatest,
                        [&](const detail::Value& value) { visit(begin + i, value); });
      if (!found) return fail(std::move(found.error()));
      present += *found ? 1 : 0;
    }
  }
  if (context_.platform.poisoned()) return fail(context_.platform.failure());
  return present;
}

template <Platform P, class Codec, class G>
detail::Key PSkipList<P, Codec, G>::key_of(std::uint64_t word, std::uint32_t node) const noexcept {
  if constexpr (Codec::kBytes) return {.word = word, .bytes = directory_.key_of(node)};
  return {.word = word};
}

template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::within(const typename DirectoryT::Batch& batch, const Limits& limits,
                                    bool reverse, Listing& out) const noexcept {
  const auto before = [&](std::uint32_t i, const Probe& probe) {  // key < probe
    if (!Codec::kBytes || batch.words[i] != probe.word) return batch.words[i] < probe.word;
    return ordered::compare(probe, directory_.key_of(batch.nodes[i])) > 0;
  };
  out.count = 0;
  for (std::uint32_t n = 0; n < batch.count; ++n) {
    const std::uint32_t i = reverse ? batch.count - 1 - n : n;
    if (limits.has_from && before(i, limits.from)) continue;
    if (limits.has_to && !before(i, limits.to)) continue;
    out.words[out.count] = batch.words[i];
    out.nodes[out.count++] = batch.nodes[i];
  }
}

// Calls visit(listing) for leaf after leaf, in one guard, until it answers false. A key that is
// there throughout is listed once.
template <Platform P, class Codec, class G>
template <class F>
Expected<void> PSkipList<P, Codec, G>::for_each_leaf(const detail::ScanRange& range,
                                                     F&& visit) noexcept {
  Limits limits(range);
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  Probe position = limits.start(range.reverse);
  typename DirectoryT::Batch batch;
  Listing listing;
  for (bool end = false;;) {
    directory_.collect(position, batch);
    within(batch, limits, range.reverse, listing);
    if (listing.count != 0 && !visit(listing)) break;
    position = ordered::behind<Codec>(batch, range.reverse, end);
    if (end) break;
    limits.pass(position, batch.low, range.reverse);
    if (limits.end_before(position, range.reverse)) break;
  }
  // Keys in pages that were lost meanwhile are not the ones that they were.
  if (context_.platform.poisoned()) [[unlikely]]
    return fail(context_.platform.failure());
  return {};
}

// The misses of a leaf's keys side by side: of their nodes, and of histories that are read from
// their beginning at that version.
template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::prefetch(const Listing& listing, std::uint64_t limit,
                                      std::uint64_t version) const noexcept {
  const std::uint64_t n = std::min<std::uint64_t>(listing.count, limit);
  for (std::uint64_t i = 0; i < n; ++i) __builtin_prefetch(&nodes_[listing.nodes[i]]);
  for (std::uint64_t i = 0; version != kLatest && i < n; ++i) {
    const Node& node = nodes_[listing.nodes[i]];
    const End end = node.end();
    if (end.version() <= version || end.entries == 1) continue;
    __builtin_prefetch(&slot_at(node.slot.load(std::memory_order_relaxed)));
  }
}

template <Platform P, class Codec, class G>
Expected<void> PSkipList<P, Codec, G>::scan_versions(
    const detail::ScanRange& range, std::uint64_t version,
    FunctionRef<bool(std::span<const detail::Entry>)> visit) noexcept {
  Status failure;
  std::uint64_t left = range.limit;
  bool to_the_end = true;
  if (left == 0) return {};
  auto done = for_each_leaf(range, [&](const Listing& listing) {
    to_the_end = false;
    detail::Entry entries[G::kLeafKeys];
    std::uint32_t count = 0;
    std::uint64_t damaged = 0;
    prefetch(listing, left, version);
    for (std::uint32_t i = 0; i < listing.count && count < left; ++i) {
      Node& node = nodes_[listing.nodes[i]];
      const Found found = version == kLatest ? found_in(latest(node)) : as_of(node, version);
      if (!found.present) continue;
      detail::Entry& entry = entries[count];
      if (!value_of(found.word, entry.value)) {
        damaged = found.word;
        continue;
      }
      entry.key = key_of(listing.words[i], listing.nodes[i]);
      ++count;
    }
    if (version != kLatest) failure = readable(version);
    if (failure.ok() && context_.platform.poisoned()) failure = context_.platform.failure();
    if (failure.ok() && damaged != 0) failure = Records<P>::damaged(damaged);
    if (!failure.ok()) return false;
    left -= count;
    const bool more = count == 0 || visit(std::span<const detail::Entry>(entries, count));
    if (context_.platform.poisoned()) failure = context_.platform.failure();
    return to_the_end = more && left > 0 && failure.ok();
  });
  if (!done) return done;
  // A trim may have taken the last keys away, and their leaves were not listed.
  if (version != kLatest && to_the_end) failure = readable(version);
  if (!failure.ok()) return fail(std::move(failure));
  return {};
}

}  // namespace perdure::pskiplist
