// Nodes: the data of InnerIndex (inner.h): partitions, inner nodes and counted separators; also the
// search within one node. Responsible for the order of stores to one node (ordered.N2).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "index/ordered/probe.h"
#include "index/ordered/shortcut.h"
#include "reclaim/epoch.h"
#include "util/arena.h"

namespace perdure::ordered {

// How keys map to partitions. The map is monotone, so a scan goes from one partition to the next.
struct Partitioning {
  std::uint32_t bits = 7;
  std::uint32_t shift = 57;
  std::uint32_t count() const { return 1U << bits; }
  std::uint32_t of(std::uint64_t word) const {
    if (bits == 0) return 0;
    const std::uint64_t p = word >> shift;
    return p < count() ? static_cast<std::uint32_t>(p) : count() - 1;
  }
  std::uint64_t low(std::uint32_t p) const { return p == 0 ? 0 : std::uint64_t{p} << shift; }
  std::uint64_t bound(std::uint32_t p) const {
    return p + 1 == count() ? ~std::uint64_t{0} : (std::uint64_t{p + 1} << shift) - 1;
  }
};

template <Platform P, class Leaves, std::uint32_t Fanout>
class Nodes {
 public:
  using Desc = typename Leaves::Desc;
  template <class V>
  using Atomic = typename P::template Atomic<V>;
  static constexpr bool kBytes = Leaves::kBytes;

  Nodes(Leaves& leaves, EpochDomain<P>& epochs) : leaves_(leaves), epochs_(epochs) {}
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  const Partitioning& partitioning() const { return partitioning_; }
  std::uint32_t first_leaf(std::uint32_t partition) const { return partitions_[partition].first; }
  std::uint64_t node_count() const {
    std::uint64_t count = 0;
    for (std::uint32_t p = 0; p < partitioning_.count(); ++p) {
      LatchGuard guard(partitions_[p].latch);
      count += partitions_[p].nodes;
    }
    return count;
  }

  static void share(Separator<P>* separator) {
    if (separator != nullptr) separator->references.fetch_add(1, std::memory_order_relaxed);
  }
  // Gives up one reference. Readers may still hold the pointer, so the last reference goes through
  // epochs.
  [[gnu::noinline]] void release(Separator<P>* separator) {
    if (separator == nullptr) return;
    if (separator->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (closing_) {
      std::free(static_cast<void*>(separator));
    } else {
      epochs_.retire(kSeparatorReclaimer, this, reinterpret_cast<std::uint64_t>(separator));
    }
  }

 protected:
  static constexpr std::uint32_t kFanout = Fanout;
  static constexpr std::uint32_t kGroup = kFanout < 8 ? kFanout : 8;  // keys per line
  static constexpr std::uint32_t kGroups = kFanout / kGroup;
  static_assert(std::has_single_bit(kGroup) && std::has_single_bit(kGroups));

  // Words of a tail: with the key's own, 40 bytes behind the prefix. Tests have a small fanout.
  static constexpr std::uint32_t kTail = kFanout < 16 ? 1 : 4;
  // What follows a key's word, zero-padded, as words that order as the bytes do.
  struct Tail {
    Atomic<std::uint64_t> words[kTail];
  };
  // Byte strings: of each key, the separator behind the leaf and its tail. Apart from the nodes: a
  // node of one leaf, which may be all of its map's, touches none.
  struct Texts {
    Atomic<Separator<P>*> bounds[kFanout];  // with a reference; null: the end of the partition
    alignas(64) Tail tails[kFanout];
  };
  struct alignas(64) Node {
    Atomic<std::uint64_t> max{0};  // inclusive bound of the last leaf when it was set
    Atomic<Separator<P>*> max_separator{nullptr};
    Atomic<std::uint32_t> next{0};
    Atomic<std::uint32_t> count{0};
    Atomic<Separator<P>*> prefix{nullptr};  // of all keys, which are words behind it; null: empty
    Atomic<std::uint32_t> changes_prefix{0};
    Atomic<std::uint32_t> changes{0};  // byte strings; odd: the keys or the leaves are changing
    Texts* texts = nullptr;            // byte strings: of this node's number
    alignas(64) Atomic<std::uint64_t> guide[kGroups];  // last key of each group
    alignas(64) Atomic<std::uint64_t> keys[kFanout];   // bounds; ~0 behind count
    alignas(64) Atomic<std::uint32_t> leaves[kFanout];
  };
  struct Cache {
    Atomic<std::uint32_t> count{0};
    Atomic<std::uint64_t>* words;       // of the group's last node: its max when it was copied
    Atomic<Separator<P>*>* separators;  // byte strings only
    Tail* tails;                        // likewise
    Atomic<std::uint32_t>* nodes;       // where to start for words[i]
    Separator<P>* prefix = nullptr;     // the words are those of what follows it; null: empty
    std::uint64_t bytes;
    std::uint32_t capacity;
  };
  struct alignas(64) Part {
    Atomic<Shortcut<P>*> shortcut{nullptr};  // null: the nodes are searched
    Atomic<Cache*> cache{nullptr};
    std::uint32_t first = 0;  // first leaf, never unlinked
    // Every split writes these, and no lookup reads them.
    alignas(kOwnLine) mutable typename P::Latch latch;
    std::uint32_t head = 0;  // first node
    std::uint32_t nodes = 0;
    std::uint32_t leaves = 0;
    std::uint32_t rebuild_at = 0;  // number of leaves at which the shortcut is built again
    std::uint32_t changes = 0;     // nodes added since the cache was built
    std::uint32_t empty = 0;
    bool unlisted = false;  // a split found no node: keys may lie above the bounds of their leaves
    // The next shortcut and the next cache, which splits and unlinks build in steps; or null.
    struct {
      Shortcut<P>* table = nullptr;
      std::uint32_t leaf = 0;    // the next one; kNoLeaf: all are named
      std::uint64_t before = 0;  // the words up to this one are done
    } filling;
    struct {
      Cache* cache = nullptr;
      std::uint32_t stride = 1;
      std::uint32_t copied = 0;    // nodes
      std::uint32_t previous = 0;  // the last of them; 0: none
      std::uint32_t removed = 0;   // empty nodes out of the list, chained by `max`
    } copying;
  };

  const Part& part_of(const Probe& probe) const {
    return partitions_[partitioning_.of(probe.word)];
  }

  // --- search ---
  bool above(const Node& node, const Probe& probe) const {
    const std::uint64_t word = node.max.load(std::memory_order_acquire);
    if constexpr (kBytes) {
      if (probe.word == word) {
        const Separator<P>* s = node.max_separator.load(std::memory_order_acquire);
        return s != nullptr && compare(probe, s->view()) > 0;
      }
    }
    return probe.word > word;
  }
  // The same for a probe that has this word in the node, and this group. Nearly always without the
  // maximum, whose separator is a miss: the last key of the group is listed, and lies behind the
  // probe.
  [[gnu::always_inline]] bool above(const Node& node, const Probe& probe, std::uint64_t word,
                                    std::uint32_t group) const {
    if constexpr (kBytes) {
      const std::uint32_t count = node.count.load(std::memory_order_acquire);
      if ((group + 1) * kGroup <= count && node.guide[group].load(std::memory_order_acquire) > word)
          [[likely]] {
        return false;
      }
    }
    return above(node, probe);
  }
  // Returns the word by which the node's keys are searched for the probe (ordered.N5).
  [[gnu::always_inline]] std::uint64_t word_in(const Node& node, const Probe& probe) const {
    if constexpr (kBytes) {
      if (node.changes_prefix.load(std::memory_order_acquire) != 0) [[unlikely]]
        return 0;
      const Separator<P>* prefix = node.prefix.load(std::memory_order_acquire);
      if (prefix != nullptr) return word_behind(prefix->view(), probe);
    }
    return probe.word;
  }
  std::uint32_t group_of(const Node& node, std::uint64_t word) const {
    std::uint32_t group = 0;  // lower bound, unrolled and without branches
#pragma GCC unroll 8
    for (std::uint32_t half = kGroups / 2; half != 0; half /= 2) {
      group += node.guide[group + half - 1].load(std::memory_order_acquire) < word ? half : 0;
    }
    return group;
  }
  // Returns the first position of the node whose key is at or behind the probe, or kFanout. `word`:
  // the probe's in this node; `group`: of that word.
  [[gnu::always_inline]] std::uint32_t position_of(const Node& node, const Probe& probe,
                                                   std::uint64_t word, std::uint32_t group) const {
    std::uint32_t position = group * kGroup;
#pragma GCC unroll 8
    for (std::uint32_t half = kGroup / 2; half != 0; half /= 2) {
      const std::uint64_t key = node.keys[position + half - 1].load(std::memory_order_acquire);
      position += key < word ? half : 0;
    }
    position += node.keys[position].load(std::memory_order_acquire) < word ? 1 : 0;
    if constexpr (kBytes) {
      const std::uint32_t count = node.count.load(std::memory_order_acquire);
      std::uint32_t end = position;
      while (end < count && node.keys[end].load(std::memory_order_acquire) == word) ++end;
      if (position < end) {
        const Separator<P>* prefix = node.prefix.load(std::memory_order_acquire);
        return position_in_run({node.texts->tails, node.texts->bounds, prefix, word}, probe,
                               position, end);
      }
    }
    return position;
  }
  // Positions of a node or of a cache, whose words are equal to the probe's.
  struct Run {
    const Tail* tails;
    const Atomic<Separator<P>*>* bounds;
    const Separator<P>* prefix;
    std::uint64_t word;
  };
  // Binary search: the tails decide, and where those are equal too, the separators.
  [[gnu::always_inline]] static std::uint32_t position_in_run(const Run& run, const Probe& probe,
                                                              std::uint32_t position,
                                                              std::uint32_t end) {
    // A probe without the prefix has one of these words.
    const bool has_tail = run.word != 0 && run.word != ~std::uint64_t{0} && !probe.last;
    std::uint64_t tail[kTail];
    if (has_tail) tail_behind(probe.bytes, run.prefix != nullptr ? run.prefix->size : 0, tail);
    for (bool fetched = false; position < end;) {
      const std::uint32_t middle = (position + end) / 2;
      int order = has_tail ? compare_tail(tail, run.tails[middle]) : 0;
      if (order == 0) {
        if (!fetched && end - position <= kFetched) {
          fetch_bounds(run.bounds, position, end);
          fetched = true;
        }
        const Separator<P>* s = run.bounds[middle].load(std::memory_order_acquire);
        order = s != nullptr && compare(probe, s->view()) > 0 ? 1 : -1;
      }
      if (order > 0) {
        position = middle + 1;
      } else {
        end = middle;
      }
    }
    return position;
  }
  // The tail of a string whose prefix and word have been compared.
  static void tail_behind(std::string_view bytes, std::size_t prefix,
                          std::uint64_t (&tail)[kTail]) {
    const std::size_t begin = prefix + 8;
    const std::size_t size = std::min(bytes.size() - std::min(bytes.size(), begin), sizeof(tail));
    for (std::uint64_t& word : tail) word = 0;
    if (size != 0) std::memcpy(tail, bytes.data() + begin, size);
    for (std::uint64_t& word : tail) word = __builtin_bswap64(word);
  }
  static int compare_tail(const std::uint64_t (&tail)[kTail], const Tail& other) {
    for (std::uint32_t i = 0; i < kTail; ++i) {
      const std::uint64_t word = other.words[i].load(std::memory_order_acquire);
      if (tail[i] != word) return tail[i] < word ? -1 : 1;
    }
    return 0;
  }

  // Keys that begin alike: their words are often equal, too.
  [[gnu::always_inline]] static void fetch_texts(const Node& node, std::uint32_t group)
    requires(kBytes)
  {
    if (node.prefix.load(std::memory_order_relaxed) == nullptr) return;
    for (std::uint32_t i = group * kGroup; i < (group + 1) * kGroup; i += kLine / sizeof(Tail)) {
      __builtin_prefetch(&node.texts->tails[i]);
    }
    __builtin_prefetch(&node.texts->bounds[group * kGroup]);
  }
  static void fetch_bounds(const Atomic<Separator<P>*>* bounds, std::uint32_t begin,
                           std::uint32_t end) {
    for (std::uint32_t i = begin; i < end; ++i) {
      const Separator<P>* s = bounds[i].load(std::memory_order_acquire);
      if (s != nullptr) s->prefetch();
    }
  }

  // --- changes: the partition's latch is held, unless nothing else runs ---
  static void set_key(Node& node, std::uint32_t i, std::uint64_t word) {
    node.keys[i].store(word, std::memory_order_release);
  }
  // Held while anything of a node changes that tells where a leaf ends (ordered.N6).
  class [[nodiscard]] Change {
   public:
    explicit Change(Node& node) : node_(node) { step(1); }
    ~Change() { step(0); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    void step([[maybe_unused]] std::uint32_t parity) {
      if constexpr (kBytes) {
        const std::uint32_t changes = node_.changes.load(std::memory_order_relaxed);
        PERDURE_ASSERT(P, "ordered.N6", changes % 2 != parity);
        node_.changes.store(changes + 1, std::memory_order_release);
      }
    }
    Node& node_;
  };
  static void set_tail(Tail& tail, const Separator<P>* separator, const Separator<P>* prefix) {
    std::uint64_t words[kTail] = {};
    if (separator != nullptr) {
      tail_behind(separator->view(), prefix != nullptr ? prefix->size : 0, words);
    }
    for (std::uint32_t k = 0; k < kTail; ++k) {
      tail.words[k].store(separator != nullptr ? words[k] : ~std::uint64_t{0},
                          std::memory_order_release);
    }
  }
  // Position `to` gets the key of position `from`.
  static void copy_key(Node& node, std::uint32_t to, std::uint32_t from) {
    set_key(node, to, node.keys[from].load(std::memory_order_relaxed));
    if constexpr (kBytes) {
      auto& [bounds, tails] = *node.texts;
      bounds[to].store(bounds[from].load(std::memory_order_relaxed), std::memory_order_release);
      for (std::uint32_t k = 0; k < kTail; ++k) {
        tails[to].words[k].store(tails[from].words[k].load(std::memory_order_relaxed),
                                 std::memory_order_release);
      }
    }
  }
  static void refresh_guide(Node& node) {
    for (std::uint32_t g = 0; g < kGroups; ++g) {
      node.guide[g].store(node.keys[g * kGroup + kGroup - 1].load(std::memory_order_relaxed),
                          std::memory_order_release);
    }
  }
  void replace_max_separator(Node& node, Separator<P>* fresh) {
    share(fresh);
    Separator<P>* before = node.max_separator.load(std::memory_order_relaxed);
    node.max_separator.store(fresh, std::memory_order_release);
    release(before);
  }
  // A reader that combines a new separator with an old maximum goes left or retries (ordered.N1).
  void set_max(Node& node, const Desc& last) {
    if constexpr (kBytes) {
      replace_max_separator(node, last.separators.bound.load(std::memory_order_acquire));
    }
    node.max.store(last.bound.load(std::memory_order_relaxed), std::memory_order_release);
  }
  // Byte strings: finds the prefix of all keys and sets the keys behind it. Without memory there is
  // no prefix. Meanwhile lookups begin at the node's first leaf. A short prefix is none: the words
  // still tell the keys apart, and a lookup saves the comparison.
  static constexpr std::size_t kLeastPrefix = 4;
  static constexpr std::uint32_t kFetched = 8;  // leaves of one word
  [[gnu::noinline]] void choose_prefix(Node& node) {
    const std::uint32_t count = node.count.load(std::memory_order_relaxed);
    const auto bound = [&](std::uint32_t i) -> const Separator<P>* {
      return i < count ? node.texts->bounds[i].load(std::memory_order_relaxed) : nullptr;
    };
    const Separator<P>* last = bound(count - 1);
    if (last == nullptr && count > 1) last = bound(count - 2);
    std::string_view common;
    if (last != nullptr) {
      common = last->view().substr(0, common_prefix(bound(0)->view(), last->view()));
    }
    node.changes_prefix.store(1, std::memory_order_release);
    Separator<P>* prefix = common.size() < kLeastPrefix ? nullptr : Separator<P>::make(common, 0);
    if (prefix == nullptr) common = {};
    release(node.prefix.exchange(prefix, std::memory_order_acq_rel));
    for (std::uint32_t i = 0; i < kFanout; ++i) {
      const Separator<P>* s = bound(i);
      PERDURE_ASSERT(P, "ordered.N5", s == nullptr || s->view().starts_with(common));
      set_key(node, i, s != nullptr ? word_behind(common, probe_of(s->view())) : ~std::uint64_t{0});
      if (s != nullptr) set_tail(node.texts->tails[i], s, prefix);  // none is compared with ~0
    }
    refresh_guide(node);
    node.changes_prefix.store(0, std::memory_order_release);
  }
  // Whether a key can be listed without a change of the prefix.
  static bool has_prefix(const Node& node, std::string_view key) {
    const Separator<P>* prefix = node.prefix.load(std::memory_order_relaxed);
    return prefix == nullptr || key.starts_with(prefix->view());
  }
  void release_separators(Node& node) {
    if constexpr (kBytes) {
      release(node.max_separator.exchange(nullptr, std::memory_order_acq_rel));
      release(node.prefix.exchange(nullptr, std::memory_order_acq_rel));
      for (auto& bound : node.texts->bounds) {
        if (bound.load(std::memory_order_relaxed) == nullptr) continue;
        release(bound.exchange(nullptr, std::memory_order_acq_rel));
      }
    }
  }
  // Returns the number of a node, or 0.
  std::uint32_t take_node() {
    LatchGuard guard(node_latch_);
    if (node_free_ != 0) {
      const std::uint32_t number = node_free_;
      node_free_ = nodes_[number].next.load(std::memory_order_relaxed);
      return number;
    }
    if (node_high_ + 1 >= nodes_.capacity()) return 0;
    ++node_high_;
    if constexpr (kBytes) nodes_[node_high_].texts = &texts_[node_high_];
    return node_high_;
  }
  void retire_node(std::uint32_t number) { epochs_.retire(kNodeReclaimer, this, number); }

  Leaves& leaves_;
  EpochDomain<P>& epochs_;
  Partitioning partitioning_;
  Arena<Node> nodes_;
  Arena<Texts> texts_;  // byte strings only
  Arena<Part> partitions_;
  bool closing_ = false;
  alignas(kOwnLine) mutable typename P::Latch node_latch_;
  std::uint32_t node_free_ = 0;
  std::uint32_t node_high_ = 0;
  Atomic<std::uint64_t> cache_bytes_{0};

 private:
  static void finish_separator(void*, std::uint64_t separator) {
    std::free(reinterpret_cast<void*>(separator));
  }
  static void finish_node(void* self, std::uint64_t number) {
    static_cast<Nodes*>(self)->free_node(static_cast<std::uint32_t>(number));
  }
  static constexpr Reclaimer kSeparatorReclaimer{nullptr, &finish_separator};
  static constexpr Reclaimer kNodeReclaimer{nullptr, &finish_node};
  [[gnu::noinline]] void free_node(std::uint32_t number) {
    release_separators(nodes_[number]);
    LatchGuard guard(node_latch_);
    nodes_[number].next.store(node_free_, std::memory_order_relaxed);
    node_free_ = number;
  }
};

}  // namespace perdure::ordered
