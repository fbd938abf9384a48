// InnerIndex: what lies in DRAM above the leaves of an ordered engine: partitions, index caches,
// inner nodes.
//
// WHAT  PhaST's (its paper's sections in brackets). Partitions by key prefix (§3.1); per partition
//   a list of inner nodes of up to 128 leaves each (§3.3) and an index cache (§3.2): an immutable
//   sorted array over the inner nodes, replaced as a whole. Deviation: the cache takes the place of
//   the towers of the paper's skiplist; it is the flattened upper level, every node while there are
//   at most 64 Ki of them, then every 2^k-th (docs/decisions/0003).
// INVARIANTS (DRAM)
//   ordered.N1  Whatever a lookup reads here is a hint: the leaf's descriptor decides (low < key <=
//       bound, version).
//   ordered.N2  Landing left of the key is harmless (walk right by descriptors). Inserting a leaf
//       shifts leaf numbers from the end, then keys from the end, so readers land left (hazard P8).
//       Splitting a node publishes the new node, then `next`, then the lower maximum (hazard P7).
//   ordered.N3  Removing a leaf may let a reader land right; it sees key <= low and tries again.
//   ordered.N4  A node's range never grows to the left. An empty node forwards to its right
//       neighbour until the next cache leaves it out; it is retired then.
// ORDERING  keys and leaf numbers: stored release, loaded acquire: a reader that sees a shifted
//   key sees the shifted leaf numbers. cache: release / acquire.
// RECLAMATION  caches and empty nodes through epochs.
// PROGRESS  lookups are lock-free; changes take the partition's latch.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "index/ordered/probe.h"
#include "index/ordered/shortcut.h"
#include "reclaim/epoch.h"
#include "util/arena.h"

namespace perdure::ordered {

// How keys map to partitions; monotone, so that scans go from one to the next.
struct Partitioning {
  std::uint32_t bits = 7;
  std::uint32_t shift = 57;
  std::uint32_t count() const noexcept { return 1U << bits; }
  std::uint32_t of(std::uint64_t word) const noexcept {
    if (bits == 0) return 0;
    const std::uint64_t p = word >> shift;
    return p < count() ? static_cast<std::uint32_t>(p) : count() - 1;
  }
  std::uint64_t low(std::uint32_t p) const noexcept {
    return p == 0 ? 0 : std::uint64_t{p} << shift;
  }
  std::uint64_t bound(std::uint32_t p) const noexcept {
    return p + 1 == count() ? ~std::uint64_t{0} : (std::uint64_t{p + 1} << shift) - 1;
  }
};

// Leaves: a table of leaves by number. It says whether keys are byte strings (kBytes); of its Desc,
// which decides, low, bound, next, separators and above() are used.
template <Platform P, class Leaves, std::uint32_t Fanout>
class InnerIndex {
 public:
  using Desc = typename Leaves::Desc;
  template <class T>
  using Atomic = typename P::template Atomic<T>;
  static constexpr bool kBytes = Leaves::kBytes;
  static constexpr std::uint32_t kFanout = Fanout;
  static constexpr std::uint32_t kGroup = kFanout < 8 ? kFanout : 8;  // keys per line
  static constexpr std::uint32_t kGroups = kFanout / kGroup;
  static_assert(std::has_single_bit(kGroup) && std::has_single_bit(kGroups));
  static constexpr std::uint32_t kMaxCached = 1U << 16;

  InnerIndex(Leaves& leaves, EpochDomain<P>& epochs) noexcept : leaves_(leaves), epochs_(epochs) {}
  InnerIndex(const InnerIndex&) = delete;
  InnerIndex& operator=(const InnerIndex&) = delete;
  ~InnerIndex();

  Status reserve(const Partitioning& partitioning, std::size_t max_leaves) noexcept;
  const Partitioning& partitioning() const noexcept { return partitioning_; }

  // A leaf at or left of the key's, nearly always the key's own (ordered.N1). The caller of these
  // functions is pinned.
  std::uint32_t locate(const Probe& probe) const noexcept {
    const std::uint32_t leaf = shortcut_to(probe);
    return leaf != kNoLeaf ? leaf : search(probe);
  }
  // The same from the inner nodes alone.
  std::uint32_t search(const Probe& probe) const noexcept;
  std::uint32_t first_leaf(std::uint32_t partition) const noexcept {
    return partitions_[partition].first;
  }

  // locate() in steps, for batches: each prefetches for the next. shortcut_to() may answer kNoLeaf.
  void prefetch_shortcut(const Probe& probe) const noexcept {
    const auto* s = part_of(probe).shortcut.load(std::memory_order_acquire);
    if (s != nullptr) s->prefetch(probe.word);
  }
  [[gnu::always_inline]] std::uint32_t shortcut_to(const Probe& probe) const noexcept {
    PERDURE_ASSERT(P, "ordered.S2", epochs_.pinned());
    const auto* s = part_of(probe).shortcut.load(std::memory_order_acquire);
    return s != nullptr ? s->leaf_of(probe.word) : kNoLeaf;
  }
  struct Step {
    const void* node = nullptr;
    std::uint32_t group = 0;
  };
  Step locate_node(const Probe& probe) const noexcept;
  void locate_group(const Probe& probe, Step& step) const noexcept;
  std::uint32_t locate_leaf(const Probe& probe, const Step& step) const noexcept;

  // Leaves of one partition in order, while nothing else runs (recovery, creation).
  Status build(std::uint32_t partition, const std::uint32_t* leaves, std::size_t count) noexcept;
  // `fresh` was split off `old`: old's bound in its descriptor is the new one. Errors:
  // out_of_memory, then lookups reach `fresh` by walking right.
  Status insert_after(std::uint32_t partition, std::uint32_t old, std::uint32_t fresh) noexcept;
  // `leaf` was unlinked; its range belongs to `heir`, its right neighbour, now.
  void remove(std::uint32_t partition, std::uint32_t leaf, std::uint32_t heir) noexcept;

  std::uint64_t dram_bytes() const noexcept;
  std::uint64_t node_count() const noexcept;

 private:
  struct alignas(64) Node {
    Atomic<std::uint64_t> max{0};  // inclusive bound of the last leaf when it was set
    Atomic<Separator<P>*> max_separator{nullptr};
    Atomic<std::uint32_t> next{0};
    Atomic<std::uint32_t> count{0};
    alignas(64) Atomic<std::uint64_t> guide[kGroups];  // last key of each group
    alignas(64) Atomic<std::uint64_t> keys[kFanout];   // bounds; ~0 behind count
    alignas(64) Atomic<std::uint32_t> leaves[kFanout];
  };
  struct Cache {
    std::uint32_t count;
    std::uint32_t* nodes;       // where to start for words[i]
    std::uint64_t* words;       // max of the group's last node, when built
    Separator<P>** separators;  // byte strings only
    std::uint64_t bytes;
  };
  struct alignas(64) Part {
    Atomic<Shortcut<P>*> shortcut{nullptr};  // null: the nodes are searched
    Atomic<Cache*> cache{nullptr};
    mutable typename P::Latch latch;
    std::uint32_t head = 0;   // first node
    std::uint32_t first = 0;  // first leaf, never unlinked
    std::uint32_t nodes = 0;
    std::uint32_t leaves = 0;
    std::uint32_t rebuild_at = 0;  // leaves at which the shortcut is made again
    std::uint32_t changes = 0;     // nodes added since the cache was built
    std::uint32_t empty = 0;
  };

  const Part& part_of(const Probe& probe) const noexcept {
    return partitions_[partitioning_.of(probe.word)];
  }
  bool above(const Node& node, const Probe& probe) const noexcept {
    const std::uint64_t word = node.max.load(std::memory_order_acquire);
    if constexpr (kBytes) {
      if (probe.word == word) {
        const Separator<P>* s = node.max_separator.load(std::memory_order_acquire);
        return s != nullptr && compare(probe, s->view()) > 0;
      }
    }
    return probe.word > word;
  }
  std::uint32_t group_of(const Node& node, std::uint64_t word) const noexcept {
    std::uint32_t group = 0;  // lower bound, unrolled and without branches
#pragma GCC unroll 8
    for (std::uint32_t half = kGroups / 2; half != 0; half /= 2) {
      group += node.guide[group + half - 1].load(std::memory_order_acquire) < word ? half : 0;
    }
    return group;
  }
  std::uint32_t position_of(const Node& node, const Probe& probe,
                            std::uint32_t group) const noexcept;
  std::uint32_t cache_start(const Part& part, const Probe& probe) const noexcept;

  std::uint32_t take_node() noexcept;
  void set_key(Node& node, std::uint32_t i, std::uint64_t word) noexcept {
    node.keys[i].store(word, std::memory_order_release);
  }
  void refresh_guide(Node& node) noexcept {
    for (std::uint32_t g = 0; g < kGroups; ++g) {
      node.guide[g].store(node.keys[g * kGroup + kGroup - 1].load(std::memory_order_relaxed),
                          std::memory_order_release);
    }
  }
  void set_max(Node& node, const Desc& last) noexcept;
  void replace_max_separator(Node& node, Separator<P>* fresh) noexcept;
  bool split_node(Part& part, Node& node) noexcept;
  void rebuild_cache(Part& part) noexcept;
  void rebuild_shortcut(std::uint32_t partition) noexcept;
  void replace_shortcut(Part& part, Shortcut<P>* fresh) noexcept;
  void give_up_if_spent(Part& part, const Shortcut<P>& shortcut) noexcept;
  void drop_separator(Separator<P>* separator) noexcept;
  std::uint32_t find_node(const Part& part, std::uint32_t leaf, const Probe& hint,
                          std::uint32_t& position) const noexcept;

  static void finish_cache(void* self, std::uint64_t cache) {
    static_cast<InnerIndex*>(self)->free_cache(reinterpret_cast<Cache*>(cache));
  }
  static void finish_shortcut(void*, std::uint64_t shortcut) {
    Shortcut<P>::free(reinterpret_cast<Shortcut<P>*>(shortcut));
  }
  static void finish_node(void* self, std::uint64_t number) {
    static_cast<InnerIndex*>(self)->free_node(static_cast<std::uint32_t>(number));
  }
  static void finish_separator(void*, std::uint64_t separator) {
    std::free(reinterpret_cast<void*>(separator));
  }
  static constexpr Reclaimer kCacheReclaimer{nullptr, &finish_cache};
  static constexpr Reclaimer kShortcutReclaimer{nullptr, &finish_shortcut};
  static constexpr Reclaimer kNodeReclaimer{nullptr, &finish_node};
  static constexpr Reclaimer kSeparatorReclaimer{nullptr, &finish_separator};
  void free_cache(Cache* cache) noexcept;
  void free_node(std::uint32_t number) noexcept;

 public:
  static void share(Separator<P>* separator) noexcept {
    if (separator != nullptr) separator->references.fetch_add(1, std::memory_order_relaxed);
  }
  // Gives one reference up; readers may still hold the pointer, so the last one goes through
  // epochs.
  void release(Separator<P>* separator) noexcept { drop_separator(separator); }

 private:
  Leaves& leaves_;
  EpochDomain<P>& epochs_;
  Partitioning partitioning_;
  Arena<Node> nodes_;
  Arena<Part> partitions_;
  mutable typename P::Latch node_latch_;
  std::uint32_t node_free_ = 0;
  std::uint32_t node_high_ = 0;
  Atomic<std::uint64_t> cache_bytes_{0};
  bool closing_ = false;
};

}  // namespace perdure::ordered

#include "index/ordered/inner.inl.h"  // IWYU pragma: keep
