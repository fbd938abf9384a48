// ExtentTable: one 8-byte word per extent, outside the extents. The content of an extent is never
// trusted to describe the extent.
//
// LAYOUT   bits  0..1   state: 0 virgin (never used, reads as zero), 1 free, 2 slab, 3 run's head
//                2..3   block kind (heap.h)
//                4..11  size class of a slab
//               12..39  extents in a run
//               40..63  checksum over the other bits and the extent's number; virgin: all zero
//   The words of a run's other extents stay virgin or free and are ignored while the run lives.
//   geometry.h says where the words lie.
// INVARIANT  A word is durable before the first block of its extent is handed out. It returns to
//   free only when the unlinks of all its blocks are durable.
#pragma once

#include <cstdint>

#include "util/crc32c.h"

namespace perdure {

enum class ExtentState : std::uint8_t { virgin = 0, free = 1, slab = 2, run = 3 };

// How a block of a type is published. Decides what must be durable before the block is reused. On
// media: never renumber.
enum class BlockKind : std::uint8_t {
  plain = 0,         // linked by a fence of its own: reuse needs nothing
  dead_on_free = 1,  // published by the same fence as its link: word 0 is durably 0 before reuse
  zero_on_free = 2,  // must read as zero when allocated, durably
};
inline constexpr std::uint32_t kBlockKinds = 3;

struct ExtentWord {
  ExtentState state = ExtentState::virgin;
  BlockKind kind = BlockKind::plain;
  std::uint8_t size_class = 0;
  std::uint32_t run = 0;

  std::uint64_t encode(std::uint64_t extent) const {
    const std::uint64_t bits =
        static_cast<std::uint64_t>(state) | static_cast<std::uint64_t>(kind) << 2 |
        static_cast<std::uint64_t>(size_class) << 4 | static_cast<std::uint64_t>(run) << 12;
    return bits == 0 ? 0 : bits | checksum(bits, extent) << 40;
  }
  // Returns false if the word is damaged.
  static bool decode(std::uint64_t word, std::uint64_t extent, ExtentWord& out,
                     bool verify = true) {
    const std::uint64_t bits = word & ((1ULL << 40) - 1);
    out.state = static_cast<ExtentState>(bits & 3);
    out.kind = static_cast<BlockKind>((bits >> 2) & 3);
    out.size_class = static_cast<std::uint8_t>(bits >> 4);
    out.run = static_cast<std::uint32_t>(bits >> 12);
    if (bits == 0) return word == 0;
    return (!verify || word >> 40 == checksum(bits, extent)) &&
           static_cast<std::uint32_t>(out.kind) < kBlockKinds;
  }

 private:
  static std::uint64_t checksum(std::uint64_t bits, std::uint64_t extent) {
    const std::uint64_t words[2] = {bits, extent};
    return crc32c(0, words, sizeof(words)) & 0xFFFFFF;
  }
};

}  // namespace perdure
