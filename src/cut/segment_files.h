// SegmentFiles: the files of a log (epoch_log.h) in their folder.
//
// WHAT  Parts are appended to one segment. When it has no room, the next one begins: a new file, or
//   one that is not needed any more. Numbers rise, and a number with parts is used once.
// INVARIANTS
//   log.S1  A segment has its head before it has its name, and its name before the mark of the base
//       names it; all that before its first part. Each is durable before the next.
//   log.S2  A segment is used again or removed only if no epoch in it is needed, and those of a
//       process before only once an epoch of this one counts, or the base has all of theirs; and
//       never one that a mark names which may be on the disk.
//   log.S3  When a segment has no room for the next part of an epoch, the parts in it become
//       durable before that part is written.
//   log.S4  unread() has what is durable in the segments of this process that are needed, and was
//       not read back since unread_all().
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cut/base_mark.h"
#include "cut/log_format.h"
#include "cut/segment_names.h"
#include "platform/file_system.h"

namespace perdure {

template <class P>
class SegmentFiles {
 public:
  // `folder` of the log, in `parent`; both must stay valid, and so must the marks. `bytes` of a
  // segment. `keep`: bytes of segments that stay for backups after they are needed.
  SegmentFiles(FileSystem& files, BaseMarks& marks, std::string_view folder,
               std::string_view parent, std::uint64_t bytes, std::uint64_t keep) noexcept
      : files_(files),
        marks_(marks),
        folder_(folder),
        parent_(parent),
        bytes_(bytes),
        kept_(keep / bytes) {}
  SegmentFiles(const SegmentFiles&) = delete;
  SegmentFiles& operator=(const SegmentFiles&) = delete;
  ~SegmentFiles() { close_file(); }

  Status make_folder() noexcept;
  // Removes the segments of the log that the mark names. A file without a head gets a name that is
  // none of a segment: it may be of any log. Errors: exists (a segment is of another log; nothing
  // was removed).
  Status remove_own() noexcept;
  // The same errors, and nothing is changed.
  Status verify_own() noexcept {
    Array<std::uint64_t> own, unknown;
    return find_own(own, unknown);
  }
  // Removes the folder with all segments. What cannot be removed stays.
  void remove_all() noexcept;
  // Of a process before: the greatest number that was used, and a segment that is there, with its
  // last epoch that is needed, or 0. None is free before release().
  void adopt(std::uint64_t greatest) noexcept;
  Status adopt(std::uint64_t number, std::uint64_t last) noexcept;

  // --- the segment that is written ---
  bool has_room(std::uint64_t n) const noexcept { return open_ && at_ + n <= bytes_; }
  std::uint64_t number() const noexcept { return number_; }
  std::uint64_t at() const noexcept { return at_; }  // where the next part lies
  // Leaves the segment, whose last epoch is not beyond `last`, and begins the next one. `after`:
  // the last epoch that is durable.
  Status next(EpochId after, std::uint64_t last) noexcept;
  Status append(const std::byte* bytes, std::size_t n) noexcept;
  Status sync(AnySite site) noexcept;
  // Leaves the segment as it is. Its last epoch is not beyond `last`.
  void leave(std::uint64_t last) noexcept;

  // Whether the segment, or the folder, was removed by another process.
  bool is_removed() noexcept {
    if (!open_) return removed_;
    auto facts = files_.facts(file_);
    return removed_ = facts && facts->names == 0;
  }
  // After that: nothing is there any more. Makes the folder again. Errors: those of files.
  Status begin_anew() noexcept;
  // An epoch of this process counts.
  void release() noexcept { held_ = false; }
  // Of all segments, and of those that are needed.
  std::uint64_t bytes() const noexcept { return (old_.size() + (open_ ? 1 : 0)) * bytes_; }
  std::uint64_t zero_bytes() const noexcept { return zeros_; }  // that append() has added
  std::uint64_t used_bytes() const noexcept {
    return (old_.size() - count_free() + (open_ ? 1 : 0)) * bytes_;
  }

  // Parts of a segment that this process has made durable, from an offset to another.
  struct Range {
    std::uint64_t number, from, to;
  };
  const Array<Range>& unread() const noexcept { return unread_; }
  void unread_all() noexcept {
    for (Range& range : unread_) range.from = kPage;
  }
  // All up to there was read back, of the segments up to this one.
  void set_read(const Range& last) noexcept {
    for (Range& range : unread_) {
      if (range.number <= last.number) range.from = range.number < last.number ? range.to : last.to;
    }
  }
  // Segments without an epoch beyond `epoch` are not needed any more. The youngest of them stay:
  // one for the next, and those that are kept for backups.
  void free_up_to(std::uint64_t epoch) noexcept { free_older(epoch, kept_); }
  // The same for all but the newest, because space is short: none is kept. `epoch`: the base has
  // it, and no later one counts.
  void free_all(std::uint64_t epoch) noexcept {
    for (Old& old : old_) old.last = std::min(old.last, epoch);
    held_ = false;
    free_older(epoch, 0);
  }

 private:
  struct Old {  // a segment that is not written any more
    std::uint64_t number;
    std::uint64_t last;  // epoch in it
  };

  Status path_of(std::string_view name, PathText& path) const noexcept {
    return path_in(folder_, name, path);
  }
  Expected<bool> is_own(const PathText& path) noexcept;
  Status find_own(Array<std::uint64_t>& own, Array<std::uint64_t>& unknown) noexcept;
  Status remove(const Array<std::uint64_t>& numbers) noexcept;
  // log.S2; a mark that could not be written may name a later segment than the one that counts
  bool is_free(const Old& old) const noexcept {
    const std::uint64_t newest = marks_.mark().newest;
    const bool tried = P::runs("log.segment.tried"_site) && old.number > newest;
    return !held_ && old.last <= freed_ && old.number != newest && !tried;
  }
  Old* free_after(std::uint64_t number) noexcept;
  std::size_t count_free() const noexcept {
    return static_cast<std::size_t>(
        std::ranges::count_if(old_, [&](const Old& o) { return is_free(o); }));
  }
  Status remove_old(Old* old) noexcept;
  void free_older(std::uint64_t epoch, std::size_t keep) noexcept;
  void forget_unread() noexcept;
  void forget(Old* old) noexcept {
    std::swap(*old, old_[old_.size() - 1]);
    (void)old_.pop_back();
  }
  Expected<FileSystem::File> open_spare(bool any, PathText& path, Old*& reused) noexcept;
  Expected<FileSystem::File> open_new(PathText& path) noexcept;
  Status begin_next(bool any, EpochId after) noexcept;
  Status fill() noexcept;
  Status make(FileSystem::File file, const PathText& path, Old* reused, EpochId after) noexcept;
  void close_file() noexcept {
    if (std::exchange(open_, false)) files_.close(file_);
  }

  FileSystem& files_;
  BaseMarks& marks_;
  std::string_view folder_, parent_;
  std::uint64_t bytes_;
  std::size_t kept_;          // segments for backups
  std::uint64_t number_ = 0;  // the greatest that was used
  FileSystem::File file_ = -1;
  bool open_ = false;      // file_ is
  bool unsynced_ = false;  // it has parts that are not durable
  std::uint64_t at_ = 0;
  std::uint64_t filled_ = 0;  // up to there it was written before
  std::uint64_t zeros_ = 0;
  bool held_ = false;        // no epoch of this process counts
  bool removed_ = false;     // is_removed(), or a new segment could not be made because of that
  std::uint64_t freed_ = 0;  // segments whose last epoch is not beyond it are free
  Array<Old> old_;
  Array<Range> unread_;  // by number
};

// --- the folder ----------------------------------------------------------------------------------

template <class P>
Status SegmentFiles<P>::make_folder() noexcept {
  Status made = files_.make_folder(folder_);
  if (!made.ok() && made != StatusCode::exists) return made;
  if (Status s = files_.hold(folder_, true); !s.ok()) return s;
  return files_.sync_folder(parent_, "log.folder.name"_site);
}

// Whether the file is a segment of this log. Without a head it is of none: it was not finished, or
// the write of its head has failed. Errors: exists (it is of another log).
template <class P>
Expected<bool> SegmentFiles<P>::is_own(const PathText& path) noexcept {
  auto file = files_.open(path.c_str(), FileSystem::Open::existing);
  if (!file) return fail(std::move(file.error()));
  layout::SegmentHead head{};
  auto got = files_.read(*file, &head, sizeof(head), 0);
  files_.close(*file);
  if (!got) return fail(std::move(got.error()));
  if (*got != sizeof(head) || !layout::is_head(head)) return false;
  if (std::memcmp(head.log_id, marks_.mark().log_id, sizeof(head.log_id)) == 0) return true;
  return fail(StatusCode::exists,
              "%s: is of another pool; this one was closed and needs no log; move the folder away",
              path.c_str());
}

template <class P>
Status SegmentFiles<P>::remove(const Array<std::uint64_t>& numbers) noexcept {
  PathText path;
  for (const std::uint64_t number : numbers) {
    Status s = path_of(segment_name(number), path);
    if (s.ok()) s = files_.remove(path.c_str());
    if (!s.ok()) return s;
  }
  if (Status s = path_of(kUnnamedSegment, path); !s.ok()) return s;
  Status gone = files_.remove(path.c_str());
  if (!gone.ok() && gone != StatusCode::not_found) return gone;
  // Otherwise a power failure could bring them back, beside a mark that names another log.
  return files_.sync_folder(folder_, "log.begin.names"_site);
}

template <class P>
Status SegmentFiles<P>::find_own(Array<std::uint64_t>& own,
                                 Array<std::uint64_t>& unknown) noexcept {
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

template <class P>
Status SegmentFiles<P>::remove_own() noexcept {
  Array<std::uint64_t> all, own, unknown;
  if (list_segments(files_, folder_, all) == StatusCode::not_found) return {};
  if (Status s = find_own(own, unknown); !s.ok()) return s;
  PathText path;
  for (const std::uint64_t number : unknown) {
    char name[48];  // numbers of marks are used once
    std::snprintf(name, sizeof(name), "%s.unknown-%llu", segment_name(number).c_str(),
                  static_cast<unsigned long long>(marks_.mark().number));
    PathText away;
    Status s = path_of(segment_name(number), path);
    if (s.ok()) s = path_of(name, away);
    if (s.ok()) s = files_.rename(path.c_str(), away.c_str());
    if (!s.ok()) return s;
  }
  return remove(own);
}

template <class P>
void SegmentFiles<P>::remove_all() noexcept {
  close_file();
  Array<std::uint64_t> numbers;
  if (list_segments(files_, folder_, numbers).ok() && remove(numbers).ok())
    (void)files_.remove_folder(folder_);
}

template <class P>
void SegmentFiles<P>::adopt(std::uint64_t greatest) noexcept {
  number_ = greatest;
  freed_ = marks_.mark().folded;
  held_ = true;
}

template <class P>
Status SegmentFiles<P>::adopt(std::uint64_t number, std::uint64_t last) noexcept {
  const bool kept = old_.push_back({.number = number, .last = last});
  return kept ? Status() : Status(StatusCode::out_of_memory);
}

template <class P>
Status SegmentFiles<P>::begin_anew() noexcept {
  close_file();
  removed_ = unsynced_ = false;
  while (!old_.empty()) (void)old_.pop_back();
  while (!unread_.empty()) (void)unread_.pop_back();
  return make_folder();
}

// --- segments ------------------------------------------------------------------------------------

template <class P>
void SegmentFiles<P>::leave(std::uint64_t last) noexcept {
  if (!open_) return;
  close_file();
  unsynced_ = false;
  // Without memory for its number it is never used again, which costs its space.
  (void)old_.push_back({.number = number_, .last = last});
}

// The free segment with the least number beyond `number`, or null.
template <class P>
typename SegmentFiles<P>::Old* SegmentFiles<P>::free_after(std::uint64_t number) noexcept {
  Old* found = nullptr;
  for (Old& old : old_) {
    if (!is_free(old) || old.number <= number) continue;
    if (found == nullptr || old.number < found->number) found = &old;
  }
  return found;
}

template <class P>
Status SegmentFiles<P>::remove_old(Old* old) noexcept {
  PathText path;
  Status s = path_of(segment_name(old->number), path);
  if (s.ok()) s = files_.remove(path.c_str());
  if (s.ok() || s == StatusCode::not_found) forget(old);
  return s;
}

// A free segment that can be used again, or not_found. Those that are kept, or that a backup holds
// (segment_holds.h), are used only if `any`.
template <class P>
Expected<FileSystem::File> SegmentFiles<P>::open_spare(bool any, PathText& path,
                                                       Old*& reused) noexcept {
  std::size_t left = count_free();
  std::uint64_t seen = 0;
  for (; left > (any ? 0 : kept_); --left) {
    reused = free_after(seen);
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

template <class P>
Expected<FileSystem::File> SegmentFiles<P>::open_new(PathText& path) noexcept {
  if (Status s = path_of(kUnnamedSegment, path); !s.ok()) return fail(std::move(s));
  Status gone = files_.remove(path.c_str());
  if (!gone.ok() && gone != StatusCode::not_found) return fail(std::move(gone));
  return files_.open(path.c_str(), FileSystem::Open::fresh);
}

// Makes the file at `path` the segment number_.
template <class P>
Status SegmentFiles<P>::make(FileSystem::File file, const PathText& path, Old* reused,
                             EpochId after) noexcept {
  layout::SegmentHead head{.magic = layout::kSegmentMagic,
                           .number = number_,
                           .log_id = {},
                           .bytes = bytes_,
                           .after = after.epoch,
                           .before = after.seal,
                           .crc = 0};
  std::memcpy(head.log_id, marks_.mark().log_id, sizeof(head.log_id));
  head.crc = layout::segment_crc(head);
  Status s = files_.allocate(file, 0, bytes_);
  if (s.ok()) s = files_.write(file, &head, sizeof(head), 0);
  if (s.ok()) s = files_.sync(file, "log.segment.head"_site);
  PathText named;
  if (s.ok()) s = path_of(segment_name(number_), named);
  if (s.ok()) s = files_.rename(path.c_str(), named.c_str());
  files_.lock(file, FileSystem::Lock::none);
  if (!s.ok()) return s;
  if (reused != nullptr) forget(reused);
  file_ = file;
  open_ = true;
  at_ = kPage;
  filled_ = reused != nullptr ? bytes_ : kPage;
  if (!unread_.push_back({.number = number_, .from = kPage, .to = kPage}))
    return StatusCode::out_of_memory;
  s = files_.sync_folder(folder_, "log.segment.name"_site);
  layout::BaseMark mark = marks_.mark();
  mark.newest = number_;
  return s.ok() ? marks_.write(mark, "log.segment.newest"_site) : std::move(s);
}

template <class P>
Status SegmentFiles<P>::next(EpochId after, std::uint64_t last) noexcept {
  if (unsynced_) {
    if (Status s = sync("log.segment.sync"_site); !s.ok()) return s;
  }
  leave(last);
  if (number_ + 1 >= kMostNumber) {
    return Status::format(StatusCode::unsupported, "%.*s: has no number for another segment",
                          static_cast<int>(folder_.size()), folder_.data());
  }
  Status s = begin_next(false, after);
  // Without space for a new one, a segment that was kept is used again.
  if (s == StatusCode::pool_full && !open_ && count_free() != 0) s = begin_next(true, after);
  return s;
}

template <class P>
Status SegmentFiles<P>::begin_next(bool any, EpochId after) noexcept {
  PathText path;
  Old* reused = nullptr;
  auto file = open_spare(any, path, reused);
  if (!file && file.error() == StatusCode::not_found) file = open_new(path);
  removed_ = !file && file.error() == StatusCode::not_found;
  if (!file) return std::move(file.error());
  ++number_;
  Status s = make(*file, path, reused, after);
  if (s.ok() || open_) return s;
  files_.close(*file);
  if (reused != nullptr) forget(reused);  // it may fail again
  if (s == StatusCode::pool_full && reused == nullptr) (void)files_.remove(path.c_str());
  return s;
}

template <class P>
Status SegmentFiles<P>::append(const std::byte* bytes, std::size_t n) noexcept {
  unsynced_ = true;
  if (Status s = files_.write(file_, bytes, n, at_); !s.ok()) return s;
  at_ += n;
  return n == kPage ? fill() : Status();
}

// A file system has to note the first write to space that was only allocated, so a sync after it
// takes half as long again. After a part of one page, of which many may follow, the space behind it
// is written at once. The zeros read as the space did.
template <class P>
Status SegmentFiles<P>::fill() noexcept {
  static constexpr std::uint64_t kFill = 16 * kPage;
  alignas(kPage) static std::byte zeros[kFill];
  if (at_ < filled_ || at_ == bytes_) return {};
  const std::uint64_t n = std::min(kFill, bytes_ - at_);
  filled_ = at_ + n;
  zeros_ += n;
  return files_.write(file_, zeros, n, at_);
}

template <class P>
Status SegmentFiles<P>::sync(AnySite site) noexcept {
  if (Status s = files_.sync(file_, site); !s.ok()) return s;
  unsynced_ = false;
  unread_[unread_.size() - 1].to = at_;
  return {};
}

// What is not needed may be used again at any time.
template <class P>
void SegmentFiles<P>::forget_unread() noexcept {
  std::size_t kept = 0;
  for (const Range& range : unread_) {
    const bool needed = std::ranges::none_of(
        old_, [&](const Old& o) { return o.number == range.number && o.last <= freed_; });
    if (needed) unread_[kept++] = range;
  }
  while (unread_.size() > kept) (void)unread_.pop_back();
}

template <class P>
void SegmentFiles<P>::free_older(std::uint64_t epoch, std::size_t keep) noexcept {
  freed_ = std::max(freed_, epoch);
  forget_unread();
  std::uint64_t seen = 0;
  for (std::size_t left = count_free(); left > keep + 1; --left) {
    Old* const old = free_after(seen);
    seen = old->number;
    (void)remove_old(old);
  }
}

}  // namespace perdure
