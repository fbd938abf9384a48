// Clevel hashing on media, format version 1. docs/design/clevel.md draws it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure::clevel {

// Tests and the simulator use few slots in a bucket, few stripes and short steps.
template <std::uint32_t Slots, std::uint32_t Stripes, std::uint32_t Batch, std::uint64_t Ahead,
          std::uint64_t Own>
struct Geometry {
  static constexpr std::uint32_t kSlots = Slots;      // of a bucket, at most 8
  static constexpr std::uint32_t kStripes = Stripes;  // power of two
  static constexpr std::uint32_t kBatch = Batch;      // buckets per step of the rehash
  static constexpr std::uint64_t kAhead = Ahead;      // buckets zeroed per step
  static constexpr std::uint64_t kOwn = Own;          // buckets that an insert zeroes itself
};
using DefaultGeometry = Geometry<8, 4096, 64, 4096, 64>;
using TinyGeometry = Geometry<2, 4, 1, 8, 8>;

inline constexpr std::uint32_t kRing = 16;  // words of the level ring; one stays 0
inline constexpr std::uint32_t kMaxLevels = kRing - 1;
inline constexpr std::uint32_t kMinBuckets = 2;  // of the smallest level
inline constexpr std::uint64_t kMaxLogBuckets = 40;

namespace layout {

// Eight slots in one line: 0, kSealed, or item offset | tag << 48.
struct alignas(64) Bucket {
  std::uint64_t slots[8];
};
static_assert(sizeof(Bucket) == 64);

// The head of an item. The key follows (8 bytes for an integer), padded to 8 bytes, then the bytes
// of an inline value.
struct Item {
  std::uint64_t state;  // stored last into its line; item.h lists the bits
  std::uint64_t value;  // the word; for bytes: 0 (inline), kGone, or the offset of a blob
};
static_assert(sizeof(Item) == 16);
static_assert(offsetof(Item, state) == 0);

// The map's root block.
struct alignas(64) Root {
  std::uint64_t magic;
  std::uint32_t slots;  // per bucket
  std::uint32_t flags;  // bit 0: keys are bytes; bit 1: values are bytes
  std::uint64_t seed[2];
  std::uint64_t fixed_crc;  // CRC32C of the fields above; written once
  std::uint64_t opened;     // 0 until the first start(), then kOpened; the map is empty until then
  std::uint64_t
      slots_sum;          // of all slots (index/closed_sum.h); valid in a cleanly closed pool only
  std::uint64_t damaged;  // kDamaged once the walk of an open has found damage; 0 before
  // The levels, the last one first: one run of words that are not 0. Each level is twice the one
  // before, except after a shrink. A word is log2(buckets) | offset | check << 48.
  std::uint64_t levels[kRing];
};
static_assert(sizeof(Root) == 192);
static_assert(offsetof(Root, slots_sum) == 48 && offsetof(Root, damaged) == 56);
static_assert(offsetof(Root, levels) == 64);
inline constexpr std::uint64_t kRootMagic = 0x304C4556454C43ULL;
inline constexpr std::uint64_t kOpened = 0x44454E45504FULL;  // many bits differ from 0
inline constexpr std::uint64_t kDamaged = 0x444547414D4144ULL;
inline constexpr std::uint32_t kBytesKeys = 1;
inline constexpr std::uint32_t kBytesValues = 2;

}  // namespace layout

using layout::Bucket;
using layout::Item;
using layout::Root;

inline constexpr std::uint64_t kSealed = 2;
inline constexpr std::uint64_t kOffsetBits = 48;
inline constexpr std::uint64_t kOffsetMask = (1ULL << kOffsetBits) - 1;

}  // namespace perdure::clevel
