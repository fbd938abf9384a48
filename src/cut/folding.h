// Folding: brings the epochs of a log into the base, from the pool in memory, while threads change
// it and epochs are written.
//
// WHAT  A fold takes the pages that the epochs up to one, its end, have changed. It copies them in
//   pieces from the memory of the pool. A copy has stores that are in no epoch yet. So a piece is
//   written to the base only once a cut that began after the copy is durable.
// INVARIANTS
//   fold.F1  Before the base gets a piece, every store that may be in it is in an epoch that
//       counts, every part of the log was read back, and the mark of the base says "folding" up to
//       that epoch. So base and log together are the pool at that epoch, whatever part of the piece
//       is written: what differs from it was stored to since the epoch `folded`, and the log has
//       its line.
//       A page that was stored to in an epoch that does not count may be in the set, too. If its
//       content is only in the base, it is left out.
//   fold.F2  The mark says "folded" up to the end once every page that an epoch up to the end has
//       changed was copied after that epoch was durable, and is durable in the base.
//   fold.F3  The sectors of the marks are not written.
// OPERATIONS  begin; for each piece: copy, then a cut (the caller's), then read_back, allow, write;
//   then end. Or cancel, from where the fold is: then the next one writes all pages again.
// DURABILITY  write() makes its piece durable, so that the sync of a mark has little to wait for.
// FAILURE  If the log fails meanwhile, the fold must be cancelled: the base may have caused it.
// Thread safety: one thread. begin(), unread(), allow(), end() and cancel() use the log: nothing
//   else may use it meanwhile. In copy(), read_back() and write() another thread may, but
//   EpochLog::fold_durable() must not run beside write().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "cut/epoch_log.h"
#include "perdure/function_ref.h"

namespace perdure {

// Copies the content of a page of the pool. False: no store since the epoch `folded` changed it, so
// the base has it. An error ends the folding.
using PageContent = FunctionRef<Expected<bool>(std::uint64_t page, std::byte* to)>;
// Whether what was copied before can be used.
using VerifyCopy = FunctionRef<Status()>;

template <class P>
class Folding {
 public:
  // Everything must stay valid. `base`: a file of its own, because the kernel tells each open file
  // once that something could not be written. `pages` of a piece.
  Folding(FileSystem& files, FileSystem::File base, std::string_view folder, EpochLog<P>& log,
          std::uint32_t pages) noexcept
      : files_(files), base_(base), folder_(folder), log_(log), most_(pages) {}
  Folding(const Folding&) = delete;
  Folding& operator=(const Folding&) = delete;

  bool active() const noexcept { return active_; }
  // The log has failed since begin(): the fold must be cancelled, whatever its last error is.
  bool stale() const noexcept { return active_ && log_.failures() != end_.failures; }
  // Up to the last epoch that is durable. Errors: those of EpochLog::begin_fold(), out_of_memory.
  Status begin() noexcept;
  std::uint64_t end_epoch() const noexcept { return end_.epoch.epoch; }
  // Copies the next piece. False: there is none.
  Expected<bool> copy(PageContent content) noexcept;
  // What read_back() has to read. The cut after the copy is durable. Errors: out_of_memory.
  Status unread() noexcept;
  // Errors: untrusted (a part is damaged), io.
  Status read_back() noexcept;
  // Errors: busy (the log has failed since begin(): cancel), and those of the log.
  Status allow() noexcept;
  // Errors: busy, as above; those of the disk.
  Status write() noexcept;
  Status end() noexcept;
  void cancel() noexcept;

  // Of a pool that no thread changes and whose last epoch is durable: all of it.
  Status fold_all(PageContent content, VerifyCopy verify) noexcept;
  Status fold_all(PageContent content) noexcept {
    return fold_all(content, [] { return Status(); });
  }
  std::uint64_t written() const noexcept { return written_; }  // bytes

 private:
  Status write_run(std::uint32_t first, std::uint32_t count) noexcept;

  FileSystem& files_;
  const FileSystem::File base_;
  std::string_view folder_;
  EpochLog<P>& log_;
  const std::uint32_t most_;

  bool active_ = false;
  bool cancelled_ = false;  // the fold before this one
  PageSet pages_;
  typename EpochLog<P>::FoldEnd end_;
  std::uint64_t next_ = 0;    // page
  std::uint32_t copied_ = 0;  // pages in the buffer
  bool allowed_ = false;      // to write them
  bool whole_ = false;        // all pages of the fold were written
  EpochId upto_;              // was durable when unread_ was taken
  layout::BaseMark mark_{};   // at that time
  std::uint64_t written_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
  std::unique_ptr<std::uint64_t[]> numbers_;
  Array<SegmentFiles::Range> unread_;
};

template <class P>
Status Folding<P>::begin() noexcept {
  buffer_.reset(new (std::nothrow) std::byte[std::size_t{most_} * kPage]);
  numbers_.reset(new (std::nothrow) std::uint64_t[most_]);
  if (buffer_ == nullptr || numbers_ == nullptr) return StatusCode::out_of_memory;
  // The kernel tells this one about pages of that which failed, though it writes all of them again.
  if (std::exchange(cancelled_, false)) (void)files_.sync(base_, kNoSite);
  if (Status s = log_.begin_fold(pages_, end_); !s.ok()) return s;
  active_ = true;
  whole_ = false;
  next_ = 0;
  return {};
}

template <class P>
Expected<bool> Folding<P>::copy(PageContent content) noexcept {
  copied_ = 0;
  allowed_ = false;
  while (copied_ < most_) {
    next_ = pages_.next(next_);
    // An attempt that does not count may have had lines of a pool that was longer.
    if (next_ >= end_.pool_bytes / kPage) break;
    auto changed = content(next_, buffer_.get() + copied_ * kPage);
    if (!changed) return fail(std::move(changed.error()));
    if (*changed) numbers_[copied_++] = next_;
    ++next_;
  }
  whole_ = copied_ == 0;
  return !whole_;
}

template <class P>
Status Folding<P>::unread() noexcept {
  while (!unread_.empty()) (void)unread_.pop_back();
  upto_ = log_.durable();
  mark_ = log_.marks().mark();
  for (const auto& range : log_.segments().unread()) {
    if (range.from == range.to) continue;
    if (!unread_.push_back(range)) return StatusCode::out_of_memory;
  }
  return {};
}

template <class P>
Status Folding<P>::read_back() noexcept {
  LogReader reader(files_, folder_);
  for (const auto& range : unread_) {
    Status s = reader.read_back(mark_, range.number, range.from, range.to);
    if (!s.ok()) return s;
  }
  return {};
}

template <class P>
Status Folding<P>::allow() noexcept {
  if (!unread_.empty()) log_.segments().set_read(unread_[unread_.size() - 1]);
  Status s = log_.allow_fold(end_, upto_);
  allowed_ = s.ok();
  return s;
}

// Consecutive pages. The first two of the pool have the marks.
template <class P>
Status Folding<P>::write_run(std::uint32_t first, std::uint32_t count) noexcept {
  const std::byte* content = buffer_.get() + std::size_t{first} * kPage;
  const std::uint64_t at = numbers_[first] * kPage;
  if (at >= 2 * layout::kMarkStride) return files_.write(base_, content, count * kPage, at);
  Status s = files_.write(base_, content, layout::kMarkOffset, at);
  const std::uint64_t behind = layout::kMarkOffset + sizeof(layout::BaseMark);
  return s.ok() ? files_.write(base_, content + behind, kPage - behind, at + behind) : std::move(s);
}

template <class P>
Status Folding<P>::write() noexcept {
  PERDURE_ASSERT(P, "fold.F1", allowed_);
  if (stale()) return StatusCode::busy;
  for (std::uint32_t i = 0; i < copied_;) {
    std::uint32_t n = 1;
    const bool marked = numbers_[i] * kPage < 2 * layout::kMarkStride;
    while (!marked && i + n < copied_ && numbers_[i + n] == numbers_[i] + n) ++n;
    if (Status s = write_run(i, n); !s.ok()) return s;
    i += n;
  }
  written_ += copied_ * kPage;
  return files_.sync(base_, "log.fold.sync"_site);
}

template <class P>
Status Folding<P>::end() noexcept {
  PERDURE_ASSERT(P, "fold.F2", whole_);
  Status s = log_.end_fold(end_);
  if (!s.ok()) return s;
  active_ = false;
  pages_.clear();
  buffer_.reset();
  return {};
}

template <class P>
void Folding<P>::cancel() noexcept {
  if (!active_) return;
  cancelled_ = true;
  if (log_.cancel_fold(pages_)) {
    active_ = false;
    pages_.clear();
    buffer_.reset();
  } else {
    next_ = 0;  // without memory this fold stays, and begins again
    whole_ = false;
  }
}

template <class P>
Status Folding<P>::fold_all(PageContent content, VerifyCopy verify) noexcept {
  if (log_.closing()) return {};
  cancel();
  Status s = active_ ? Status(StatusCode::out_of_memory) : begin();
  if (s.ok() && end_epoch() == log_.marks().mark().folded) {
    cancel();
    return {};
  }
  for (bool more = s.ok(); more;) {
    auto copied = copy(content);
    if (!copied) s = std::move(copied.error());
    more = copied && *copied;
    if (!more) break;
    s = verify();
    if (s.ok()) s = unread();
    if (s.ok()) s = read_back();
    if (s.ok()) s = allow();
    if (s.ok()) s = write();
    more = s.ok();
  }
  if (s.ok()) s = end();
  if (!s.ok()) cancel();
  return s;
}

}  // namespace perdure
