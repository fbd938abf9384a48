#include "cut/segment_files.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <utility>

namespace perdure {

// --- the folder ----------------------------------------------------------------------------------

Status SegmentFiles::make_folder() noexcept {
  Status made = files_.make_folder(folder_);
  if (!made.ok() && made != StatusCode::exists) return made;
  if (Status s = files_.hold(folder_, true); !s.ok()) return s;
  return files_.sync_folder(parent_, "log.folder.name"_site);
}

// Whether the file is a segment of this log. Without a head it is of none: it was not finished, or
// the write of its head has failed. Errors: exists (it is of another log).
Expected<bool> SegmentFiles::is_own(const PathText& path) noexcept {
  auto file = files_.open(path.c_str(), FileSystem::Open::existing);
  if (!file) return fail(std::move(file.error()));
  auto head = read_segment_head(files_, *file);
  files_.close(*file);
  if (!head) return fail(std::move(head.error()));
  if (head->magic == 0) return false;
  if (layout::same_id(head->log_id, marks_.mark().log_id)) return true;
  return fail(StatusCode::exists,
              "%s: is of another pool; this one was closed and needs no log; move the folder away",
              path.c_str());
}

Status SegmentFiles::remove(const Array<std::uint64_t>& numbers) noexcept {
  for (const std::uint64_t number : numbers) {
    if (Status s = remove_in(files_, folder_, segment_name(number)); !s.ok()) return s;
  }
  Status gone = remove_in(files_, folder_, kUnnamedSegment);
  if (!gone.ok() && gone != StatusCode::not_found) return gone;
  // Otherwise a power failure could bring them back, beside a mark that names another log.
  return files_.sync_folder(folder_, "log.begin.names"_site);
}

Status SegmentFiles::find_own(Array<std::uint64_t>& own, Array<std::uint64_t>& unknown) noexcept {
  Array<std::uint64_t> numbers;
  Status listed = list_segments(files_, folder_, numbers);
  if (listed == StatusCode::not_found) return {};
  if (!listed.ok()) return listed;
  if (!numbers.empty()) number_ = numbers[numbers.size() - 1];
  PathText path;
  for (const std::uint64_t number : numbers) {
    if (Status s = path_of(segment_name(number), path); !s.ok()) return s;
    auto mine = is_own(path);
    if (!mine) return std::move(mine.error());
    if (*mine && !own.push_back(number)) return StatusCode::out_of_memory;
    if (!*mine && !unknown.push_back(number)) return StatusCode::out_of_memory;
  }
  return {};
}

Status SegmentFiles::verify_own() noexcept {
  Array<std::uint64_t> own, unknown;
  return find_own(own, unknown);
}

Status SegmentFiles::remove_own() noexcept {
  Array<std::uint64_t> all, own, unknown;
  if (list_segments(files_, folder_, all) == StatusCode::not_found) return {};
  if (Status s = find_own(own, unknown); !s.ok()) return s;
  PathText path;
  for (const std::uint64_t number : unknown) {
    char name[48];  // numbers of marks are used once
    std::snprintf(name, sizeof(name), "%s.unknown-%lu", segment_name(number).c_str(),
                  marks_.mark().number);
    PathText away;
    Status s = path_of(segment_name(number), path);
    if (s.ok()) s = path_of(name, away);
    if (s.ok()) s = files_.rename(path.c_str(), away.c_str());
    if (!s.ok()) return s;
  }
  return remove(own);
}

void SegmentFiles::remove_all() noexcept {
  close_file();
  Array<std::uint64_t> numbers;
  if (list_segments(files_, folder_, numbers).ok() && remove(numbers).ok())
    (void)files_.remove_folder(folder_);
}

void SegmentFiles::adopt(std::uint64_t greatest) noexcept {
  number_ = greatest;
  freed_ = marks_.mark().folded;
  held_ = greatest;
}

Status SegmentFiles::adopt(std::uint64_t number, std::uint64_t last, std::uint64_t bytes) noexcept {
  const bool kept =
      old_.push_back({.number = number, .last = last, .counted = last, .bytes = bytes});
  return kept ? Status() : Status(StatusCode::out_of_memory);
}

bool SegmentFiles::is_removed() noexcept {
  if (!open_) return removed_;
  auto facts = files_.facts(file_);
  return removed_ = facts && facts->names == 0;
}

Status SegmentFiles::verify_there() noexcept {
  if (!open_ || !is_removed()) return {};
  return Status::format(StatusCode::io, "%.*s: another process has removed it",
                        static_cast<int>(folder_.size()), folder_.data());
}

Status SegmentFiles::begin_anew() noexcept {
  close_file();
  removed_ = unsynced_ = unfinished_ = false;
  while (!old_.empty()) (void)old_.pop_back();
  while (!unread_.empty()) (void)unread_.pop_back();
  return make_folder();
}

// --- segments ------------------------------------------------------------------------------------

void SegmentFiles::close_file() noexcept {
  if (std::exchange(open_, false)) files_.close(file_);
}

void SegmentFiles::leave(std::uint64_t last) noexcept {
  if (!open_) return;
  close_file();
  unsynced_ = false;
  // Without memory for its number it is never used again, which costs its space.
  (void)old_.push_back({.number = number_, .last = last, .counted = counted_, .bytes = bytes_});
}

// An epoch that did not end is not whole, or is replaced by the next one, whose term is higher.
void SegmentFiles::give_up(std::uint64_t last) noexcept {
  leave(last + 1);
  for (Old& old : old_) {
    if (old.last > last) old.last = old.counted;
  }
  forget_unread();
  made_ = 0;
}

// log.S2; a mark that could not be written may name a later segment than the one that counts
bool SegmentFiles::is_free(const Old& old) const noexcept {
  const std::uint64_t newest = marks_.mark().newest;
  const bool tried = old.number > newest && files_.does("log.segment.tried"_site);
  return old.number > held_ && old.last <= freed_ && old.number != newest && !tried;
}

std::uint64_t SegmentFiles::free_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Old& old : old_) bytes += is_free(old) ? old.bytes : 0;
  return bytes;
}

std::uint64_t SegmentFiles::used_bytes() const noexcept {
  std::uint64_t bytes = open_ ? bytes_ : 0;
  for (const Old& old : old_) bytes += is_free(old) ? 0 : old.bytes;
  return bytes;
}

// The free segment with the least number beyond `number`, or null.
SegmentFiles::Old* SegmentFiles::free_after(std::uint64_t number) noexcept {
  Old* found = nullptr;
  for (Old& old : old_) {
    if (!is_free(old) || old.number <= number) continue;
    if (found == nullptr || old.number < found->number) found = &old;
  }
  return found;
}

void SegmentFiles::forget(Old* old) noexcept {
  std::swap(*old, old_[old_.size() - 1]);
  (void)old_.pop_back();
}

Status SegmentFiles::remove_old(Old* old) noexcept {
  Status s = remove_in(files_, folder_, segment_name(old->number));
  if (s.ok() || s == StatusCode::not_found) forget(old);
  return s;
}

// A free segment that can be used again, or not_found. Those that are kept, or that a backup holds
// (segment_holds.h), are used only if `any`.
Expected<FileSystem::File> SegmentFiles::open_spare(bool any, PathText& path,
                                                    Old*& reused) noexcept {
  std::uint64_t left = free_bytes();
  std::uint64_t seen = 0;
  while ((reused = free_after(seen)) != nullptr) {
    if (!any && left - reused->bytes < keep_) break;
    left -= reused->bytes;
    seen = reused->number;
    if (Status s = path_of(segment_name(seen), path); !s.ok()) return fail(std::move(s));
    auto file = files_.open(path.c_str(), FileSystem::Open::existing);
    if (!file && file.error() == StatusCode::not_found) {
      forget(reused);
      continue;
    }
    if (!file || files_.lock(*file, FileSystem::Lock::exclusive) || any) return file;
    files_.close(*file);
  }
  reused = nullptr;
  return fail(StatusCode::not_found);
}

// The segment of a try that has failed, which a mark may name all the same; or not_found.
Expected<FileSystem::File> SegmentFiles::open_unfinished(PathText& path, Old*& reused) noexcept {
  reused = nullptr;
  for (Old& old : old_) {
    if (unfinished_ && old.number == number_ && old.bytes >= needed_) reused = &old;
  }
  if (reused == nullptr || !files_.does("log.segment.tried"_site))
    return fail(StatusCode::not_found);
  if (Status s = path_of(segment_name(number_), path); !s.ok()) return fail(std::move(s));
  return files_.open(path.c_str(), FileSystem::Open::existing);
}

Expected<FileSystem::File> SegmentFiles::open_new(PathText& path) noexcept {
  if (Status s = path_of(kUnnamedSegment, path); !s.ok()) return fail(std::move(s));
  Status gone = files_.remove(path.c_str());
  if (!gone.ok() && gone != StatusCode::not_found) return fail(std::move(gone));
  return files_.open(path.c_str(), FileSystem::Open::fresh);
}

// Space for a segment whose file has `before` bytes. Without space some file systems, such as ext4,
// give a part of what they are asked for: it is used, or it would be lost with each try.
Status SegmentFiles::reserve(FileSystem::File file, std::uint64_t before,
                             std::uint64_t& bytes) noexcept {
  bytes = std::clamp(before, wanted_, most_);
  Status s = files_.allocate(file, 0, bytes);
  if (s != StatusCode::pool_full || before < needed_) return s;
  auto size = files_.size(file);
  if (!size) return std::move(size.error());
  bytes = std::min(bytes, std::max(before, *size / kPage * kPage));
  return {};
}

// Makes the file at `path` the segment number_.
Status SegmentFiles::make(FileSystem::File file, const PathText& path, Old* reused,
                          EpochId after) noexcept {
  const std::uint64_t before = reused != nullptr ? reused->bytes : kPage;
  std::uint64_t bytes = 0;
  Status s = reserve(file, before, bytes);
  layout::SegmentHead head{.magic = layout::kSegmentMagic,
                           .number = number_,
                           .log_id = {},
                           .bytes = bytes,
                           .after = after.epoch,
                           .before = after.seal,
                           .crc = 0};
  std::memcpy(head.log_id, marks_.mark().log_id, sizeof(head.log_id));
  head.crc = layout::segment_crc(head);
  if (s.ok()) s = files_.write(file, &head, sizeof(head), 0);
  if (s.ok()) s = files_.sync(file, "log.segment.head"_site);
  PathText named;
  if (s.ok()) s = path_of(segment_name(number_), named);
  if (s.ok() && !unfinished_) s = files_.rename(path.c_str(), named.c_str());
  files_.lock(file, FileSystem::Lock::none);
  if (!s.ok()) return s;
  if (reused != nullptr) forget(reused);
  file_ = file;
  open_ = unfinished_ = true;
  bytes_ = bytes;
  counted_ = 0;
  made_ += bytes;
  wanted_ = std::min(std::bit_floor(made_), most_);
  at_ = kPage;
  filled_ = before;
  if (!unread_.push_back({.number = number_, .from = kPage, .to = kPage}))
    return StatusCode::out_of_memory;
  s = files_.sync_folder(folder_, "log.segment.name"_site);
  layout::BaseMark mark = marks_.mark();
  mark.newest = number_;
  if (s.ok()) s = marks_.write(mark, "log.segment.newest"_site);
  unfinished_ = !s.ok();
  return s;
}

Status SegmentFiles::next(std::uint64_t n, EpochId after, std::uint64_t last) noexcept {
  if (unsynced_) {
    if (Status s = sync("log.segment.sync"_site); !s.ok()) return s;
  }
  if (Status s = verify_there(); !s.ok()) return s;
  leave(last);
  if (number_ + 1 >= kMostNumber) {
    return Status::format(StatusCode::unsupported, "%.*s: has no number for another segment",
                          static_cast<int>(folder_.size()), folder_.data());
  }
  needed_ = kPage + n;
  const std::uint64_t least = std::min(std::bit_ceil(needed_), most_);
  wanted_ = std::max(wanted_, least);
  for (bool any = false;;) {
    const std::size_t had = old_.size();
    Status s = begin_next(any, after);
    if (s != StatusCode::pool_full || open_) return s;
    made_ = 0;
    if (old_.size() < had) continue;  // there is the space of one that was too short
    if (wanted_ > least) {
      wanted_ = std::max(wanted_ / 2, least);
    } else if (!any && free_bytes() != 0) {
      any = true;  // without space for a new one, a segment that was kept is used again
    } else {
      return s;
    }
  }
}

Status SegmentFiles::begin_next(bool any, EpochId after) noexcept {
  PathText path;
  Old* reused = nullptr;
  auto file = open_unfinished(path, reused);
  const bool again = file.has_value();
  if (!file && file.error() == StatusCode::not_found) file = open_spare(any, path, reused);
  if (!file && file.error() == StatusCode::not_found) file = open_new(path);
  removed_ = !file && file.error() == StatusCode::not_found;
  if (!file) return std::move(file.error());
  if (!again) ++number_;
  unfinished_ = again;
  Status s = make(*file, path, reused, after);
  if (s.ok() || open_) return s;
  files_.close(*file);
  if (again) return s;                    // a mark may name it
  if (reused != nullptr) forget(reused);  // it may fail again
  (void)files_.remove(path.c_str());
  return s;
}

Status SegmentFiles::append(const std::byte* bytes, std::size_t n) noexcept {
  unsynced_ = true;
  if (Status s = files_.write(file_, bytes, n, at_); !s.ok()) return s;
  at_ += n;
  return n == kPage ? fill() : Status();
}

// A file system has to note the first write to space that was only allocated, so a sync after it
// takes half as long again. After a part of one page, of which many may follow, the space behind it
// is written at once. The zeros read as the space did.
Status SegmentFiles::fill() noexcept {
  static constexpr std::uint64_t kFill = 16 * kPage;
  alignas(kPage) static std::byte zeros[kFill];
  if (at_ < filled_ || at_ == bytes_) return {};
  const std::uint64_t n = std::min(kFill, bytes_ - at_);
  filled_ = at_ + n;
  zeros_ += n;
  return files_.write(file_, zeros, n, at_);
}

Status SegmentFiles::sync(AnySite site) noexcept {
  if (Status s = files_.sync(file_, site); !s.ok()) return s;
  unsynced_ = false;
  unread_[unread_.size() - 1].to = at_;
  return {};
}

void SegmentFiles::unread_all() noexcept {
  for (Range& range : unread_) range.from = kPage;
}

void SegmentFiles::set_read(const Range& last) noexcept {
  for (Range& range : unread_) {
    if (range.number <= last.number) range.from = range.number < last.number ? range.to : last.to;
  }
}

// What is not needed may be used again at any time.
void SegmentFiles::forget_unread() noexcept {
  std::size_t kept = 0;
  for (const Range& range : unread_) {
    const bool needed = std::ranges::none_of(
        old_, [&](const Old& o) { return o.number == range.number && o.last <= freed_; });
    if (needed) unread_[kept++] = range;
  }
  while (unread_.size() > kept) (void)unread_.pop_back();
}

void SegmentFiles::free_older(std::uint64_t epoch, std::uint64_t keep) noexcept {
  freed_ = std::max(freed_, epoch);
  forget_unread();
  std::uint64_t seen = 0;
  std::uint64_t left = free_bytes();
  for (;;) {
    Old* const old = free_after(seen);
    Old* const next = old != nullptr ? free_after(old->number) : nullptr;
    if (next == nullptr || left - old->bytes - next->bytes < keep) return;
    left -= old->bytes;
    seen = old->number;
    (void)remove_old(old);
  }
}

// An error costs space only.
void SegmentFiles::shrink(std::uint64_t rest) noexcept {
  forget_unread();
  std::uint64_t left = free_bytes();
  std::uint64_t seen = 0;
  for (Old* old = free_after(seen); old != nullptr; old = free_after(seen)) {
    if (left - old->bytes < keep_) break;
    left -= old->bytes;
    seen = old->number;
    (void)remove_old(old);
  }
  made_ = 0;
  wanted_ = std::min(rest, most_);
  const std::uint64_t end = at_ + rest;
  if (!open_ || end >= bytes_) return;
  if (files_.punch(file_, end, bytes_ - end).ok()) bytes_ = end;
}

void SegmentFiles::free_all(std::uint64_t epoch) noexcept {
  for (Old& old : old_) old.last = std::min(old.last, epoch);
  release();
  free_older(epoch, 0);
}

}  // namespace perdure
