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
//   pskiplist.D5  The keys of a leaf of byte strings begin with its prefix, and its words are those
//       of what follows. A key without the prefix, which can come once the range has become wider,
//       shortens it first.
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

#include "index/engine_report.h"
#include "index/pskiplist/directory_build.h"

namespace perdure::pskiplist {

struct Peek;

template <class T>
class Directory : public DirectoryBuild<T> {
  friend struct Peek;  // of tests, into leaves
  using Base = DirectoryBuild<T>;
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
  // Lists the node under its key. Returns 0, or the node that is listed already. The caller is
  // pinned, and holds the node. Errors: out_of_memory; corruption, of a key that would be a bound.
  [[gnu::noinline]] Expected<std::uint32_t> put(const Probe& probe, std::uint32_t node) {
    for (;;) {
      const std::uint32_t number = lock_for(probe);
      LeafT& leaf = leaves_[number];
      if constexpr (kBytes) {
        fit_prefix(leaf, probe);
        PERDURE_ASSERT(P, "pskiplist.D5", leaf.has_prefix(probe.bytes));
      }
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
      leaf.words[position].store(leaf.word_in(probe), std::memory_order_release);
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
  // Words that agree in so many bytes tell few keys apart.
  static constexpr std::uint32_t kUseless = 6;

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
  // Byte strings. The leaf is locked, and a key that lies in its range shall be listed. Gives the
  // leaf a shorter prefix if the key does not have it, because the range has become wider. Gives it
  // a longer one if the words tell few keys apart.
  [[gnu::always_inline]] void fit_prefix(LeafT& leaf, const Probe& probe) {
    if (!leaf.has_prefix(probe.bytes)) [[unlikely]]
      return shorten_prefix(leaf, probe);
    const std::uint32_t count = leaf.count.load(std::memory_order_relaxed);
    if (count < 2) return;
    const std::uint64_t first = leaf.words[0].load(std::memory_order_relaxed);
    const std::uint64_t last = leaf.words[count - 1].load(std::memory_order_relaxed);
    if ((first ^ last) >> 8 * (sizeof(last) - kUseless) == 0) [[unlikely]]
      lengthen_prefix(leaf, probe);
  }
  // Reads no key: it may be damaged.
  [[gnu::noinline]] void shorten_prefix(LeafT& leaf, const Probe& probe) {
    const auto* bound = leaf.separators.bound.load(std::memory_order_relaxed);
    if (bound == nullptr) return;
    const auto prefix =
        static_cast<std::uint32_t>(ordered::common_prefix(bound->view(), probe.bytes));
    const std::uint32_t count = leaf.count.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < count; ++i) {
      leaf.words[i].store(leaf.word_behind(prefix, i), std::memory_order_release);
    }
    leaf.prefix.store(prefix, std::memory_order_release);
  }
  // Changes nothing if a key does not look as the separators and its neighbours say: it is damaged.
  [[gnu::noinline]] void lengthen_prefix(LeafT& leaf, const Probe& probe) {
    const auto* low = leaf.separators.low.load(std::memory_order_acquire);
    const auto* bound = leaf.separators.bound.load(std::memory_order_relaxed);
    if (low == nullptr || bound == nullptr) return;
    // `low` only falls, so the keys of the leaf share no less. But it may be about to fall: the new
    // key is allowed by its word, and the separator is the old one.
    const std::size_t prefix = std::min(ordered::common_prefix(bound->view(), low->view()),
                                        ordered::common_prefix(bound->view(), probe.bytes));
    if (prefix < leaf.prefix.load(std::memory_order_relaxed) + kUseless) return;
    const std::uint32_t count = leaf.count.load(std::memory_order_relaxed);
    const auto node = [&](std::uint32_t i) {
      return leaf.nodes[i].load(std::memory_order_relaxed);
    };
    for (std::uint32_t i = 0; i < count; ++i) __builtin_prefetch(&nodes_[node(i)]);
    for (std::uint32_t i = 0; i < count; ++i) prefetch_key(node(i));
    std::uint64_t words[kKeys];
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::string_view key = key_of(node(i));
      if (!key.starts_with(bound->view().substr(0, prefix))) return;
      words[i] = ordered::head_word(key.substr(prefix));
      if (i > 0 && words[i - 1] > words[i]) return;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      leaf.words[i].store(words[i], std::memory_order_release);
    }
    leaf.prefix.store(static_cast<std::uint32_t>(prefix), std::memory_order_release);
  }
  // Splits a leaf that is full and locked. A key shall lie at `position`. If keys come in order,
  // the left leaf stays full.
  [[gnu::noinline]] Status split(std::uint32_t number, std::uint32_t position) {
    LeafT& leaf = leaves_[number];
    const std::uint32_t keep = position == kKeys ? kKeys - 1 : kKeys / 2;
    const std::uint64_t middle = leaf.word_behind(0, keep - 1);
    PERDURE_ASSERT(P, "pskiplist.D1", leaf.locked());
    PERDURE_ASSERT(P, "pskiplist.D2",
                   leaf.low.load(std::memory_order_relaxed) <= middle &&
                       middle <= leaf.bound.load(std::memory_order_relaxed));
    Separator<P>* separator = nullptr;
    if constexpr (kBytes) {
      const std::uint32_t node = leaf.nodes[keep - 1].load(std::memory_order_relaxed);
      const std::string_view key = key_of(node);
      if (!leaf.has_prefix(key) || leaf.word_in(ordered::probe_of(key)) !=
                                       leaf.words[keep - 1].load(std::memory_order_relaxed)) {
        return damaged_object("the record", nodes_[node].key);
      }
      separator = Separator<P>::make(key, 0);
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
    right.prefix.store(leaf.prefix.load(std::memory_order_relaxed), std::memory_order_relaxed);
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

  static void finish_leaf(void* leaves, std::uint64_t number) {
    static_cast<LeafArena<T>*>(leaves)->give(static_cast<std::uint32_t>(number));
  }
  static constexpr Reclaimer kLeafReclaimer{nullptr, &finish_leaf};
};

}  // namespace perdure::pskiplist
