// What lies on the disk of a pool whose cuts are written to a log: the marks in the base, and the
// segments. docs/design/epoch-log.md draws them. Numbers are little-endian.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "perdure/status.h"
#include "platform/platform.h"
#include "util/crc32c.h"

namespace perdure::layout {

// --- the base ---
// Two copies, at kMarkOffset of the pages of the two headers, where the pool itself never stores.
// The one with the greater number counts.
inline constexpr std::uint64_t kMarkMagic = 0x314B52414D524550;  // "PERMARK1"
inline constexpr std::uint64_t kMarkOffset = 3072;               // each in one sector of its page
inline constexpr std::uint64_t kMarkStride = kPage;

enum class BaseState : std::uint32_t {
  closed = 1,  // the base is the pool
  open = 2,    // the base with the epochs of the log is
};

// Of the head of a live image, which lies where a base has its first mark (live_chunks.h).
inline constexpr std::uint64_t kLiveMagic = 0x334556494C524550;     // "PERLIVE3"
inline constexpr std::uint64_t kOldLiveMagic = 0x324556494C524550;  // "PERLIVE2"

// The live image: what is mapped and changed while the pool is open (live_image.h).
struct LivePlace {
  std::uint8_t live_id[16];
  std::uint8_t boot_id[16];            // of the boot that has it
  std::uint64_t inode, filesystem_id;  // of the base
  std::uint64_t max_bytes;             // of the pool
  // 1: the content was not trusted when this image was made, and no check has passed since.
  std::uint64_t unverified;
  char memory_directory[248];  // where it lies; "": beside the base
  std::uint64_t mount_id;      // of its folder (boot_evidence.h); 0: not known
};
static_assert(sizeof(LivePlace) == 320);

struct BaseMark {
  std::uint64_t magic;
  BaseState state;
  std::uint32_t folded_seal;  // of the epoch `folded`
  std::uint8_t log_id[16];    // of the log that belongs to it; kept when closed
  std::uint64_t number;
  std::uint64_t folded;           // the base has all epochs up to this one
  std::uint64_t folding;          // and may have lines of epochs up to this one
  std::uint64_t newest;           // a segment that the log must have; 0: none
  std::uint64_t folding_segment;  // `newest` when the folding began
  std::uint32_t folding_seal;     // of the epoch `folding`
  std::uint32_t reserved1;
  // The log must also have this segment, unless an epoch of a later term follows `folded`. 0: none.
  std::uint64_t replaced;
  std::uint64_t folded_bytes;  // of the pool at the epoch `folded`: the base is not shorter
  LivePlace live;
  std::uint8_t reserved[88];
  std::uint32_t crc;  // CRC32C of all bytes before it
};
static_assert(sizeof(BaseMark) == 512 && std::is_trivially_copyable_v<BaseMark>);

// Whether the line is one of a mark, or of the head of a live image. No content of a pool lies
// there.
constexpr bool is_of_mark(std::uint64_t line) noexcept {
  const std::uint64_t in_page = line * kLine % kMarkStride;
  return line < 2 * kMarkStride / kLine && in_page >= kMarkOffset &&
         in_page < kMarkOffset + sizeof(BaseMark);
}

inline std::uint32_t mark_crc(const BaseMark& mark) {
  return crc32c(0, &mark, offsetof(BaseMark, crc));
}

// Returns which of the copies counts, or -1: the pool never had a log. Errors: corruption (both are
// damaged); invalid_argument (a live image).
inline Status choose_mark(const BaseMark (&copies)[2], int& counts) {
  int damaged = 0;
  counts = -1;
  if (copies[0].magic == kLiveMagic || copies[0].magic == kOldLiveMagic) {
    return Status::format(StatusCode::invalid_argument,
                          "is the live image of a pool, and has only what changed; open the pool");
  }
  for (int i = 0; i < 2; ++i) {
    const BaseMark& mark = copies[i];
    std::uint8_t bytes[sizeof(mark)];
    std::memcpy(bytes, &mark, sizeof(mark));
    if (std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; })) continue;
    const bool known = mark.state == BaseState::closed || mark.state == BaseState::open;
    if (mark.magic != kMarkMagic || mark.crc != mark_crc(mark) || !known) {
      ++damaged;
    } else if (counts < 0 || mark.number >= copies[counts].number) {
      counts = i;
    }
  }
  // Beside a copy that was never written it is the first mark, with which no epoch counts yet.
  if (counts >= 0 || damaged < 2) return {};
  return Status::format(StatusCode::corruption,
                        "both marks of the log are damaged; restore a copy of the file");
}

// --- a segment ---
// A head of one page, and then parts of epochs, each at a multiple of a page.
inline constexpr std::uint64_t kSegmentMagic = 0x31474553474F4C50;  // "PLOGSEG1"
inline constexpr std::uint64_t kPartMagic = 0x3154524150474F4C;     // "LOGPART1"

struct SegmentHead {
  std::uint64_t magic;
  std::uint64_t number;
  std::uint8_t log_id[16];
  std::uint64_t bytes;   // of the segment; the file may be longer
  std::uint64_t after;   // the last epoch that was durable when the segment was begun
  std::uint32_t before;  // and its seal
  std::uint32_t crc;
};
static_assert(sizeof(SegmentHead) == 56);

// Behind it the runs, then, at a multiple of a line, the lines in the order of the runs.
struct PartHead {
  std::uint64_t magic;
  std::uint8_t log_id[16];
  std::uint64_t segment;  // where the part lies: remains of an older use lie elsewhere
  std::uint64_t offset;
  std::uint64_t term;    // grows with each start of the log and after each failure
  std::uint64_t epoch;   // that it is a part of
  std::uint64_t after;   // the epoch that this one follows, durable before the part was written
  std::uint32_t before;  // seal of the part before; of the first one: of the epoch `after`
  std::uint32_t part;    // number in its epoch, from 0
  std::uint32_t last;    // 1: the last part of its epoch
  std::uint32_t runs;
  std::uint64_t pool_bytes;  // of the last part: size of the pool
  std::uint64_t unix_ns;     // of the last part: the clock of the machine at the cut
  std::uint32_t lines;
  std::uint32_t body_crc;  // CRC32C of runs, padding and lines
  std::uint32_t reserved;
  std::uint32_t crc;  // CRC32C of all bytes before it: the part's seal
};
static_assert(sizeof(PartHead) == 112 && std::is_trivially_copyable_v<PartHead>);

// Consecutive lines.
struct Run {
  std::uint64_t line : 48;
  std::uint64_t count : 16;
};
static_assert(sizeof(Run) == 8);
inline constexpr std::uint64_t kMaxRun = 65'535;
// Lines of a part. A head that says more is none.
inline constexpr std::uint32_t kMaxPartLines = 1U << 16;

// Of logs, images, boots and pools.
inline bool same_id(const std::uint8_t (&left)[16], const std::uint8_t (&right)[16]) {
  return std::memcmp(left, right, sizeof(left)) == 0;
}
inline std::uint32_t segment_crc(const SegmentHead& head) {
  return crc32c(1, &head, offsetof(SegmentHead, crc));
}
inline bool is_head(const SegmentHead& head) {
  return head.magic == kSegmentMagic && head.crc == segment_crc(head);
}
inline std::uint32_t part_seal(const PartHead& head) {
  return crc32c(2, &head, offsetof(PartHead, crc));
}
// Bytes before the lines, and of head, runs and lines together.
inline std::uint64_t lines_at(std::uint64_t runs) {
  return align_up(sizeof(PartHead) + runs * sizeof(Run), kLine);
}
inline std::uint64_t part_bytes(std::uint64_t runs, std::uint64_t lines) {
  return lines_at(runs) + lines * kLine;
}

}  // namespace perdure::layout

namespace perdure {

inline constexpr std::uint64_t kMostNumber = std::uint64_t{1} << 48;  // of segments and epochs

struct LineWords {
  std::uint64_t words[kLine / 8];
};

// An epoch as others follow it.
struct EpochId {
  std::uint64_t epoch = 0;
  std::uint32_t seal = 0;
};

}  // namespace perdure
