// Tier: a level in DRAM, with the address of its buckets, their version locks and fingerprints.
// View: the list of levels as an operation sees it. Only the progress of a resize changes in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <span>

#include "index/level/line.h"
#include "index/traits.h"
#include "platform/machine.h"
#include "platform/platform.h"
#include "util/arena.h"

namespace perdure::level {

using layout::Drain;

template <class T>
using Line = typename T::Codec::Form::Line;
template <class T>
using Item = typename T::Codec::Form::Item;

// The lock and the fingerprints of a bucket. `version` is odd while a writer holds the lock, and
// every change raises it. `prints` has a byte per slot, 0 where nothing counts. Only the holder of
// the lock changes it.
template <Platform P>
struct Meta {
  typename P::template Atomic<std::uint64_t> version{0};
  typename P::template Atomic<std::uint64_t> prints{0};

  bool try_lock() {
    const std::uint64_t seen = version.load(std::memory_order_relaxed);
    return (seen & 1) == 0 && try_lock(seen);
  }
  // Fails if the bucket has changed since it had this version, which is even.
  bool try_lock(std::uint64_t seen) {
    return version.compare_exchange_strong(seen, seen + 1, std::memory_order_seq_cst);
  }
  void lock() {
    for (unsigned spins = 0; !try_lock();) P::pause(spins++);
  }
  bool locked() const { return (version.load(std::memory_order_relaxed) & 1) != 0; }
  // `changed`: the version is raised, which tells earlier readers. Else it is as before the lock.
  void unlock(bool changed) {
    const std::uint64_t held = version.load(std::memory_order_relaxed);
    PERDURE_ASSERT(P, "level.I4", (held & 1) != 0);
    version.store(changed ? held + 1 : held - 1, std::memory_order_release);
  }
  // Returns a bit for each slot whose byte is `print`. The match is exact: a slot that does not
  // count may still hold the key that a lookup looks for.
  static std::uint32_t match(std::uint64_t prints, std::uint8_t print) {
    return machine::match_bytes(prints, print);
  }
  std::uint8_t print(std::uint32_t slot) const {
    return static_cast<std::uint8_t>(prints.load(std::memory_order_relaxed) >> 8 * slot);
  }
  [[gnu::always_inline]] void set_print(std::uint32_t slot, std::uint8_t print) {
    const std::uint64_t others = prints.load(std::memory_order_relaxed) & ~(0xFFULL << 8 * slot);
    prints.store(others | std::uint64_t{print} << 8 * slot, std::memory_order_release);
  }
};

template <class T>
struct Tier {
  using P = typename T::Platform;
  using Form = typename T::Codec::Form;
  static constexpr std::uint32_t kLines = T::Geometry::kBucketLines;
  static constexpr std::uint32_t kSlots = kLines * Form::kSlots;
  static_assert(kSlots <= 8);
  static_assert(!Form::kArrays || kLines <= 2);  // a word has their checksums
  static constexpr std::uint32_t kStripes = 128;
  // A level has about 8 slots a bucket, and each stripe looks 64 times: log2(kStripes * 64 / 8).
  static constexpr std::uint32_t kLookShift = 10;
  struct alignas(kLine) Count {
    typename P::template Atomic<std::int64_t> items{0};
  };

  std::uint64_t offset = 0;
  std::uint64_t mask = 0;  // one less than there are buckets
  std::uint32_t log = 0;
  Line<T>* lines = nullptr;
  Arena<Meta<P>> metas;
  Count counts[kStripes];

  static constexpr std::uint64_t line_bytes(std::uint32_t log) {
    return (1ULL << log) * kLines * sizeof(Line<T>);
  }
  // Returns the size of the level's block: the lines, and the checksums that have no room in them.
  static constexpr std::uint64_t bytes_of(std::uint32_t log) {
    const std::uint64_t checks = Form::kArrays ? sizeof(std::uint64_t) << log : 0;
    return line_bytes(log) + (checks + kLine - 1) / kLine * kLine;
  }
  // Returns null if DRAM is short.
  static Tier* make(std::uint64_t offset, std::uint32_t log, Line<T>* lines) {
    auto* tier = new (std::nothrow) Tier;
    if (tier == nullptr) return nullptr;
    tier->offset = offset;
    tier->mask = (1ULL << log) - 1;
    tier->log = log;
    tier->lines = lines;
    if (!tier->metas.reserve(1ULL << log).ok()) {  // zeros are unlocked and empty
      delete tier;
      return nullptr;
    }
    return tier;
  }

  std::uint64_t buckets() const { return mask + 1; }
  std::uint64_t bucket_offset(std::uint64_t bucket) const {
    return offset + bucket * kLines * sizeof(Line<T>);
  }
  std::uint64_t index(std::uint64_t hash) const { return hash & mask; }
  // Which line of its bucket has the slot. A bucket has one or two.
  static constexpr std::uint32_t line_of(std::uint32_t slot) {
    static_assert(kLines <= 2);
    return kLines == 1 || slot < Form::kSlots ? 0 : 1;
  }
  static constexpr std::uint32_t in_line(std::uint32_t slot) {
    return slot - line_of(slot) * Form::kSlots;
  }
  Line<T>& line(std::uint64_t bucket, std::uint32_t slot) const {
    return lines[bucket * kLines + line_of(slot)];
  }
  // Returns the word that has the checksum of the slot's line, which begins there at check_bit().
  std::uint64_t& check(std::uint64_t bucket, std::uint32_t slot) const {
    if constexpr (Form::kArrays) {
      return reinterpret_cast<std::uint64_t*>(lines + buckets() * kLines)[bucket];
    } else {
      return line(bucket, slot).crc;
    }
  }
  static constexpr std::uint32_t check_bit(std::uint32_t slot) {
    return Form::kArrays ? slot / Form::kSlots * 32 : 0;
  }
  std::uint32_t used(std::uint64_t bucket) const {
    std::uint64_t prints = metas[bucket].prints.load(std::memory_order_relaxed);
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < kSlots; ++i, prints >>= 8) count += (prints & 0xFF) != 0;
    return count;
  }
  // Returns the first slot of a key's home line. An item goes into its home line if there is room,
  // so a lookup can fetch that line before it knows the fingerprints.
  static std::uint32_t home(std::uint8_t print) { return home_line(print) * Form::kSlots; }
  static std::uint32_t home_line(std::uint8_t print) { return print % kLines; }
  // Returns a free slot, in the home line if there is room; kSlots if the bucket is full.
  std::uint32_t free_slot(std::uint64_t bucket, std::uint8_t print) const {
    const std::uint64_t prints = metas[bucket].prints.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0, slot = home(print); i < kSlots; ++i) {
      if ((prints >> 8 * slot & 0xFF) == 0) return slot;
      if (++slot == kSlots) slot = 0;
    }
    return kSlots;
  }
  // Returns the new count of the thread's stripe.
  std::int64_t add(std::int64_t delta) {
    return counts[P::thread_slot() % kStripes].items.fetch_add(delta, std::memory_order_relaxed) +
           delta;
  }
  // Returns whether a thread that has changed the count of its stripe sums all stripes: after every
  // `often` changes of a small table, a power of two, and about 64 times while a large one fills.
  bool is_due(std::int64_t count, std::int64_t often) const {
    return (count & (std::max(often, std::int64_t{1} << log >> kLookShift) - 1)) == 0;
  }
  std::uint64_t items() const {
    std::int64_t sum = 0;
    for (const Count& count : counts) sum += count.items.load(std::memory_order_relaxed);
    return sum > 0 ? static_cast<std::uint64_t>(sum) : 0;
  }
};

template <class T>
struct View {
  using P = typename T::Platform;

  std::uint64_t descriptor = 0;  // its offset
  std::uint64_t generation = 0;
  std::uint32_t levels = 0;
  Drain drain = Drain::none;
  Tier<T>* tiers[kMaxLevels] = {};  // the largest first
  // What a lookup needs of them, side by side.
  struct alignas(32) Seat {
    Meta<P>* metas = nullptr;
    Line<T>* lines = nullptr;
    std::uint64_t mask = 0;
  };
  Seat seats[kMaxLevels] = {};
  // A lookup begins at the bottom, because more items lie there.
  typename P::template Atomic<bool> upwards{false};
  typename P::template Atomic<bool> fills_up{false};  // the table will grow soon

  // The resize. `cursor` hands out batches of source buckets; threads work on `inside` of them.
  alignas(kOwnLine) typename P::template Atomic<std::uint64_t> cursor{0};
  typename P::template Atomic<std::uint64_t> done{0};
  typename P::template Atomic<std::uint32_t> inside{0};
  typename P::template Atomic<bool> closed{false};   // no further batch begins
  typename P::template Atomic<bool> failed{false};   // a batch that is done has left items behind
  typename P::template Atomic<bool> starved{false};  // .. because there was no space for a level

  void add(Tier<T>* tier) {
    seats[levels] = {tier->metas.data(), tier->lines, tier->mask};
    tiers[levels++] = tier;
  }
  // Lookups and mutations use an index instead: GCC unrolls a loop up to kMaxLevels.
  std::span<Tier<T>* const> all() const { return {tiers, levels}; }
  // The two levels that take items are tiers[target()] and the next one.
  std::uint32_t target() const { return drain == Drain::top ? 1 : 0; }
  Tier<T>& upper() const { return *tiers[target()]; }
  Tier<T>& lower() const { return *tiers[target() + 1]; }
  Tier<T>& source() const { return *tiers[drain == Drain::top ? 0 : levels - 1]; }
  std::uint64_t items() const {
    std::uint64_t sum = 0;
    for (const Tier<T>* tier : all()) sum += tier->items();
    return sum;
  }
  std::uint64_t target_slots() const {
    return (upper().buckets() + lower().buckets()) * Tier<T>::kSlots;
  }
  std::uint64_t slots() const {
    std::uint64_t sum = 0;
    for (const Tier<T>* tier : all()) sum += tier->buckets();
    return sum * Tier<T>::kSlots;
  }
  // The paper's dynamic search: a lookup looks first where more items lie.
  void turn_search() {
    const bool up = lower().items() > upper().items();
    // Every lookup reads it, so it is stored only if it changes.
    if (upwards.load(std::memory_order_relaxed) != up) {
      upwards.store(up, std::memory_order_relaxed);
    }
  }
};

}  // namespace perdure::level
