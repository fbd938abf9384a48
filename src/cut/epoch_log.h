// EpochLog: writes the cuts of a pool to a disk, one epoch each, so that a power failure leaves the
// pool as it was at one of them.
//
// WHAT  A base, which is the pool's file, and a folder beside it with segments. An epoch has the
//   lines that have changed since the epoch before. The pool is the base with the epochs that
//   count (log_reader.h). A fold brings the epochs into the base, and close() makes the base the
//   pool again.
// LAYOUT  log_format.h. The writer collects lines in memory and writes them as parts of the epoch.
//   A line that comes again in the epoch is written again; the last one counts. So the owner can
//   begin to write a cut before it is complete, and go on with another try of it.
// INVARIANTS
//   log.E1  An epoch counts once commit() has returned ok. Then all its parts, the names of their
//       segments and the number of the newest one in the mark of the base are durable.
//   log.E2  A part is written only after the epoch that it follows counts.
//   log.E3  After a failure nothing follows in the same segment and term. The next epoch has all
//       lines that have changed since the last one that counts.
//   log.E4  An epoch is needed until the base has it, or an epoch that counts and is followed by
//       another one replaces it. Until then its segments stay.
//   log.E5  pages_ has every page with a line of an epoch after the last fold began. If that fold
//       has not ended, it has the pages since the one before, until cancel_fold().
//   log.E6  A part fits into a segment, and a batch into the buffer.
// OPERATIONS
//   begin      of a base without a log, or a closed one: the folder, and "open" in the mark.
//   go_on      of an open base: a new term after the last epoch that is known to be durable. After
//              a kill that is the one of the last commit(). After a restore it is the one in the
//              base, because nothing else is known about what was read; then the first epoch has
//              all lines that were replayed, and replaces the older ones.
//   add        in memory. make_room writes a part if the next batch would not fit.
//   commit     the last part; sync of the segment: the persist point.
//   confirm    an epoch without lines, so that the reader knows the one before to be durable.
//   begin_fold, allow_fold, end_fold   what a fold (folding.h) needs of the log.
//   close      after a fold: "closed" in both marks; then segments and folder go.
// FAILURE  A write or sync of an epoch that failed is never tried again on the same bytes. Every
//   call returns its error until resume() begins a new term in another segment. Tries that fail do
//   not add up: the next one has the space that the one before had (log.S5), so what is freed on a
//   full disk step by step is enough once it is enough. A fold or a close that failed leaves the
//   log as it is; the next fold writes all pages again.
// RECOVERY  LogReader::scan() and replay(), then go_on().
// Thread safety: one thread.
#pragma once

#include <atomic>  // memory orders
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "cut/base_mark.h"
#include "cut/log_reader.h"
#include "cut/page_set.h"
#include "cut/segment_files.h"
#include "platform/real_platform.h"

namespace perdure {

struct LogShape {
  std::uint64_t segment_bytes = std::uint64_t{64} << 20;  // at most
  std::uint64_t first_bytes = std::uint64_t{1} << 20;     // of the first segment
  std::uint32_t batch = 8192;    // lines that add() must have room for after make_room()
  std::uint64_t keep_bytes = 0;  // of segments that stay for backups when they are not needed
};

class EpochLog {
 public:
  // `folder` of the log, in `parent`; both must stay valid.
  EpochLog(FileSystem& files, FileSystem::File base, std::string_view folder,
           std::string_view parent, LogShape shape = {}) noexcept
      : files_(files),
        base_(base),
        marks_(files, base),
        segments_(files, marks_, folder, parent, shape.first_bytes, shape.segment_bytes,
                  shape.keep_bytes),
        folder_(folder),
        shape_(shape) {}
  EpochLog(const EpochLog&) = delete;
  EpochLog& operator=(const EpochLog&) = delete;

  // Reads the marks of the base. Before any other call. Errors: corruption, io.
  Status read_marks() noexcept { return marks_.read(); }
  const BaseMarks& marks() const noexcept { return marks_; }
  // begin() or go_on() is called once. After an error of it make another object.
  // Errors: exists (the folder has segments of another log); pool_full; out_of_memory; io.
  // `bytes` of the pool, which the base has.
  Status begin(const std::uint8_t (&log_id)[16], const layout::LivePlace& live = {},
               std::uint64_t bytes = 0) noexcept;
  // `read` has scanned the log. `after`: the last epoch that is known to be durable. All lines that
  // changed since then come again by add(). Errors: untrusted (the log has no such epoch), and
  // those of begin().
  // `live`: another live image than that of the mark, or null.
  Status go_on(LogReader& read, EpochId after, const layout::LivePlace* live = nullptr) noexcept;

  // Before begin(). Errors: exists (the folder has segments of another log).
  Status verify_folder() noexcept { return segments_.verify_own(); }
  // Writes another place into the mark. A pool that never had a log gets a mark that says "closed".
  Status set_live(const layout::LivePlace& live) noexcept;

  // --- an epoch ---
  // Errors: those of the disk, and then of every call until resume().
  Status make_room() noexcept;
  void add(std::uint64_t line, const LineWords& content) noexcept {
    if (!failure_.ok() || removed_ || closing_) return;  // it comes again
    PERDURE_ASSERT_BY(files_, "log.E6", count_ < capacity());
    numbers_[count_] = line;
    std::memcpy(lines() + count_ * kLine, content.words, kLine);
    ++count_;
  }
  // `unix_ns`: the clock of the machine at the cut.
  Status commit(std::uint64_t pool_bytes, std::uint64_t unix_ns) noexcept;
  // Does nothing if the last epoch was confirmed. Errors: invalid_argument (lines wait for an
  // epoch, or resume() was called since the last one), and those of commit().
  Status confirm(std::uint64_t unix_ns) noexcept;
  // Nothing waits for the next commit().
  bool empty() const noexcept { return !owes_ && part_ == 0 && count_ == 0; }
  // The last epoch that counts. It may be one for which commit() returned an error.
  EpochId durable() const noexcept { return durable_; }
  bool is_confirmed() const noexcept { return confirmed_; }
  // The last epoch that the next commit() or confirm() writes.
  std::uint64_t next_end() const noexcept { return epoch_ + (replaces_ ? 2 : 1); }
  const Status& failure() const noexcept { return failure_; }
  // Whether an epoch that the base lacks may have a line of the pages, while no fold is under way.
  bool has_pages(std::uint64_t from, std::uint64_t to) const noexcept {
    return pages_.next(from) < to;
  }
  // Bytes of all segments, and of those that are needed until a fold has ended.
  std::uint64_t bytes() const noexcept { return segments_.bytes(); }
  std::uint64_t used_bytes() const noexcept { return segments_.used_bytes(); }
  // Of those that are needed: without what is still free in the one that is written.
  std::uint64_t filled_bytes() const noexcept { return used_bytes() - segments_.room(); }
  std::uint64_t segment_bytes() const noexcept { return shape_.segment_bytes; }
  // Bytes of parts that were written.
  std::uint64_t written() const noexcept { return written_ + segments_.zero_bytes(); }
  // After a failure. The next epoch must get all lines that changed since durable().
  void resume() noexcept;
  // Whether the last failure was that another process has removed the log. Then nothing is written
  // until begin_anew().
  bool is_removed() const noexcept { return removed_; }
  // Then: makes another one. The next epoch must get all lines that changed since the base had an
  // epoch of its own; durable() is that epoch. Errors: those of files.
  Status begin_anew() noexcept;

  // --- a fold (folding.h) ---
  struct FoldEnd {
    EpochId epoch;
    std::uint64_t pool_bytes = 0;
    std::uint64_t failures = 0;  // of the log, before
  };
  // Moves the set of pages to the caller; `end`: what the base will have when it has all of them.
  // Errors: invalid_argument (lines were replayed or added, and no epoch that counts has them);
  // pool_full (the base cannot grow; nothing was changed); io.
  Status begin_fold(PageSet& pages, FoldEnd& end) noexcept;
  // From here on the base may have lines as of `epoch`, which is durable. What is durable was read
  // back. Errors: busy (the log has failed since the fold began: cancel it), io.
  Status allow_fold(const FoldEnd& end, EpochId epoch) noexcept;
  // The base has all pages, durably. Errors: as above.
  Status end_fold(const FoldEnd& end) noexcept;
  // The greatest number of failures that there were. Any thread.
  std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_acquire); }
  // For a log that has failed, with nothing else under way: brings what is durable into the base,
  // from the log. Needs no space, and makes segments free. Returns whether there was something.
  // Errors: untrusted (the log cannot be read), out_of_memory, io.
  Expected<bool> fold_durable() noexcept;
  // Instead: the next fold gets them, too. Returns false if memory is short.
  bool cancel_fold(const PageSet& pages) noexcept { return pages_.add(pages); }
  // The log takes little more space than that of a pool that was just opened, and what the next
  // fold needs. Needs none itself.
  void shrink() noexcept;
  SegmentFiles& segments() noexcept { return segments_; }
  bool closing() const noexcept { return closing_; }

  // All epochs were folded: the base is the pool, and there is no log. Errors: invalid_argument
  // (an epoch, or lines, are not in the base), io.
  Status close() noexcept;

 private:
  std::uint32_t capacity() const noexcept { return 2 * shape_.batch; }
  // The head and the runs of a part lie directly before its lines.
  std::uint64_t head_room() const noexcept { return layout::lines_at(capacity()); }
  std::byte* lines() const noexcept { return buffer_.get() + head_room(); }

  Status make_buffers() noexcept;
  // Whether nothing waits for an epoch.
  Status complete() const noexcept;
  // Neither failed nor closing.
  Status writable() const noexcept;
  Status failed(Status s) noexcept;
  std::uint32_t fill_runs(std::byte* to) const noexcept;
  Status write_part(bool last, std::uint64_t pool_bytes, std::uint64_t unix_ns) noexcept;
  Status end_epoch() noexcept;
  Status make_base() noexcept;
  Status write_folding(EpochId epoch) noexcept;
  Status write_folded(EpochId epoch, std::uint64_t pool_bytes) noexcept;
  Status still(const FoldEnd& end) const noexcept;

  FileSystem& files_;
  FileSystem::File base_;
  BaseMarks marks_;
  SegmentFiles segments_;
  std::string_view folder_;
  LogShape shape_;
  Status failure_;
  RealPlatform::Atomic<std::uint64_t> failures_{0};

  std::uint64_t term_ = 0;   // 0: the next segment begins one
  std::uint64_t epoch_ = 0;  // the greatest number that was read or counts
  EpochId durable_;          // the next epoch follows it
  bool owes_ = false;        // lines that are in no epoch that counts
  bool confirmed_ = true;    // there is nothing to confirm
  bool closing_ = false;     // a mark may say "closed"
  bool removed_ = false;
  std::uint64_t pool_bytes_ = 0;  // of the last commit
  // The next epoch to count replaces all before it. What it replaces is free once it is known to be
  // whole, as the next epoch after it shows.
  bool replaces_ = false;
  std::uint64_t frees_ = 0;

  std::uint64_t written_ = 0;
  std::uint32_t part_ = 0;  // number of the next part of the epoch
  std::uint32_t seal_ = 0;  // of the part before
  std::unique_ptr<std::byte[]> buffer_;
  std::unique_ptr<std::uint64_t[]> numbers_;
  std::uint32_t count_ = 0;  // lines in the buffer
  PageSet pages_;
};

}  // namespace perdure
