// The files of a backup, in a folder of their own:
//
//   base      a copy of the pool's file, made while folds may have written to it
//   log/      segments (cut/log_format.h), as in the folder of the pool's log
//   backup    a head of one sector or more, and a checksum for each piece of `base`
//   backup-new  the next head; without `backup`: this backup is not finished
//
// Numbers are little-endian. A file of the log may be longer than the head says, and there may be
// later ones: they are of a later backup that was not finished, and do not count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cut/log_format.h"

namespace perdure::layout {

inline constexpr const char* kBackupBase = "base";
inline constexpr const char* kBackupLog = "log";
inline constexpr const char* kBackupHead = "backup";
inline constexpr const char* kBackupNewHead = "backup-new";

inline constexpr std::uint64_t kBackupMagic = 0x31505542'44524550;  // "PERDBUP1"
inline constexpr std::uint32_t kBackupVersion = 1;

enum class BackupKind : std::uint32_t {
  unfinished = 0,
  closed = 1,  // of a pool that was closed: `base` is all of it
  open = 2,    // `base` with the epochs of the log
};

// An epoch, and the clock of the machine when it was cut. 0: not known.
struct BackupEpoch {
  std::uint64_t epoch;
  std::uint64_t unix_ns;
  std::uint32_t seal;
  std::uint32_t reserved;
};
static_assert(sizeof(BackupEpoch) == 24);

struct BackupHead {
  std::uint64_t magic;
  std::uint32_t version;
  BackupKind kind;
  std::uint8_t uuid[16];  // of the pool
  std::uint64_t base_bytes;
  std::uint64_t piece_bytes;   // of a checksum
  BaseMark mark;               // of the base, as the chain of epochs needs it
  BackupEpoch first, last;     // that can be restored
  std::uint64_t last_segment;  // nothing behind it counts
  std::uint64_t last_segment_bytes;
  std::uint64_t end_segment;   // has the end of the last epoch; 0: it is in `base`
  std::uint64_t log_bytes;     // of the parts of the log that count
  std::uint64_t made_unix_ns;  // when `base` was copied
  std::uint64_t ends_unix_ns;  // later changes are not in it
  std::uint8_t reserved[360];
  std::uint32_t sums_crc;  // CRC32C of the checksums behind it
  std::uint32_t crc;       // CRC32C of all bytes before it
};
static_assert(sizeof(BackupHead) == 1024 && std::is_trivially_copyable_v<BackupHead>);

inline std::uint32_t backup_crc(const BackupHead& head) {
  return crc32c(4, &head, offsetof(BackupHead, crc));
}
inline bool is_backup(const BackupHead& head) {
  return head.magic == kBackupMagic && head.crc == backup_crc(head);
}
inline BackupEpoch epoch_of(EpochId id, std::uint64_t unix_ns) {
  return {.epoch = id.epoch, .unix_ns = unix_ns, .seal = id.seal, .reserved = 0};
}

}  // namespace perdure::layout
