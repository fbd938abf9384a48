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
//   call returns its error until resume() begins a new term in a new segment. A fold or a close
//   that failed leaves the log as it is; the next fold writes all pages again.
// RECOVERY  LogReader::scan() and replay(), then go_on().
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <atomic>  // memory orders
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "cut/base_mark.h"
#include "cut/log_reader.h"
#include "cut/page_set.h"
#include "cut/segment_files.h"
#include "platform/assert.h"

namespace perdure {

struct LogShape {
  std::uint64_t segment_bytes = std::uint64_t{64} << 20;
  std::uint32_t batch = 8192;    // lines that add() must have room for after make_room()
  std::uint64_t keep_bytes = 0;  // of segments that stay for backups when they are not needed
};

template <class P>
class EpochLog {
 public:
  // `folder` of the log, in `parent`; both must stay valid.
  EpochLog(FileSystem& files, FileSystem::File base, std::string_view folder,
           std::string_view parent, LogShape shape = {}) noexcept
      : files_(files),
        base_(base),
        marks_(files, base),
        segments_(files, marks_, folder, parent, shape.segment_bytes, shape.keep_bytes),
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
  Status set_live(const layout::LivePlace& live) noexcept {
    layout::BaseMark mark = marks_.mark();
    if (marks_.none()) mark.state = layout::BaseState::closed;
    mark.live = live;
    return marks_.write(mark, kNoSite);
  }

  // --- an epoch ---
  // Errors: those of the disk, and then of every call until resume().
  Status make_room() noexcept;
  void add(std::uint64_t line, const LineWords& content) noexcept {
    if (!failure_.ok() || closing_) return;  // it comes again
    PERDURE_ASSERT(P, "log.E6", count_ < capacity());
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
  // The last epoch that the next commit() or confirm() writes.
  std::uint64_t next_end() const noexcept { return epoch_ + (replaces_ ? 2 : 1); }
  const Status& failure() const noexcept { return failure_; }
  // Bytes of all segments, and of those that are needed until a fold has ended.
  std::uint64_t bytes() const noexcept { return segments_.bytes(); }
  std::uint64_t used_bytes() const noexcept { return segments_.used_bytes(); }
  std::uint64_t segment_bytes() const noexcept { return shape_.segment_bytes; }
  // Bytes of parts that were written.
  std::uint64_t written() const noexcept { return written_ + segments_.zero_bytes(); }
  // After a failure. The next epoch must get all lines that changed since durable().
  void resume() noexcept;
  // Whether the last failure was that another process has removed the log.
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
  Status complete() const noexcept {
    if (empty()) return {};
    return Status::format(StatusCode::invalid_argument, "%.*s: no epoch has the last lines yet",
                          static_cast<int>(folder_.size()), folder_.data());
  }
  // Neither failed nor closing.
  Status writable() const noexcept {
    if (!closing_) return failure_;
    return Status::format(StatusCode::invalid_argument, "%.*s: the log is being closed",
                          static_cast<int>(folder_.size()), folder_.data());
  }
  Status failed(Status s) noexcept {
    failure_ = s;
    failures_.fetch_add(1, std::memory_order_release);
    removed_ = segments_.is_removed();
    segments_.leave(epoch_ + 1);
    return s;
  }
  std::uint32_t fill_runs(std::byte* to) const noexcept;
  Status write_part(bool last, std::uint64_t pool_bytes, std::uint64_t unix_ns) noexcept;
  Status end_epoch() noexcept;
  Status make_base() noexcept;
  Status write_folding(EpochId epoch) noexcept;
  Status write_folded(EpochId epoch, std::uint64_t pool_bytes) noexcept;
  Status still(const FoldEnd& end) const noexcept {
    if (end.failures != failures()) return StatusCode::busy;
    return writable();
  }

  FileSystem& files_;
  FileSystem::File base_;
  BaseMarks marks_;
  SegmentFiles segments_;
  std::string_view folder_;
  LogShape shape_;
  Status failure_;
  typename P::template Atomic<std::uint64_t> failures_{0};

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

// --- the start -----------------------------------------------------------------------------------

template <class P>
Status EpochLog<P>::make_buffers() noexcept {
  const std::size_t bytes = head_room() + std::size_t{capacity()} * kLine + kPage;
  PERDURE_ASSERT(P, "log.E6",
                 bytes + kPage <= shape_.segment_bytes && capacity() <= layout::kMaxPartLines);
  buffer_.reset(new (std::nothrow) std::byte[bytes]);
  numbers_.reset(new (std::nothrow) std::uint64_t[capacity()]);
  return buffer_ != nullptr && numbers_ != nullptr ? Status() : Status(StatusCode::out_of_memory);
}

template <class P>
Status EpochLog<P>::begin(const std::uint8_t (&log_id)[16], const layout::LivePlace& live,
                          std::uint64_t bytes) noexcept {
  if (Status s = make_buffers(); !s.ok()) return s;
  // The mark was read, but after a sync that failed it need not be on the disk.
  if (Status s = marks_.settle(); !s.ok()) return s;
  if (Status s = segments_.remove_own(); !s.ok()) return s;
  if (Status s = segments_.make_folder(); !s.ok()) return s;
  layout::BaseMark mark = marks_.mark();
  mark.state = layout::BaseState::open;
  mark.folding = mark.folded;
  mark.newest = 0;
  mark.replaced = 0;
  mark.folded_bytes = bytes;
  mark.live = live;
  std::memcpy(mark.log_id, log_id, sizeof(mark.log_id));
  if (Status s = marks_.write(mark, "log.begin.mark"_site); !s.ok()) return s;
  epoch_ = mark.folded;
  durable_ = {.epoch = mark.folded, .seal = mark.folded_seal};
  seal_ = durable_.seal;
  return {};
}

template <class P>
Status EpochLog<P>::go_on(LogReader& read, EpochId after, const layout::LivePlace* live) noexcept {
  if (Status s = make_buffers(); !s.ok()) return s;
  if (P::runs("log.restart.pages"_site)) pages_ = read.take_pages();
  if (!read.has(after)) {
    return Status::format(StatusCode::untrusted,
                          "%.*s: has no epoch %llu, which was on the disk; restore a copy",
                          static_cast<int>(folder_.size()), folder_.data(),
                          static_cast<unsigned long long>(after.epoch));
  }
  if (Status s = marks_.settle(); !s.ok()) return s;
  const LogEnd& end = read.end();
  // A log that was begun anew has no epoch up to the one that the base may have lines of.
  epoch_ = std::max({end.epoch, after.epoch, marks_.mark().folding});
  durable_ = after;
  owes_ = end.epoch != after.epoch;
  replaces_ = after.epoch == marks_.mark().folded;
  confirmed_ = replaces_;
  seal_ = after.seal;
  pool_bytes_ = end.pool_bytes;
  const std::uint64_t greatest = std::max(end.segment, marks_.mark().newest);
  segments_.adopt(greatest);
  for (const std::uint64_t number : read.segments()) {
    // A restart knows of nothing that it is durable, and so of no segment that it is not needed.
    const std::uint64_t last = replaces_ ? epoch_ : read.last_in(number, after.epoch);
    if (Status s = segments_.adopt(number, last); !s.ok()) return s;
  }
  if (Status s = segments_.make_folder(); !s.ok()) return s;
  // The first segment of this process will be the newest, and says nothing of what was read.
  layout::BaseMark mark = marks_.mark();
  const bool reads = replaces_ && read.last_segment() != 0;
  if (reads) mark.replaced = read.last_segment();
  if (live != nullptr) mark.live = *live;
  return reads || live != nullptr ? marks_.write(mark, "log.restart.mark"_site) : Status();
}

template <class P>
void EpochLog<P>::resume() noexcept {
  failure_ = {};
  segments_.leave(epoch_ + 1);
  // The base may have an error that another file has seen: a mark must not fail because of it.
  (void)files_.sync(base_, kNoSite);
  if (P::runs("log.resume.term"_site)) term_ = 0;
  owes_ = true;
  part_ = 0;
  count_ = 0;
  seal_ = durable_.seal;
}

// As after a restart: the next epoch replaces what there was.
template <class P>
Status EpochLog<P>::begin_anew() noexcept {
  if (Status s = segments_.begin_anew(); !s.ok()) return s;
  resume();
  const layout::BaseMark& mark = marks_.mark();
  durable_ = {.epoch = mark.folded, .seal = mark.folded_seal};
  seal_ = durable_.seal;
  replaces_ = confirmed_ = true;
  frees_ = 0;
  removed_ = false;
  return {};
}

// --- epochs --------------------------------------------------------------------------------------

// Returns the number of runs.
template <class P>
std::uint32_t EpochLog<P>::fill_runs(std::byte* to) const noexcept {
  std::uint32_t runs = 0;
  for (std::uint32_t i = 0; i < count_;) {
    std::uint32_t n = 1;
    while (i + n < count_ && numbers_[i + n] == numbers_[i] + n && n < layout::kMaxRun) ++n;
    const layout::Run run{.line = numbers_[i], .count = n};
    if (to != nullptr) std::memcpy(to + runs * sizeof(run), &run, sizeof(run));
    ++runs;
    i += n;
  }
  return runs;
}

template <class P>
Status EpochLog<P>::write_part(bool last, std::uint64_t pool_bytes,
                               std::uint64_t unix_ns) noexcept {
  const std::uint32_t runs = fill_runs(nullptr);
  const std::uint64_t bytes = layout::part_bytes(runs, count_);
  const std::uint64_t padded = align_up(bytes, kPage);
  if (!segments_.has_room(padded)) {
    if (Status s = segments_.next(durable_, epoch_ + 1); !s.ok()) return s;
    if (term_ == 0) term_ = segments_.number();
  }
  std::byte* const begin = lines() - layout::lines_at(runs);
  layout::PartHead head{};
  std::memset(begin + sizeof(head), 0, layout::lines_at(runs) - sizeof(head));
  (void)fill_runs(begin + sizeof(head));
  std::memset(begin + bytes, 0, padded - bytes);
  head.magic = layout::kPartMagic;
  std::memcpy(head.log_id, marks_.mark().log_id, sizeof(head.log_id));
  head.segment = segments_.number();
  head.offset = segments_.at();
  head.term = term_;
  head.epoch = epoch_ + 1;
  head.after = durable_.epoch;
  head.before = seal_;
  head.part = part_;
  head.last = last ? 1 : 0;
  head.runs = runs;
  head.pool_bytes = pool_bytes;
  head.unix_ns = unix_ns;
  head.lines = count_;
  head.body_crc = crc32c(3, begin + sizeof(head), bytes - sizeof(head));
  head.crc = layout::part_seal(head);
  std::memcpy(begin, &head, sizeof(head));
  for (std::uint32_t i = 0; i < count_ && P::runs("log.part.pages"_site); ++i) {
    if (!pages_.add(numbers_[i] * kLine / kPage)) return StatusCode::out_of_memory;
  }
  if (Status s = segments_.append(begin, padded); !s.ok()) return s;
  written_ += padded;
  ++part_;
  seal_ = head.crc;
  count_ = 0;
  return {};
}

template <class P>
Status EpochLog<P>::make_room() noexcept {
  if (Status s = writable(); !s.ok()) return s;
  if (count_ + shape_.batch <= capacity()) return {};
  Status s = write_part(false, 0, 0);
  return s.ok() ? s : failed(std::move(s));
}

// The persist point. What counts from here on is in memory only after it.
template <class P>
Status EpochLog<P>::end_epoch() noexcept {
  if (Status s = segments_.sync("log.epoch.sync"_site); !s.ok()) return s;
  if (segments_.is_removed()) {
    return Status::format(StatusCode::io, "%.*s: another process has removed it",
                          static_cast<int>(folder_.size()), folder_.data());
  }
  ++epoch_;
  durable_ = {.epoch = epoch_, .seal = seal_};
  part_ = 0;
  owes_ = false;
  segments_.release();
  if (frees_ != 0) segments_.free_up_to(std::exchange(frees_, 0));
  if (std::exchange(replaces_, false)) frees_ = epoch_ - 1;
  return {};
}

template <class P>
Status EpochLog<P>::commit(std::uint64_t pool_bytes, std::uint64_t unix_ns) noexcept {
  if (Status s = writable(); !s.ok()) return s;
  pool_bytes = std::max(pool_bytes_, align_up(pool_bytes, kPage));
  Status s = write_part(true, pool_bytes, unix_ns);
  const bool restarted = replaces_;
  if (s.ok()) s = end_epoch();
  // The first epoch after a restart is confirmed at once, and what it replaces can go.
  if (s.ok() && restarted) {
    s = write_part(true, pool_bytes, unix_ns);
    if (s.ok()) s = end_epoch();
  }
  if (!s.ok()) return failed(std::move(s));
  pool_bytes_ = pool_bytes;
  confirmed_ = restarted;
  return {};
}

template <class P>
Status EpochLog<P>::confirm(std::uint64_t unix_ns) noexcept {
  if (Status s = writable(); !s.ok()) return s;
  if (Status s = complete(); !s.ok()) return s;
  if (confirmed_) return {};
  Status s = commit(pool_bytes_, unix_ns);
  confirmed_ = s.ok();
  return s;
}

// --- the base ------------------------------------------------------------------------------------

// If there is no space for the base, nothing has changed.
template <class P>
Status EpochLog<P>::make_base() noexcept {
  auto size = files_.size(base_);
  if (!size) return std::move(size.error());
  return *size < pool_bytes_ ? files_.allocate(base_, *size, pool_bytes_ - *size) : Status();
}

template <class P>
Status EpochLog<P>::begin_fold(PageSet& pages, FoldEnd& end) noexcept {
  if (Status s = writable(); !s.ok()) return s;
  if (Status s = complete(); !s.ok()) return s;
  if (Status s = make_base(); !s.ok()) return s;
  end = {.epoch = durable_, .pool_bytes = pool_bytes_, .failures = failures()};
  pages = std::move(pages_);
  pages_.clear();
  segments_.unread_all();
  return {};
}

template <class P>
Status EpochLog<P>::write_folding(EpochId epoch) noexcept {
  if (marks_.mark().folding >= epoch.epoch) return {};
  layout::BaseMark mark = marks_.mark();
  mark.folding = epoch.epoch;
  mark.folding_seal = epoch.seal;
  mark.folding_segment = mark.newest;
  return marks_.write(mark, "log.fold.folding"_site);
}

template <class P>
Status EpochLog<P>::write_folded(EpochId epoch, std::uint64_t pool_bytes) noexcept {
  layout::BaseMark mark = marks_.mark();
  mark.replaced = 0;
  mark.folded = epoch.epoch;
  mark.folded_seal = epoch.seal;
  mark.folded_bytes = pool_bytes;
  if (mark.folding < mark.folded) {  // a fold without pages
    mark.folding = epoch.epoch;
    mark.folding_seal = epoch.seal;
    mark.folding_segment = mark.newest;
  }
  return marks_.write(mark, "log.fold.folded"_site);
}

template <class P>
Status EpochLog<P>::allow_fold(const FoldEnd& end, EpochId epoch) noexcept {
  if (Status s = still(end); !s.ok()) return s;
  return write_folding(epoch);
}

template <class P>
Status EpochLog<P>::end_fold(const FoldEnd& end) noexcept {
  if (Status s = still(end); !s.ok()) return s;
  if (Status s = write_folded(end.epoch, end.pool_bytes); !s.ok()) return s;
  segments_.release();  // the base has what a process before has left
  segments_.free_up_to(end.epoch.epoch);
  return {};
}

// After a failure an epoch may be whole that does not count.
template <class P>
Expected<bool> EpochLog<P>::fold_durable() noexcept {
  if (replaces_ || closing_) return false;
  segments_.leave(epoch_ + 1);
  if (durable_.epoch == marks_.mark().folded) {
    segments_.free_all(durable_.epoch);  // they have attempts that failed
    return false;
  }
  LogReader read(files_, folder_);
  if (Status s = read.scan(marks_.mark()); !s.ok()) return fail(std::move(s));
  if (!read.has(durable_)) {
    return fail(StatusCode::untrusted, "%.*s: epoch %llu cannot be read back; restore a copy",
                static_cast<int>(folder_.size()), folder_.data(),
                static_cast<unsigned long long>(durable_.epoch));
  }
  Status s = make_base();
  if (s.ok()) s = write_folding(durable_);
  if (!s.ok()) return fail(std::move(s));
  Status written;
  s = read.replay(durable_.epoch, [&](std::uint64_t line, const LineWords& content) {
    if (written.ok()) written = files_.write(base_, &content, sizeof(content), line * kLine);
  });
  if (s.ok()) s = std::move(written);
  if (s.ok()) s = files_.sync(base_, "log.fold.durable"_site);
  if (s.ok()) s = write_folded(durable_, pool_bytes_);
  if (!s.ok()) return fail(std::move(s));
  segments_.free_all(durable_.epoch);
  return true;
}

template <class P>
Status EpochLog<P>::close() noexcept {
  if (!closing_ && (!complete().ok() || durable_.epoch != marks_.mark().folded)) {
    return Status::format(StatusCode::invalid_argument, "%.*s: the base has not all of it",
                          static_cast<int>(folder_.size()), folder_.data());
  }
  closing_ = true;
  layout::BaseMark mark = marks_.mark();
  mark.state = layout::BaseState::closed;
  if (Status s = marks_.write_both(mark, "log.close.mark"_site, "log.close.both"_site); !s.ok())
    return s;
  // From here on nothing can be lost: the next begin() removes what this does not.
  segments_.remove_all();
  return {};
}

}  // namespace perdure
