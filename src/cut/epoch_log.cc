#include "cut/epoch_log.h"

#include <algorithm>
#include <new>
#include <utility>

namespace perdure {

// --- the start -----------------------------------------------------------------------------------

Status EpochLog::set_live(const layout::LivePlace& live) noexcept {
  layout::BaseMark mark = marks_.mark();
  if (marks_.none()) mark.state = layout::BaseState::closed;
  mark.live = live;
  return marks_.write(mark, kNoSite);
}

Status EpochLog::make_buffers() noexcept {
  const std::size_t bytes = head_room() + std::size_t{capacity()} * kLine + kPage;
  PERDURE_ASSERT_BY(files_, "log.E6",
                    bytes + kPage <= shape_.segment_bytes && capacity() <= layout::kMaxPartLines);
  buffer_.reset(new (std::nothrow) std::byte[bytes]);
  numbers_.reset(new (std::nothrow) std::uint64_t[capacity()]);
  return buffer_ != nullptr && numbers_ != nullptr ? Status() : Status(StatusCode::out_of_memory);
}

Status EpochLog::begin(const std::uint8_t (&log_id)[16], const layout::LivePlace& live,
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

Status EpochLog::go_on(LogReader& read, EpochId after, const layout::LivePlace* live) noexcept {
  if (Status s = make_buffers(); !s.ok()) return s;
  if (files_.does("log.restart.pages"_site)) pages_ = read.take_pages();
  if (!read.has(after)) {
    return Status::format(StatusCode::untrusted,
                          "%.*s: has no epoch %lu, which was on the disk; restore a copy",
                          static_cast<int>(folder_.size()), folder_.data(), after.epoch);
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
  for (const auto& [number, bytes] : read.segments()) {
    // A restart knows of nothing that it is durable, and so of no segment that it is not needed.
    const std::uint64_t last = replaces_ ? epoch_ : read.last_in(number, after.epoch);
    if (Status s = segments_.adopt(number, last, bytes); !s.ok()) return s;
  }
  // The base has all of what a process before has left: on a full disk its segments may be needed.
  if (end.epoch == marks_.mark().folded && marks_.mark().replaced == 0) segments_.release();
  if (Status s = segments_.make_folder(); !s.ok()) return s;
  // The first segment of this process will be the newest, and says nothing of what was read.
  layout::BaseMark mark = marks_.mark();
  const bool reads = replaces_ && read.last_segment() != 0;
  if (reads) mark.replaced = read.last_segment();
  if (live != nullptr) mark.live = *live;
  return reads || live != nullptr ? marks_.write(mark, "log.restart.mark"_site) : Status();
}

void EpochLog::resume() noexcept {
  failure_ = {};
  removed_ = removed_ || segments_.is_removed();  // the segment is not looked at again
  segments_.give_up(epoch_);
  // The base may have an error that another file has seen: a mark must not fail because of it.
  (void)files_.sync(base_, kNoSite);
  if (files_.does("log.resume.term"_site)) term_ = 0;
  owes_ = true;
  part_ = 0;
  count_ = 0;
  seal_ = durable_.seal;
}

// As after a restart: the next epoch replaces what there was.
Status EpochLog::begin_anew() noexcept {
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

Status EpochLog::complete() const noexcept {
  if (empty()) return {};
  return Status::format(StatusCode::invalid_argument, "%.*s: no epoch has the last lines yet",
                        static_cast<int>(folder_.size()), folder_.data());
}

Status EpochLog::writable() const noexcept {
  if (removed_ && failure_.ok()) {
    return Status::format(
        StatusCode::io,
        "%.*s: another process has removed it, and a new one cannot be begun; see "
        "to the folder that it was in",
        static_cast<int>(folder_.size()), folder_.data());
  }
  if (!closing_) return failure_;
  return Status::format(StatusCode::invalid_argument, "%.*s: the log is being closed",
                        static_cast<int>(folder_.size()), folder_.data());
}

Status EpochLog::failed(Status s) noexcept {
  failure_ = s;
  failures_.fetch_add(1, std::memory_order_release);
  removed_ = segments_.is_removed();
  segments_.give_up(epoch_);
  return s;
}

// Returns the number of runs.
std::uint32_t EpochLog::fill_runs(std::byte* to) const noexcept {
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

Status EpochLog::write_part(bool last, std::uint64_t pool_bytes, std::uint64_t unix_ns) noexcept {
  const std::uint32_t runs = fill_runs(nullptr);
  const std::uint64_t bytes = layout::part_bytes(runs, count_);
  const std::uint64_t padded = align_up(bytes, kPage);
  if (!segments_.has_room(padded)) {
    if (Status s = segments_.next(padded, durable_, epoch_ + 1); !s.ok()) return s;
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
  const bool notes = files_.does("log.part.pages"_site);
  for (std::uint32_t i = 0; i < count_ && notes; ++i) {
    if (!pages_.add(numbers_[i] * kLine / kPage)) return StatusCode::out_of_memory;
  }
  if (Status s = segments_.append(begin, padded); !s.ok()) return s;
  written_ += padded;
  ++part_;
  seal_ = head.crc;
  count_ = 0;
  return {};
}

Status EpochLog::make_room() noexcept {
  if (Status s = writable(); !s.ok()) return s;
  if (count_ + shape_.batch <= capacity()) return {};
  Status s = write_part(false, 0, 0);
  return s.ok() ? s : failed(std::move(s));
}

// The persist point. What counts from here on is in memory only after it.
Status EpochLog::end_epoch() noexcept {
  if (Status s = segments_.sync("log.epoch.sync"_site); !s.ok()) return s;
  if (Status s = segments_.verify_there(); !s.ok()) return s;
  ++epoch_;
  durable_ = {.epoch = epoch_, .seal = seal_};
  part_ = 0;
  owes_ = false;
  segments_.count(epoch_);
  if (frees_ != 0) segments_.free_up_to(std::exchange(frees_, 0));
  if (std::exchange(replaces_, false)) frees_ = epoch_ - 1;
  return {};
}

Status EpochLog::commit(std::uint64_t pool_bytes, std::uint64_t unix_ns) noexcept {
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

Status EpochLog::confirm(std::uint64_t unix_ns) noexcept {
  if (Status s = writable(); !s.ok()) return s;
  if (Status s = complete(); !s.ok()) return s;
  if (confirmed_) return {};
  Status s = commit(pool_bytes_, unix_ns);
  confirmed_ = s.ok();
  return s;
}

// --- the base ------------------------------------------------------------------------------------

// If there is no space for the base, nothing has changed.
Status EpochLog::make_base() noexcept {
  auto size = files_.size(base_);
  if (!size) return std::move(size.error());
  return *size < pool_bytes_ ? files_.allocate(base_, *size, pool_bytes_ - *size) : Status();
}

Status EpochLog::begin_fold(PageSet& pages, FoldEnd& end) noexcept {
  if (Status s = writable(); !s.ok()) return s;
  if (Status s = complete(); !s.ok()) return s;
  if (Status s = make_base(); !s.ok()) return s;
  end = {.epoch = durable_, .pool_bytes = pool_bytes_, .failures = failures()};
  pages = std::move(pages_);
  pages_.clear();
  segments_.unread_all();
  return {};
}

Status EpochLog::write_folding(EpochId epoch) noexcept {
  if (marks_.mark().folding >= epoch.epoch) return {};
  layout::BaseMark mark = marks_.mark();
  mark.folding = epoch.epoch;
  mark.folding_seal = epoch.seal;
  mark.folding_segment = mark.newest;
  return marks_.write(mark, "log.fold.folding"_site);
}

Status EpochLog::write_folded(EpochId epoch, std::uint64_t pool_bytes) noexcept {
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

Status EpochLog::still(const FoldEnd& end) const noexcept {
  if (end.failures != failures()) return StatusCode::busy;
  return writable();
}

Status EpochLog::allow_fold(const FoldEnd& end, EpochId epoch) noexcept {
  if (Status s = still(end); !s.ok()) return s;
  return write_folding(epoch);
}

Status EpochLog::end_fold(const FoldEnd& end) noexcept {
  if (Status s = still(end); !s.ok()) return s;
  if (Status s = write_folded(end.epoch, end.pool_bytes); !s.ok()) return s;
  segments_.release();  // the base has what a process before has left
  segments_.free_up_to(end.epoch.epoch);
  return {};
}

// After a failure an epoch may be whole that does not count.
Expected<bool> EpochLog::fold_durable() noexcept {
  if (replaces_ || closing_) return false;
  segments_.leave(epoch_ + 1);
  if (durable_.epoch == marks_.mark().folded) {
    segments_.free_all(durable_.epoch);  // they have attempts that failed
    return false;
  }
  LogReader read(files_, folder_);
  if (Status s = read.scan(marks_.mark()); !s.ok()) return fail(std::move(s));
  if (!read.has(durable_)) {
    return fail(StatusCode::untrusted, "%.*s: epoch %lu cannot be read back; restore a copy",
                static_cast<int>(folder_.size()), folder_.data(), durable_.epoch);
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

// After an error the next epoch returns it.
void EpochLog::shrink() noexcept {
  if (!writable().ok() || !empty()) return;
  if (segments_.should_begin_next(shape_.first_bytes)) {
    if (Status s = segments_.next(kPage, durable_, epoch_); !s.ok()) {
      (void)failed(std::move(s));
      return;
    }
    if (term_ == 0) term_ = segments_.number();
  }
  segments_.shrink(shape_.first_bytes);
}

Status EpochLog::close() noexcept {
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
