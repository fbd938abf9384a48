// Tier: a level in DRAM: where its buckets lie, their version locks and fingerprints. View: the
// levels that there are, as an operation sees them; immutable but for the progress of a resize.
#pragma once

#include <cstdint>
#include <new>

#include "index/level/line.h"
#include "platform/platform.h"
#include "util/arena.h"

namespace perdure::level {

// Of one bucket. `version` is odd while a writer holds the lock, and is raised by every change.
// `prints` has a byte per slot, 0 where nothing counts; changed by the holder only.
template <Platform P>
struct Meta {
  typename P::template Atomic<std::uint64_t> version{0};
  typename P::template Atomic<std::uint64_t> prints{0};

  bool try_lock() noexcept {
    const std::uint64_t seen = version.load(std::memory_order_relaxed);
    return (seen & 1) == 0 && try_lock(seen);
  }
  // Only as it was when it was seen with this version, which is even.
  bool try_lock(std::uint64_t seen) noexcept {
    return version.compare_exchange_strong(seen, seen + 1, std::memory_order_seq_cst);
  }
  void lock() noexcept {
    for (unsigned spins = 0; !try_lock();) P::pause(spins++);
  }
  bool locked() const noexcept { return (version.load(std::memory_order_relaxed) & 1) != 0; }
  // Whoever looked before is told, or need not be, that something has changed.
  void unlock(bool changed) noexcept {
    const std::uint64_t held = version.load(std::memory_order_relaxed);
    PERDURE_ASSERT(P, "level.I4", (held & 1) != 0);
    version.store(changed ? held + 1 : held - 1, std::memory_order_release);
  }
  // The slots whose byte is `print`, as the top bits of their bytes. Exactly those: a slot that
  // does not count may still hold the key that is looked for.
  static std::uint64_t match(std::uint64_t prints, std::uint8_t print) noexcept {
    constexpr std::uint64_t kLow = 0x7F7F7F7F7F7F7F7FULL;
    const std::uint64_t difference = prints ^ print * 0x0101010101010101ULL;
    return ~(((difference & kLow) + kLow) | difference | kLow);
  }
  std::uint8_t print(std::uint32_t slot) const noexcept {
    return static_cast<std::uint8_t>(prints.load(std::memory_order_relaxed) >> 8 * slot);
  }
  void set_print(std::uint32_t slot, std::uint8_t print) noexcept {
    const std::uint64_t others = prints.load(std::memory_order_relaxed) & ~(0xFFULL << 8 * slot);
    prints.store(others | std::uint64_t{print} << 8 * slot, std::memory_order_release);
  }
};

template <Platform P, class Form, class G>
struct Tier {
  using Line = typename Form::Line;
  static constexpr std::uint32_t kLines = G::kBucketLines;
  static constexpr std::uint32_t kSlots = kLines * Form::kSlots;
  static_assert(kSlots <= 8);
  static_assert(!Form::kArrays || kLines <= 2);  // a word has their checksums
  static constexpr std::uint32_t kStripes = 16;
  struct alignas(64) Count {
    typename P::template Atomic<std::int64_t> items{0};
  };

  std::uint64_t offset = 0;
  std::uint32_t log = 0;
  Line* lines = nullptr;
  Arena<Meta<P>> metas;
  Count counts[kStripes];

  static constexpr std::uint64_t line_bytes(std::uint32_t log) noexcept {
    return (1ULL << log) * kLines * sizeof(Line);
  }
  // Of its block: the lines, and the checksums that have no room in them.
  static constexpr std::uint64_t bytes_of(std::uint32_t log) noexcept {
    const std::uint64_t checks = Form::kArrays ? sizeof(std::uint64_t) << log : 0;
    return line_bytes(log) + (checks + kLine - 1) / kLine * kLine;
  }
  // Null if DRAM is short.
  static Tier* make(std::uint64_t offset, std::uint32_t log, Line* lines) noexcept {
    auto* tier = new (std::nothrow) Tier;
    if (tier == nullptr) return nullptr;
    tier->offset = offset;
    tier->log = log;
    tier->lines = lines;
    if (!tier->metas.reserve(1ULL << log).ok()) {  // zeros are unlocked and empty
      delete tier;
      return nullptr;
    }
    return tier;
  }

  std::uint64_t buckets() const noexcept { return 1ULL << log; }
  std::uint64_t index(std::uint64_t hash) const noexcept { return hash & (buckets() - 1); }
  Line& line(std::uint64_t bucket, std::uint32_t slot) const noexcept {
    return lines[bucket * kLines + slot / Form::kSlots];
  }
  // The word that has the checksum of the slot's line, and the bit at which that begins there.
  std::uint64_t& check(std::uint64_t bucket, std::uint32_t slot) const noexcept {
    if constexpr (Form::kArrays) {
      return reinterpret_cast<std::uint64_t*>(lines + buckets() * kLines)[bucket];
    } else {
      return line(bucket, slot).crc;
    }
  }
  static constexpr std::uint32_t check_bit(std::uint32_t slot) noexcept {
    return Form::kArrays ? slot / Form::kSlots * 32 : 0;
  }
  std::uint32_t used(std::uint64_t bucket) const noexcept {
    std::uint64_t prints = metas[bucket].prints.load(std::memory_order_relaxed);
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < kSlots; ++i, prints >>= 8) count += (prints & 0xFF) != 0;
    return count;
  }
  // The first slot of the line that is taken if there is room: a lookup can fetch it before it
  // knows the fingerprints.
  static std::uint32_t home(std::uint8_t print) noexcept { return print % kLines * Form::kSlots; }
  // For a key of this fingerprint, in its home line if there is room; kSlots if there is none.
  std::uint32_t free_slot(std::uint64_t bucket, std::uint8_t print) const noexcept {
    const std::uint64_t prints = metas[bucket].prints.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0, slot = home(print); i < kSlots; ++i) {
      if ((prints >> 8 * slot & 0xFF) == 0) return slot;
      if (++slot == kSlots) slot = 0;
    }
    return kSlots;
  }
  // Answers what the thread's stripe holds now.
  std::int64_t add(std::int64_t delta) noexcept {
    return counts[P::thread_slot() % kStripes].items.fetch_add(delta, std::memory_order_relaxed) +
           delta;
  }
  std::uint64_t items() const noexcept {
    std::int64_t sum = 0;
    for (const Count& count : counts) sum += count.items.load(std::memory_order_relaxed);
    return sum > 0 ? static_cast<std::uint64_t>(sum) : 0;
  }
};

template <Platform P, class Form, class G>
struct View {
  using TierT = Tier<P, Form, G>;

  std::uint64_t descriptor = 0;  // its offset
  std::uint64_t generation = 0;
  std::uint32_t levels = 0;
  layout::Drain drain = layout::Drain::none;
  TierT* tiers[kMaxLevels] = {};  // the largest first
  // Search from the bottom: more items lie there.
  typename P::template Atomic<bool> upwards{false};
  typename P::template Atomic<bool> fills_up{false};  // it will grow soon

  // The resize. Batches of source buckets are handed out; `inside` are being worked at.
  typename P::template Atomic<std::uint64_t> cursor{0};
  typename P::template Atomic<std::uint64_t> done{0};
  typename P::template Atomic<std::uint32_t> inside{0};
  typename P::template Atomic<bool> closed{false};   // no batch begins any more
  typename P::template Atomic<bool> failed{false};   // of those done, one has left items behind
  typename P::template Atomic<bool> starved{false};  // .. since there was no space for a level

  // The two levels that take items.
  std::uint32_t target() const noexcept { return drain == layout::Drain::top ? 1 : 0; }
  TierT& upper() const noexcept { return *tiers[target()]; }
  TierT& lower() const noexcept { return *tiers[target() + 1]; }
  TierT& source() const noexcept { return *tiers[drain == layout::Drain::top ? 0 : levels - 1]; }
  std::uint64_t items() const noexcept {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < levels; ++i) sum += tiers[i]->items();
    return sum;
  }
  std::uint64_t target_slots() const noexcept {
    return (upper().buckets() + lower().buckets()) * TierT::kSlots;
  }
  std::uint64_t slots() const noexcept {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < levels; ++i) sum += tiers[i]->buckets();
    return sum * TierT::kSlots;
  }
};

}  // namespace perdure::level
