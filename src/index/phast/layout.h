// PhaST on media, format version 0. docs/design/pool-format.md draws it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "heap/extent_table.h"
#include "index/ordered/probe.h"

namespace perdure::phast {

// How many entries a leaf holds, and how many leaves an inner node holds. Tests and the simulator
// use small numbers, the evaluation of the paper several. The size of a leaf is a power of two:
// leaves lie on line boundaries and are named by number.
template <std::uint32_t LeafEntries, std::uint32_t InnerLeaves>
struct Geometry {
  static constexpr std::uint32_t kLeafEntries = LeafEntries;
  static constexpr std::uint32_t kInnerLeaves = InnerLeaves;
  static constexpr ordered::Start kStart = ordered::Start::shortcut;  // of a search
};
using DefaultGeometry = Geometry<60, 128>;
using TinyGeometry = Geometry<4, 4>;

// Of leaves and separators. They need no more than a plain block; but a kind of their own gives
// them extents of their own, so that an open reads these and none of the records'.
inline constexpr BlockKind kStructureKind = BlockKind::dead_on_free;

namespace layout {

// An entry lies in one line and commits itself: its commit word is stored last. codec.h says which
// of the two words it is. 0 means empty.
struct Entry {
  std::uint64_t key;    // integer, or the first 8 bytes of a byte string, big-endian
  std::uint64_t value;  // word, or record offset | fingerprint << 56
};
static_assert(sizeof(Entry) == 16);

template <class G>
struct alignas(64) Leaf {
  std::uint64_t next;  // offset of the right neighbour in the partition, 0: none
  // Inclusive upper bound: key word, or offset of a separator record. In the same line as next.
  std::uint64_t bound;
  // The left neighbour's bound when this leaf was split off. Read only to finish a split.
  std::uint64_t low;
  std::uint64_t crc;  // CRC32C of the rest; valid in a cleanly closed pool only
  // If kWordRecords: CRC32C of the word values in the entries' records, by slot. Valid as crc.
  std::uint64_t values_crc;
  std::uint64_t reserved[3];
  Entry entries[G::kLeafEntries];
};
static_assert(sizeof(Leaf<DefaultGeometry>) == 1024);
static_assert(offsetof(Leaf<DefaultGeometry>, entries) == 64);
static_assert(sizeof(Leaf<TinyGeometry>) == 128);

// The map's root block. The offsets of the partitions' first leaves follow it (the paper's master
// array).
struct Root {
  std::uint64_t magic;
  std::uint32_t geometry;  // entries per leaf
  std::uint32_t partition_bits;
  std::uint32_t partition_shift;  // lowest key bit of the partition number
  std::uint32_t flags;            // bit 0: keys are bytes; bit 1: values are records; bit 2: words
  std::uint64_t fixed_crc;        // CRC32C of all above and of the master array; written once
  std::uint64_t close_crc;        // CRC32C of the zero slot; valid in a cleanly closed pool only
  std::uint64_t reserved;
  // The entry of integer key 0, whose word cannot be a commit word. Both words lie in one line, and
  // present is stored last.
  std::uint64_t zero_value;
  std::uint64_t zero_present;
};
static_assert(sizeof(Root) == 64);
inline constexpr std::uint64_t kRootMagic = 0x3054534148502EULL;
inline constexpr std::uint32_t kBytesKeys = 1;
inline constexpr std::uint32_t kRecordValues = 2;
inline constexpr std::uint32_t kWordRecords = 4;  // byte-string keys, word values in the records

}  // namespace layout
}  // namespace perdure::phast
