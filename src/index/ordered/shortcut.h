// Shortcut: a table from a key's word to a leaf, for one partition.
//
// WHAT  The part of the key space in which the partition's leaves lie is cut into intervals of
//   equal width, 4 to 8 for each leaf. An interval names the leaf in which it begins. If keys are
//   spread evenly at the scale of a leaf (random, hashed, counted), a lookup takes one cache miss
//   and does not search the levels above. For other distributions most intervals name no leaf, and
//   useful() returns false.
// WHEN NOT  An interval that contains a whole leaf names none. Words outside all intervals have
//   none either. Lookups search the inner nodes there.
// INVARIANTS (DRAM)
//   ordered.S1  The leaf of an interval is a hint, like everything above the descriptors
//       (ordered.N1). It is the leaf of the interval's first word, or was before a split that is
//       not listed yet.
//   ordered.S2  No interval names an unlinked leaf, because its number may be used again when no
//       thread is pinned.
// ORDERING  Intervals are stored release and loaded acquire. A table is replaced as a whole through
//   epochs.
// PROGRESS  Lookups are wait-free; changes hold the partition's latch. A split or an unlink visits
//   the intervals that the leaf covers: O(1) if keys are even, O(intervals) if an unlinked run of
//   leaves has left a leaf with a long range. When these visits exceed kVisits times the number of
//   intervals, the table has cost more than it saves: spent().
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "index/ordered/probe.h"

namespace perdure::ordered {

template <Platform P>
class Shortcut {
 public:
  // Makes a table for `leaves` leaves. All but the leaf `first` begin in [low, high]. Returns null
  // if DRAM is short.
  static Shortcut* make(std::uint64_t low, std::uint64_t high, std::uint32_t leaves,
                        std::uint32_t first) noexcept {
    std::uint32_t shift = 0;
    while ((high - low) >> shift >= std::uint64_t{kPerLeaf} * leaves) ++shift;
    const auto count = static_cast<std::uint32_t>(((high - low) >> shift) + 1);
    void* memory = std::aligned_alloc(kLine, bytes_for(count));
    if (memory == nullptr) return nullptr;
    auto* shortcut = new (memory) Shortcut(low, shift, count);
    for (std::uint32_t i = 0; i < count; ++i) new (shortcut->intervals() + i) Interval(first);
    return shortcut;
  }
  static void free(Shortcut* shortcut) noexcept { std::free(static_cast<void*>(shortcut)); }

  // Returns the leaf to try first, or kNoLeaf.
  [[gnu::always_inline]] std::uint32_t leaf_of(std::uint64_t word) const noexcept {
    const std::uint64_t i = (word - low_) >> shift_;  // words below low_ wrap to a large number
    return i < count_ ? intervals()[i].load(std::memory_order_acquire) : kNoLeaf;
  }
  [[gnu::always_inline]] void prefetch(std::uint64_t word) const noexcept {
    const std::uint64_t i = (word - low_) >> shift_;
    __builtin_prefetch(intervals() + (i < count_ ? i : 0));  // words outside have no interval
  }

  // Called for every other leaf, in order, while the table is made. `leaf` holds the words above
  // `before` up to `bound`.
  void fill(std::uint32_t leaf, std::uint64_t before, std::uint64_t bound) noexcept {
    PERDURE_ASSERT(P, "ordered.S1", before <= bound);
    const auto [first, last] = begun_in(before, bound);
    if (first > last) return clear(last);
    for (std::uint64_t i = first; i <= last && i < count_; ++i) set(i, leaf);
  }
  // `old` held the words above `before` and keeps those up to `middle`; `fresh` holds those above
  // `middle` up to `bound`.
  void split(std::uint32_t old, std::uint64_t before, std::uint64_t middle, std::uint32_t fresh,
             std::uint64_t bound) noexcept {
    PERDURE_ASSERT(P, "ordered.S1", before <= middle && middle <= bound);
    const auto [kept, kept_last] = begun_in(before, middle);
    if (kept > kept_last) clear(kept_last);
    const auto [first, last] = begun_in(middle, bound);
    if (first > last) clear(last);
    for (std::uint64_t i = first; i <= last && i < count_; ++i, ++visits_) {
      if (get(i) == old) set(i, fresh);
    }
  }
  // Every interval that names `leaf`, which holds the words from `low` to `bound`, then names
  // `heir` (ordered.S2).
  void replace(std::uint32_t leaf, std::uint64_t low, std::uint64_t bound,
               std::uint32_t heir) noexcept {
    if (bound < low_) return;
    const std::uint64_t first = low < low_ ? 0 : (low - low_) >> shift_;
    const std::uint64_t last = (bound - low_) >> shift_;
    for (std::uint64_t i = first; i <= last && i < count_; ++i, ++visits_) {
      if (get(i) == leaf) set(i, heir);
    }
    PERDURE_ASSERT(P, "ordered.S2", !names(first - 1, leaf) && !names(last + 1, leaf));
  }
  bool spent() const noexcept { return visits_ > std::uint64_t{kVisits} * count_; }

  // True if at least half of the intervals name a leaf. Otherwise the table costs more than it
  // saves.
  bool useful() const noexcept {
    std::uint32_t named = 0;
    for (std::uint32_t i = 0; i < count_; ++i) named += get(i) != kNoLeaf ? 1 : 0;
    return named >= count_ / 2;
  }
  std::uint64_t bytes() const noexcept { return bytes_for(count_); }

 private:
  using Interval = typename P::template Atomic<std::uint32_t>;
  static constexpr std::uint32_t kPerLeaf = 8;
  static constexpr std::uint32_t kVisits = 4;

  Shortcut(std::uint64_t low, std::uint32_t shift, std::uint32_t count) noexcept
      : low_(low), shift_(shift), count_(count) {}

  static std::uint64_t bytes_for(std::uint32_t count) noexcept {
    const std::uint64_t bytes = sizeof(Shortcut) + count * sizeof(Interval);
    return (bytes + kLine - 1) / kLine * kLine;
  }
  std::uint32_t get(std::uint64_t i) const noexcept {
    return intervals()[i].load(std::memory_order_relaxed);
  }
  // For assertions. An index behind the last interval names no leaf.
  bool names(std::uint64_t i, std::uint32_t leaf) const noexcept {
    return i < count_ && get(i) == leaf;
  }
  void set(std::uint64_t i, std::uint32_t leaf) noexcept {
    intervals()[i].store(leaf, std::memory_order_release);
  }
  // Interval i contains a whole leaf, in which no interval begins.
  void clear(std::uint64_t i) noexcept {
    if (i < count_) set(i, kNoLeaf);
  }
  // The first and the last interval that begin above `before` and not above `bound`. If there is
  // none, the first is greater than the last.
  std::pair<std::uint64_t, std::uint64_t> begun_in(std::uint64_t before,
                                                   std::uint64_t bound) const noexcept {
    if (bound < low_) return {~std::uint64_t{0}, ~std::uint64_t{0} - 1};
    return {before < low_ ? 0 : ((before - low_) >> shift_) + 1, (bound - low_) >> shift_};
  }
  Interval* intervals() noexcept { return reinterpret_cast<Interval*>(this + 1); }
  const Interval* intervals() const noexcept { return reinterpret_cast<const Interval*>(this + 1); }

  std::uint64_t low_;
  std::uint32_t shift_;
  std::uint32_t count_;
  // Visits of intervals by splits and unlinks; guarded by the partition's latch. Lookups read the
  // fields above and the intervals behind.
  alignas(kOwnLine) std::uint64_t visits_ = 0;
};

}  // namespace perdure::ordered
