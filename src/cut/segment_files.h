// SegmentFiles: the files of a log (epoch_log.h) in their folder.
//
// WHAT  Parts are appended to one segment. When it has no room, the next one begins: a new file, or
//   one that is not needed any more. Numbers rise, and a number with parts is used once. The first
//   segment of a process is small, so that a pool with few stores takes little space; each next one
//   is about as long as all before it that were made since the last failure, up to a bound.
// INVARIANTS
//   log.S1  A segment has its head before it has its name, and its name before the mark of the base
//       names it; all that before its first part. Each is durable before the next.
//   log.S2  A segment is used again or removed only if no epoch in it is needed, and those of a
//       process before only once an epoch of this one counts, or the base has all of theirs; and
//       never one that a mark names which may be on the disk, but as that segment (log.S5).
//   log.S3  When a segment has no room for the next part of an epoch, the parts in it become
//       durable before that part is written.
//   log.S4  unread() has what is durable in the segments of this process that are needed, and was
//       not read back since unread_all().
//   log.S5  After a failure the space that the failed try has taken serves the next one. Segments
//       with no epoch but its own are free, the one that the mark names once a later one is named.
//       One that has its name, and whose mark could not be written, is the next one, with its
//       number. What could not become a segment is removed. One that could not be made as long as
//       it should be is as long as the file system has made it.
//   log.S6  shrink() takes space of free segments, and of the end of the one that is written, where
//       no part of its number lies. What is there reads as zeros or as before.
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cut/base_mark.h"
#include "cut/segment_names.h"

namespace perdure {

class SegmentFiles {
 public:
  // `folder` of the log, in `parent`; both must stay valid, and so must the marks. `first`, `most`:
  // bytes of a segment. `keep`: bytes of segments that stay for backups after they are needed.
  SegmentFiles(FileSystem& files, BaseMarks& marks, std::string_view folder,
               std::string_view parent, std::uint64_t first, std::uint64_t most,
               std::uint64_t keep) noexcept
      : files_(files),
        marks_(marks),
        folder_(folder),
        parent_(parent),
        most_(most),
        keep_(keep),
        wanted_(std::min(first, most)) {}
  SegmentFiles(const SegmentFiles&) = delete;
  SegmentFiles& operator=(const SegmentFiles&) = delete;
  ~SegmentFiles() { close_file(); }

  Status make_folder() noexcept;
  // Removes the segments of the log that the mark names. A file without a head gets a name that is
  // none of a segment: it may be of any log. Errors: exists (a segment is of another log; nothing
  // was removed).
  Status remove_own() noexcept;
  // The same errors, and nothing is changed.
  Status verify_own() noexcept;
  // Removes the folder with all segments. What cannot be removed stays.
  void remove_all() noexcept;
  // Of a process before: the greatest number that was used, and a segment that is there, with its
  // last epoch that is needed, or 0, and its size. None of these is free before release().
  void adopt(std::uint64_t greatest) noexcept;
  Status adopt(std::uint64_t number, std::uint64_t last, std::uint64_t bytes) noexcept;

  // --- the segment that is written ---
  bool has_room(std::uint64_t n) const noexcept { return open_ && at_ + n <= bytes_; }
  std::uint64_t room() const noexcept { return open_ ? bytes_ - at_ : 0; }
  std::uint64_t number() const noexcept { return number_; }
  std::uint64_t at() const noexcept { return at_; }  // where the next part lies
  // Leaves the segment, whose last epoch is not beyond `last`, and begins the next one, with room
  // for a part of `n` bytes. `after`: the last epoch that is durable.
  Status next(std::uint64_t n, EpochId after, std::uint64_t last) noexcept;
  Status append(const std::byte* bytes, std::size_t n) noexcept;
  Status sync(AnySite site) noexcept;
  // Leaves the segment as it is. Its last epoch is not beyond `last`.
  void leave(std::uint64_t last) noexcept;
  // The same after a failure: the epochs beyond `last` do not count, and are not needed (log.S5).
  void give_up(std::uint64_t last) noexcept;
  // An epoch of this process counts, which ends in the segment.
  void count(std::uint64_t epoch) noexcept {
    counted_ = epoch;
    release();
  }

  // Whether the segment, or the folder, was removed by another process.
  bool is_removed() noexcept;
  // Errors: io (the segment that is written was removed).
  Status verify_there() noexcept;
  // After that: nothing is there any more. Makes the folder again. Errors: those of files.
  Status begin_anew() noexcept;
  // What a process before has left is in an epoch of this one that counts, or in the base.
  void release() noexcept { held_ = 0; }
  // Of all segments, and of those that are needed.
  std::uint64_t bytes() const noexcept { return used_bytes() + free_bytes(); }
  std::uint64_t zero_bytes() const noexcept { return zeros_; }  // that append() has added
  std::uint64_t used_bytes() const noexcept;

  // Parts of a segment that this process has made durable, from an offset to another.
  struct Range {
    std::uint64_t number, from, to;
  };
  const Array<Range>& unread() const noexcept { return unread_; }
  void unread_all() noexcept;
  // All up to there was read back, of the segments up to this one.
  void set_read(const Range& last) noexcept;
  // Segments without an epoch beyond `epoch` are not needed any more. The youngest of them stay:
  // one for the next, and those that are kept for backups.
  void free_up_to(std::uint64_t epoch) noexcept { free_older(epoch, keep_); }
  // The same for all but the newest, because space is short: none is kept. `epoch`: the base has
  // it, and no later one counts.
  void free_all(std::uint64_t epoch) noexcept;
  // Before shrink(): whether the segment that is written has more than `rest` bytes of parts, and a
  // free one has the space of the next.
  bool should_begin_next(std::uint64_t rest) noexcept {
    return open_ && at_ > kPage + rest && free_after(0) != nullptr;
  }
  // Gives back what is free but for what is kept for backups, and for `rest` bytes of the segment
  // that is written. The next segments are as short as those of a new process.
  void shrink(std::uint64_t rest) noexcept;

 private:
  struct Old {  // a segment that is not written any more
    std::uint64_t number;
    std::uint64_t last;     // epoch in it
    std::uint64_t counted;  // the last that counts for sure
    std::uint64_t bytes;
  };

  Status path_of(std::string_view name, PathText& path) const noexcept {
    return path_in(folder_, name, path);
  }
  Expected<bool> is_own(const PathText& path) noexcept;
  Status find_own(Array<std::uint64_t>& own, Array<std::uint64_t>& unknown) noexcept;
  Status remove(const Array<std::uint64_t>& numbers) noexcept;
  bool is_free(const Old& old) const noexcept;
  Old* free_after(std::uint64_t number) noexcept;
  std::uint64_t free_bytes() const noexcept;
  Status remove_old(Old* old) noexcept;
  void free_older(std::uint64_t epoch, std::uint64_t keep) noexcept;
  void forget_unread() noexcept;
  void forget(Old* old) noexcept;
  Expected<FileSystem::File> open_spare(bool any, PathText& path, Old*& reused) noexcept;
  Expected<FileSystem::File> open_new(PathText& path) noexcept;
  Expected<FileSystem::File> open_unfinished(PathText& path, Old*& reused) noexcept;
  Status begin_next(bool any, EpochId after) noexcept;
  Status reserve(FileSystem::File file, std::uint64_t before, std::uint64_t& bytes) noexcept;
  Status fill() noexcept;
  Status make(FileSystem::File file, const PathText& path, Old* reused, EpochId after) noexcept;
  void close_file() noexcept;

  FileSystem& files_;
  BaseMarks& marks_;
  std::string_view folder_, parent_;
  std::uint64_t most_;        // bytes of a segment
  std::uint64_t keep_;        // bytes of segments for backups
  std::uint64_t wanted_;      // bytes of the next segment
  std::uint64_t needed_ = 0;  // it must have
  std::uint64_t made_ = 0;    // bytes of those before it, since the last failure
  std::uint64_t number_ = 0;  // the greatest that was used
  bool unfinished_ = false;   // that segment has its name, and the mark for it was not written
  FileSystem::File file_ = -1;
  bool open_ = false;      // file_ is
  bool unsynced_ = false;  // it has parts that are not durable
  std::uint64_t bytes_ = 0;
  std::uint64_t counted_ = 0;  // the last epoch in it that counts
  std::uint64_t at_ = 0;
  std::uint64_t filled_ = 0;  // up to there it was written before
  std::uint64_t zeros_ = 0;
  std::uint64_t held_ = 0;   // those up to this number are of a process before, and not free
  bool removed_ = false;     // is_removed(), or a new segment could not be made because of that
  std::uint64_t freed_ = 0;  // segments whose last epoch is not beyond it are free
  Array<Old> old_;
  Array<Range> unread_;  // by number
};

}  // namespace perdure
