// On-media structures of a pool, format version 0. docs/design/pool-format.md draws them.
//
//   0                header, copy A            one page
//   4096             header, copy B            one page
//   8192             root directory            root_slots x 64 bytes
//   ...              writer descriptors        writer_slots x 64 bytes, reserved for engines
//   ...              extent table              one word per extent, for max_bytes
//   data_offset      extents                   each extent_bytes long
//
// Only pool-relative offsets are stored, little-endian. A pool can be opened at any address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace perdure::layout {

inline constexpr std::uint64_t kMagic = 0x3165727564726570;  // "perdure1"
inline constexpr std::uint32_t kFormatVersion = 0;
inline constexpr std::uint32_t kEndianTag = 0x01020304;
inline constexpr std::uint64_t kHeaderBytes = 4096;
inline constexpr std::uint64_t kDirectoryOffset = 2 * kHeaderBytes;

// How the last owner left the pool. On media: never renumber.
enum class CloseState : std::uint32_t {
  dirty = 0,   // open, or its owner died
  clean = 1,   // closed; trusted within the boot and file it was closed in
  synced = 2,  // closed and written back whole; trusted anywhere
  sealed = 3,  // open, written back whole, nothing stored since; trusted anywhere, a copy of it if
               // its content has the checksum `seal`
};

// Who had the pool open, and where: decides whether an unclean pool can be trusted.
struct Identity {
  std::uint8_t boot_id[16];
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t filesystem_id;
  std::uint64_t pid;
  char host[64];
};
static_assert(sizeof(Identity) == 112);

// Two copies; the valid one with the higher sequence counts. Written whole, then made durable.
struct Header {
  std::uint64_t magic;
  std::uint32_t format_version;
  std::uint32_t endian_tag;
  std::uint32_t word_bytes;  // sizeof(void*) of the writer
  std::uint32_t header_bytes;
  std::uint8_t uuid[16];
  std::uint64_t sequence;
  // Shape, fixed at creation.
  std::uint64_t max_bytes;
  std::uint64_t extent_bytes;
  std::uint32_t root_slots;
  std::uint32_t writer_slots;
  std::uint64_t table_offset;
  std::uint64_t data_offset;
  // State.
  std::uint64_t file_bytes;  // the file may be longer (a crash while growing), never shorter
  CloseState close_state;
  std::uint32_t mode;     // Durability of this open
  std::uint32_t weakest;  // weakest Durability since the last full write-back
  std::uint32_t reserved0;
  Identity identity;
  std::uint64_t directory_crc;  // CRC32C of the root directory; unless dirty
  std::uint64_t seal;           // of the content, if sealed
  std::uint8_t reserved[264];   // zero; room for engines to come
  std::uint32_t reserved1;
  std::uint32_t crc;  // CRC32C of all bytes before it
};
static_assert(sizeof(Header) == 512);
static_assert(offsetof(Header, identity) == 112);
static_assert(std::is_trivially_copyable_v<Header>);

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
