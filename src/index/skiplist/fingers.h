// Fingers: from a key's word to a node a little before it. A lookup then need not come down from
// the head. In DRAM; a map without fingers returns the same results.
//
// WHAT  The span of the keys is cut into intervals of equal width, about one for kPerInterval
//   entries. An interval names one node whose key lies in it, or none. A lookup of evenly spread
//   keys (random, hashed, counted) has a few cache misses instead of one for each doubling of the
//   map (docs/decisions/0010).
// WHEN NOT  Keys in clusters, and byte strings with a long common beginning, share an interval. Its
//   node may lie far before the key; a lookup that has gone some steps from it begins anew at the
//   head. Keys outside the span for which the intervals were cut have no finger.
// INVARIANTS (DRAM)
//   skiplist.F1  A thread that finds a node here is pinned, and the node was in level 0 at a moment
//       of its guard. The holder of the node's stripe names it, or copies its name, while it is in
//       level 0, and unnames it before it stores the unlink.
//   skiplist.F2  A node is named in the interval of its own word, or nowhere.
//   skiplist.F3  A finger is a hint, as any other place in the list: the lookup compares the node's
//         key with its own.
// ORDERING  intervals and tables: stored release, loaded acquire. publish() stores now_, then
//   next_; a change of a name loads next_, then now_. So it misses no table that has the name: a
//   later table gets names only of nodes whose stripes are free, and this one's is held.
// GROWTH  A map that has outgrown its table begins another one. Changes of the map copy some
//   intervals into it; then the new table replaces the old one. One thread at a time does so, and
//   no thread waits for it. A node whose stripe is held is not copied.
// RECLAMATION  Tables go through epochs. The caller of retire() holds no stripe.
// PROGRESS  lookups are wait-free, changes O(1).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "platform/platform.h"
#include "reclaim/epoch.h"
#include "util/arena.h"

namespace perdure::skiplist {

template <Platform P>
class Fingers {
  struct Table;

 public:
  using Outgrown = Table*;  // for retire()

  explicit Fingers(EpochDomain<P>& epochs) : epochs_(epochs) {}
  Fingers(const Fingers&) = delete;
  Fingers& operator=(const Fingers&) = delete;
  // No thread uses the fingers any more.
  ~Fingers() {
    delete now_.load(std::memory_order_relaxed);
    delete next_.load(std::memory_order_relaxed);
  }

  // --- for pinned threads ---
  void prefetch(std::uint64_t word) const {
    const Table* table = now_.load(std::memory_order_acquire);
    if (table == nullptr) return;
    const std::uint64_t i = table->interval_of(word);
    if (i < table->count) __builtin_prefetch(&table->units[i]);
  }
  // Sets the places of the nodes of the word's interval and of one before it, the nearer first. 0:
  // none.
  static constexpr std::uint32_t kNear = 2;
  [[gnu::always_inline]] void near(std::uint64_t word, std::uint64_t (&places)[kNear]) const {
    PERDURE_ASSERT(P, "skiplist.F1", epochs_.pinned());
    places[0] = places[1] = 0;
    const Table* table = now_.load(std::memory_order_acquire);
    if (table == nullptr) return;
    std::uint64_t i = table->interval_of(word);
    if (i >= table->count) return;
    places[0] = table->place(i);
    for (std::uint32_t back = 0; back < kBack && i-- > 0 && places[1] == 0; ++back) {
      places[1] = table->place(i);
    }
  }
  // Whether a node with this word can be named, and no node is.
  bool vacant(std::uint64_t word) const {
    const Table* table = now_.load(std::memory_order_acquire);
    if (table == nullptr) return true;
    const std::uint64_t i = table->interval_of(word);
    return i < table->count && table->place(i) == 0;
  }
  bool any() const { return now_.load(std::memory_order_acquire) != nullptr; }
  bool growing() const { return next_.load(std::memory_order_acquire) != nullptr; }
  // The number of entries from which on a map needs a new table.
  std::uint64_t wanted_at() const { return wanted_at_.load(std::memory_order_relaxed); }
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // Takes what copy_some() has returned, or null. The caller holds no stripe, because this may
  // finish what other threads have retired.
  void retire(Outgrown old) {
    if (old == nullptr) return;
    bytes_.fetch_sub(old->bytes(), std::memory_order_relaxed);
    epochs_.retire(kReclaimer, nullptr, reinterpret_cast<std::uint64_t>(old));
  }

  // --- for a pinned holder of the node's stripe ---
  // The node is in level 0.
  void name(std::uint64_t word, std::uint64_t place) {
    if (place / kUnit > ~std::uint32_t{0}) return;  // too far behind for an interval
    for_tables([&](Table& table) { table.set(table.interval_of(word), place); });
  }
  // Before the unlink from level 0 is stored.
  void unname(std::uint64_t word, std::uint64_t place) {
    for_tables([&](Table& table) { table.unset(table.interval_of(word), place); });
  }
  // For assertions: whether a node with this word is named in its interval.
  bool names(std::uint64_t word, std::uint64_t place) const {
    bool named = false;
    for_tables(
        [&](Table& table) { named = named || table.place(table.interval_of(word)) == place; });
    return named;
  }

  // --- for the one thread that has begun the upkeep ---
  bool try_begin() { return growth_.try_lock(); }
  void end() { growth_.unlock(); }
  // Whether a map of so many entries needs a new table, and none has been begun.
  bool outgrown(std::uint64_t entries) const { return !growing() && entries >= wanted_at(); }
  // Begins a table for keys from `low` to `high`. If DRAM is short, or if most keys share a word
  // with another key, the map keeps the table that it has, or none.
  void grow(std::uint64_t entries, std::uint64_t low, std::uint64_t high) {
    wanted_at_.store(2 * entries, std::memory_order_relaxed);
    if (high - low < entries / kShared) return;
    std::uint32_t shift = 0;
    while ((high - low) >> shift >= std::max<std::uint64_t>(2 * entries / kPerInterval, 1)) ++shift;
    std::unique_ptr<Table> table(new (std::nothrow) Table{low, shift, ((high - low) >> shift) + 1});
    if (table == nullptr || !table->units.reserve(table->count).ok()) return;
    bytes_.fetch_add(table->bytes(), std::memory_order_relaxed);
    next_.store(table.release(), std::memory_order_release);
    copied_ = 0;
    if (!any()) (void)publish();
  }
  // Copies some intervals of the outgrown table. Returns that table, for retire(), once all are
  // copied. `word_at` returns the key word of a node. `with_stripe` calls a function with the
  // stripe of a node held, or does not call it if another thread holds it. `verified`: neither
  // damage nor another process changes the words meanwhile.
  template <class F, class G>
  [[nodiscard]] Outgrown copy_some(F&& word_at, G&& with_stripe,
                                   [[maybe_unused]] bool verified = true) {
    if (!growing()) return nullptr;
    const Table& from = *now_.load(std::memory_order_acquire);
    Table& to = *next_.load(std::memory_order_acquire);
    for (std::uint32_t n = 0; n < kCopies && copied_ < from.count; ++n, ++copied_) {
      const std::uint64_t place = from.place(copied_);
      if (place == 0) continue;
      with_stripe(place, [&] {
        if (from.place(copied_) != place) return;  // unnamed meanwhile
        PERDURE_ASSERT(P, "skiplist.F2", !verified || from.interval_of(word_at(place)) == copied_);
        const std::uint64_t i = to.interval_of(word_at(place));
        if (to.place(i) == 0) to.set(i, place);
      });
    }
    return copied_ == from.count ? publish() : nullptr;
  }

 private:
  static constexpr std::uint64_t kUnit = 32;  // the places of nodes are multiples of it
  static constexpr std::uint64_t kPerInterval = 2;
  static constexpr std::uint32_t kBack = 4;    // intervals before the word's that near() tries
  static constexpr std::uint32_t kCopies = 4;  // by each change: enough to end the growth in time
  static constexpr std::uint64_t kShared = 4;  // with so many entries per word there is no table

  struct Table {
    std::uint64_t low;
    std::uint32_t shift;
    std::uint64_t count;
    Arena<typename P::template Atomic<std::uint32_t>> units{};  // zeros: of no node

    // Returns `count` or more for a word outside the span.
    std::uint64_t interval_of(std::uint64_t word) const {
      return word < low ? count : (word - low) >> shift;
    }
    std::uint64_t place(std::uint64_t i) const {
      return i < count ? kUnit * units[i].load(std::memory_order_acquire) : 0;
    }
    void set(std::uint64_t i, std::uint64_t place) {
      if (i < count) {
        units[i].store(static_cast<std::uint32_t>(place / kUnit), std::memory_order_release);
      }
    }
    // Another thread may name another node here at any time.
    void unset(std::uint64_t i, std::uint64_t place) {
      if (this->place(i) != place) return;
      auto unit = static_cast<std::uint32_t>(place / kUnit);
      units[i].compare_exchange_strong(unit, 0, std::memory_order_acq_rel);
    }
    std::uint64_t bytes() const { return sizeof(*this) + count * sizeof(units[0]); }
  };

  template <class F>
  void for_tables(F&& change) const {
    Table* next = next_.load(std::memory_order_acquire);
    Table* now = now_.load(std::memory_order_acquire);
    if (now != nullptr) change(*now);
    if (next != nullptr && next != now) change(*next);
  }
  Table* publish() {
    Table* old = now_.load(std::memory_order_relaxed);
    now_.store(next_.load(std::memory_order_relaxed), std::memory_order_release);
    next_.store(nullptr, std::memory_order_release);
    return old;
  }
  static void finish(void*, std::uint64_t table) { delete reinterpret_cast<Table*>(table); }
  static constexpr Reclaimer kReclaimer{nullptr, &finish};

  EpochDomain<P>& epochs_;
  typename P::template Atomic<Table*> now_{nullptr};
  typename P::template Atomic<std::uint64_t> bytes_{0};
  typename P::template Atomic<std::uint64_t> wanted_at_{0};
  typename P::template Atomic<Table*> next_{nullptr};  // what now_ is being copied to
  alignas(kOwnLine) typename P::Latch growth_;
  std::uint64_t copied_ = 0;  // intervals of now_; under growth_
};

}  // namespace perdure::skiplist
