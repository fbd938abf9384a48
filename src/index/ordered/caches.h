// Caches: what leads to an inner node or past all of them: the index cache and the shortcut of each
// partition. Responsible for the retirement of empty nodes (ordered.N4).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "index/ordered/nodes.h"

namespace perdure::ordered {

template <Platform P, class Leaves, std::uint32_t Fanout>
class Caches : public Nodes<P, Leaves, Fanout> {
  using Base = Nodes<P, Leaves, Fanout>;

 public:
  using Base::Base, Base::kBytes, Base::release, Base::share;

  [[gnu::noinline]] ~Caches() {
    this->closing_ = true;
    if (partitions_.data() == nullptr) return;
    for (std::uint32_t p = 0; p < partitioning_.count(); ++p) {
      Shortcut<P>::free(partitions_[p].shortcut.load(std::memory_order_acquire));
      free_cache(partitions_[p].cache.load(std::memory_order_acquire));
      for (std::uint32_t n = partitions_[p].head; kBytes && n != 0;
           n = nodes_[n].next.load(std::memory_order_relaxed)) {
        release(nodes_[n].max_separator.load(std::memory_order_relaxed));
      }
    }
  }

  void prefetch_shortcut(const Probe& probe) const {
    const auto* s = this->part_of(probe).shortcut.load(std::memory_order_acquire);
    if (s != nullptr) s->prefetch(probe.word);
  }
  // Returns kNoLeaf if the nodes must be searched.
  [[gnu::always_inline]] std::uint32_t shortcut_to(const Probe& probe) const {
    PERDURE_ASSERT(P, "ordered.S2", epochs_.pinned());
    const auto* s = this->part_of(probe).shortcut.load(std::memory_order_acquire);
    return s != nullptr ? s->leaf_of(probe.word) : kNoLeaf;
  }

  std::uint64_t dram_bytes() const {
    LatchGuard guard(this->node_latch_);
    return std::uint64_t{this->node_high_} * sizeof(Node) + partitioning_.count() * sizeof(Part) +
           cache_bytes_.load(std::memory_order_relaxed);
  }

 protected:
  using Base::cache_bytes_, Base::epochs_, Base::nodes_, Base::partitioning_, Base::partitions_;
  using typename Base::Cache, typename Base::Node, typename Base::Part;

  // Returns the node at which a search begins.
  [[gnu::always_inline]] std::uint32_t cache_start(const Part& part, const Probe& probe) const {
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

  // Calls visit(leaf, bound) for the leaves of the partition, in order.
  template <class F>
  void each_leaf(const Part& part, F&& visit) const {
    if (part.unlisted) {
      // A split sets `next` of the left leaf before it lowers the bound. A leaf whose removal waits
      // for the latch leads to no unlinked one: its left neighbour is locked meanwhile.
      for (std::uint32_t leaf = part.first; leaf != kNoLeaf;) {
        const auto& desc = this->leaves_[leaf];
        const std::uint64_t bound = desc.bound.load(std::memory_order_acquire);
        visit(leaf, bound);
        leaf = desc.next.load(std::memory_order_acquire);
      }
      return;
    }
    for (std::uint32_t n = part.head; n != 0; n = nodes_[n].next.load(std::memory_order_relaxed)) {
      const Node& node = nodes_[n];
      const std::uint32_t count = node.count.load(std::memory_order_relaxed);
      for (std::uint32_t i = 0; i < count; ++i) {
        visit(node.leaves[i].load(std::memory_order_relaxed),
              node.keys[i].load(std::memory_order_relaxed));
      }
    }
  }

  // The old shortcut stays if memory is short.
  [[gnu::noinline]] void rebuild_shortcut(std::uint32_t partition) {
    Part& part = partitions_[partition];
    // The first and the last leaf reach as far as the partition does. They count with the average
    // width of the others.
    std::uint32_t leaves = 0;
    std::uint64_t first_bound = 0, last_before = 0, last_bound = 0;
    each_leaf(part, [&](std::uint32_t, std::uint64_t bound) {
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
    each_leaf(part, [&](std::uint32_t leaf, std::uint64_t bound) {
      if (leaf != part.first) fresh->fill(leaf, before, bound);
      before = bound;
    });
    if (!fresh->useful()) {
      Shortcut<P>::free(fresh);
      fresh = nullptr;
    }
    replace_shortcut(part, fresh);
  }

  // Lookups then search the nodes, until the partition has grown by a quarter.
  void give_up_if_spent(Part& part, const Shortcut<P>& shortcut) {
    if (!shortcut.spent()) return;
    replace_shortcut(part, nullptr);
    part.rebuild_at = part.leaves + part.leaves / 4 + 1;
  }

  // Takes empty nodes out of the list, except the head, and builds a new cache. The old cache stays
  // if memory is short: its entries are hints, which only get further left.
  [[gnu::noinline]] void rebuild_cache(Part& part) {
    std::uint32_t live = 0;
    for (std::uint32_t n = part.head; n != 0; n = nodes_[n].next.load(std::memory_order_relaxed)) {
      const Node& node = nodes_[n];
      const bool kept = n == part.head || node.count.load(std::memory_order_relaxed) != 0 ||
                        node.next.load(std::memory_order_relaxed) == 0;
      live += kept ? 1 : 0;
    }
    std::uint32_t stride = 1;
    while (live / stride > kMaxCached) stride *= 2;
    Cache* cache = make_cache((live + stride - 1) / stride);
    if (cache == nullptr) return;
    std::uint32_t i = 0;
    std::uint32_t previous = 0;
    std::uint32_t retired_head = 0;
    for (std::uint32_t n = part.head, next = 0; n != 0; n = next) {
      Node& node = nodes_[n];
      next = node.next.load(std::memory_order_relaxed);
      // The last node stays too: its maximum is the partition's.
      if (n != part.head && node.count.load(std::memory_order_relaxed) == 0 && next != 0) {
        nodes_[previous].next.store(next, std::memory_order_release);
        // max chains the retired nodes: next must still forward readers (ordered.N4).
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
    cache_bytes_.fetch_add(cache->bytes, std::memory_order_relaxed);
    Cache* before = part.cache.load(std::memory_order_relaxed);
    part.cache.store(cache, std::memory_order_release);
    if (before != nullptr) {
      epochs_.retire(kCacheReclaimer, this, reinterpret_cast<std::uint64_t>(before));
    }
    while (retired_head != 0) {
      const std::uint32_t n = retired_head;
      retired_head = static_cast<std::uint32_t>(nodes_[n].max.load(std::memory_order_relaxed));
      nodes_[n].max.store(0, std::memory_order_relaxed);  // a reader that is still here goes right
      this->retire_node(n);
    }
  }

 private:
  static constexpr std::uint32_t kMaxCached = 1U << 16;

  static void finish_cache(void* self, std::uint64_t cache) {
    static_cast<Caches*>(self)->free_cache(reinterpret_cast<Cache*>(cache));
  }
  static void finish_shortcut(void*, std::uint64_t shortcut) {
    Shortcut<P>::free(reinterpret_cast<Shortcut<P>*>(shortcut));
  }
  static constexpr Reclaimer kCacheReclaimer{nullptr, &finish_cache};
  static constexpr Reclaimer kShortcutReclaimer{nullptr, &finish_shortcut};

  [[gnu::noinline]] void replace_shortcut(Part& part, Shortcut<P>* fresh) {
    auto* old = part.shortcut.load(std::memory_order_relaxed);
    part.shortcut.store(fresh, std::memory_order_release);
    cache_bytes_.fetch_add(
        (fresh != nullptr ? fresh->bytes() : 0) - (old != nullptr ? old->bytes() : 0),
        std::memory_order_relaxed);
    if (old != nullptr) {
      epochs_.retire(kShortcutReclaimer, this, reinterpret_cast<std::uint64_t>(old));
    }
  }
  // Returns a cache with room for `count` nodes, or null.
  static Cache* make_cache(std::uint32_t count) {
    const std::uint64_t bytes = sizeof(Cache) + count * (8ULL + 4ULL + (kBytes ? 8ULL : 0)) + 8;
    auto* cache = static_cast<Cache*>(std::malloc(bytes));
    if (cache == nullptr) return nullptr;
    cache->bytes = bytes;
    cache->words = reinterpret_cast<std::uint64_t*>(cache + 1);
    cache->separators = reinterpret_cast<Separator<P>**>(cache->words + count);
    cache->nodes = reinterpret_cast<std::uint32_t*>(cache->separators + (kBytes ? count : 0));
    return cache;
  }
  [[gnu::noinline]] void free_cache(Cache* cache) {
    if (cache == nullptr) return;
    if constexpr (kBytes) {
      for (std::uint32_t i = 0; i < cache->count; ++i) release(cache->separators[i]);
    }
    cache_bytes_.fetch_sub(cache->bytes, std::memory_order_relaxed);
    std::free(static_cast<void*>(cache));
  }
};

}  // namespace perdure::ordered
