// On-media structures of a pool, format version 1. docs/design/pool-format.md draws them.
//
//   0                header, copy A            one page
//   4096             header, copy B            one page
//   8192             root directory            root_slots x 64 bytes
//   ...              extent table              one word per extent, for the first max_bytes
//   data_offset      extents                   each extent_bytes long; after a resize, some hold
//                                              further extent tables (heap/geometry.h)
//
// Only pool-relative offsets are stored, little-endian. A pool can be opened at any address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "heap/geometry.h"
#include "platform/identity.h"

namespace perdure::layout {

inline constexpr std::uint64_t kMagic = 0x3165727564726570;  // "perdure1"
inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint32_t kEndianTag = 0x01020304;
inline constexpr std::uint64_t kHeaderBytes = 4096;
inline constexpr std::uint64_t kDirectoryOffset = 2 * kHeaderBytes;

// Features that this build knows, a bit each. A pool with an unknown compatible bit is opened and
// written as usual, and the bit is kept. A pool with an unknown incompatible bit is refused. A
// feature is incompatible if this build would free or change its data, or not replay it.
inline constexpr std::uint64_t kCompatibleFeatures = 0;
inline constexpr std::uint64_t kHasMoreTables = 1 << 0;  // the pool was resized: see more_tables
inline constexpr std::uint64_t kBatches = 1 << 1;        // `batch_log` is set
// The file may be the base of a log (cut/log_format.h): its marks say whether it is the pool.
inline constexpr std::uint64_t kBuffered = 1 << 2;
inline constexpr std::uint64_t kIncompatibleFeatures = kHasMoreTables | kBatches | kBuffered;
// For people, by the number of the bit.
inline constexpr const char* kIncompatibleNames[] = {"resized", "batches", "buffered"};
static_assert(kIncompatibleFeatures == (std::uint64_t{1} << std::size(kIncompatibleNames)) - 1);

// The word of a batch that was committed and is not done yet, or 0: in the last line of the page of
// header copy A. See format/batch_log.h.
inline constexpr std::uint64_t kBatchLog = kHeaderBytes - 64;

// How the last owner left the pool. On media: never renumber.
enum class CloseState : std::uint32_t {
  dirty = 0,   // open, or its owner died
  clean = 1,   // closed; trusted within the boot and file it was closed in
  synced = 2,  // closed and written back whole; trusted anywhere
  sealed = 3,  // open, written back whole, nothing stored since; trusted anywhere, a copy of it if
               // its content has the checksum `seal`
};

// Two copies; the valid one with the higher sequence counts. Written whole, then made durable.
struct Header {
  std::uint64_t magic;
  std::uint32_t format_version;
  std::uint32_t endian_tag;
  std::uint32_t word_bytes;  // sizeof(void*) of the writer
  std::uint32_t header_bytes;
  std::uint8_t uuid[16];
  std::uint64_t sequence;
  // Shape, fixed at creation; a resize raises max_bytes.
  std::uint64_t max_bytes;
  std::uint64_t extent_bytes;
  std::uint32_t root_slots;
  std::uint32_t reserved0;
  std::uint64_t table_offset;
  std::uint64_t data_offset;
  // State.
  std::uint64_t file_bytes;  // the file may be longer (a crash while growing), never shorter
  CloseState close_state;
  std::uint32_t mode;     // Durability of this open
  std::uint32_t weakest;  // weakest Durability since the last full write-back
  std::uint32_t reserved1;
  Identity identity;
  std::uint64_t directory_crc;  // CRC32C of the root directory; unless dirty
  std::uint64_t seal;           // of the content, if sealed
  // Features.
  std::uint64_t compatible;    // bits; see kCompatibleFeatures
  std::uint64_t incompatible;  // bits; see kIncompatibleFeatures
  std::uint64_t batch_log;     // kBatchLog once there was a batch; 0: never
  // Identify the log beside the file; 0: there never was one. Both are kept for good: the remains
  // of an older incarnation must not be taken for the present log.
  std::uint8_t log_id[16];
  std::uint64_t log_incarnation;
  MoreTable more_tables[kMoreTables];  // of resizes, ascending; the unused ones are 0
  // All reserved bytes are zero, unless an unknown compatible bit is set: its feature may use them.
  std::uint8_t reserved[152];
  std::uint32_t reserved2;
  std::uint32_t crc;  // CRC32C of all bytes before it
};
static_assert(sizeof(Header) == 512);
static_assert(offsetof(Header, reserved0) == 68);
static_assert(offsetof(Header, file_bytes) == 88);
static_assert(offsetof(Header, reserved1) == 108);
static_assert(offsetof(Header, identity) == 112);
static_assert(offsetof(Header, seal) == 232);
static_assert(offsetof(Header, compatible) == 240 && offsetof(Header, incompatible) == 248);
static_assert(offsetof(Header, batch_log) == 256);
static_assert(offsetof(Header, log_id) == 264 && offsetof(Header, log_incarnation) == 280);
static_assert(offsetof(Header, more_tables) == 288);
static_assert(offsetof(Header, reserved) == 352 && offsetof(Header, reserved2) == 504);
static_assert(offsetof(Header, crc) == 508);
static_assert(std::is_trivially_copyable_v<Header>);

// The record of a batch, in a block of its own. After it the runs that the batch has in hand. Then
// for each map of the batch a BatchMap, and behind that for each of its mutations a BatchEntry with
// the bytes of its key and of its value, each padded to 8. An entry that names a block has neither:
// the record (index/record.h) in it has both.
// Behind the record of a batch that is done in pieces there is a word for each piece: 0, and when
// the piece is done 1 << 32 with the CRC32C of {the offset, its number}. A piece is so many
// mutations of one map; the last one of a map may be smaller.
struct BatchRecord {
  std::uint64_t magic;
  std::uint64_t bytes;  // of the record
  std::uint32_t maps;
  std::uint32_t runs;
  // CRC32C of {the offset, bytes, maps, runs}, of `piece` as a word unless it is 0, and of all
  // behind this struct.
  std::uint32_t crc;
  std::uint32_t piece;  // the mutations of a piece; 0: the batch is done as a whole
};
struct BatchRun {
  std::uint64_t offset;
  std::uint32_t extents;
  std::uint32_t kind;  // BlockKind
};
inline constexpr std::uint64_t kBatchMagic = 0x4843544142524550;  // "PERBATCH"
struct BatchMap {
  std::uint32_t slot;  // in the root directory
  std::uint32_t reserved;
  std::uint64_t root;     // of that map
  std::uint64_t version;  // the open one of a map with versions
  std::uint64_t entries;
};
struct BatchEntry {
  std::uint64_t key;    // of an integer key
  std::uint64_t value;  // of a word; the offset of the block
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
  std::uint32_t kind;       // 0: a put; 1: an erase; 2: a put that names a block
  std::uint32_t word_size;  // of the value; 0: bytes
};
static_assert(sizeof(BatchRecord) == 32 && sizeof(BatchRun) == 16 && sizeof(BatchMap) == 32 &&
              sizeof(BatchEntry) == 32);

// One named map. `root` is stored last and commits the line; 0: the slot is free.
struct Root {
  char name[32];      // NUL-padded, 1 to 31 bytes
  std::uint32_t crc;  // CRC32C of the line with this field as 0
  std::uint16_t engine;
  std::uint8_t engine_version;
  std::uint8_t key_kind;
  std::uint8_t value_kind;
  std::uint8_t is_signed;
  std::uint8_t key_bytes;
  std::uint8_t value_bytes;
  std::uint32_t reserved;
  std::uint64_t parameters;  // of the engine
  std::uint64_t root;        // offset of the engine's root block
};
static_assert(sizeof(Root) == 64 && offsetof(Root, root) == 56);
static_assert(std::is_trivially_copyable_v<Root>);

}  // namespace perdure::layout
