// SegmentHolds: keeps segments of a log as they are while a backup reads them and the pool goes on.
//
// WHAT  A shared lock on each of them, which ends with the process. The owner of the log locks a
//   segment before it uses it again (segment_files.h), and takes another one if it cannot. If it
//   removes one, the file stays readable.
// INVARIANT
//   holds.H1  The content of a segment stays, and grows at most, until drop(). But a disk that is
//       full makes the owner use it again all the same: then its parts are of another number.
// Thread safety: one thread; the owner of the log may be another process.
#pragma once

#include <cstdint>
#include <utility>

#include "cut/segment_names.h"
#include "platform/nap.h"

namespace perdure {

class SegmentHolds {
 public:
  struct Held {
    std::uint64_t number;
    FileSystem::File file;
  };

  // `folder` of the log must stay valid. Nothing before the segment `first` is held.
  SegmentHolds(FileSystem& files, std::string_view folder, std::uint64_t first) noexcept
      : files_(files), folder_(folder), next_(first) {}
  SegmentHolds(const SegmentHolds&) = delete;
  SegmentHolds& operator=(const SegmentHolds&) = delete;
  ~SegmentHolds() { drop(held_.size()); }

  // Holds the segments that are new since the last call, until full(). Those whose epochs are all
  // up to `folded` are left out. Errors: out_of_memory, io.
  Status take(std::uint64_t folded) noexcept;
  bool full() const noexcept { return held_.size() >= kMost; }
  const Array<Held>& held() const noexcept { return held_; }  // by number
  // Lets the first `count` of them go.
  void drop(std::size_t count) noexcept;

 private:
  static constexpr std::size_t kMost = 128;  // open files
  static constexpr int kPatience = 100;      // naps: the owner is making the segment

  bool lock(FileSystem::File file) noexcept {
    for (int i = 0; i < kPatience; ++i) {
      if (files_.lock(file, FileSystem::Lock::shared)) return true;
      nap();
    }
    return false;
  }

  FileSystem& files_;
  std::string_view folder_;
  std::uint64_t next_;  // the least number that was not looked at
  Array<Held> held_;
};

inline Status SegmentHolds::take(std::uint64_t folded) noexcept {
  Array<std::uint64_t> all;
  Status listed = list_segments(files_, folder_, all);
  if (listed == StatusCode::not_found) return {};  // the pool was closed
  if (!listed.ok()) return listed;
  for (const std::uint64_t number : all) {
    if (number < next_) continue;
    if (full()) return {};
    PathText path;
    if (Status s = path_in(folder_, segment_name(number), path); !s.ok()) return s;
    auto file = files_.open(path.c_str(), FileSystem::Open::reading);
    if (!file && file.error() == StatusCode::not_found) continue;  // used again meanwhile
    if (!file) return std::move(file.error());
    if (!lock(*file)) {
      files_.close(*file);
      continue;
    }
    if (!held_.push_back({.number = number, .file = *file})) {
      files_.lock(*file, FileSystem::Lock::none);
      files_.close(*file);
      return StatusCode::out_of_memory;
    }
    next_ = number + 1;
    // Its head says which epoch was durable when the segment before it was complete.
    auto head = read_segment_head(files_, *file);
    if (head && head->magic != 0 && head->after < folded) drop(held_.size() - 1);
  }
  return {};
}

inline void SegmentHolds::drop(std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    files_.lock(held_[i].file, FileSystem::Lock::none);
    files_.close(held_[i].file);
  }
  for (std::size_t i = count; i < held_.size(); ++i) held_[i - count] = held_[i];
  for (std::size_t i = 0; i < count; ++i) (void)held_.pop_back();
}

}  // namespace perdure
