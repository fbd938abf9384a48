// Directory: lookups and changes. Included by directory.h only.
#pragma once

#include <cstdlib>

#include "index/pskiplist/directory.h"

namespace perdure::pskiplist {

template <Platform P, class Codec, class G>
Directory<P, Codec, G>::~Directory() {
  epochs_.drain_all();
  if constexpr (Codec::kBytes) {
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

template <Platform P, class Codec, class G>
Status Directory<P, Codec, G>::reserve(std::size_t max_leaves) noexcept {
  const ordered::Partitioning partitioning{.bits = G::kPartitionBits,
                                           .shift = 64 - G::kPartitionBits};
  if (Status s = leaves_.reserve(max_leaves); !s.ok()) return s;
  if (Status s = hints_.reserve(nodes_.capacity()); !s.ok()) return s;
  return inner_.reserve(partitioning, max_leaves);
}

template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline std::string_view Directory<P, Codec, G>::key_of(
    std::uint32_t node) const noexcept {
  const std::uint64_t offset = nodes_[node].key;
  if (!heap_.contains(offset, sizeof(RecordPrefix))) return {};
  const auto view = RecordView::read(platform_, heap_.template at<RecordPrefix>(offset));
  if (!heap_.contains(offset, sizeof(RecordPrefix) + view.key_size())) return {};
  return view.key();
}

// The leaf in whose range the probe lies, unlocked, and its version. Where the inner nodes had no
// memory, a leaf may be listed nowhere: it is reached from the partition's first leaf, which stays.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline std::uint32_t Directory<P, Codec, G>::enter(
    const Probe& probe, std::uint64_t& version) const noexcept {
  std::uint32_t number = inner_.locate(probe);
  leaves_[number].prefetch();  // one miss in place of one per step of the search
  for (unsigned misses = 0, spins = 0;;) {
    const LeafT& leaf = leaves_[number];
    version = leaf.version.load(std::memory_order_acquire);
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

// The first position whose key is not below the probe's.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline std::uint32_t Directory<P, Codec, G>::position_of(
    const LeafT& leaf, const Probe& probe, bool& found) const noexcept {
  const std::uint32_t count = std::min(leaf.count.load(std::memory_order_acquire), kKeys);
  std::uint32_t base = 0;
  for (std::uint32_t n = count; n > 0;) {
    const std::uint32_t half = (n + 1) / 2;
    base += leaf.words[base + half - 1].load(std::memory_order_acquire) < probe.word ? half : 0;
    n -= half;
  }
  const auto equal = [&](std::uint32_t i) {
    return i < count && leaf.words[i].load(std::memory_order_acquire) == probe.word;
  };
  found = equal(base);
  if constexpr (Codec::kBytes) {
    int order = 1;
    for (; equal(base); ++base) {
      order = ordered::compare(probe, key_of(leaf.nodes[base].load(std::memory_order_acquire)));
      if (order <= 0) break;
    }
    found = order == 0;
  }
  return base;
}

template <Platform P, class Codec, class G>
template <class F>
[[gnu::always_inline]] inline std::uint32_t Directory<P, Codec, G>::find(
    const Probe& probe, F&& hinted) const noexcept {
  const std::uint32_t node = hints_.find(hash_of(probe), [&](std::uint32_t candidate) {
    hinted(candidate);
    return is_of(candidate, probe);
  });
  return node != 0 ? node : find_listed(probe);
}

// Where the hints do not know the key, the first miss on the way to its leaf is over by then.
template <Platform P, class Codec, class G>
std::uint32_t Directory<P, Codec, G>::find(const Probe& probe) const noexcept {
  inner_.prefetch_shortcut(probe);
  return find(probe, [](std::uint32_t) {});
}

// The misses on both ways at once.
template <Platform P, class Codec, class G>
std::uint32_t Directory<P, Codec, G>::find_maybe_new(const Probe& probe) const noexcept {
  prefetch_hint(probe);
  prefetch_leaf(probe);
  const std::uint32_t node = find_hinted(probe);
  return node != 0 ? node : find_listed(probe);
}

template <Platform P, class Codec, class G>
std::uint32_t Directory<P, Codec, G>::find_listed(const Probe& probe) const noexcept {
  for (unsigned spins = 0;; P::pause(spins++)) {
    std::uint64_t version = 0;
    const LeafT& leaf = leaves_[enter(probe, version)];
    bool found = false;
    const std::uint32_t position = position_of(leaf, probe, found);
    const std::uint32_t node = found ? leaf.nodes[position].load(std::memory_order_acquire) : 0;
    if (leaf.version.load(std::memory_order_acquire) == version) return node;
  }
}

template <Platform P, class Codec, class G>
std::uint32_t Directory<P, Codec, G>::lock_for(const Probe& probe) noexcept {
  for (unsigned spins = 0;; P::pause(spins++)) {
    std::uint64_t version = 0;
    const std::uint32_t number = enter(probe, version);
    if (leaves_[number].try_lock(version)) return number;
  }
}

template <Platform P, class Codec, class G>
Expected<std::uint32_t> Directory<P, Codec, G>::put(const Probe& probe,
                                                    std::uint32_t node) noexcept {
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
      leaf.words[i].store(leaf.words[i - 1].load(std::memory_order_relaxed),
                          std::memory_order_release);
      leaf.nodes[i].store(leaf.nodes[i - 1].load(std::memory_order_relaxed),
                          std::memory_order_release);
    }
    leaf.words[position].store(probe.word, std::memory_order_release);
    leaf.nodes[position].store(node, std::memory_order_release);
    leaf.count.store(count + 1, std::memory_order_release);
    leaf.unlock();
    hints_.put(hash_of(probe), node);  // pskiplist.D4
    hints_.grow(
        node, [this](std::uint32_t named) { return hash_of(named); },
        [this](std::uint32_t named) -> const void* { return &nodes_[named]; });
    return 0U;
  }
}

// The leaf is full, and locked; a key wants to lie at `position`. What comes in order leaves full
// leaves behind.
template <Platform P, class Codec, class G>
Status Directory<P, Codec, G>::split(std::uint32_t number, std::uint32_t position) noexcept {
  LeafT& leaf = leaves_[number];
  const std::uint32_t keep = position == kKeys ? kKeys - 1 : kKeys / 2;
  const std::uint64_t middle = leaf.words[keep - 1].load(std::memory_order_relaxed);
  PERDURE_ASSERT(P, "pskiplist.D1", leaf.locked());
  PERDURE_ASSERT(P, "pskiplist.D2",
                 leaf.low.load(std::memory_order_relaxed) <= middle &&
                     middle <= leaf.bound.load(std::memory_order_relaxed));
  Separator<P>* separator = nullptr;
  if constexpr (Codec::kBytes) {
    separator = Separator<P>::make(key_of(leaf.nodes[keep - 1].load(std::memory_order_relaxed)), 0);
    if (separator == nullptr) return StatusCode::out_of_memory;
  }
  const std::uint32_t fresh = leaves_.take();
  if (fresh == kNoLeaf) {
    inner_.release(separator);
    return StatusCode::out_of_memory;
  }
  LeafT& right = leaves_[fresh];
  for (std::uint32_t i = keep; i < kKeys; ++i) {
    right.words[i - keep].store(leaf.words[i].load(std::memory_order_relaxed),
                                std::memory_order_relaxed);
    right.nodes[i - keep].store(leaf.nodes[i].load(std::memory_order_relaxed),
                                std::memory_order_relaxed);
  }
  right.count.store(kKeys - keep, std::memory_order_relaxed);
  right.low.store(Codec::kBytes ? middle : middle + 1, std::memory_order_relaxed);
  right.bound.store(leaf.bound.load(std::memory_order_relaxed), std::memory_order_relaxed);
  if constexpr (Codec::kBytes) {
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
  // Both are locked until the new one is listed: the next split of either comes behind it. Without
  // memory for that it is reached from its left neighbour.
  (void)inner_.insert_after(inner_.partitioning().of(middle), number, fresh);
  right.unlock();
  return {};
}

template <Platform P, class Codec, class G>
void Directory<P, Codec, G>::remove(const Probe& probe, std::uint32_t node) noexcept {
  hints_.remove(hash_of(probe), node);  // pskiplist.D4
  PERDURE_ASSERT(P, "pskiplist.D4", !is_hinted(node));
  const std::uint32_t number = lock_for(probe);
  LeafT& leaf = leaves_[number];
  bool found = false;
  const std::uint32_t position = position_of(leaf, probe, found);
  std::uint32_t count = leaf.count.load(std::memory_order_relaxed);
  if (found && leaf.nodes[position].load(std::memory_order_relaxed) == node) {
    for (std::uint32_t i = position; i + 1 < count; ++i) {
      leaf.words[i].store(leaf.words[i + 1].load(std::memory_order_relaxed),
                          std::memory_order_release);
      leaf.nodes[i].store(leaf.nodes[i + 1].load(std::memory_order_relaxed),
                          std::memory_order_release);
    }
    leaf.count.store(--count, std::memory_order_release);
  }
  leaf.unlock();
  if (count == 0) try_unlink(number);
}

template <Platform P, class Codec, class G>
void Directory<P, Codec, G>::try_unlink(std::uint32_t number) noexcept {
  const LeafT& leaf = leaves_[number];
  const std::uint64_t seen = leaf.version.load(std::memory_order_acquire);
  if ((seen & LeafT::kGone) != 0 || leaf.next.load(std::memory_order_acquire) == kNoLeaf) return;
  Probe left_probe{.word = leaf.low.load(std::memory_order_acquire)};
  if constexpr (Codec::kBytes) {
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

// Whether the range of one ends where that of the other begins. The left one is locked.
template <Platform P, class Codec, class G>
bool Directory<P, Codec, G>::adjoin(const LeafT& left, const LeafT& right) const noexcept {
  const std::uint64_t bound = left.bound.load(std::memory_order_relaxed);
  const std::uint64_t low = right.low.load(std::memory_order_relaxed);
  if constexpr (Codec::kBytes) {
    return bound == low && left.separators.bound.load(std::memory_order_relaxed) ==
                               right.separators.low.load(std::memory_order_relaxed);
  }
  return bound + 1 == low;
}

// The range goes to the right neighbour: no bound rises.
template <Platform P, class Codec, class G>
bool Directory<P, Codec, G>::unlink_locked(LeafT& left, std::uint32_t number) noexcept {
  LeafT& leaf = leaves_[number];
  const std::uint32_t right_number = leaf.next.load(std::memory_order_relaxed);
  if (right_number == kNoLeaf || leaf.count.load(std::memory_order_relaxed) != 0) return false;
  LeafT& right = leaves_[right_number];
  PERDURE_ASSERT(P, "pskiplist.D1", left.locked() && leaf.locked());
  PERDURE_ASSERT(P, "pskiplist.D3", !is_first(leaf, number));
  PERDURE_ASSERT(P, "pskiplist.D2", adjoin(left, leaf) && adjoin(leaf, right));
  // Disowned first: while this leaf answers for the range nobody may insert on its right.
  leaf.unlock_gone();
  if constexpr (Codec::kBytes) {
    Separator<P>* before = right.separators.low.load(std::memory_order_relaxed);
    right.low.store(leaf.low.load(std::memory_order_relaxed), std::memory_order_release);
    right.separators.low.store(leaf.separators.low.load(std::memory_order_relaxed),
                               std::memory_order_release);
    inner_.release(before);
  } else {
    right.low.store(leaf.low.load(std::memory_order_relaxed), std::memory_order_release);
  }
  left.next.store(right_number, std::memory_order_release);
  inner_.remove(inner_.partitioning().of(leaf.bound.load(std::memory_order_relaxed)), number,
                right_number);
  if constexpr (Codec::kBytes) {
    inner_.release(leaf.separators.bound.load(std::memory_order_relaxed));
  }
  epochs_.retire(kLeafReclaimer, this, number);
  return true;
}

template <Platform P, class Codec, class G>
void Directory<P, Codec, G>::collect(const Probe& position, Batch& batch) const noexcept {
  for (unsigned spins = 0;; P::pause(spins++)) {
    std::uint64_t version = 0;
    const LeafT& leaf = leaves_[enter(position, version)];
    leaves_[leaf.next.load(std::memory_order_relaxed)].prefetch();  // kNoLeaf is a leaf of nobody
    batch.low = leaf.low.load(std::memory_order_acquire);
    batch.bound = leaf.bound.load(std::memory_order_acquire);
    if constexpr (Codec::kBytes) {
      batch.low_separator = leaf.separators.low.load(std::memory_order_acquire);
      batch.bound_separator = leaf.separators.bound.load(std::memory_order_acquire);
    }
    batch.count = std::min(leaf.count.load(std::memory_order_acquire), kKeys);
    for (std::uint32_t i = 0; i < batch.count; ++i) {
      batch.words[i] = leaf.words[i].load(std::memory_order_acquire);
      batch.nodes[i] = leaf.nodes[i].load(std::memory_order_acquire);
    }
    if (leaf.version.load(std::memory_order_acquire) != version) continue;
    // Low falls when the left neighbour goes, without this leaf's lock.
    if constexpr (Codec::kBytes) {
      if (leaf.separators.low.load(std::memory_order_acquire) != batch.low_separator) continue;
    }
    if (leaf.low.load(std::memory_order_acquire) == batch.low) return;
  }
}

template <Platform P, class Codec, class G>
Status Directory<P, Codec, G>::build(const Listed* keys, std::size_t count,
                                     std::size_t threads) noexcept {
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

// In steps, a cache miss each; the misses of a group overlap.
template <Platform P, class Codec, class G>
void Directory<P, Codec, G>::name_keys(const Listed* keys, std::size_t count) noexcept {
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

template <Platform P, class Codec, class G>
Status Directory<P, Codec, G>::build_partition(std::uint32_t partition, const Listed* keys,
                                               std::size_t count) noexcept {
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
    const std::uint64_t bound = last ? partitioning.bound(partition) : keys[l * kFill + n - 1].word;
    leaf.low.store(low, std::memory_order_relaxed);
    leaf.bound.store(bound, std::memory_order_relaxed);
    low = Codec::kBytes ? bound : bound + 1;
    if constexpr (Codec::kBytes) {
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

}  // namespace perdure::pskiplist
