// BackupWriter: makes a backup of a pool, or adds to one, while the pool's owner goes on.
//
// WHAT  A copy of the base, and the segments of the log that the base does not have. Together they
//   are what a power failure would leave, so the reader of the log finds the pool in them, as it
//   was at any of the epochs. An owner is told nothing: it may be another process.
// INVARIANTS
//   backup.K1  With F the epoch that the base had when its copy began, and E the one that the mark
//       says to be `folding` when it ended: base and epochs up to N are the pool at N, for each N
//       from E on. A line of the copy that is not as at F was written by a fold, and a fold writes
//       lines only if an epoch from F+1 to E has them.
//   backup.K2  The head names a state of the files that is durable, and was read back: the base by
//       its checksums, the log by its chain of epochs.
//   backup.K3  What the head counts stays as it is in an addition, and nothing counts that the call
//       that makes the next head has not written and synced. So an addition can fail at any step,
//       and the backup is as it was.
//   backup.K4  The segment with the greatest number alone can grow; of it, what was whole is
//       copied. A segment has its name after the one before it is complete. So what lies in the
//       last one follows what was copied of those before.
// OPERATIONS
//   run   Full, of a pool that is open: marker; base, and each segment when it is complete; mark
//         again; the rest of the segments; verify; head.
//         Of a closed pool: base; its first pages again: they are as before, and say "closed".
//         An addition: what the segments have behind the last one; verify; head.
// FAILURE  What the owner has changed under the copy (a segment used again because the disk is
//   full, the pool closed) is found by the chain of epochs, or by the marks, and the copy begins
//   again. After a restart the epochs of the log do not follow those of a backup from before. Then
//   no addition is made: what the backup has would be replaced.
// DURABILITY  Base, segments and names are synced before the head; the head before its name.
// Thread safety: one thread, and one writer for a folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "backup/backup_files.h"
#include "cut/log_reader.h"
#include "cut/segment_holds.h"

namespace perdure {

struct BackupSource {
  std::string_view base;  // paths, absolute
  std::string_view log;
  EpochId least = {};              // that the backup must have; 0: none
  std::uint64_t ends_unix_ns = 0;  // what was acknowledged by then is durable; 0: not known
};

struct BackupShape {
  std::uint64_t piece_bytes = std::uint64_t{1} << 20;
  std::uint64_t poll_ns = 20'000'000;  // between two looks for new segments
};

class BackupWriter {
 public:
  // Everything must stay valid. The pool is in `pool`. `to`: the folder in `files`; it is made if
  // there is none.
  BackupWriter(FileSystem& pool, BackupSource source, FileSystem& files, const char* to,
               BackupProgress progress, BackupShape shape = {}) noexcept
      : pool_(pool),
        files_(files),
        source_(source),
        to_(files, to),
        progress_(progress),
        shape_(shape),
        base_(pool) {}
  BackupWriter(const BackupWriter&) = delete;
  BackupWriter& operator=(const BackupWriter&) = delete;

  // Errors: exists (the folder has something else, or a backup that cannot be continued); busy (the
  // pool was opened or closed meanwhile, several times); corruption
  // (of the backup); untrusted (of the pool); pool_full, io, out_of_memory.
  Status run() noexcept;
  const layout::BackupHead& head() const noexcept { return head_; }
  bool extended() const noexcept { return extends_; }
  std::uint64_t copied() const noexcept { return copied_; }  // bytes

 private:
  static constexpr int kAttempts = 4;
  static constexpr int kTorn = 20;  // reads of a mark that is being written

  Status look() noexcept;
  Status begin_folder() noexcept;
  Status open_new_head(OpenFile& file) noexcept;
  Status clear() noexcept;
  Status try_once() noexcept;
  Status read_mark(layout::BaseMark& mark) noexcept;
  Status copy_closed(const layout::BaseMark& mark) noexcept;
  Status copy_open(const layout::BaseMark& mark) noexcept;
  Status extend(const layout::BaseMark& mark) noexcept;
  Status copy_base(SegmentHolds* holds) noexcept;
  Status sync_base() noexcept;
  Status verify_base() noexcept;
  Status poll(SegmentHolds* holds) noexcept;
  Status copy_segments(SegmentHolds& holds, bool last) noexcept;
  Status copy_all(SegmentHolds& holds, std::uint64_t newest) noexcept;
  Status trim_last() noexcept;
  Expected<layout::SegmentHead> head_of(const SegmentHolds::Held& held) noexcept;
  Status copy_segment(const SegmentHolds::Held& held, const layout::SegmentHead& head) noexcept;
  Status verify_log() noexcept;
  Status verify_chain(LogReader& reader, const layout::BaseMark& mark,
                      std::uint64_t first) noexcept;
  Status verify_added(const layout::BaseMark& now) noexcept;
  void set_end(const LogReader& reader) noexcept;
  Status remove_later(std::uint64_t segment) noexcept;
  Status write_head(layout::BackupKind kind, std::uint64_t unix_ns) noexcept;
  Status changed(const char* what) const noexcept;
  Status occupied(const char* why) const noexcept;

  FileSystem& pool_;   // has base and log
  FileSystem& files_;  // gets the backup
  BackupSource source_;
  BackupFiles to_;
  BackupProgress progress_;
  BackupShape shape_;
  OpenFile base_;
  layout::BackupHead head_{};
  Array<std::uint32_t> sums_;
  bool extends_ = false;
  bool branches_ = false;  // epochs of the log follow one from before the last of the backup
  std::uint64_t copied_ = 0, total_ = 0;
  std::uint64_t polled_at_ = 0;
  std::unique_ptr<std::byte[]> piece_;
};

}  // namespace perdure
