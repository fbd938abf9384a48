// DirectoryLookup: the members of the directory and its lookups, by hints and by leaves. Nothing
// here changes a leaf.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "heap/heap.h"
#include "index/ordered/inner.h"
#include "index/pskiplist/key_hints.h"
#include "index/pskiplist/key_node.h"
#include "index/pskiplist/leaf.h"
#include "index/record.h"

namespace perdure::pskiplist {

template <class T>
class DirectoryLookup {
 protected:
  using P = typename T::Platform;
  using G = typename T::Geometry;
  static constexpr bool kBytes = T::Codec::kBytes;

 public:
  using LeafT = Leaf<T>;
  using Inner = ordered::InnerIndex<P, LeafArena<T>, G::kInnerLeaves>;
  static constexpr std::uint32_t kKeys = G::kLeafKeys;

  // The contents of a leaf at one moment.
  struct Batch {
    std::uint32_t count = 0;
    std::uint32_t prefix = 0;
    std::uint64_t low = 0, bound = 0;
    const Separator<P>* low_separator = nullptr;
    const Separator<P>* bound_separator = nullptr;
    std::uint64_t words[kKeys];
    std::uint32_t nodes[kKeys];

    // As Leaf::word_in().
    std::uint64_t word_in(const Probe& probe) const {
      if (prefix == 0 || bound_separator == nullptr) return probe.word;
      return ordered::word_behind(bound_separator->view().substr(0, prefix), probe);
    }
  };

  // Returns the key's node, or 0. The caller is pinned.
  [[gnu::noinline]] std::uint32_t find(const Probe& probe) const {
    return find(probe, [](std::uint32_t) {});
  }
  // The same. Calls hinted(node) before it looks at a node that a hint names.
  template <class F>
  [[gnu::always_inline]] std::uint32_t find(const Probe& probe, F&& hinted) const {
    const Hint hint = hints_.find(hash_of(probe), [&](std::uint32_t candidate) {
      hinted(candidate);
      return is_of(candidate, probe);
    });
    return hint.known() ? hint.node : find_listed(probe);
  }
  // The same, for a key that put() may list: fetches its leaf, too. The misses on both ways
  // overlap.
  std::uint32_t find_maybe_new(const Probe& probe) const {
    const std::uint64_t hash = hash_of(probe);
    hints_.prefetch(hash);
    prefetch_leaf(probe);
    const Hint hint = hints_.find(hash, [&](std::uint32_t node) { return is_of(node, probe); });
    return hint.known() ? hint.node : find_listed(probe);
  }
  // The same by the leaves alone.
  [[gnu::noinline]] std::uint32_t find_listed(const Probe& probe) const {
    for (unsigned spins = 0;; P::pause(spins++)) {
      std::uint64_t version = 0;
      const LeafT& leaf = leaves_[enter(probe, version)];
      bool found = false;
      const std::uint32_t position = position_of(leaf, probe, found);
      const std::uint32_t node = found ? leaf.nodes[position].load(std::memory_order_acquire) : 0;
      if (leaf.version.load(std::memory_order_acquire) == version) return node;
    }
  }
  // The same by the hints alone, which nearly always know.
  Hint find_hinted(const Probe& probe) const {
    return hints_.find(hash_of(probe), [&](std::uint32_t node) { return is_of(node, probe); });
  }
  // Copies the leaf in whose range the position lies.
  [[gnu::noinline]] void collect(const Probe& position, Batch& batch) const {
    for (unsigned spins = 0;; P::pause(spins++)) {
      std::uint64_t version = 0;
      const LeafT& leaf = leaves_[enter(position, version)];
      leaves_[leaf.next.load(std::memory_order_relaxed)].prefetch();  // kNoLeaf is a leaf, too
      batch.low = leaf.low.load(std::memory_order_acquire);
      batch.bound = leaf.bound.load(std::memory_order_acquire);
      if constexpr (kBytes) {
        batch.low_separator = leaf.separators.low.load(std::memory_order_acquire);
        batch.bound_separator = leaf.separators.bound.load(std::memory_order_acquire);
        batch.prefix = leaf.prefix.load(std::memory_order_acquire);
      }
      batch.count = std::min(leaf.count.load(std::memory_order_acquire), kKeys);
      for (std::uint32_t i = 0; i < batch.count; ++i) {
        batch.words[i] = leaf.words[i].load(std::memory_order_acquire);
        batch.nodes[i] = leaf.nodes[i].load(std::memory_order_acquire);
      }
      if (leaf.version.load(std::memory_order_acquire) != version) continue;
      // `low` falls when the left neighbour is unlinked, without this leaf's lock.
      if constexpr (kBytes) {
        if (leaf.separators.low.load(std::memory_order_acquire) != batch.low_separator) continue;
      }
      if (leaf.low.load(std::memory_order_acquire) == batch.low) return;
    }
  }

  // The steps of find_hinted(), then the first of find_listed(), for groups of lookups.
  void prefetch_hint(const Probe& probe) const { hints_.prefetch(hash_of(probe)); }
  // Returns a node that may be the key's.
  Hint prefetch_node(const Probe& probe) const {
    const Hint likely = hints_.find(hash_of(probe), [](std::uint32_t) { return true; });
    __builtin_prefetch(&nodes_[likely.node]);
    return likely;
  }
  void prefetch_key(std::uint32_t node) const {
    if constexpr (kBytes) __builtin_prefetch(heap_.template at<RecordPrefix>(nodes_[node].key));
  }
  void prefetch_leaf(const Probe& probe) const { leaves_[inner_.locate(probe)].prefetch(); }

  [[gnu::always_inline]] std::string_view key_of(std::uint32_t node) const {
    const std::uint64_t offset = nodes_[node].key;
    if (!heap_.contains(offset, sizeof(RecordPrefix))) return {};
    const auto view = RecordView::read(platform_, heap_.template at<RecordPrefix>(offset));
    if (!heap_.contains(offset, sizeof(RecordPrefix) + view.key_size())) return {};
    return view.key();
  }
  std::uint64_t hints() const { return hints_.named(); }  // no change is in flight
  std::uint32_t leaves() { return leaves_.taken(); }
  std::uint64_t inner_nodes() const { return inner_.node_count(); }
  std::uint64_t dram_bytes() {
    return inner_.dram_bytes() + hints_.dram_bytes() +
           std::uint64_t{leaves_.taken()} * sizeof(LeafT);
  }

 protected:
  DirectoryLookup(const P& platform, const Heap<P>& heap, const NodeTable<P>& nodes,
                  EpochDomain<P>& epochs)
      : platform_(platform), heap_(heap), nodes_(nodes), epochs_(epochs), inner_(leaves_, epochs) {}

  static std::uint64_t hash_of(const Probe& probe) {
    return KeyHints<P>::template hash<kBytes>(probe.word, probe.bytes);
  }
  // The node is listed.
  std::uint64_t hash_of(std::uint32_t node) const {
    if constexpr (kBytes) return KeyHints<P>::template hash<true>(0, key_of(node));
    return KeyHints<P>::template hash<false>(nodes_[node].key, {});
  }
  bool is_of(std::uint32_t node, const Probe& probe) const {
    if constexpr (kBytes) return key_of(node) == probe.bytes;
    return nodes_[node].key == probe.word;
  }
  // Returns the leaf in whose range the probe lies, unlocked, and its version. If the inner nodes
  // had no memory, no inner node lists a leaf: it is reached from the partition's first leaf, which
  // stays.
  [[gnu::always_inline]] std::uint32_t enter(const Probe& probe, std::uint64_t& version) const {
    std::uint32_t number = inner_.locate(probe);
    leaves_[number].prefetch();  // one miss in place of one per step of the search
    for (unsigned misses = 0, spins = 0;;) {
      const LeafT& leaf = leaves_[number];
      version = leaf.version.load(std::memory_order_acquire);
      if constexpr (kBytes) ordered::fetch_separators(leaf, probe);
      if ((version & LeafT::kGone) != 0 || leaf.below(probe)) [[unlikely]] {
        number = ++misses < 4 ? inner_.search(probe)
                              : inner_.first_leaf(inner_.partitioning().of(probe.word));
        if (misses > 4) P::pause(misses);
        continue;
      }
      if ((version & LeafT::kLocked) != 0) [[unlikely]] {
        P::pause(spins++);
        continue;
      }
      if (!leaf.above(probe)) [[likely]]
        return number;
      const std::uint32_t next = leaf.next.load(std::memory_order_acquire);
      number = next != kNoLeaf ? next : inner_.search(probe);
    }
  }
  // Returns the first position whose key is not below the probe's.
  [[gnu::always_inline]] std::uint32_t position_of(const LeafT& leaf, const Probe& probe,
                                                   bool& found) const {
    const std::uint32_t count = std::min(leaf.count.load(std::memory_order_acquire), kKeys);
    const std::uint64_t word = leaf.word_in(probe);
    std::uint32_t base = 0;
    for (std::uint32_t n = count; n > 0;) {
      const std::uint32_t half = (n + 1) / 2;
      base += leaf.words[base + half - 1].load(std::memory_order_acquire) < word ? half : 0;
      n -= half;
    }
    const auto equal = [&](std::uint32_t i) {
      return i < count && leaf.words[i].load(std::memory_order_acquire) == word;
    };
    found = equal(base);
    if constexpr (kBytes) {
      // Where words are equal, the keys decide: binary search over the run of equal words.
      std::uint32_t end = base;
      while (equal(end)) ++end;
      found = false;
      while (base < end && !found) {
        const std::uint32_t middle = (base + end) / 2;
        const std::uint32_t node = leaf.nodes[middle].load(std::memory_order_acquire);
        const int order = ordered::compare(probe, key_of(node));
        found = order == 0;
        (order > 0 ? base : end) = order > 0 ? middle + 1 : middle;
      }
      if (found) base = end;
    }
    return base;
  }

  const P& platform_;
  const Heap<P>& heap_;
  const NodeTable<P>& nodes_;
  EpochDomain<P>& epochs_;
  LeafArena<T> leaves_;
  Inner inner_;
  KeyHints<P> hints_;
};

}  // namespace perdure::pskiplist
