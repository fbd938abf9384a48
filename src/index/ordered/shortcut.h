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
//       thread is pinned. forget() looks at the leaf's own range only, so it relies on ordered.S1.
// ORDERING  Intervals are stored release and loaded acquire. A table is replaced as a whole through
//   epochs.
// PROGRESS  Lookups are wait-free; changes hold the partition's latch. A table is filled in steps,
//   while another one is in use. A split visits the intervals that the new leaf covers: O(1) if
//   keys are even, many if there is a gap between keys. When these visits exceed kVisits times the
//   number of intervals, or kMostVisits at once, the table has cost more than it saves: spent().
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "index/ordered/probe.h"
#include "util/arena.h"

namespace perdure::ordered {

template <Platform P>
class Shortcut {
 public:
  // Makes a table for `leaves` leaves; all but the first begin in [low, high]. Its intervals name
  // no leaf yet. O(1), since the memory is zero. Returns null if DRAM is short.
  static Shortcut* make(std::uint64_t low, std::uint64_t high, std::uint32_t leaves) noexcept {
    static_assert(kNoLeaf == 0);
    std::uint32_t shift = 0;
    while ((high - low) >> shift >= std::uint64_t{kPerLeaf} * leaves) ++shift;
    const auto count = static_cast<std::uint32_t>(((high - low) >> shift) + 1);
    void* memory = nullptr;
    Dram owner = reserve_dram(bytes_for(count), memory, false);  // decision 0008: no huge pages
    if (memory == nullptr) return nullptr;
    return new (memory) Shortcut(std::move(owner), low, shift, count);
  }
  static void free(Shortcut* shortcut) noexcept {
    if (shortcut != nullptr) const Dram memory = std::move(shortcut->memory_);
  }

  // Returns the leaf to try first, or kNoLeaf.
  [[gnu::always_inline]] std::uint32_t leaf_of(std::uint64_t word) const noexcept {
    const std::uint64_t i = (word - low_) >> shift_;  // words below low_ wrap to a large number
    return i < count_ ? intervals()[i].load(std::memory_order_acquire) : kNoLeaf;
  }
  [[gnu::always_inline]] void prefetch(std::uint64_t word) const noexcept {
    const std::uint64_t i = (word - low_) >> shift_;
    __builtin_prefetch(intervals() + (i < count_ ? i : 0));  // words outside have no interval
  }

  // Called for every leaf, in order, while the table is made. `leaf` holds the words above `before`
  // up to `bound`; the first one also those before. Sets `most` intervals at most. Returns whether
  // the leaf is done; else it must be called again for it, or for the leaf that took its range.
  bool fill(std::uint32_t leaf, bool first_leaf, std::uint64_t before, std::uint64_t bound,
            std::uint32_t most) noexcept {
    PERDURE_ASSERT(P, "ordered.S1", first_leaf || before <= bound);
    auto [first, last] = begun_in(before, bound);
    if (first_leaf) first = 0;
    if (first > last) {
      clear(last);
      return true;
    }
    const std::uint64_t end = std::min(last + 1, std::uint64_t{count_});
    for (filled_ = std::max(filled_, std::min(first, end)); filled_ < end; ++filled_) {
      if (most-- == 0) return false;
      // It names none yet, so it is not read: the first read of a page would cost a fault, and the
      // write another one, which interrupts all threads of a recovery.
      intervals()[filled_].store(leaf, std::memory_order_release);
      ++named_;
    }
    return true;
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
    visit(first, last, old, fresh);
  }
  // No interval names `leaf` any more, which held the words from `low` to `bound` (ordered.S2). Its
  // range may have become long by unlinks on its left, whose intervals name none. So the intervals
  // that name it are the last ones of its range, perhaps without the very last.
  void forget(std::uint32_t leaf, std::uint64_t low, std::uint64_t bound) noexcept {
    if (bound < low_) return;
    const std::uint64_t first = low < low_ ? 0 : (low - low_) >> shift_;
    std::uint64_t end = std::min(((bound - low_) >> shift_) + 1, filled_);
    if (end > first && get(end - 1) != leaf) --end;
    for (; end > first && get(end - 1) == leaf; --end, ++visits_) set(end - 1, kNoLeaf);
    PERDURE_ASSERT(P, "ordered.S2", !names(leaf, first, (bound - low_) >> shift_));
  }
  // Then some intervals may name a leaf that they should not, and the table must go.
  bool spent() const noexcept { return visits_ > std::uint64_t{kVisits} * count_; }

  // True if at least half of the intervals name a leaf. Otherwise the table costs more than it
  // saves.
  bool useful() const noexcept { return named_ >= count_ / 2; }
  std::uint64_t bytes() const noexcept { return bytes_for(count_); }

 private:
  using Interval = typename P::template Atomic<std::uint32_t>;
  static constexpr std::uint32_t kPerLeaf = 8;
  static constexpr std::uint32_t kVisits = 4;
  static constexpr std::uint64_t kMostVisits = 1024;  // in one call

  Shortcut(Dram memory, std::uint64_t low, std::uint32_t shift, std::uint32_t count) noexcept
      : memory_(std::move(memory)), low_(low), shift_(shift), count_(count) {}

  static std::uint64_t bytes_for(std::uint32_t count) noexcept {
    const std::uint64_t bytes = sizeof(Shortcut) + count * sizeof(Interval);
    return (bytes + kLine - 1) / kLine * kLine;
  }
  std::uint32_t get(std::uint64_t i) const noexcept {
    return intervals()[i].load(std::memory_order_relaxed);
  }
  // For assertions. Whether an interval from `first` to `last`, or beside them, names the leaf.
  bool names(std::uint32_t leaf, std::uint64_t first, std::uint64_t last) const noexcept {
    for (std::uint64_t i = first == 0 ? 0 : first - 1; i <= last + 1 && i < count_; ++i) {
      if (get(i) == leaf) return true;
    }
    return false;
  }
  void set(std::uint64_t i, std::uint32_t leaf) noexcept {
    named_ += (leaf != kNoLeaf ? 1U : 0U) - (get(i) != kNoLeaf ? 1U : 0U);
    intervals()[i].store(leaf, std::memory_order_release);
  }
  // Of these intervals, those that name `before` then name `after`.
  void visit(std::uint64_t first, std::uint64_t last, std::uint32_t before,
             std::uint32_t after) noexcept {
    const std::uint64_t end = std::min(last + 1, std::uint64_t{count_});
    if (first < end && end - first > kMostVisits) {
      visits_ = std::uint64_t{kVisits} * count_ + 1;  // spent
      return;
    }
    for (std::uint64_t i = first; i < end; ++i, ++visits_) {
      if (get(i) == before) set(i, after);
    }
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

  Dram memory_;  // this and the intervals
  std::uint64_t low_;
  std::uint32_t shift_;
  std::uint32_t count_;
  // Guarded by the partition's latch. Lookups read the fields above and the intervals behind.
  alignas(kOwnLine) std::uint64_t visits_ = 0;  // of intervals, by splits and unlinks
  std::uint64_t filled_ = 0;                    // the next interval that fill() sets
  std::uint32_t named_ = 0;                     // intervals that name a leaf
};

}  // namespace perdure::ordered
