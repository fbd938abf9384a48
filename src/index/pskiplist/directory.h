// Directory: the keys of the multi-version store in order, in DRAM: leaves of sorted words and node
// numbers, under the inner nodes of index/ordered, which lead to a leaf; and beside them hints, by
// which most lookups of one key come to its node at once (key_hints.h).
//
// INVARIANTS (DRAM)
//   pskiplist.D1  A leaf's version is odd while it is changed, and rises with every change; its
//       kGone bit says that it was unlinked for good. Leaves are locked from left to right.
//   pskiplist.D2  A key lies in the leaf whose range it is in: low < key <= bound, in byte strings
//       by separators. Ranges are split, and given to the right neighbour; a bound never rises.
//   pskiplist.D3  The first and the last leaf of a partition stay.
//   pskiplist.D4  A node that a hint names is listed in a leaf: it is named behind that, and not
//       any more before it is taken out.
// Who reads looks at the version before and after: what it read was so in between.
// RECLAMATION  leaves through epochs.
// PROGRESS  lookups retry while their leaf changes; a change waits for another in its leaf, or in
//   its bucket of hints. Nothing is written back here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "heap/heap.h"
#include "index/ordered/inner.h"
#include "index/pskiplist/key_hints.h"
#include "index/pskiplist/key_node.h"
#include "index/pskiplist/layout.h"
#include "index/record.h"

namespace perdure::pskiplist {

using ordered::BytesCodec;
using ordered::IntegerCodec;
using ordered::kNoLeaf;
using ordered::Probe;
using ordered::Separator;

struct Peek;

template <Platform P, class Codec, class G>
struct alignas(64) Leaf {
  template <class T>
  using Atomic = typename P::template Atomic<T>;
  static constexpr std::uint32_t kKeys = G::kLeafKeys;
  static constexpr std::uint64_t kLocked = 1;
  static constexpr std::uint64_t kGone = 2;

  Atomic<std::uint64_t> version{0};
  Atomic<std::uint64_t> low{0};    // inclusive word, if there is no separator
  Atomic<std::uint64_t> bound{0};  // inclusive
  Atomic<std::uint32_t> next{kNoLeaf};
  Atomic<std::uint32_t> count{0};
  [[no_unique_address]] ordered::Separators<P, Codec::kBytes> separators;
  alignas(64) Atomic<std::uint64_t> words[kKeys];
  Atomic<std::uint32_t> nodes[kKeys];

  bool below(const Probe& probe) const noexcept {
    return ordered::lies_below<Codec::kBytes>(*this, probe);
  }
  bool above(const Probe& probe) const noexcept {
    return ordered::lies_above<Codec::kBytes>(*this, probe);
  }
  void prefetch() const noexcept {
    const auto* bytes = reinterpret_cast<const char*>(this);
    for (std::size_t line = 0; line < sizeof(*this); line += kLine) {
      __builtin_prefetch(bytes + line);
    }
  }
  bool locked() const noexcept {
    return (version.load(std::memory_order_relaxed) & (kLocked | kGone)) == kLocked;
  }
  bool try_lock(std::uint64_t seen) noexcept {
    return version.compare_exchange_strong(seen, seen | kLocked, std::memory_order_acq_rel);
  }
  void unlock() noexcept {
    PERDURE_ASSERT(P, "pskiplist.D1", locked());
    version.store((version.load(std::memory_order_relaxed) | 3) + 1, std::memory_order_release);
  }
  void unlock_gone() noexcept {
    PERDURE_ASSERT(P, "pskiplist.D1", locked());
    version.store(((version.load(std::memory_order_relaxed) | 3) + 1) | kGone,
                  std::memory_order_release);
  }
};

template <Platform P, class Codec, class G>
class LeafArena {
 public:
  using Desc = Leaf<P, Codec, G>;
  static constexpr bool kBytes = Codec::kBytes;

  Status reserve(std::size_t leaves) noexcept {
    return leaves_.reserve(std::min<std::size_t>(leaves + 1, 0xFFFFFFF0));
  }
  Desc& operator[](std::uint32_t number) const noexcept { return leaves_[number]; }
  // Locked; or kNoLeaf.
  std::uint32_t take() noexcept {
    std::uint32_t number = kNoLeaf;
    {
      LatchGuard guard(latch_);
      if (free_ != kNoLeaf) {
        number = free_;
        free_ = leaves_[number].next.load(std::memory_order_relaxed);
      } else if (high_ + 1 < leaves_.capacity()) {
        number = ++high_;
      }
    }
    if (number == kNoLeaf) return kNoLeaf;
    Desc& leaf = leaves_[number];
    const std::uint64_t version = leaf.version.load(std::memory_order_relaxed);
    leaf.version.store(((version | 3) + 1) | Desc::kLocked, std::memory_order_relaxed);
    leaf.next.store(kNoLeaf, std::memory_order_relaxed);
    leaf.count.store(0, std::memory_order_relaxed);
    return number;
  }
  void give(std::uint32_t number) noexcept {
    LatchGuard guard(latch_);
    PERDURE_ASSERT(P, "pskiplist.D1",
                   (leaves_[number].version.load(std::memory_order_relaxed) & Desc::kGone) != 0);
    leaves_[number].next.store(free_, std::memory_order_relaxed);
    free_ = number;
  }
  std::uint32_t taken() noexcept {
    LatchGuard guard(latch_);
    return high_;
  }

 private:
  Arena<Desc> leaves_;
  typename P::Latch latch_;
  std::uint32_t free_ = kNoLeaf;
  std::uint32_t high_ = 0;
};

// A key of the directory, for building it.
struct Listed {
  std::uint64_t word;
  std::uint32_t node;
};

template <Platform P, class Codec, class G>
class Directory {
  friend struct Peek;  // of tests, into leaves

 public:
  using LeafT = Leaf<P, Codec, G>;
  using Inner = ordered::InnerIndex<P, LeafArena<P, Codec, G>, G::kInnerLeaves>;
  static constexpr std::uint32_t kKeys = G::kLeafKeys;

  // What a leaf held at one moment.
  struct Batch {
    std::uint32_t count = 0;
    std::uint64_t low = 0, bound = 0;
    const Separator<P>* low_separator = nullptr;
    const Separator<P>* bound_separator = nullptr;
    std::uint64_t words[kKeys];
    std::uint32_t nodes[kKeys];
  };

  Directory(const P& platform, const Heap<P>& heap, const NodeTable<P>& nodes,
            EpochDomain<P>& epochs) noexcept
      : platform_(platform), heap_(heap), nodes_(nodes), epochs_(epochs), inner_(leaves_, epochs) {}
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory();

  Status reserve(std::size_t max_leaves) noexcept;
  // From keys in order, while nothing else runs.
  Status build(const Listed* keys, std::size_t count, std::size_t threads) noexcept;

  // The key's node, or 0. The caller is pinned.
  std::uint32_t find(const Probe& probe) const noexcept;
  // The same, slower for keys that are not there; hinted(node) is called before a node is looked at
  // that a hint names.
  template <class F>
  std::uint32_t find(const Probe& probe, F&& hinted) const noexcept;
  // The same, faster for keys that are not there, slower for others.
  std::uint32_t find_maybe_new(const Probe& probe) const noexcept;
  std::uint32_t find_likely_new(const Probe& probe) const noexcept {
    prefetch_hint(probe);  // for put()
    return find_listed(probe);
  }
  // The same by the leaves alone; by the hints alone, which know most nodes and not all.
  std::uint32_t find_listed(const Probe& probe) const noexcept;
  std::uint32_t find_hinted(const Probe& probe) const noexcept {
    return hints_.find(hash_of(probe), [&](std::uint32_t node) { return is_of(node, probe); });
  }
  // Lists the node under its key; answers 0, or the node that is listed already. The caller is
  // pinned, and holds the node. Errors: out_of_memory.
  Expected<std::uint32_t> put(const Probe& probe, std::uint32_t node) noexcept;
  void remove(const Probe& probe, std::uint32_t node) noexcept;
  // The leaf in whose range the position lies.
  void collect(const Probe& position, Batch& batch) const noexcept;

  // For groups of lookups: the steps of find_hinted(), then the first two of find_listed().
  void prefetch_hint(const Probe& probe) const noexcept { hints_.prefetch(hash_of(probe)); }
  std::uint32_t prefetch_node(const Probe& probe) const noexcept {
    const std::uint32_t likely = hints_.find(hash_of(probe), [](std::uint32_t) { return true; });
    __builtin_prefetch(&nodes_[likely]);
    return likely;
  }
  void prefetch_key(std::uint32_t node) const noexcept {
    if constexpr (Codec::kBytes) {
      __builtin_prefetch(heap_.template at<RecordPrefix>(nodes_[node].key));
    }
  }
  void prefetch_shortcut(const Probe& probe) const noexcept { inner_.prefetch_shortcut(probe); }
  void prefetch_leaf(const Probe& probe) const noexcept {
    leaves_[inner_.locate(probe)].prefetch();
  }

  std::string_view key_of(std::uint32_t node) const noexcept;
  std::uint64_t hints() const noexcept { return hints_.named(); }  // no change is in flight
  std::uint32_t leaves() noexcept { return leaves_.taken(); }
  std::uint64_t inner_nodes() const noexcept { return inner_.node_count(); }
  std::uint64_t dram_bytes() noexcept {
    return inner_.dram_bytes() + hints_.dram_bytes() +
           std::uint64_t{leaves_.taken()} * sizeof(LeafT);
  }

 private:
  static std::uint64_t hash_of(const Probe& probe) noexcept {
    return KeyHints<P>::template hash<Codec::kBytes>(probe.word, probe.bytes);
  }
  // Of a node that is listed.
  std::uint64_t hash_of(std::uint32_t node) const noexcept {
    if constexpr (Codec::kBytes) return KeyHints<P>::template hash<true>(0, key_of(node));
    return KeyHints<P>::template hash<false>(nodes_[node].key, {});
  }
  // Whether the hints name the node under the key that it has.
  bool is_hinted(std::uint32_t node) const noexcept {
    return hints_.find(hash_of(node), [&](std::uint32_t named) { return named == node; }) != 0;
  }
  bool adjoin(const LeafT& left, const LeafT& right) const noexcept;
  bool is_first(const LeafT& leaf, std::uint32_t number) const noexcept {
    const std::uint64_t bound = leaf.bound.load(std::memory_order_relaxed);
    return number == inner_.first_leaf(inner_.partitioning().of(bound));
  }
  bool is_of(std::uint32_t node, const Probe& probe) const noexcept {
    if constexpr (Codec::kBytes) return key_of(node) == probe.bytes;
    return nodes_[node].key == probe.word;
  }
  std::uint32_t enter(const Probe& probe, std::uint64_t& version) const noexcept;
  std::uint32_t position_of(const LeafT& leaf, const Probe& probe, bool& found) const noexcept;
  std::uint32_t lock_for(const Probe& probe) noexcept;
  Status split(std::uint32_t number, std::uint32_t position) noexcept;
  void try_unlink(std::uint32_t number) noexcept;
  bool unlink_locked(LeafT& left, std::uint32_t number) noexcept;
  Status build_partition(std::uint32_t partition, const Listed* keys, std::size_t count) noexcept;
  void name_keys(const Listed* keys, std::size_t count) noexcept;
  static void finish_leaf(void* self, std::uint64_t number) {
    static_cast<Directory*>(self)->leaves_.give(static_cast<std::uint32_t>(number));
  }
  static constexpr Reclaimer kLeafReclaimer{nullptr, &finish_leaf};

  const P& platform_;
  const Heap<P>& heap_;
  const NodeTable<P>& nodes_;
  EpochDomain<P>& epochs_;
  LeafArena<P, Codec, G> leaves_;
  Inner inner_;
  KeyHints<P> hints_;
};

}  // namespace perdure::pskiplist

#include "index/pskiplist/directory.inl.h"  // IWYU pragma: keep
