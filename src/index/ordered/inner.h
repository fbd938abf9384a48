// InnerIndex: what lies in DRAM above the leaves of an ordered engine: partitions, index caches,
// inner nodes.
//
// WHAT  PhaST's levels (sections of its paper in brackets). Keys are partitioned by prefix (§3.1).
//   A partition has a list of inner nodes of up to 128 leaves each (§3.3) and an index cache
//   (§3.2): a sorted array over the inner nodes, which grows at its end and is replaced as a whole.
//   Deviation: the cache replaces the towers of the paper's skiplist. It is the flattened upper
//   level: it has every node while there are at most 64 Ki of them, then every 2^k-th
//   (docs/decisions/0003).
// LAYOUT  layers, from below: nodes.h (data, separators), caches.h (index cache, shortcut), this.
// INVARIANTS (DRAM)
//   ordered.N1  Every result of a search here is a hint: the leaf's descriptor decides (low < key
//       <= bound, version).
//   ordered.N2  A search may end left of the key: the reader walks right by descriptors. The insert
//       of a leaf shifts leaf numbers from the end, then keys from the end, so readers land left
//       (hazard P8). The split of a node publishes the new node, then `next`, then the lower
//       maximum (hazard P7).
//   ordered.N3  The removal of a leaf may let a reader land right of the key. The reader then sees
//       key <= low and retries.
//   ordered.N4  A node's range never grows to the left. An empty node forwards to its right
//       neighbour until the next cache omits it; then it is retired.
//   ordered.N5  Byte strings: all keys of a node begin with its prefix, and are listed as the words
//       behind it. So long common prefixes cost one comparison per node, not one per step of the
//       search. A key without the prefix changes it: lookups that begin meanwhile take the node's
//       first leaf, and one that has begun may land anywhere in the node, as in ordered.N3.
//   ordered.N6  Byte strings: a node has the separator behind each of its leaves, and what follows
//       the word in it. All this changes only while `changes` is odd. A search that has seen one
//       even number throughout knows the two separators between which the probe lies. Separators
//       are immutable. So if those of a descriptor are these two, the probe lies in the range of
//       its leaf, and no lookup reads them. A search that meets a change may land anywhere among
//       the leaves of one word, as in ordered.N3.
// ORDERING  keys and leaf numbers: stored release, loaded acquire. A reader that sees a shifted
//   key also sees the shifted leaf numbers. cache, prefix: release / acquire.
// RECLAMATION  caches, prefixes and empty nodes through epochs.
// PROGRESS  lookups are lock-free; changes take the partition's latch. The next cache and the next
//   shortcut are built in steps (caches.h). So a change takes a constant number of steps, apart
//   from the walk of ordered.N2; or if a node could not be made and a leaf is in no list.
#pragma once

#include <algorithm>
#include <cstdint>

#include "index/ordered/caches.h"

namespace perdure::ordered {

// Leaves: a table of leaves by number. Its kBytes says whether keys are byte strings. Its Desc
// decides; low, bound, next, separators and above() of it are used.
template <Platform P, class Leaves, std::uint32_t Fanout, Start kStart = Start::shortcut>
class InnerIndex final : public Caches<P, Leaves, Fanout, kStart> {
  using Base = Caches<P, Leaves, Fanout, kStart>;
  using Base::above, Base::cache_start, Base::epochs_, Base::group_of, Base::kBytes, Base::kFanout,
      Base::bound_of, Base::find_node, Base::kGroup, Base::kGroups, Base::leaves_, Base::nodes_,
      Base::part_of, Base::copy_key, Base::set_tail, Base::partitions_, Base::position_of,
      Base::refresh_guide, Base::set_key, Base::choose_prefix, Base::take_node, Base::word_in;
  using typename Base::Change, typename Base::Desc, typename Base::Node, typename Base::Part;

 public:
  using Base::Base;

  [[gnu::noinline]] Status reserve(const Partitioning& partitioning, std::size_t max_leaves) {
    this->partitioning_ = partitioning;
    // A split leaves nodes at least half full. Empty ones wait for a cache, hence the slack.
    const std::size_t nodes = std::min<std::size_t>(
        max_leaves / (kFanout / 4) + 4 * std::size_t{partitioning.count()} + 64, 0xFFFFFFF0);
    if (Status s = nodes_.reserve(nodes); !s.ok()) return s;
    if constexpr (kBytes) {
      if (Status s = this->texts_.reserve(nodes); !s.ok()) return s;
    }
    return partitions_.reserve(partitioning.count());
  }

  // --- lookups; the caller is pinned ---

  // Returns a leaf at or left of the key's, nearly always the key's own (ordered.N1).
  [[gnu::always_inline]] std::uint32_t locate(const Probe& probe) const {
    const std::uint32_t leaf = this->shortcut_to(probe);
    return leaf != kNoLeaf ? leaf : search(probe);
  }
  // The same from the inner nodes alone.
  std::uint32_t search(const Probe& probe) const { return search_range(probe).leaf; }

  // As locate() and search(). If the nodes were searched, they also tell between which separators
  // the probe lies.
  using Found = Located<P, kBytes>;
  [[gnu::always_inline]] Found locate_range(const Probe& probe) const {
    const std::uint32_t leaf = this->shortcut_to(probe);
    return leaf != kNoLeaf ? Found{leaf} : search_range(probe);
  }
  [[gnu::noinline]] Found search_range(const Probe& probe) const {
    Step step = locate_node(probe);
    locate_group(probe, step);
    const Found found = locate_leaf_range(probe, step);
    PERDURE_ASSERT(P, "ordered.N1", found.leaf != kNoLeaf);
    return found;
  }

  // search() in steps, for batches, after prefetch_shortcut() and shortcut_to(). Each step
  // prefetches for the next.
  struct Step {
    const void* node = nullptr;
    std::uint64_t word = 0;  // of the probe in this node
    std::uint32_t group = 0;
    std::uint32_t changes = 0;  // of the node, before it was searched
  };
  [[gnu::always_inline]] Step locate_node(const Probe& probe) const {
    PERDURE_ASSERT(P, "ordered.N4", epochs_.pinned());
    const Node& node = nodes_[cache_start(part_of(probe), probe)];
    __builtin_prefetch(&node);
    __builtin_prefetch(&node.guide[0]);
    if constexpr (kGroups > 8) __builtin_prefetch(&node.guide[8]);
    return {.node = &node};
  }
  [[gnu::always_inline]] void locate_group(const Probe& probe, Step& step) const {
    const auto* node = static_cast<const Node*>(step.node);
    for (;;) {
      if constexpr (kBytes) step.changes = node->changes.load(std::memory_order_acquire);
      step.word = word_in(*node, probe);
      step.group = group_of(*node, step.word);
      if (!above(*node, probe, step.word, step.group)) [[likely]]
        break;
      const std::uint32_t next = node->next.load(std::memory_order_acquire);
      PERDURE_ASSERT(P, "ordered.N4", next != 0);  // the last node reaches to the partition's end
      node = &nodes_[next];
    }
    step.node = node;
    __builtin_prefetch(&node->keys[step.group * kGroup]);
    __builtin_prefetch(&node->leaves[step.group * kGroup]);
    if constexpr (kBytes) this->fetch_texts(*node, step.group);
  }
  [[gnu::always_inline]] std::uint32_t locate_leaf(const Probe& probe, const Step& step) const {
    return locate_leaf_range(probe, step).leaf;
  }
  [[gnu::always_inline]] Found locate_leaf_range(const Probe& probe, const Step& step) const {
    const auto* node = static_cast<const Node*>(step.node);
    const std::uint32_t position = position_of(*node, probe, step.word, step.group);
    if (position < node->count.load(std::memory_order_acquire)) [[likely]] {
      Found found{node->leaves[position].load(std::memory_order_acquire)};
      if constexpr (kBytes) add_range(*node, probe, step.changes, position, found);
      return found;
    }
    // The node lost its last leaves. Their range belongs to the first leaf of the next node that
    // has one (ordered.N4).
    for (;;) {
      const std::uint32_t next = node->next.load(std::memory_order_acquire);
      if (next == 0) return {part_of(probe).first};
      node = &nodes_[next];
      if (node->count.load(std::memory_order_acquire) != 0) {
        return {node->leaves[0].load(std::memory_order_acquire)};
      }
    }
  }

  // locate() of n > 0 probes at once, after prefetch_shortcut(). Ascending keys whose first and
  // last one have the same leaf are all in it.
  template <std::size_t kMost>
  [[gnu::always_inline]] void locate_all(const Probe (&probes)[kMost],
                                         std::uint32_t (&leaves)[kMost], std::size_t n) const {
    Step steps[kMost];
    const auto begin = [&](std::size_t i) {
      leaves[i] = this->shortcut_to(probes[i]);
      if (leaves[i] == kNoLeaf) steps[i] = locate_node(probes[i]);
    };
    const auto go_on = [&](std::size_t stride) {
      for (std::size_t i = 0; i < n; i += stride) {
        if (leaves[i] == kNoLeaf) locate_group(probes[i], steps[i]);
      }
      for (std::size_t i = 0; i < n; i += stride) {
        if (leaves[i] == kNoLeaf) leaves[i] = locate_leaf(probes[i], steps[i]);
      }
    };
    const std::size_t last = n - 1;
    begin(0);
    begin(last);
    const bool near =
        leaves[0] == leaves[last] && (leaves[0] != kNoLeaf || steps[0].node == steps[last].node);
    if (n > 2 && near && ascends(probes, n)) {
      go_on(last);
      if (leaves[0] == leaves[last]) return std::fill(leaves + 1, leaves + last, leaves[0]);
    }
    for (std::size_t i = 1; i < last; ++i) begin(i);
    go_on(1);
  }

  // --- changes ---

  // Builds one partition from its leaves in order, while nothing else runs (recovery, creation).
  [[gnu::noinline]] Status build(std::uint32_t partition, const std::uint32_t* leaves,
                                 std::size_t count) {
    Part& part = partitions_[partition];
    part.first = leaves[0];
    constexpr std::uint32_t kFill = kFanout * 3 / 4 > 0 ? kFanout * 3 / 4 : 1;
    Node* previous = nullptr;
    for (std::size_t begin = 0; begin < count; begin += kFill) {
      const std::uint32_t number = take_node();
      if (number == 0) return StatusCode::out_of_memory;
      Node& node = nodes_[number];
      const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(kFill, count - begin));
      for (std::uint32_t i = 0; i < kFanout; ++i) {
        const bool used = i < n;
        node.leaves[i].store(used ? leaves[begin + i] : kNoLeaf, std::memory_order_relaxed);
        if constexpr (kBytes) {
          if (used) set_bound(node, i, leaves_[leaves[begin + i]]);
          continue;
        }
        set_key(node, i,
                used ? leaves_[leaves[begin + i]].bound.load(std::memory_order_relaxed)
                     : ~std::uint64_t{0});
      }
      if constexpr (!kBytes) refresh_guide(node);
      node.next.store(0, std::memory_order_relaxed);
      node.count.store(n, std::memory_order_relaxed);
      this->set_max(node, leaves_[leaves[begin + n - 1]]);
      if constexpr (kBytes) choose_prefix(node);
      if (previous == nullptr) {
        part.head = number;
      } else {
        previous->next.store(number, std::memory_order_release);
      }
      previous = &node;
      ++part.nodes;
    }
    part.leaves = static_cast<std::uint32_t>(count);
    this->begin_cache(part);
    this->copy_to_cache(part, ~0U);
    if (part.cache.load(std::memory_order_relaxed) == nullptr) return StatusCode::out_of_memory;
    this->begin_shortcut(partition);
    this->fill_shortcut(part, ~0U / this->kFillPerLeaf);
    return {};
  }

  // Lists `fresh`, which was split off `old`. The bound in old's descriptor is the new one. After
  // out_of_memory, lookups reach `fresh` by walking right.
  [[gnu::noinline]] Status insert_after(std::uint32_t partition, std::uint32_t old,
                                        std::uint32_t fresh) {
    Part& part = partitions_[partition];
    LatchGuard guard(part.latch);
    const Desc& left = leaves_[old];
    const Probe hint = bound_of(left);
    PERDURE_ASSERT(
        P, "ordered.N2",
        leaves_[fresh].low.load(std::memory_order_relaxed) == hint.word + (kBytes ? 0 : 1));
    const std::uint64_t low = left.low.load(std::memory_order_relaxed);
    const std::uint64_t before = kBytes || low == 0 ? low : low - 1;
    const std::uint64_t bound = leaves_[fresh].bound.load(std::memory_order_relaxed);
    if (auto* shortcut = part.shortcut.load(std::memory_order_relaxed); shortcut != nullptr) {
      shortcut->split(old, before, hint.word, fresh, bound);
      this->give_up_if_spent(part, *shortcut);
    }
    // Changes nothing if `old` is not named there yet.
    if (part.filling.table != nullptr) {
      part.filling.table->split(old, before, hint.word, fresh, bound);
    }
    ++part.leaves;
    std::uint32_t at = 0;
    const std::uint32_t number = find_node(part, old, hint, at);
    if (number == 0) {  // `old` itself could not be listed earlier
      build_some(partition);
      return StatusCode::out_of_memory;
    }
    Node* node = &nodes_[number];
    if (node->count.load(std::memory_order_relaxed) == kFanout) {
      if (!split_node(part, *node)) {
        part.unlisted = true;
        build_some(partition);
        return StatusCode::out_of_memory;
      }
      if (at >= kFanout / 2) {
        at -= kFanout / 2;
        node = &nodes_[node->next.load(std::memory_order_relaxed)];
      }
    }
    list(*node, at, fresh, left);
    // After `fresh` is listed: otherwise its intervals would name `old`, even once that is unlinked
    // (ordered.S2).
    build_some(partition);
    return {};
  }

  // `leaf` was unlinked. Its range now belongs to `heir`, its right neighbour.
  [[gnu::noinline]] void remove(std::uint32_t partition, std::uint32_t leaf, std::uint32_t heir) {
    Part& part = partitions_[partition];
    LatchGuard guard(part.latch);
    const Desc& desc = leaves_[leaf];
    PERDURE_ASSERT(P, "ordered.N3",
                   leaves_[heir].low.load(std::memory_order_relaxed) ==
                       desc.low.load(std::memory_order_relaxed));
    const std::uint64_t low = desc.low.load(std::memory_order_relaxed);
    const std::uint64_t bound = desc.bound.load(std::memory_order_relaxed);
    if (auto* shortcut = part.shortcut.load(std::memory_order_relaxed); shortcut != nullptr) {
      shortcut->forget(leaf, low, bound);
    }
    if (part.filling.table != nullptr) {
      part.filling.table->forget(leaf, low, bound);
      if (part.filling.leaf == leaf) part.filling.leaf = heir;
    }
    --part.leaves;
    std::uint32_t at = 0;
    const std::uint32_t number = find_node(part, leaf, bound_of(desc), at);
    if (number == 0) return;
    Node& node = nodes_[number];
    if (part.unlisted && listed_after(node, at) != heir) {  // else lookups would go right of it
      const Change change(node);
      return node.leaves[at].store(heir, std::memory_order_release);
    }
    unlist(node, at);
    if (node.count.load(std::memory_order_relaxed) == 0) ++part.empty;
    build_some(partition);
  }

 private:
  // Leaves and nodes of a step, and of the first one: small partitions are done at once. Tests have
  // a small fanout.
  static constexpr std::uint32_t kFillStep = kFanout < 16 ? 2 : 8;
  static constexpr std::uint32_t kFillFirst = kFanout < 16 ? 2 : 128;
  static constexpr std::uint32_t kCopyStep = kFanout < 16 ? 1 : 4;
  static constexpr std::uint32_t kCopyFirst = kFanout < 16 ? 1 : 64;
  // A search walks past the nodes that the cache does not have.
  static constexpr std::uint32_t kMostChanges = 64;

  static bool ascends(const Probe* probes, std::size_t n) {
    for (std::size_t i = 1; i < n; ++i) {
      const Probe& a = probes[i - 1];
      const Probe& b = probes[i];
      if (a.word != b.word ? a.word > b.word : !kBytes || a.bytes >= b.bytes) return false;
    }
    return true;
  }
  // Steps of what is being built (caches.h): often enough to end long before the next time.
  void build_some(std::uint32_t partition) {
    Part& part = partitions_[partition];
    const bool shortcut_due = part.filling.table == nullptr && part.leaves >= part.rebuild_at;
    if (shortcut_due) this->begin_shortcut(partition);
    this->fill_shortcut(part, shortcut_due ? kFillFirst : kFillStep);
    const std::uint32_t cached =
        part.cache.load(std::memory_order_relaxed)->count.load(std::memory_order_relaxed);
    const bool cache_due =
        part.copying.cache == nullptr && part.copying.removed == 0 &&
        (part.changes > std::min(cached / 16 + 1, kMostChanges) || part.empty > part.nodes / 8);
    if (cache_due) this->begin_cache(part);
    this->copy_to_cache(part, cache_due ? kCopyFirst : kCopyStep);
  }
  // Returns the leaf that is listed behind this position.
  std::uint32_t listed_after(const Node& node, std::uint32_t at) const {
    if (at + 1 < node.count.load(std::memory_order_relaxed)) {
      return node.leaves[at + 1].load(std::memory_order_relaxed);
    }
    std::uint32_t next = node.next.load(std::memory_order_relaxed);
    while (next != 0 && nodes_[next].count.load(std::memory_order_relaxed) == 0) {
      next = nodes_[next].next.load(std::memory_order_relaxed);
    }
    return next != 0 ? nodes_[next].leaves[0].load(std::memory_order_relaxed) : kNoLeaf;
  }

  // ordered.N6: adds the separators of a position to what a lookup has found, unless the node has
  // changed since the lookup came to it.
  [[gnu::always_inline]] void add_range(const Node& node, [[maybe_unused]] const Probe& probe,
                                        std::uint32_t changes, std::uint32_t position,
                                        Found& found) const {
    if (position == 0) return;
    const Separator<P>* low = node.texts->bounds[position - 1].load(std::memory_order_acquire);
    const Separator<P>* bound = node.texts->bounds[position].load(std::memory_order_acquire);
    if (changes % 2 != 0 || node.changes.load(std::memory_order_acquire) != changes) [[unlikely]] {
      return;
    }
    // The word of a damaged entry may not be that of its key.
    PERDURE_ASSERT(P, "ordered.N6",
                   low == nullptr || bound == nullptr || probe.word != head_word(probe.bytes) ||
                       (compare(probe, low->view()) > 0 && compare(probe, bound->view()) <= 0));
    found.low = low;
    found.bound = bound;
  }
  static void set_bound(Node& node, std::uint32_t i, const Desc& leaf) {
    Separator<P>* s = leaf.separators.bound.load(std::memory_order_relaxed);
    Base::share(s);
    if (s != nullptr) node.texts->bounds[i].store(s, std::memory_order_release);
  }

  // Removes the leaf at a position from the list.
  [[gnu::noinline]] void unlist(Node& node, std::uint32_t at) {
    const Change change(node);
    const std::uint32_t count = node.count.load(std::memory_order_relaxed);
    Separator<P>* bound = nullptr;
    if constexpr (kBytes) bound = node.texts->bounds[at].load(std::memory_order_relaxed);
    for (std::uint32_t i = at; i + 1 < count; ++i) {
      copy_key(node, i, i + 1);
      node.leaves[i].store(node.leaves[i + 1].load(std::memory_order_relaxed),
                           std::memory_order_release);
    }
    set_key(node, count - 1, ~std::uint64_t{0});
    if constexpr (kBytes) node.texts->bounds[count - 1].store(nullptr, std::memory_order_release);
    node.count.store(count - 1, std::memory_order_release);
    refresh_guide(node);
    this->release(bound);
  }
  // Lists `fresh` behind the leaf at a position, whose range now ends with that of `left`.
  [[gnu::noinline]] void list(Node& node, std::uint32_t at, std::uint32_t fresh, const Desc& left) {
    const Change change(node);
    const Probe bound = bound_of(left);
    const std::uint32_t count = node.count.load(std::memory_order_relaxed);
    for (std::uint32_t i = count; i > at + 1; --i) {
      node.leaves[i].store(node.leaves[i - 1].load(std::memory_order_relaxed),
                           std::memory_order_release);
    }
    node.leaves[at + 1].store(fresh, std::memory_order_release);
    node.count.store(count + 1, std::memory_order_release);
    for (std::uint32_t i = count; i > at; --i) copy_key(node, i, i - 1);
    if constexpr (kBytes) {
      set_bound(node, at, left);
      if (!this->has_prefix(node, bound.bytes)) return choose_prefix(node);
    }
    set_key(node, at, word_in(node, bound));
    if constexpr (kBytes) {
      set_tail(node.texts->tails[at], node.texts->bounds[at].load(std::memory_order_relaxed),
               node.prefix.load(std::memory_order_relaxed));
    }
    refresh_guide(node);
  }

  [[gnu::noinline]] bool split_node(Part& part, Node& node) {
    const std::uint32_t number = take_node();
    if (number == 0) return false;
    Node& fresh = nodes_[number];
    constexpr std::uint32_t kKeep = kFanout / 2;
    for (std::uint32_t i = 0; i < kFanout; ++i) {
      const bool moved = i < kFanout - kKeep;
      fresh.leaves[i].store(
          moved ? node.leaves[kKeep + i].load(std::memory_order_relaxed) : kNoLeaf,
          std::memory_order_relaxed);
      if constexpr (kBytes) {
        if (!moved) continue;
        fresh.texts->bounds[i].store(node.texts->bounds[kKeep + i].load(std::memory_order_relaxed),
                                     std::memory_order_relaxed);
        continue;
      }
      set_key(fresh, i,
              moved ? node.keys[kKeep + i].load(std::memory_order_relaxed) : ~std::uint64_t{0});
    }
    if constexpr (!kBytes) refresh_guide(fresh);
    fresh.count.store(kFanout - kKeep, std::memory_order_relaxed);
    fresh.max.store(node.max.load(std::memory_order_relaxed), std::memory_order_relaxed);
    Separator<P>* separator = node.max_separator.load(std::memory_order_relaxed);
    this->share(separator);
    fresh.max_separator.store(separator, std::memory_order_relaxed);
    if constexpr (kBytes) choose_prefix(fresh);
    fresh.next.store(node.next.load(std::memory_order_relaxed), std::memory_order_relaxed);
    // ordered.N2: complete, then reachable, then needed.
    node.next.store(number, std::memory_order_release);
    const Change change(node);
    if constexpr (kBytes) {
      Separator<P>* last = node.texts->bounds[kKeep - 1].load(std::memory_order_relaxed);
      PERDURE_ASSERT(P, "ordered.N2",
                     head_word(last->view()) <= node.max.load(std::memory_order_relaxed));
      this->replace_max_separator(node, last);
      node.max.store(head_word(last->view()), std::memory_order_release);
    } else {
      // The boundary is where the first moved leaf begins, not where the last kept leaf ends: that
      // leaf may be splitting, and its new right half may be about to be listed here.
      const Desc& right = leaves_[fresh.leaves[0].load(std::memory_order_relaxed)];
      const std::uint64_t boundary = right.low.load(std::memory_order_acquire);
      PERDURE_ASSERT(P, "ordered.N2", boundary <= node.max.load(std::memory_order_relaxed));
      node.max.store(boundary - 1, std::memory_order_release);
    }
    for (std::uint32_t i = kKeep; i < kFanout; ++i) {
      set_key(node, i, ~std::uint64_t{0});
      if constexpr (kBytes) node.texts->bounds[i].store(nullptr, std::memory_order_release);
    }
    node.count.store(kKeep, std::memory_order_release);
    refresh_guide(node);
    if constexpr (kBytes) choose_prefix(node);
    ++part.nodes;
    if (!this->append_to_cache(part, node, number)) ++part.changes;
    return true;
  }
};

}  // namespace perdure::ordered
