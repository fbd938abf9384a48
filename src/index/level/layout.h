// Level hashing on media, format version 1. docs/design/level.md draws it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure::level {

// On media: BucketLines, the lines of a bucket; FirstLog: the top level of a new map has 2^FirstLog
// buckets. Not on media: BatchBuckets, the buckets of a batch of a resize; StepBatches, the batches
// of a step; LookEvery: after so many erases a thread checks whether the table is too large. Tests
// and the simulator use tiny values.
template <std::uint32_t BucketLines, std::uint32_t FirstLog, std::uint32_t BatchBuckets,
          std::uint32_t StepBatches, std::uint32_t LookEvery>
struct Geometry {
  static constexpr std::uint32_t kBucketLines = BucketLines;
  static constexpr std::uint32_t kFirstLog = FirstLog;
  static constexpr std::uint32_t kBatchBuckets = BatchBuckets;
  static constexpr std::uint32_t kStepBatches = StepBatches;
  static constexpr std::uint32_t kLookEvery = LookEvery;
};
using DefaultGeometry = Geometry<2, 5, 4, 32, 16>;
using TinyGeometry = Geometry<1, 1, 2, 1, 2>;

inline constexpr std::uint32_t kMaxLevels = 6;   // of a table during a resize
inline constexpr std::uint32_t kMaxLog = 40;     // a level has at most 2^kMaxLog buckets
inline constexpr std::uint32_t kMoveLines = 16;  // at most so many movements at the same time

namespace layout {

struct Slot {
  std::uint64_t key;    // an integer, or the hash of a byte string
  std::uint64_t value;  // a word, or the offset of a record
};
static_assert(sizeof(Slot) == 16);

// A line commits itself: a mutation stores `tokens` last of all that it changes in the line.
struct alignas(64) Line {
  static constexpr std::uint32_t kSlots = 3;

  std::uint64_t tokens;  // bit i: slots[i] counts; the other bits are 0
  Slot slots[kSlots];
  // Bits 0..31: CRC32C of the words before it, or 0 if they are all 0. Bits 32..63: CRC32C of the
  // word values in the records that the slots name. Valid in a cleanly closed pool only.
  std::uint64_t crc;
};
static_assert(sizeof(Line) == 64);
static_assert(offsetof(Line, slots) == 8 && offsetof(Line, crc) == 56);

// The line of a map of arrays. Keys have up to 16 bytes, values up to 15, and zeros follow them.
// The tokens share their word with the last bytes of a value, and are stored last as well. The
// checksums of a bucket's lines lie behind the lines of the level, in one word per bucket.
struct alignas(64) ArrayLine {
  static constexpr std::uint32_t kSlots = 2;

  std::uint64_t keys[kSlots][2];
  std::uint64_t heads[kSlots];  // bytes 0 to 7 of the values
  std::uint64_t tails;          // bytes 8 to 14 of the first value, then byte 8 of the second
  // Bytes 9 to 14 of the second value; bit 48 + i: slot i counts; the other bits are 0.
  std::uint64_t tokens;
};
static_assert(sizeof(ArrayLine) == 64);
static_assert(offsetof(ArrayLine, heads) == 32 && offsetof(ArrayLine, tails) == 48);
static_assert(offsetof(ArrayLine, tokens) == 56);

// The list of levels. It is immutable: one store to the root block replaces it as a whole.
struct alignas(64) Descriptor {
  std::uint32_t crc;     // CRC32C of the rest
  std::uint8_t top_log;  // the largest level has 2^top_log buckets, each next one half of them
  std::uint8_t levels;   // 2, or up to kMaxLevels during a resize
  std::uint8_t drain;    // Drain
  std::uint8_t reserved;
  std::uint64_t generation;
  std::uint64_t offsets[kMaxLevels];  // of the levels, the largest first
};
static_assert(sizeof(Descriptor) == 64);
static_assert(offsetof(Descriptor, offsets) == 16);

// On media: never renumber.
enum class Drain : std::uint8_t {
  none = 0,    // there are two levels
  bottom = 1,  // the smallest level is being emptied: an expansion, or a shrink that is undone
  top = 2,     // the largest level is being emptied: a shrink
};

// A movement in progress: a key that is valid in both lines counts once. A stale Move is harmless.
struct alignas(64) Move {
  std::uint64_t from;  // offsets of lines
  std::uint64_t to;    // stored last; 0: no movement
  std::uint64_t reserved[6];
};
static_assert(sizeof(Move) == 64);

// The map's root block.
struct alignas(64) Root {
  std::uint64_t magic;
  std::uint32_t geometry;   // lines per bucket
  std::uint32_t flags;      // kBytesKeys ..
  std::uint32_t first_log;  // the top level never gets smaller than this
  // Of a map of arrays. 0: its keys are integers, or its values are words.
  std::uint8_t key_bytes;
  std::uint8_t value_bytes;
  std::uint16_t reserved;
  std::uint64_t seeds[2];    // of the two hash functions, secret
  std::uint64_t fixed_crc;   // CRC32C of all words above; written once
  std::uint64_t descriptor;  // offset of the current Descriptor
  // Bits 0..31: CRC32C of `descriptor` and the generation. It detects an old Descriptor, which is
  // intact as well, and whose levels may be intact, too. Bits 32..63: the sum (index/closed_sum.h)
  // of the checksums of all lines. It detects a line that has become zero, which is intact, too.
  // Valid in a cleanly closed pool only.
  std::uint64_t closed;
  Move moves[kMoveLines];
};
static_assert(sizeof(Root) == 64 + 64 * kMoveLines);
static_assert(offsetof(Root, descriptor) == 48 && offsetof(Root, moves) == 64);

// A value of two words that is being replaced in place; recovery stores it again. It is durable
// before the first store to the slot. `place` is durably 0 before the slot's lock is released.
struct alignas(64) Update {
  std::uint64_t value[2];
  std::uint64_t place;  // stored last: offset of the line, with the slot in bit 0; 0: no update
  std::uint64_t reserved[5];
};
static_assert(sizeof(Update) == 64);

// The root block of a map of arrays.
struct alignas(64) ArrayRoot {
  Root root;
  Update updates[kMoveLines];
};
static_assert(sizeof(ArrayRoot) == sizeof(Root) + 64 * kMoveLines);
static_assert(offsetof(ArrayRoot, updates) == sizeof(Root));

inline constexpr std::uint64_t kRootMagic = 0x304C4556454CULL;
inline constexpr std::uint32_t kBytesKeys = 1;
inline constexpr std::uint32_t kRecordValues = 2;
inline constexpr std::uint32_t kWordRecords = 4;  // byte-string keys with word values
inline constexpr std::uint32_t kMayShrink = 8;
inline constexpr std::uint32_t kArrayLines = 16;

}  // namespace layout
}  // namespace perdure::level
