// BackupReader: the pool in a backup, as it was at one of its epochs.
//
// INVARIANTS
//   restore.Q1  What write_to() writes is the pool at the epoch that was chosen: `base` is as its
//       checksums say, and the epochs up to that one are replayed over it (backup.K1).
//   restore.Q2  The file says that it needs no log. A log beside it, of the pool that the backup
//       was made of, is not its own: it has another id.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "backup/backup_files.h"
#include "cut/log_reader.h"

namespace perdure {

class BackupReader {
 public:
  // Everything must stay valid.
  BackupReader(FileSystem& files, const char* folder) noexcept
      : files_(files), from_(files, folder) {}
  BackupReader(const BackupReader&) = delete;
  BackupReader& operator=(const BackupReader&) = delete;

  // Reads the head. Errors: those of BackupFiles::read().
  Status read() noexcept { return from_.read(); }
  const layout::BackupHead& head() const noexcept { return from_.head(); }
  // Reads the log, and verifies it. Errors: corruption (epochs are missing), out_of_memory, io.
  Status scan() noexcept;

  // The epochs that can be chosen, after scan(); the first may be that of the base.
  std::size_t count() const noexcept { return epochs_.size(); }
  const layout::BackupEpoch& epoch(std::size_t i) const noexcept { return epochs_[i]; }
  // Errors: invalid_argument (the backup does not have it).
  Expected<layout::BackupEpoch> at_epoch(std::uint64_t epoch) const noexcept;
  // The last one whose clock is not later. Errors: invalid_argument (there is none; the backup is
  // older; or the clock was set back, so that there are several).
  Expected<layout::BackupEpoch> at_time(std::uint64_t unix_ns) const noexcept;
  const layout::BackupEpoch& last() const noexcept { return epochs_[epochs_.size() - 1]; }

  // Writes the pool at that epoch, durably, into an empty file. Errors: corruption (of the backup),
  // pool_full, out_of_memory, io.
  Status write_to(FileSystem::File to, const layout::BackupEpoch& epoch,
                  BackupProgress progress) noexcept;
  // The same for a file that has the base already.
  Status replay_over(FileSystem::File base, const layout::BackupEpoch& epoch) noexcept;

 private:
  Status copy_base(FileSystem::File to, BackupProgress progress) noexcept;
  Status replay(FileSystem::File to, std::uint64_t epoch) noexcept;
  Status write_marks(FileSystem::File to, const layout::BackupEpoch& epoch) noexcept;

  FileSystem& files_;
  BackupFiles from_;
  std::optional<LogReader> reader_;
  Array<layout::BackupEpoch> epochs_;
};

}  // namespace perdure
