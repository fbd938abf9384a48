// Directory: the keys of the multi-version store in order, in DRAM: leaves of sorted words and node
// numbers (leaf.h), under the inner nodes of index/ordered, which lead to a leaf. Hints beside them
// lead most lookups of one key to its node at once (key_hints.h). Lookups: directory_lookup.h.
//
// INVARIANTS (DRAM)
//   pskiplist.D1  A leaf's version is odd while the leaf is changed, and rises with every change.
//       Its kGone bit says that the leaf was unlinked for good. Leaves are locked from left to
//       right.
//   pskiplist.D2  A key lies in the leaf whose range it is in: low < key <= bound, in byte strings
//       by separators. A range is split, or given to the right neighbour; a bound never rises.
//   pskiplist.D3  The first and the last leaf of a partition stay.
//   pskiplist.D4  A node that a hint names is listed in a leaf: the hint is made after the node was
//       listed, and goes before the node leaves the leaf.
// A reader loads the version before and after. If both are equal, it has read one moment between.
// ABSENCE  A key is absent if its leaf does not list it, or if the hints say so for certain
//   (pskiplist.H4). At some moment of such a lookup it was: a key that is present throughout has
//   one node throughout, because another is listed only after the first is dead and has left the
//   leaf. That node is named throughout: its first version is stamped after put() has returned,
//   and remove() begins after it is dead, durably.
// RECLAMATION  Leaves go through epochs.
// PROGRESS  A lookup retries while its leaf changes. A change waits for another one in its leaf, or
//   in its bucket of hints. Nothing is written back here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "index/pskiplist/directory_lookup.h"

namespace perdure::pskiplist {

struct Peek;

// A key and its node, to build the directory from.
struct Listed {
  std::uint64_t word;
  std::uint32_t node;
};

template <class T>
class Directory : public DirectoryLookup<T> {
  friend struct Peek;  // of tests, into leaves
  using Base = DirectoryLookup<T>;
  using Base::enter, Base::epochs_, Base::hash_of, Base::hints_, Base::inner_, Base::kBytes;
  using Base::leaves_, Base::nodes_, Base::position_of;
  using typename Base::P, typename Base::G;

 public:
  using Base::key_of, Base::kKeys, Base::prefetch_key;
  using typename Base::Inner, typename Base::LeafT;

  Directory(const P& platform, const Heap<P>& heap, const NodeTable<P>& nodes,
            EpochDomain<P>& epochs)
      : Base(platform, heap, nodes, epochs) {}
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  [[gnu::noinline]] ~Directory() {
    epochs_.drain_all();
    if constexpr (kBytes) {
      if (leaves_.taken() == 0) return;
      for (std::uint32_t p = 0; p < inner_.partitioning().count(); ++p) {
        for (std::uint32_t n = inner_.first_leaf(p); n != kNoLeaf;
             n = leaves_[n].next.load(std::memory_order_relaxed)) {
          inner_.release(leaves_[n].separators.bound.load(std::memory_order_relaxed));
          inner_.release(leaves_[n].separators.low.load(std::memory_order_relaxed));
        }
      }
      epochs_.drain_all();
    }
  }

  [[gnu::noinline]] Status reserve(std::size_t max_leaves) {
    const ordered::Partitioning partitioning{.bits = G::kPartitionBits,
                                             .shift = 64 - G::kPartitionBits};
    if (Status s = leaves_.reserve(max_leaves); !s.ok()) return s;
    if (Status s = hints_.reserve(nodes_.capacity()); !s.ok()) return s;
    return inner_.reserve(partitioning, max_leaves);
  }
  // Builds all of it from keys in order, while nothing else runs.
  [[gnu::noinline]] Status build(const Listed* keys, std::size_t count, std::size_t threads) {
    const ordered::Partitioning& partitioning = inner_.partitioning();
    std::size_t begin = 0;
    for (std::uint32_t p = 0; p < partitioning.count(); ++p) {
      const Listed* end =
          std::upper_bound(keys + begin, keys + count, partitioning.bound(p),
                           [](std::uint64_t bound, const Listed& key) { return bound < key.word; });
      const auto n = static_cast<std::size_t>(end - (keys + begin));
      if (Status s = build_partition(p, keys + begin, n); !s.ok()) return s;
      begin += n;
    }
    hints_.prepare(count);
    P::parallel(threads, [&](std::size_t t) {
      const std::size_t from = count * t / threads;
      name_keys(keys + from, count * (t + 1) / threads - from);
    });
    return {};
  }

  // Lists the node under its key. Returns 0, or the node that is listed already. The caller is
  // pinned, and holds the node. Errors: out_of_memory.
  [[gnu::noinline]] Expected<std::uint32_t> put(const Probe& probe, std::uint32_t node) {
    for (;;) {
      const std::uint32_t number = lock_for(probe);
      LeafT& leaf = leaves_[number];
      bool found = false;
      const std::uint32_t position = position_of(leaf, probe, found);
      if (found) {
        const std::uint32_t there = leaf.nodes[position].load(std::memory_order_relaxed);
        leaf.unlock();
        return there;
      }
      const std::uint32_t count = leaf.count.load(std::memory_order_relaxed);
      if (count == kKeys) {
        Status s = split(number, position);
        leaf.unlock();
        if (!s.ok()) return fail(std::move(s));
        continue;
      }
      for (std::uint32_t i = count; i > position; --i) {
        leaf.copy(i, leaf, i - 1, std::memory_order_release);
      }
      leaf.words[position].store(probe.word, std::memory_order_release);
      leaf.nodes[position].store(node, std::memory_order_release);
      leaf.count.store(count + 1, std::memory_order_release);
      leaf.unlock();
      hints_.put(hash_of(probe), node);  // pskiplist.D4
      hints_.template grow<kBytes>(
          node, [this](std::uint32_t named) { return hash_of(named); },
          [this](std::uint32_t named) { __builtin_prefetch(&nodes_[named]); },
          [this](std::uint32_t named) { prefetch_key(named); });
      return 0U;
    }
  }
  [[gnu::noinline]] void remove(const Probe& probe, std::uint32_t node) {
    hints_.remove(hash_of(probe), node);  // pskiplist.D4
    PERDURE_ASSERT(P, "pskiplist.D4", !is_hinted(node));
    const std::uint32_t number = lock_for(probe);
    LeafT& leaf = leaves_[number];
    bool found = false;
    const std::uint32_t position = position_of(leaf, probe, found);
    std::uint32_t count = leaf.count.load(std::memory_order_relaxed);
    if (found && leaf.nodes[position].load(std::memory_order_relaxed) == node) {
      for (std::uint32_t i = position; i + 1 < count; ++i) {
        leaf.copy(i, leaf, i + 1, std::memory_order_release);
      }
      leaf.count.store(--count, std::memory_order_release);
    }
    leaf.unlock();
    if (count == 0) try_unlink(number);
  }

 private:
  // Whether the hints name the node under the key that it has.
  bool is_hinted(std::uint32_t node) const {
    const auto is_it = [&](std::uint32_t named) { return named == node; };
    return hints_.find(hash_of(node), is_it).node != 0;
  }
  bool is_first(const LeafT& leaf, std::uint32_t number) const {
    const std::uint64_t bound = leaf.bound.load(std::memory_order_relaxed);
    return number == inner_.first_leaf(inner_.partitioning().of(bound));
  }
  [[gnu::noinline]] std::uint32_t lock_for(const Probe& probe) {
    for (unsigned spins = 0;; P::pause(spins++)) {
      std::uint64_t version = 0;
      const std::uint32_t number = enter(probe, version);
      if (leaves_[number].try_lock(version)) return number;
    }
  }
  // Splits a leaf that is full and locked. A key shall lie at `position`. If keys come in order,
  // the left leaf stays full.
  [[gnu::noinline]] Status split(std::uint32_t number, std::uint32_t position) {
    LeafT& leaf = leaves_[number];
    const std::uint32_t keep = position == kKeys ? kKeys - 1 : kKeys / 2;
    const std::uint64_t middle = leaf.words[keep - 1].load(std::memory_order_relaxed);
    PERDURE_ASSERT(P, "pskiplist.D1", leaf.locked());
    PERDURE_ASSERT(P, "pskiplist.D2",
                   leaf.low.load(std::memory_order_relaxed) <= middle &&
                       middle <= leaf.bound.load(std::memory_order_relaxed));
    Separator<P>* separator = nullptr;
    if constexpr (kBytes) {
      separator =
          Separator<P>::make(key_of(leaf.nodes[keep - 1].load(std::memory_order_relaxed)), 0);
      if (separator == nullptr) return StatusCode::out_of_memory;
    }
    const std::uint32_t fresh = leaves_.take();
    if (fresh == kNoLeaf) {
      inner_.release(separator);
      return StatusCode::out_of_memory;
    }
    LeafT& right = leaves_[fresh];
    for (std::uint32_t i = keep; i < kKeys; ++i) {
      right.copy(i - keep, leaf, i, std::memory_order_relaxed);
    }
    right.count.store(kKeys - keep, std::memory_order_relaxed);
    right.low.store(kBytes ? middle : middle + 1, std::memory_order_relaxed);
    right.bound.store(leaf.bound.load(std::memory_order_relaxed), std::memory_order_relaxed);
    if constexpr (kBytes) {
      Inner::share(separator);  // once as the left's bound, once as the right's low
      right.separators.low.store(separator, std::memory_order_relaxed);
      right.separators.bound.store(leaf.separators.bound.load(std::memory_order_relaxed),
                                   std::memory_order_relaxed);
      leaf.separators.bound.store(separator, std::memory_order_release);
    }
    right.next.store(leaf.next.load(std::memory_order_relaxed), std::memory_order_relaxed);
    leaf.next.store(fresh, std::memory_order_release);
    leaf.bound.store(middle, std::memory_order_release);
    leaf.count.store(keep, std::memory_order_release);
    // Both leaves are locked until the new one is listed: the next split of either comes after it.
    // Without memory for that the new leaf is reached from its left neighbour.
    (void)inner_.insert_after(inner_.partitioning().of(middle), number, fresh);
    right.unlock();
    return {};
  }
  [[gnu::noinline]] void try_unlink(std::uint32_t number) {
    const LeafT& leaf = leaves_[number];
    const std::uint64_t seen = leaf.version.load(std::memory_order_acquire);
    if ((seen & LeafT::kGone) != 0 || leaf.next.load(std::memory_order_acquire) == kNoLeaf) return;
    Probe left_probe{.word = leaf.low.load(std::memory_order_acquire)};
    if constexpr (kBytes) {
      const Separator<P>* s = leaf.separators.low.load(std::memory_order_acquire);
      if (s == nullptr) return;  // first of its partition
      left_probe.bytes = s->view();
    } else {
      const auto& partitioning = inner_.partitioning();
      if (left_probe.word == partitioning.low(partitioning.of(left_probe.word))) return;
      --left_probe.word;
    }
    const std::uint32_t left_number = lock_for(left_probe);
    LeafT& left = leaves_[left_number];
    if (left_number != number && left.next.load(std::memory_order_relaxed) == number) {
      LeafT& victim = leaves_[number];
      for (unsigned spins = 0;; P::pause(spins++)) {
        const std::uint64_t version = victim.version.load(std::memory_order_acquire);
        if ((version & LeafT::kLocked) == 0 && victim.try_lock(version)) break;
      }
      if (!unlink_locked(left, number)) victim.unlock();
    }
    left.unlock();
  }
  // Whether the range of one leaf ends where that of the other begins. The left one is locked.
  bool adjoin(const LeafT& left, const LeafT& right) const {
    const std::uint64_t bound = left.bound.load(std::memory_order_relaxed);
    const std::uint64_t low = right.low.load(std::memory_order_relaxed);
    if constexpr (kBytes) {
      return bound == low && left.separators.bound.load(std::memory_order_relaxed) ==
                                 right.separators.low.load(std::memory_order_relaxed);
    }
    return bound + 1 == low;
  }
  // Both leaves are locked. The range goes to the right neighbour: no bound rises.
  [[gnu::noinline]] bool unlink_locked(LeafT& left, std::uint32_t number) {
    LeafT& leaf = leaves_[number];
    const std::uint32_t right_number = leaf.next.load(std::memory_order_relaxed);
    if (right_number == kNoLeaf || leaf.count.load(std::memory_order_relaxed) != 0) return false;
    LeafT& right = leaves_[right_number];
    PERDURE_ASSERT(P, "pskiplist.D1", left.locked() && leaf.locked());
    PERDURE_ASSERT(P, "pskiplist.D3", !is_first(leaf, number));
    PERDURE_ASSERT(P, "pskiplist.D2", adjoin(left, leaf) && adjoin(leaf, right));
    // Gives the range up first: while two leaves have it, no thread may insert on the right.
    leaf.unlock_gone();
    right.low.store(leaf.low.load(std::memory_order_relaxed), std::memory_order_release);
    if constexpr (kBytes) {
      Separator<P>* before = right.separators.low.load(std::memory_order_relaxed);
      right.separators.low.store(leaf.separators.low.load(std::memory_order_relaxed),
                                 std::memory_order_release);
      inner_.release(before);
    }
    left.next.store(right_number, std::memory_order_release);
    inner_.remove(inner_.partitioning().of(leaf.bound.load(std::memory_order_relaxed)), number,
                  right_number);
    if constexpr (kBytes) {
      inner_.release(leaf.separators.bound.load(std::memory_order_relaxed));
    }
    epochs_.retire(kLeafReclaimer, &leaves_, number);
    return true;
  }

  // In steps of one cache miss each; the misses of a group overlap.
  [[gnu::noinline]] void name_keys(const Listed* keys, std::size_t count) {
    constexpr std::size_t kGroup = 16;
    std::uint64_t hashes[kGroup];
    for (std::size_t begin = 0; begin < count; begin += kGroup) {
      const std::size_t n = std::min(kGroup, count - begin);
      const Listed* group = keys + begin;
      for (std::size_t i = 0; i < n; ++i) __builtin_prefetch(&nodes_[group[i].node]);
      for (std::size_t i = 0; i < n; ++i) prefetch_key(group[i].node);
      for (std::size_t i = 0; i < n; ++i) {
        hashes[i] = hash_of(group[i].node);
        hints_.prefetch(hashes[i]);
      }
      for (std::size_t i = 0; i < n; ++i) hints_.put(hashes[i], group[i].node);
    }
  }
  [[gnu::noinline]] Status build_partition(std::uint32_t partition, const Listed* keys,
                                           std::size_t count) {
    constexpr std::uint32_t kFill = kKeys * 3 / 4;
    const ordered::Partitioning& partitioning = inner_.partitioning();
    const std::size_t leaves = count == 0 ? 1 : (count + kFill - 1) / kFill;
    auto* numbers = static_cast<std::uint32_t*>(std::malloc(leaves * sizeof(std::uint32_t)));
    if (numbers == nullptr) return StatusCode::out_of_memory;
    std::uint64_t low = partitioning.low(partition);
    Separator<P>* separator = nullptr;  // of low
    Status s;
    for (std::size_t l = 0; l < leaves && s.ok(); ++l) {
      numbers[l] = leaves_.take();
      if (numbers[l] == kNoLeaf) {
        s = StatusCode::out_of_memory;
        break;
      }
      LeafT& leaf = leaves_[numbers[l]];
      const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(kFill, count - l * kFill));
      for (std::uint32_t i = 0; i < n; ++i) {
        PERDURE_ASSERT(P, "pskiplist.D2",
                       l + i == 0 || keys[l * kFill + i - 1].word <= keys[l * kFill + i].word);
        leaf.words[i].store(keys[l * kFill + i].word, std::memory_order_relaxed);
        leaf.nodes[i].store(keys[l * kFill + i].node, std::memory_order_relaxed);
      }
      leaf.count.store(n, std::memory_order_relaxed);
      const bool last = l + 1 == leaves;
      const std::uint64_t bound =
          last ? partitioning.bound(partition) : keys[l * kFill + n - 1].word;
      leaf.low.store(low, std::memory_order_relaxed);
      leaf.bound.store(bound, std::memory_order_relaxed);
      low = kBytes ? bound : bound + 1;
      if constexpr (kBytes) {
        leaf.separators.low.store(separator, std::memory_order_relaxed);
        separator = last ? nullptr : Separator<P>::make(key_of(keys[l * kFill + n - 1].node), 0);
        if (!last && separator == nullptr) s = StatusCode::out_of_memory;
        leaf.separators.bound.store(separator, std::memory_order_relaxed);
        Inner::share(separator);
      }
      if (l > 0) leaves_[numbers[l - 1]].next.store(numbers[l], std::memory_order_relaxed);
      leaf.unlock();
    }
    if (s.ok()) s = inner_.build(partition, numbers, leaves);
    std::free(numbers);
    return s;
  }
  static void finish_leaf(void* leaves, std::uint64_t number) {
    static_cast<LeafArena<T>*>(leaves)->give(static_cast<std::uint32_t>(number));
  }
  static constexpr Reclaimer kLeafReclaimer{nullptr, &finish_leaf};
};

}  // namespace perdure::pskiplist
