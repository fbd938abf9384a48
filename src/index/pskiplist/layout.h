// The multi-version store on media, format version 0. docs/design/pskiplist.md draws it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure::pskiplist {

// On media: slots of a block of the key chain, entries of a history's first segment. Not on media:
// keys of a leaf and leaves of an inner node of the index in DRAM, its partitions (2^k), versions
// that are reserved with one fence, segments kept for erases in a full pool. Tests and the
// simulator use tiny ones.
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

// What a key was from a version on. `stamp` commits it and is stored last; both lie in one line.
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
  // CRC32C of its offset and the rest, and of the states of the key records that its slots name, in
  // the order of the slots. Counts in a cleanly closed pool only.
  std::uint64_t crc;
  std::uint64_t reserved[6];
};
static_assert(sizeof(Block) == 64);

// Further entries of a history, as many as the block has room for. Durably zero before it is
// linked; entries are filled in order and never move.
struct Segment {
  std::uint64_t next;  // offset, or 0
  std::uint64_t crc;   // CRC32C of its offset and the rest; counts as a block's
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
  std::uint64_t chain;          // offset of the first block
  std::uint64_t limit;          // no version above it was ever returned by tag()
  std::uint64_t horizon;        // versions below it are trimmed; 1 to limit + 1
  std::uint64_t rollback_from;  // while rollback_to is not 0: entries of versions in
  std::uint64_t rollback_to;    // (from, to] are void; horizon <= from < to <= limit. Stored last
                                // and cleared first; both are 0 where no rollback is under way
  std::uint64_t close_crc;      // CRC32C of its block's offset and the words before; as a block's
  std::uint64_t pad[2];
};
static_assert(sizeof(Root) == 128);
static_assert(offsetof(Root, chain) == 64 && offsetof(Root, close_crc) == 104);
inline constexpr std::uint64_t kRootMagic = 0x304C53504B5350ULL;
inline constexpr std::uint32_t kBytesKeys = 1;
inline constexpr std::uint32_t kRecordValues = 2;

}  // namespace layout
}  // namespace perdure::pskiplist
