// The skiplists on media, format version 0. docs/design/atomic_skiplists.md draws it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure::skiplist {

// On media: the greatest number of levels of a map. Not on media: one node in 2^Shift of a level is
// in the next one, too; the parts of a walk; the number of stripes. Tests and the simulator use
// tiny geometries.
template <std::uint32_t MaxHeight, std::uint32_t Shift, std::uint32_t Segments,
          std::uint32_t LatchNodes, std::uint64_t FingersFrom, std::uint32_t Stripes>
struct Geometry {
  static_assert(MaxHeight <= 31);
  static constexpr std::uint32_t kMaxHeight = MaxHeight;
  static constexpr std::uint32_t kShift = Shift;
  static constexpr std::uint32_t kSegments = Segments;        // that a rebuild looks for, about
  static constexpr std::uint32_t kLatchNodes = LatchNodes;    // marked under one hold of the latch
  static constexpr std::uint64_t kFingersFrom = FingersFrom;  // entries: smaller maps have none
  static constexpr std::uint32_t kStripes = Stripes;
};
using DefaultGeometry = Geometry<24, 1, 512, 64, 1U << 10, 512>;
using TinyGeometry = Geometry<4, 1, 4, 2, 4, 4>;

namespace layout {

// A link for each level of its height follows, then the key's bytes, padded to 8, then the inline
// value. The node lies in a block of 32 bytes or of whole lines.
struct Node {
  std::uint64_t state;  // bits in node.h
  std::uint64_t key;    // integer, or the head of a byte string; never changes
  std::uint64_t value;  // the word; or 0: inline; or the link to a blob (index/blob.h)
};
static_assert(sizeof(Node) == 24);
static_assert(offsetof(Node, key) == 8 && offsetof(Node, value) == 16);

// The map's root block. The head has a link for each of kMaxHeight levels.
struct alignas(64) Root {
  std::uint64_t magic;
  std::uint32_t max_height;
  std::uint32_t flags;      // bit 0: keys are bytes; bit 1: values are bytes; bit 2: as, not ascs
  std::uint64_t fixed_crc;  // CRC32C of all above; written once
  // The sum (index/closed_sum.h) of all nodes: if a node is missing, or in another's place, the
  // list may still be in order. The sum counts in a cleanly closed pool only.
  std::uint64_t nodes_sum;
  std::uint64_t damaged;  // kDamaged: the walk behind an open of as has found damage; else 0
  std::uint64_t reserved[3];
  Node head;
  std::uint64_t first_link;
};
static_assert(sizeof(Root) == 128);
static_assert(offsetof(Root, fixed_crc) == 16 && offsetof(Root, nodes_sum) == 24);
static_assert(offsetof(Root, damaged) == 32 && offsetof(Root, head) == 64);
static_assert(offsetof(Root, first_link) == offsetof(Root, head) + sizeof(Node));
inline constexpr std::uint64_t kRootMagic = 0x5453494C50494B53ULL;
inline constexpr std::uint64_t kDamaged = 0x444547414D4144ULL;  // far from 0, should bits flip
inline constexpr std::uint32_t kBytesKeys = 1;
inline constexpr std::uint32_t kBytesValues = 2;
inline constexpr std::uint32_t kUpperDurable = 4;
inline constexpr std::uint32_t kFlags = kBytesKeys | kBytesValues | kUpperDurable;

}  // namespace layout
}  // namespace perdure::skiplist
