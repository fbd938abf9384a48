// The multi-version store on media, format version 0. docs/design/pskiplist.md draws it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure::pskiplist {

// Sizes. On media: slots of a block of the key chain, and entries of a history's first segment. Not
// on media: keys of a leaf, leaves of an inner node, and partitions (2^k) of the index in DRAM;
// versions that one fence reserves; segments that are kept for erases in a full pool. Tests and the
// simulator use tiny sizes.
template <std::uint32_t BlockSlots, std::uint32_t FirstEntries, std::uint32_t LeafKeys,
          std::uint32_t InnerLeaves, std::uint32_t PartitionBits, std::uint32_t ReservedVersions,
          std::uint32_t ReservedSegments>
struct Geometry {
  static constexpr std::uint32_t kBlockSlots = BlockSlots;
  static constexpr std::uint32_t kFirstEntries = FirstEntries;
  static constexpr std::uint32_t kLeafKeys = LeafKeys;
  static constexpr std::uint32_t kInnerLeaves = InnerLeaves;
  static constexpr std::uint32_t kPartitionBits = PartitionBits;
  static constexpr std::uint32_t kReservedVersions = ReservedVersions;
  static constexpr std::uint32_t kReservedSegments = ReservedSegments;
};
using DefaultGeometry = Geometry<126, 2, 32, 128, 3, 4096, 64>;
using TinyGeometry = Geometry<4, 1, 4, 4, 1, 2, 2>;

namespace layout {

// The value of a key from a version on. `stamp` commits the entry and is stored last. Both words
// lie in one line.
struct Entry {
  std::uint64_t value;  // word, or record offset
  std::uint64_t stamp;  // version << 2 | kRemoved, or 0: empty, or kDropped
};
static_assert(sizeof(Entry) == 16);
inline constexpr std::uint64_t kRemoved = 1;  // the key was removed; `value` means nothing
inline constexpr std::uint64_t kDropped = 2;  // trimmed: no version sees it
inline constexpr std::uint32_t kStampShift = 2;
inline constexpr std::uint64_t kMaxVersion = ~std::uint64_t{0} >> 3;

// A key, with the first entry of its history. `first.stamp` commits the slot; 0: it is free.
struct Slot {
  std::uint64_t key;   // integer, or offset of the key's record
  std::uint64_t more;  // offset of the history's first segment, or 0
  Entry first;
};
static_assert(sizeof(Slot) == 32 && offsetof(Slot, first) == 16);

// A block of the key chain, followed by its slots. Blocks are durably zero before they are linked.
struct alignas(64) Block {
  std::uint64_t next;  // offset, or 0
  // CRC32C of the block's offset, of its other words, and of the states of the key records that its
  // slots name, in the order of the slots. It counts in a cleanly closed pool only.
  std::uint64_t crc;
  std::uint64_t reserved[6];
};
static_assert(sizeof(Block) == 64);

// Further entries of a history, as many as the block has room for. A segment is durably zero before
// it is linked. Its entries are filled in order and never move.
struct Segment {
  std::uint64_t next;  // offset, or 0
  std::uint64_t crc;   // CRC32C of its offset and its other words; counts as a block's
};
static_assert(sizeof(Segment) == 16);

// The map's root block.
struct alignas(64) Root {
  std::uint64_t magic;
  std::uint32_t geometry;   // slots per block
  std::uint32_t flags;      // bit 0: keys are bytes; 1: values are records
  std::uint64_t fixed_crc;  // CRC32C of all above; written once
  std::uint64_t reserved[5];
  // One line, changed while the map is open.
  std::uint64_t chain;    // offset of the first block
  std::uint64_t limit;    // no version above it was ever returned by tag()
  std::uint64_t horizon;  // versions below it are trimmed; 1 to limit + 1
  // While rollback_to is not 0, entries of versions in (from, to] are void; horizon <= from < to <=
  // limit. `to` is stored last and cleared first. Both are 0 while no rollback is under way.
  std::uint64_t rollback_from;
  std::uint64_t rollback_to;
  std::uint64_t close_crc;  // CRC32C of the root's offset and the words before; as a block's
  std::uint64_t pad[2];
};
static_assert(sizeof(Root) == 128);
static_assert(offsetof(Root, chain) == 64 && offsetof(Root, close_crc) == 104);
inline constexpr std::uint64_t kRootMagic = 0x304C53504B5350ULL;
inline constexpr std::uint32_t kBytesKeys = 1;
inline constexpr std::uint32_t kRecordValues = 2;

}  // namespace layout

using layout::Entry;
using layout::Segment;
using layout::Slot;

constexpr std::uint64_t version_of(std::uint64_t stamp) { return stamp >> layout::kStampShift; }
constexpr std::uint64_t stamp_of(std::uint64_t version, bool removed) {
  return version << layout::kStampShift | (removed ? layout::kRemoved : 0);
}
constexpr bool is_removed(std::uint64_t stamp) { return (stamp & layout::kRemoved) != 0; }
constexpr std::uint64_t entry_offset(std::uint64_t segment, std::uint32_t i) {
  return segment + sizeof(Segment) + i * sizeof(Entry);
}

}  // namespace perdure::pskiplist
