// Caches: what leads to an inner node or past all of them: the index cache and the shortcut of each
// partition. Responsible for the retirement of empty nodes (ordered.N4).
//
// Splits and unlinks build the next cache and the next shortcut in steps of constant size, while
// lookups use the old ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "index/ordered/nodes.h"

namespace perdure::ordered {

template <Platform P, class Leaves, std::uint32_t Fanout, Start kStart>
class Caches : public Nodes<P, Leaves, Fanout> {
  using Base = Nodes<P, Leaves, Fanout>;

 public:
  using Base::Base, Base::kBytes, Base::release, Base::share;

  [[gnu::noinline]] ~Caches() {
    this->closing_ = true;
    if (partitions_.data() == nullptr) return;
    for (std::uint32_t p = 0; p < partitioning_.count(); ++p) {
      Part& part = partitions_[p];
      Shortcut<P>::free(part.shortcut.load(std::memory_order_acquire));
      Shortcut<P>::free(part.filling.table);
      free_cache(part.cache.load(std::memory_order_acquire));
      free_cache(part.copying.cache);
      if constexpr (!kBytes) continue;
      for (std::uint32_t n = part.head; n != 0;
           n = nodes_[n].next.load(std::memory_order_relaxed)) {
        this->release_separators(nodes_[n]);
      }
      for (std::uint32_t n = part.copying.removed; n != 0;
           n = static_cast<std::uint32_t>(nodes_[n].max.load(std::memory_order_relaxed))) {
        this->release_separators(nodes_[n]);
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
    constexpr std::size_t kOfNode = sizeof(Node) + (kBytes ? sizeof(typename Base::Texts) : 0);
    return std::uint64_t{this->node_high_} * kOfNode + partitioning_.count() * sizeof(Part) +
           cache_bytes_.load(std::memory_order_relaxed);
  }

 protected:
  using Base::above, Base::cache_bytes_, Base::epochs_, Base::group_of, Base::nodes_,
      Base::partitioning_, Base::partitions_, Base::position_of;
  using typename Base::Cache, typename Base::Desc, typename Base::Node, typename Base::Part;

  // Returns the node at which a search begins.
  [[gnu::always_inline]] std::uint32_t cache_start(const Part& part, const Probe& probe) const {
    if constexpr (kStart == Start::first_node) return part.head;
    const Cache* cache = part.cache.load(std::memory_order_acquire);
    const std::uint32_t count = cache->count.load(std::memory_order_acquire);
    const auto word = [&](std::uint32_t i) {
      return cache->words[i].load(std::memory_order_relaxed);
    };
    std::uint64_t wanted = probe.word;
    if constexpr (kBytes) {
      if (cache->prefix != nullptr) wanted = word_behind(cache->prefix->view(), probe);
    }
    std::uint32_t base = 0;
    for (std::uint32_t n = count; n > 1;) {  // branch-free lower bound
      const std::uint32_t half = n / 2;
      base += word(base + half - 1) < wanted ? half : 0;
      n -= half;
    }
    if constexpr (kBytes) {
      std::uint32_t end = base;  // of the run of equal words
      if (word(base) == wanted) {
        for (std::uint32_t n = count - 1 - base; n > 0;) {
          const std::uint32_t half = (n + 1) / 2;
          end += word(end + half - 1) == wanted ? half : 0;
          n -= half;
        }
      }
      if (base < end) {
        base = Base::position_in_run({cache->tails, cache->separators, cache->prefix, wanted},
                                     probe, base, end);
      }
    }
    return cache->nodes[base].load(std::memory_order_relaxed);
  }

  static Probe bound_of(const Desc& desc) {
    Probe bound{.word = desc.bound.load(std::memory_order_relaxed)};
    if constexpr (kBytes) {
      const Separator<P>* s = desc.separators.bound.load(std::memory_order_relaxed);
      if (s != nullptr) bound.bytes = s->view();
    }
    return bound;
  }

  // Returns the node that lists `leaf`, and its position there; 0 if there is none. `few`: looks
  // only where a search begins.
  [[gnu::noinline]] std::uint32_t find_node(const Part& part, std::uint32_t leaf, const Probe& hint,
                                            std::uint32_t& position, bool few = false) const {
    std::uint32_t number = cache_start(part, hint);
    for (bool from_head = false;; from_head = true) {
      for (std::uint32_t n = 0; number != 0 && !(few && n == kFewNodes);
           ++n, number = nodes_[number].next.load(std::memory_order_relaxed)) {
        const Node& node = nodes_[number];
        const std::uint32_t count = node.count.load(std::memory_order_relaxed);
        if (!from_head && above(node, hint)) continue;
        const std::uint64_t word = this->word_in(node, hint);
        position = position_of(node, hint, word, group_of(node, word));
        if (position < count && node.leaves[position].load(std::memory_order_relaxed) == leaf) {
          return number;
        }
        for (position = 0; position < count; ++position) {
          if (node.leaves[position].load(std::memory_order_relaxed) == leaf) return number;
        }
      }
      if (from_head || few) return 0;
      number = part.head;
    }
  }

  // --- the shortcut; the partition's latch is held, unless nothing else runs ---

  static constexpr std::uint32_t kFillPerLeaf = 16;  // intervals; twice what an even leaf has

  // Begins a new shortcut. The old one stays if memory is short.
  [[gnu::noinline]] void begin_shortcut(std::uint32_t partition) {
    Part& part = partitions_[partition];
    part.rebuild_at = 2 * part.leaves;
    if constexpr (kStart != Start::shortcut) return;
    std::uint64_t low = partitioning_.low(partition);
    std::uint64_t high = partitioning_.bound(partition);
    if (part.leaves > 2) {
      // The first and the last leaf reach as far as the partition does. They count with the average
      // width of the others.
      const std::uint64_t first_bound =
          this->leaves_[part.first].bound.load(std::memory_order_acquire);
      const std::uint64_t last_low = last_word(part, high);
      const std::uint64_t width = (last_low - std::min(last_low, first_bound)) / (part.leaves - 2);
      low = std::max(low, first_bound - std::min(first_bound, width));
      high = std::max(low, std::min(high, last_low + std::min(~last_low, width)));
    }
    auto& filling = part.filling;
    PERDURE_ASSERT(P, "ordered.S1", filling.table == nullptr);
    filling.table = Shortcut<P>::make(low, high, part.leaves);
    if (filling.table == nullptr) return;
    cache_bytes_.fetch_add(filling.table->bytes(), std::memory_order_relaxed);
    filling.leaf = part.first;
    filling.before = 0;
  }
  // Names up to so many leaves in the new shortcut, if there is one. Lookups use it when all are.
  [[gnu::noinline]] void fill_shortcut(Part& part, std::uint32_t leaves) {
    auto& filling = part.filling;
    if (filling.table == nullptr) return;
    if (filling.table->spent()) return drop_filling(part);
    std::uint32_t at = 0;
    std::uint32_t node = 0;
    for (std::uint32_t i = 0; i < leaves && filling.leaf != kNoLeaf; ++i) {
      const auto& desc = this->leaves_[filling.leaf];
      if (!kBytes && node == 0 && !part.unlisted) {
        node = find_node(part, filling.leaf, bound_of(desc), at, true);
      }
      // In the list, a new leaf that waits for the latch is still a part of its left neighbour.
      // From leaf to leaf it comes next, because a split sets `next` before it lowers the bound. A
      // leaf whose removal waits leads to no unlinked one: its left neighbour is locked. Byte
      // strings always go from leaf to leaf. Their nodes do not tell where a leaf ends: `low` of
      // the leaf behind falls before a removal, and the maximum stays after it (ordered.S1).
      const std::uint64_t bound = node != 0 ? nodes_[node].keys[at].load(std::memory_order_relaxed)
                                            : desc.bound.load(std::memory_order_acquire);
      const bool done =
          filling.table->fill(filling.leaf, filling.leaf == part.first, filling.before,
                              std::max(bound, filling.before), leaves * kFillPerLeaf);
      if (!done) return;
      filling.before = std::max(bound, filling.before);
      filling.leaf = listed_behind(node, at);
      if (node == 0) filling.leaf = desc.next.load(std::memory_order_acquire);
    }
    if (filling.leaf != kNoLeaf) return;
    if (!filling.table->useful()) {
      drop_filling(part);
      return replace_shortcut(part, nullptr);
    }
    Shortcut<P>* const fresh = std::exchange(filling.table, nullptr);
    replace_shortcut(part, fresh);
  }
  // Lookups then search the nodes, until the partition has grown by a quarter.
  void give_up_if_spent(Part& part, const Shortcut<P>& shortcut) {
    if (!shortcut.spent()) return;
    replace_shortcut(part, nullptr);
    part.rebuild_at = part.leaves + part.leaves / 4 + 1;
  }
  void drop_filling(Part& part) {
    cache_bytes_.fetch_sub(part.filling.table->bytes(), std::memory_order_relaxed);
    Shortcut<P>::free(std::exchange(part.filling.table, nullptr));  // no lookup has seen it
  }

  // --- the index cache; likewise ---

  // Begins a new cache. The old one stays if memory is short: its entries are hints, which only get
  // further left.
  [[gnu::noinline]] void begin_cache(Part& part) {
    auto& copying = part.copying;
    PERDURE_ASSERT(P, "ordered.N4", copying.cache == nullptr && copying.removed == 0);
    std::uint32_t stride = 1;
    while (part.nodes / stride > kMaxCached) stride *= 2;
    // Nodes may be added meanwhile. Those behind the last entry are found by walking right.
    Cache* cache = make_cache((part.nodes + part.nodes / 8) / stride + 8);
    if (cache == nullptr) return;
    if constexpr (kBytes) {
      cache->prefix = common_to_nodes(part, part.cache.load(std::memory_order_relaxed));
    }
    copying = {.cache = cache, .stride = stride};
    cache_bytes_.fetch_add(cache->bytes, std::memory_order_relaxed);
    part.changes = 0;
    part.empty = 0;
  }
  // `node` was split, and `fresh` follows it. If the node is the last of the cache, as when keys
  // ascend, the cache gets the new one at once. Returns false if it does not get it.
  bool append_to_cache(Part& part, const Node& node, std::uint32_t fresh) {
    Cache& cache = *part.cache.load(std::memory_order_relaxed);
    const std::uint32_t count = cache.count.load(std::memory_order_relaxed);
    if (count == cache.capacity ||
        &nodes_[cache.nodes[count - 1].load(std::memory_order_relaxed)] != &node) {
      return false;
    }
    if constexpr (kBytes) {
      release(cache.separators[count - 1].load(std::memory_order_relaxed));
      set_separator(cache, count - 1, node);
      set_separator(cache, count, nodes_[fresh]);
    }
    cache.nodes[count].store(fresh, std::memory_order_relaxed);
    cache.words[count].store(max_word(cache, nodes_[fresh]), std::memory_order_relaxed);
    cache.words[count - 1].store(max_word(cache, node), std::memory_order_release);
    cache.count.store(count + 1, std::memory_order_release);
    return true;
  }
  // Copies up to so many nodes to the new cache, if there is one, and takes empty nodes out of the
  // list, except the head and the last, whose maximum is the partition's. Lookups use it when all
  // nodes are in it; then the removed nodes are retired, in steps as well.
  [[gnu::noinline]] void copy_to_cache(Part& part, std::uint32_t nodes) {
    auto& copying = part.copying;
    if (copying.cache == nullptr) return retire_removed(part, nodes);
    for (std::uint32_t n = 0; n < nodes; ++n) {
      const std::uint32_t number =
          copying.previous == 0 ? part.head
                                : nodes_[copying.previous].next.load(std::memory_order_relaxed);
      if (number == 0 || copying.copied / copying.stride == copying.cache->capacity) {
        return use_copied(part);
      }
      Node& node = nodes_[number];
      const std::uint32_t next = node.next.load(std::memory_order_relaxed);
      if (copying.previous != 0 && node.count.load(std::memory_order_relaxed) == 0 && next != 0) {
        nodes_[copying.previous].next.store(next, std::memory_order_release);
        // max chains the removed nodes: next must still forward readers (ordered.N4).
        node.max.store(copying.removed, std::memory_order_relaxed);
        copying.removed = number;
        --part.nodes;
        continue;
      }
      add_to_cache(part, number);
    }
  }

 private:
  static constexpr std::uint32_t kMaxCached = 1U << 16;
  static constexpr std::uint32_t kFewNodes = 8;

  // Returns the first word of the partition's last leaf. `high`: the partition's last word.
  std::uint64_t last_word(const Part& part, std::uint64_t high) const {
    std::uint32_t leaf = part.first;
    for (std::uint32_t n = cache_start(part, {.word = high}); n != 0;
         n = nodes_[n].next.load(std::memory_order_relaxed)) {
      const std::uint32_t count = nodes_[n].count.load(std::memory_order_relaxed);
      if (count != 0) leaf = nodes_[n].leaves[count - 1].load(std::memory_order_relaxed);
    }
    return this->leaves_[leaf].low.load(std::memory_order_acquire);
  }
  // Moves the position to the leaf that is listed next, and returns it. The node becomes 0 if that
  // leaf is neither in it nor in the next one.
  std::uint32_t listed_behind(std::uint32_t& node, std::uint32_t& at) const {
    if (node == 0) return kNoLeaf;
    if (++at >= nodes_[node].count.load(std::memory_order_relaxed)) {
      node = nodes_[node].next.load(std::memory_order_relaxed);
      at = 0;
    }
    if (node != 0 && nodes_[node].count.load(std::memory_order_relaxed) != 0) {
      return nodes_[node].leaves[at].load(std::memory_order_relaxed);
    }
    node = 0;
    return kNoLeaf;
  }

  void add_to_cache(Part& part, std::uint32_t number) {
    auto& copying = part.copying;
    Cache& cache = *copying.cache;
    const Node& node = nodes_[number];
    const std::uint32_t group = copying.copied / copying.stride;
    const bool begins = copying.copied % copying.stride == 0;
    if (begins) cache.nodes[group].store(number, std::memory_order_relaxed);
    cache.words[group].store(max_word(cache, node), std::memory_order_relaxed);
    if constexpr (kBytes) {
      if (!begins) release(cache.separators[group].load(std::memory_order_relaxed));
      set_separator(cache, group, node);
    }
    cache.count.store(group + 1, std::memory_order_relaxed);
    copying.previous = number;
    ++copying.copied;
  }
  // Byte strings: what most separators of the partition's nodes begin with; null: nothing of use. A
  // key that does not begin so lies before those that do, or behind. `before`: the last cache, so
  // that this does not go through all nodes; null: nothing else runs.
  Separator<P>* common_to_nodes(const Part& part, const Cache* before) const {
    const Separator<P>* first = nodes_[part.head].max_separator.load(std::memory_order_relaxed);
    const Separator<P>* last = nullptr;
    const auto take = [&last](const Separator<P>* s) { last = s != nullptr ? s : last; };
    if (before != nullptr) {
      const std::uint32_t count = before->count.load(std::memory_order_relaxed);
      for (std::uint32_t i = count - std::min(count, 2U); i < count; ++i) {
        take(before->separators[i].load(std::memory_order_relaxed));
      }
    } else {
      for (std::uint32_t n = part.head; n != 0;
           n = nodes_[n].next.load(std::memory_order_relaxed)) {
        take(nodes_[n].max_separator.load(std::memory_order_relaxed));
      }
    }
    if (first == nullptr || last == nullptr) return nullptr;
    const std::size_t size = common_prefix(first->view(), last->view());
    if (size < this->kLeastPrefix) return nullptr;
    return Separator<P>::make(first->view().substr(0, size), 0);
  }
  // The word of a node's maximum in the cache.
  static std::uint64_t max_word(const Cache& cache, const Node& node) {
    if constexpr (kBytes) {
      const Separator<P>* s = node.max_separator.load(std::memory_order_relaxed);
      if (cache.prefix != nullptr) {
        return s != nullptr ? word_behind(cache.prefix->view(), probe_of(s->view()))
                            : ~std::uint64_t{0};
      }
    }
    return node.max.load(std::memory_order_relaxed);
  }
  static void set_separator(Cache& cache, std::uint32_t group, const Node& node) {
    Separator<P>* separator = node.max_separator.load(std::memory_order_relaxed);
    share(separator);
    cache.separators[group].store(separator, std::memory_order_release);
    Base::set_tail(cache.tails[group], separator, cache.prefix);
  }
  void use_copied(Part& part) {
    Cache* before = part.cache.load(std::memory_order_relaxed);
    part.cache.store(part.copying.cache, std::memory_order_release);
    part.copying = {.removed = part.copying.removed};
    if (before != nullptr) {
      epochs_.retire(kCacheReclaimer, this, reinterpret_cast<std::uint64_t>(before));
    }
  }
  // No cache names them any more, except those that readers still use.
  void retire_removed(Part& part, std::uint32_t most) {
    std::uint32_t& removed = part.copying.removed;
    for (; removed != 0 && most > 0; --most) {
      Node& node = nodes_[removed];
      const std::uint32_t number = removed;
      removed = static_cast<std::uint32_t>(node.max.load(std::memory_order_relaxed));
      node.max.store(0, std::memory_order_relaxed);  // a reader that is still here goes right
      this->retire_node(number);
    }
  }

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
    if (old != nullptr) {
      cache_bytes_.fetch_sub(old->bytes(), std::memory_order_relaxed);
      epochs_.retire(kShortcutReclaimer, this, reinterpret_cast<std::uint64_t>(old));
    }
  }
  // Returns a cache with room for `count` nodes, or null.
  static Cache* make_cache(std::uint32_t count) {
    using Word = typename P::template Atomic<std::uint64_t>;
    using Number = typename P::template Atomic<std::uint32_t>;
    using Pointer = typename P::template Atomic<Separator<P>*>;
    using Tail = typename Base::Tail;
    constexpr std::size_t kOfText = sizeof(Pointer) + sizeof(Tail);
    const std::uint64_t bytes =
        sizeof(Cache) + count * (sizeof(Word) + sizeof(Number) + (kBytes ? kOfText : 0)) + 8;
    void* memory = std::malloc(bytes);
    if (memory == nullptr) return nullptr;
    auto* cache = new (memory) Cache;
    cache->bytes = bytes;
    cache->capacity = count;
    cache->words = reinterpret_cast<Word*>(cache + 1);
    cache->separators = reinterpret_cast<Pointer*>(cache->words + count);
    cache->tails = reinterpret_cast<Tail*>(cache->separators + (kBytes ? count : 0));
    cache->nodes = reinterpret_cast<Number*>(cache->tails + (kBytes ? count : 0));
    return cache;
  }
  [[gnu::noinline]] void free_cache(Cache* cache) {
    if (cache == nullptr) return;
    if constexpr (kBytes) {
      const std::uint32_t count = cache->count.load(std::memory_order_relaxed);
      for (std::uint32_t i = 0; i < count; ++i) {
        release(cache->separators[i].load(std::memory_order_relaxed));
      }
      std::free(static_cast<void*>(cache->prefix));  // only lookups by this cache have read it
    }
    cache_bytes_.fetch_sub(cache->bytes, std::memory_order_relaxed);
    std::free(static_cast<void*>(cache));
  }
};

}  // namespace perdure::ordered
