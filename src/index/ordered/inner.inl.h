// InnerIndex: lookups and changes. Included by inner.h only.
#pragma once

#include <algorithm>

#include "index/ordered/inner.h"

namespace perdure::ordered {

template <Platform P, class Leaves, std::uint32_t Fanout>
InnerIndex<P, Leaves, Fanout>::~InnerIndex() {
  closing_ = true;
  if (partitions_.data() == nullptr) return;
  for (std::uint32_t p = 0; p < partitioning_.count(); ++p) {
    Shortcut<P>::free(partitions_[p].shortcut.load(std::memory_order_acquire));
    free_cache(partitions_[p].cache.load(std::memory_order_acquire));
    for (std::uint32_t n = partitions_[p].head; kBytes && n != 0;
         n = nodes_[n].next.load(std::memory_order_relaxed)) {
      drop_separator(nodes_[n].max_separator.load(std::memory_order_relaxed));
    }
  }
}

template <Platform P, class Leaves, std::uint32_t Fanout>
Status InnerIndex<P, Leaves, Fanout>::reserve(const Partitioning& partitioning,
                                              std::size_t max_leaves) noexcept {
  partitioning_ = partitioning;
  // Nodes are at least half full when split; empties wait for a cache, hence the slack.
  const std::size_t nodes = max_leaves / (kFanout / 4) + 4 * std::size_t{partitioning.count()} + 64;
  if (Status s = nodes_.reserve(std::min<std::size_t>(nodes, 0xFFFFFFF0)); !s.ok()) return s;
  return partitions_.reserve(partitioning.count());
}

// The first position of the node whose key is at or behind the probe; kFanout if there is none.
template <Platform P, class Leaves, std::uint32_t Fanout>
[[gnu::always_inline]] inline std::uint32_t InnerIndex<P, Leaves, Fanout>::position_of(
    const Node& node, const Probe& probe, std::uint32_t group) const noexcept {
  std::uint32_t position = group * kGroup;
#pragma GCC unroll 8
  for (std::uint32_t half = kGroup / 2; half != 0; half /= 2) {
    const std::uint64_t key = node.keys[position + half - 1].load(std::memory_order_acquire);
    position += key < probe.word ? half : 0;
  }
  position += node.keys[position].load(std::memory_order_acquire) < probe.word ? 1 : 0;
  if constexpr (kBytes) {
    // Equal words: the separators decide, by binary search over the run of equal words.
    const std::uint32_t count = node.count.load(std::memory_order_acquire);
    std::uint32_t end = position;
    while (end < count && node.keys[end].load(std::memory_order_acquire) == probe.word) ++end;
    while (position < end) {
      const std::uint32_t middle = (position + end) / 2;
      const Desc& desc = leaves_[node.leaves[middle].load(std::memory_order_acquire)];
      if (desc.above(probe)) {
        position = middle + 1;
      } else {
        end = middle;
      }
    }
  }
  return position;
}

template <Platform P, class Leaves, std::uint32_t Fanout>
[[gnu::always_inline]] inline std::uint32_t InnerIndex<P, Leaves, Fanout>::cache_start(
    const Part& part, const Probe& probe) const noexcept {
  const Cache* cache = part.cache.load(std::memory_order_acquire);
  const std::uint64_t* words = cache->words;
  std::uint32_t base = 0;
  for (std::uint32_t n = cache->count; n > 1;) {  // branch-free lower bound
    const std::uint32_t half = n / 2;
    base += words[base + half - 1] < probe.word ? half : 0;
    n -= half;
  }
  if constexpr (kBytes) {
    std::uint32_t end = base;
    while (end + 1 < cache->count && words[end] == probe.word) ++end;
    while (base < end) {
      const std::uint32_t middle = (base + end) / 2;
      const Separator<P>* s = cache->separators[middle];
      if (words[middle] == probe.word && s != nullptr && compare(probe, s->view()) > 0) {
        base = middle + 1;
      } else {
        end = middle;
      }
    }
  }
  return cache->nodes[base];
}

template <Platform P, class Leaves, std::uint32_t Fanout>
[[gnu::always_inline]] inline typename InnerIndex<P, Leaves, Fanout>::Step
InnerIndex<P, Leaves, Fanout>::locate_node(const Probe& probe) const noexcept {
  PERDURE_ASSERT(P, "ordered.N4", epochs_.pinned());
  const Node& node = nodes_[cache_start(part_of(probe), probe)];
  __builtin_prefetch(&node);
  __builtin_prefetch(&node.guide[0]);
  if constexpr (kGroups > 8) __builtin_prefetch(&node.guide[8]);
  return {&node, 0};
}

template <Platform P, class Leaves, std::uint32_t Fanout>
[[gnu::always_inline]] inline void InnerIndex<P, Leaves, Fanout>::locate_group(
    const Probe& probe, Step& step) const noexcept {
  const auto* node = static_cast<const Node*>(step.node);
  while (above(*node, probe)) {
    const std::uint32_t next = node->next.load(std::memory_order_acquire);
    PERDURE_ASSERT(P, "ordered.N4", next != 0);  // the last node reaches as far as the partition
    node = &nodes_[next];
  }
  step.node = node;
  step.group = group_of(*node, probe.word);
  __builtin_prefetch(&node->keys[step.group * kGroup]);
  __builtin_prefetch(&node->leaves[step.group * kGroup]);
}

template <Platform P, class Leaves, std::uint32_t Fanout>
[[gnu::always_inline]] inline std::uint32_t InnerIndex<P, Leaves, Fanout>::locate_leaf(
    const Probe& probe, const Step& step) const noexcept {
  const auto* node = static_cast<const Node*>(step.node);
  const std::uint32_t position = position_of(*node, probe, step.group);
  if (position < node->count.load(std::memory_order_acquire)) [[likely]] {
    return node->leaves[position].load(std::memory_order_acquire);
  }
  // The node lost its last leaves: the range belongs to the first leaf of the next node that has
  // one (ordered.N4).
  for (;;) {
    const std::uint32_t next = node->next.load(std::memory_order_acquire);
    if (next == 0) return part_of(probe).first;
    node = &nodes_[next];
    if (node->count.load(std::memory_order_acquire) != 0) {
      return node->leaves[0].load(std::memory_order_acquire);
    }
  }
}

template <Platform P, class Leaves, std::uint32_t Fanout>
std::uint32_t InnerIndex<P, Leaves, Fanout>::search(const Probe& probe) const noexcept {
  Step step = locate_node(probe);
  locate_group(probe, step);
  const std::uint32_t leaf = locate_leaf(probe, step);
  PERDURE_ASSERT(P, "ordered.N1", leaf != kNoLeaf);
  return leaf;
}

// --- changes; the partition's latch is held ---

template <Platform P, class Leaves, std::uint32_t Fanout>
std::uint32_t InnerIndex<P, Leaves, Fanout>::take_node() noexcept {
  LatchGuard guard(node_latch_);
  if (node_free_ != 0) {
    const std::uint32_t number = node_free_;
    node_free_ = nodes_[number].next.load(std::memory_order_relaxed);
    return number;
  }
  return node_high_ + 1 < nodes_.capacity() ? ++node_high_ : 0;
}

template <Platform P, class Leaves, std::uint32_t Fanout>
void InnerIndex<P, Leaves, Fanout>::free_node(std::uint32_t number) noexcept {
  if constexpr (kBytes) {
    drop_separator(nodes_[number].max_separator.load(std::memory_order_relaxed));
    nodes_[number].max_separator.store(nullptr, std::memory_order_relaxed);
  }
  LatchGuard guard(node_latch_);
  nodes_[number].next.store(node_free_, std::memory_order_relaxed);
  node_free_ = number;
}

template <Platform P, class Leaves, std::uint32_t Fanout>
void InnerIndex<P, Leaves, Fanout>::drop_separator(Separator<P>* separator) noexcept {
  if (separator == nullptr) return;
  if (separator->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (closing_) {
    std::free(static_cast<void*>(separator));
  } else {
    epochs_.retire(kSeparatorReclaimer, this, reinterpret_cast<std::uint64_t>(separator));
  }
}

template <Platform P, class Leaves, std::uint32_t Fanout>
void InnerIndex<P, Leaves, Fanout>::replace_max_separator(Node& node,
                                                          Separator<P>* fresh) noexcept {
  share(fresh);
  Separator<P>* before = node.max_separator.load(std::memory_order_relaxed);
  node.max_separator.store(fresh, std::memory_order_release);
  drop_separator(before);
}

// A reader that mixes a new separator with an old maximum goes left or tries again (ordered.N1).
template <Platform P, class Leaves, std::uint32_t Fanout>
void InnerIndex<P, Leaves, Fanout>::set_max(Node& node, const Desc& last) noexcept {
  if constexpr (kBytes) {
    replace_max_separator(node, last.separators.bound.load(std::memory_order_acquire));
  }
  node.max.store(last.bound.load(std::memory_order_relaxed), std::memory_order_release);
}

template <Platform P, class Leaves, std::uint32_t Fanout>
Status InnerIndex<P, Leaves, Fanout>::build(std::uint32_t partition, const std::uint32_t* leaves,
                                            std::size_t count) noexcept {
  Part& part = partitions_[partition];
  part.first = leaves[0];
  constexpr std::uint32_t kFill = kFanout * 3 / 4 > 0 ? kFanout * 3 / 4 : 1;
  std::uint32_t* link = &part.head;
  Node* previous = nullptr;
  for (std::size_t begin = 0; begin < count; begin += kFill) {
    const std::uint32_t number = take_node();
    if (number == 0) return StatusCode::out_of_memory;
    Node& node = nodes_[number];
    const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(kFill, count - begin));
    for (std::uint32_t i = 0; i < kFanout; ++i) {
      const bool used = i < n;
      node.leaves[i].store(used ? leaves[begin + i] : kNoLeaf, std::memory_order_relaxed);
      set_key(node, i,
              used ? leaves_[leaves[begin + i]].bound.load(std::memory_order_relaxed)
                   : ~std::uint64_t{0});
    }
    refresh_guide(node);
    node.next.store(0, std::memory_order_relaxed);
    node.count.store(n, std::memory_order_relaxed);
    set_max(node, leaves_[leaves[begin + n - 1]]);
    if (previous == nullptr) {
      *link = number;
    } else {
      previous->next.store(number, std::memory_order_release);
    }
    previous = &node;
    ++part.nodes;
  }
  part.leaves = static_cast<std::uint32_t>(count);
  rebuild_shortcut(partition);
  rebuild_cache(part);
  return part.cache.load(std::memory_order_relaxed) != nullptr ? Status()
                                                               : StatusCode::out_of_memory;
}

// The node that lists `leaf`, and where.
template <Platform P, class Leaves, std::uint32_t Fanout>
std::uint32_t InnerIndex<P, Leaves, Fanout>::find_node(const Part& part, std::uint32_t leaf,
                                                       const Probe& hint,
                                                       std::uint32_t& position) const noexcept {
  std::uint32_t number = cache_start(part, hint);
  for (bool from_head = false;; from_head = true) {
    for (; number != 0; number = nodes_[number].next.load(std::memory_order_relaxed)) {
      const Node& node = nodes_[number];
      const std::uint32_t count = node.count.load(std::memory_order_relaxed);
      if (!from_head && above(node, hint)) continue;
      position = position_of(node, hint, group_of(node, hint.word));
      if (position < count && node.leaves[position].load(std::memory_order_relaxed) == leaf) {
        return number;
      }
      for (position = 0; position < count; ++position) {
        if (node.leaves[position].load(std::memory_order_relaxed) == leaf) return number;
      }
    }
    if (from_head) return 0;
    number = part.head;
  }
}

template <Platform P, class Leaves, std::uint32_t Fanout>
bool InnerIndex<P, Leaves, Fanout>::split_node(Part& part, Node& node) noexcept {
  const std::uint32_t number = take_node();
  if (number == 0) return false;
  Node& fresh = nodes_[number];
  constexpr std::uint32_t kKeep = kFanout / 2;
  for (std::uint32_t i = 0; i < kFanout; ++i) {
    const bool moved = i < kFanout - kKeep;
    fresh.leaves[i].store(moved ? node.leaves[kKeep + i].load(std::memory_order_relaxed) : kNoLeaf,
                          std::memory_order_relaxed);
    set_key(fresh, i,
            moved ? node.keys[kKeep + i].load(std::memory_order_relaxed) : ~std::uint64_t{0});
  }
  refresh_guide(fresh);
  fresh.count.store(kFanout - kKeep, std::memory_order_relaxed);
  fresh.max.store(node.max.load(std::memory_order_relaxed), std::memory_order_relaxed);
  Separator<P>* separator = node.max_separator.load(std::memory_order_relaxed);
  share(separator);
  fresh.max_separator.store(separator, std::memory_order_relaxed);
  fresh.next.store(node.next.load(std::memory_order_relaxed), std::memory_order_relaxed);
  // ordered.N2: complete, then reachable, then needed.
  node.next.store(number, std::memory_order_release);
  // The boundary is where the first moved leaf begins, not where the last kept one ends: that one
  // may be splitting and its new right half be about to be listed here.
  const Desc& right = leaves_[fresh.leaves[0].load(std::memory_order_relaxed)];
  const std::uint64_t boundary = right.low.load(std::memory_order_acquire);
  PERDURE_ASSERT(P, "ordered.N2", boundary <= node.max.load(std::memory_order_relaxed));
  if constexpr (kBytes) {
    replace_max_separator(node, right.separators.low.load(std::memory_order_acquire));
    node.max.store(boundary, std::memory_order_release);
  } else {
    node.max.store(boundary - 1, std::memory_order_release);
  }
  for (std::uint32_t i = kKeep; i < kFanout; ++i) set_key(node, i, ~std::uint64_t{0});
  node.count.store(kKeep, std::memory_order_release);
  refresh_guide(node);
  ++part.nodes;
  ++part.changes;
  return true;
}

template <Platform P, class Leaves, std::uint32_t Fanout>
Status InnerIndex<P, Leaves, Fanout>::insert_after(std::uint32_t partition, std::uint32_t old,
                                                   std::uint32_t fresh) noexcept {
  Part& part = partitions_[partition];
  LatchGuard guard(part.latch);
  const Desc& left = leaves_[old];
  Probe hint{.word = left.bound.load(std::memory_order_relaxed)};
  PERDURE_ASSERT(
      P, "ordered.N2",
      leaves_[fresh].low.load(std::memory_order_relaxed) == hint.word + (kBytes ? 0 : 1));
  if (auto* shortcut = part.shortcut.load(std::memory_order_relaxed); shortcut != nullptr) {
    const std::uint64_t low = left.low.load(std::memory_order_relaxed);
    shortcut->split(old, kBytes || low == 0 ? low : low - 1, hint.word, fresh,
                    leaves_[fresh].bound.load(std::memory_order_relaxed));
    give_up_if_spent(part, *shortcut);
  }
  ++part.leaves;
  if constexpr (kBytes) {
    const Separator<P>* s = leaves_[old].separators.bound.load(std::memory_order_relaxed);
    if (s != nullptr) hint.bytes = s->view();
  }
  std::uint32_t at = 0;
  const std::uint32_t number = find_node(part, old, hint, at);
  if (number == 0) return StatusCode::out_of_memory;  // `old` itself could not be listed earlier
  Node* node = &nodes_[number];
  if (node->count.load(std::memory_order_relaxed) == kFanout) {
    if (!split_node(part, *node)) return StatusCode::out_of_memory;
    if (at >= kFanout / 2) {
      at -= kFanout / 2;
      node = &nodes_[node->next.load(std::memory_order_relaxed)];
    }
  }
  const std::uint32_t count = node->count.load(std::memory_order_relaxed);
  for (std::uint32_t i = count; i > at + 1; --i) {
    node->leaves[i].store(node->leaves[i - 1].load(std::memory_order_relaxed),
                          std::memory_order_release);
  }
  node->leaves[at + 1].store(fresh, std::memory_order_release);
  node->count.store(count + 1, std::memory_order_release);
  for (std::uint32_t i = count; i > at; --i) {
    set_key(*node, i, node->keys[i - 1].load(std::memory_order_relaxed));
  }
  set_key(*node, at, leaves_[old].bound.load(std::memory_order_relaxed));
  refresh_guide(*node);
  const Cache* cache = part.cache.load(std::memory_order_relaxed);
  if (part.changes > cache->count / 16 + 1) rebuild_cache(part);
  // Once `fresh` is listed: or its intervals would name `old`, also when that is unlinked
  // (ordered.S2).
  if (part.leaves >= part.rebuild_at) rebuild_shortcut(partition);
  return {};
}

template <Platform P, class Leaves, std::uint32_t Fanout>
void InnerIndex<P, Leaves, Fanout>::remove(std::uint32_t partition, std::uint32_t leaf,
                                           std::uint32_t heir) noexcept {
  Part& part = partitions_[partition];
  LatchGuard guard(part.latch);
  const Desc& desc = leaves_[leaf];
  PERDURE_ASSERT(P, "ordered.N3",
                 leaves_[heir].low.load(std::memory_order_relaxed) ==
                     desc.low.load(std::memory_order_relaxed));
  if (auto* shortcut = part.shortcut.load(std::memory_order_relaxed); shortcut != nullptr) {
    shortcut->replace(leaf, desc.low.load(std::memory_order_relaxed),
                      desc.bound.load(std::memory_order_relaxed), heir);
    give_up_if_spent(part, *shortcut);
  }
  --part.leaves;
  Probe hint{.word = leaves_[leaf].bound.load(std::memory_order_relaxed)};
  if constexpr (kBytes) {
    const Separator<P>* s = leaves_[leaf].separators.bound.load(std::memory_order_relaxed);
    if (s != nullptr) hint.bytes = s->view();
  }
  std::uint32_t at = 0;
  const std::uint32_t number = find_node(part, leaf, hint, at);
  if (number == 0) return;
  Node& node = nodes_[number];
  const std::uint32_t count = node.count.load(std::memory_order_relaxed);
  for (std::uint32_t i = at; i + 1 < count; ++i) {
    set_key(node, i, node.keys[i + 1].load(std::memory_order_relaxed));
    node.leaves[i].store(node.leaves[i + 1].load(std::memory_order_relaxed),
                         std::memory_order_release);
  }
  set_key(node, count - 1, ~std::uint64_t{0});
  node.count.store(count - 1, std::memory_order_release);
  refresh_guide(node);
  if (count == 1 && ++part.empty > part.nodes / 8) rebuild_cache(part);
}

// Without memory the old one stays.
template <Platform P, class Leaves, std::uint32_t Fanout>
void InnerIndex<P, Leaves, Fanout>::rebuild_shortcut(std::uint32_t partition) noexcept {
  Part& part = partitions_[partition];
  const auto each_leaf = [&](auto&& visit) {
    for (std::uint32_t n = part.head; n != 0; n = nodes_[n].next.load(std::memory_order_relaxed)) {
      const Node& node = nodes_[n];
      const std::uint32_t count = node.count.load(std::memory_order_relaxed);
      for (std::uint32_t i = 0; i < count; ++i) {
        visit(node.leaves[i].load(std::memory_order_relaxed),
              node.keys[i].load(std::memory_order_relaxed));
      }
    }
  };
  // The first and the last leaf reach as far as the partition does: they count with the width of
  // the others.
  std::uint32_t leaves = 0;
  std::uint64_t first_bound = 0, last_before = 0, last_bound = 0;
  each_leaf([&](std::uint32_t, std::uint64_t bound) {
    if (leaves++ == 0) first_bound = bound;
    last_before = last_bound;
    last_bound = bound;
  });
  std::uint64_t low = partitioning_.low(partition);
  std::uint64_t high = partitioning_.bound(partition);
  if (leaves > 2) {
    const std::uint64_t width = (last_before - first_bound) / (leaves - 2);
    low = std::max(low, first_bound - std::min(first_bound, width));
    high = std::min(high, last_before + std::min(~last_before, width));
  }
  part.leaves = leaves;
  part.rebuild_at = 2 * leaves;
  auto* fresh = Shortcut<P>::make(low, high, leaves, part.first);
  if (fresh == nullptr) return;
  std::uint64_t before = 0;
  each_leaf([&](std::uint32_t leaf, std::uint64_t bound) {
    if (leaf != part.first) fresh->fill(leaf, before, bound);
    before = bound;
  });
  if (!fresh->useful()) {
    Shortcut<P>::free(fresh);
    fresh = nullptr;
  }
  replace_shortcut(part, fresh);
}

template <Platform P, class Leaves, std::uint32_t Fanout>
void InnerIndex<P, Leaves, Fanout>::replace_shortcut(Part& part, Shortcut<P>* fresh) noexcept {
  auto* old = part.shortcut.load(std::memory_order_relaxed);
  part.shortcut.store(fresh, std::memory_order_release);
  cache_bytes_.fetch_add(
      (fresh != nullptr ? fresh->bytes() : 0) - (old != nullptr ? old->bytes() : 0),
      std::memory_order_relaxed);
  if (old != nullptr) {
    epochs_.retire(kShortcutReclaimer, this, reinterpret_cast<std::uint64_t>(old));
  }
}

// Lookups search the nodes then, until the partition has grown by a quarter.
template <Platform P, class Leaves, std::uint32_t Fanout>
void InnerIndex<P, Leaves, Fanout>::give_up_if_spent(Part& part,
                                                     const Shortcut<P>& shortcut) noexcept {
  if (!shortcut.spent()) return;
  replace_shortcut(part, nullptr);
  part.rebuild_at = part.leaves + part.leaves / 4 + 1;
}

// Leaves empty nodes out (the head stays) and makes a new cache. Without memory the old cache
// stays: its entries are hints that only get further left.
template <Platform P, class Leaves, std::uint32_t Fanout>
void InnerIndex<P, Leaves, Fanout>::rebuild_cache(Part& part) noexcept {
  std::uint32_t live = 0;
  for (std::uint32_t n = part.head; n != 0; n = nodes_[n].next.load(std::memory_order_relaxed)) {
    const Node& node = nodes_[n];
    const bool kept = n == part.head || node.count.load(std::memory_order_relaxed) != 0 ||
                      node.next.load(std::memory_order_relaxed) == 0;
    live += kept ? 1 : 0;
  }
  std::uint32_t stride = 1;
  while (live / stride > kMaxCached) stride *= 2;
  const std::uint32_t count = (live + stride - 1) / stride;
  const std::uint64_t bytes = sizeof(Cache) + count * (8ULL + 4ULL + (kBytes ? 8ULL : 0)) + 8;
  auto* cache = static_cast<Cache*>(std::malloc(bytes));
  if (cache == nullptr) return;
  cache->count = count;
  cache->bytes = bytes;
  cache->words = reinterpret_cast<std::uint64_t*>(cache + 1);
  cache->separators = reinterpret_cast<Separator<P>**>(cache->words + count);
  cache->nodes = reinterpret_cast<std::uint32_t*>(cache->separators + (kBytes ? count : 0));
  std::uint32_t i = 0;
  std::uint32_t previous = 0;
  std::uint32_t retired_head = 0;
  for (std::uint32_t n = part.head, next = 0; n != 0; n = next) {
    Node& node = nodes_[n];
    next = node.next.load(std::memory_order_relaxed);
    // The last node stays too: its maximum is the partition's.
    if (n != part.head && node.count.load(std::memory_order_relaxed) == 0 && next != 0) {
      nodes_[previous].next.store(next, std::memory_order_release);
      // Chain the retired ones through max: next must keep forwarding readers (ordered.N4).
      node.max.store(retired_head, std::memory_order_relaxed);
      retired_head = n;
      --part.nodes;
      continue;
    }
    const std::uint32_t group = i / stride;
    if (i % stride == 0) cache->nodes[group] = n;
    cache->words[group] = node.max.load(std::memory_order_relaxed);
    if constexpr (kBytes) {
      cache->separators[group] = node.max_separator.load(std::memory_order_relaxed);
    }
    previous = n;
    ++i;
  }
  cache->count = (i + stride - 1) / stride;
  if constexpr (kBytes) {
    for (std::uint32_t g = 0; g < cache->count; ++g) share(cache->separators[g]);
  }
  part.changes = 0;
  part.empty = 0;
  cache_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  Cache* before = part.cache.load(std::memory_order_relaxed);
  part.cache.store(cache, std::memory_order_release);
  if (before != nullptr) {
    epochs_.retire(kCacheReclaimer, this, reinterpret_cast<std::uint64_t>(before));
  }
  while (retired_head != 0) {
    const std::uint32_t n = retired_head;
    retired_head = static_cast<std::uint32_t>(nodes_[n].max.load(std::memory_order_relaxed));
    nodes_[n].max.store(0, std::memory_order_relaxed);  // readers still here go right
    epochs_.retire(kNodeReclaimer, this, n);
  }
}

template <Platform P, class Leaves, std::uint32_t Fanout>
void InnerIndex<P, Leaves, Fanout>::free_cache(Cache* cache) noexcept {
  if (cache == nullptr) return;
  if constexpr (kBytes) {
    for (std::uint32_t i = 0; i < cache->count; ++i) drop_separator(cache->separators[i]);
  }
  cache_bytes_.fetch_sub(cache->bytes, std::memory_order_relaxed);
  std::free(static_cast<void*>(cache));
}

template <Platform P, class Leaves, std::uint32_t Fanout>
std::uint64_t InnerIndex<P, Leaves, Fanout>::dram_bytes() const noexcept {
  LatchGuard guard(node_latch_);
  return std::uint64_t{node_high_} * sizeof(Node) + partitioning_.count() * sizeof(Part) +
         cache_bytes_.load(std::memory_order_relaxed);
}

template <Platform P, class Leaves, std::uint32_t Fanout>
std::uint64_t InnerIndex<P, Leaves, Fanout>::node_count() const noexcept {
  std::uint64_t count = 0;
  for (std::uint32_t p = 0; p < partitioning_.count(); ++p) {
    LatchGuard guard(partitions_[p].latch);
    count += partitions_[p].nodes;
  }
  return count;
}

}  // namespace perdure::ordered
