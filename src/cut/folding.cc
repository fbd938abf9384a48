#include "cut/folding.h"

#include <algorithm>
#include <new>
#include <utility>

namespace perdure {

Status Folding::make(bool alone) noexcept {
  buffer_.reset(new (std::nothrow) std::byte[std::size_t{most_} * kPage]);
  numbers_.reset(new (std::nothrow) std::uint64_t[most_]);
  if (buffer_ == nullptr || numbers_ == nullptr) return StatusCode::out_of_memory;
  file_ = base_;
  if (!alone) {
    if (auto own = files_.reopen(base_, path_)) file_ = *own;
  }
  // The kernel tells this one about pages of that which failed, though it writes all of them again.
  if (std::exchange(cancelled_, false)) (void)files_.sync(file_, kNoSite);
  return {};
}

void Folding::release() noexcept {
  pages_.clear();
  buffer_.reset();
  numbers_.reset();
  if (file_ >= 0 && !shares_base()) files_.close(file_);
  file_ = -1;
}

Status Folding::begin(bool alone) noexcept {
  Status s = make(alone);
  if (s.ok()) s = log_.begin_fold(pages_, end_);
  if (!s.ok()) {
    release();
    return s;
  }
  active_ = true;
  whole_ = false;
  next_ = 0;
  return {};
}

Expected<bool> Folding::copy(PageContent content, std::uint32_t most) noexcept {
  copied_ = 0;
  allowed_ = false;
  while (copied_ < std::min(most, most_)) {
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

Status Folding::unread() noexcept {
  while (!unread_.empty()) (void)unread_.pop_back();
  upto_ = log_.durable();
  mark_ = log_.marks().mark();
  for (const auto& range : log_.segments().unread()) {
    if (range.from == range.to) continue;
    if (!unread_.push_back(range)) return StatusCode::out_of_memory;
  }
  return {};
}

Status Folding::read_back() noexcept {
  LogReader reader(files_, folder_);
  for (const auto& range : unread_) {
    Status s = reader.read_back(mark_, range.number, range.from, range.to);
    if (!s.ok()) return s;
  }
  return {};
}

Status Folding::allow() noexcept {
  if (!unread_.empty()) log_.segments().set_read(unread_[unread_.size() - 1]);
  Status s = log_.allow_fold(end_, upto_);
  allowed_ = s.ok();
  return s;
}

// Consecutive pages. The first two of the pool have the marks.
Status Folding::write_run(std::uint32_t first, std::uint32_t count) noexcept {
  const std::byte* content = buffer_.get() + std::size_t{first} * kPage;
  const std::uint64_t at = numbers_[first] * kPage;
  if (at >= 2 * layout::kMarkStride) return files_.write(file_, content, count * kPage, at);
  Status s = files_.write(file_, content, layout::kMarkOffset, at);
  const std::uint64_t behind = layout::kMarkOffset + sizeof(layout::BaseMark);
  return s.ok() ? files_.write(file_, content + behind, kPage - behind, at + behind) : std::move(s);
}

Status Folding::write() noexcept {
  PERDURE_ASSERT_BY(files_, "fold.F1", allowed_);
  if (stale()) return StatusCode::busy;
  for (std::uint32_t i = 0; i < copied_;) {
    std::uint32_t n = 1;
    const bool marked = numbers_[i] * kPage < 2 * layout::kMarkStride;
    while (!marked && i + n < copied_ && numbers_[i + n] == numbers_[i] + n) ++n;
    if (Status s = write_run(i, n); !s.ok()) return s;
    i += n;
  }
  written_ += copied_ * kPage;
  return files_.sync(file_, "log.fold.sync"_site);
}

Status Folding::end() noexcept {
  PERDURE_ASSERT_BY(files_, "fold.F2", whole_);
  Status s = log_.end_fold(end_);
  if (!s.ok()) return s;
  active_ = false;
  release();
  return {};
}

void Folding::cancel() noexcept {
  if (!active_) return;
  cancelled_ = true;
  if (log_.cancel_fold(pages_)) {
    active_ = false;
    release();
  } else {
    next_ = 0;  // without memory this fold stays, and begins again
    whole_ = false;
  }
}

Status Folding::fold_all(PageContent content, VerifyCopy verify) noexcept {
  if (log_.closing()) return {};
  cancel();
  Status s = active_ ? Status(StatusCode::out_of_memory) : begin(true);
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
