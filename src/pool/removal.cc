// destroy(): removes the file of a pool, and what belongs to it.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "backup/backup_files.h"
#include "cut/base_mark.h"
#include "cut/live_image.h"
#include "cut/segment_names.h"
#include "perdure/pool.h"
#include "platform/nap.h"
#include "pool/left_open.h"
#include "pool/output_check.h"
#include "pool/owner.h"
#include "pool/with_path.h"

namespace perdure {

namespace {

constexpr std::uint64_t kPatience = 2'000'000'000;  // nanoseconds
constexpr std::string_view kUnfinished = ".creating";

// The names in a folder.
using Names = Array<Text<NAME_MAX>>;
// Which pool a part belongs to: the mark of that pool has the same id.
struct LogId {
  std::uint8_t bytes[16];
};
using LogIds = Array<LogId>;

// NUMBER, NUMBER.unknown-N (segment_files.h), or the name of one that is not finished.
bool is_name_of_segment(std::string_view name) noexcept {
  constexpr std::string_view kUnknown = ".unknown-";
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string_view rest = name.substr(dot);
  const bool whole = rest.empty() || (rest.starts_with(kUnknown) &&
                                      rest.find_first_not_of("0123456789", kUnknown.size()) ==
                                          std::string_view::npos);
  return name == kUnnamedSegment || (whole && segment_number(name.substr(0, dot)) != 0);
}

// The removal of one pool. Every part is looked at before the first one is removed. A part is what
// lies at the name of one and has its content. Anything else stays.
class Removal {
 public:
  // `path`: absolute; its folder is without links.
  explicit Removal(std::string_view path) noexcept : path_(path) {}

  Status run() noexcept;

 private:
  // Its creator was killed while it had two names.
  bool is_base(const layout::Identity& file) const noexcept {
    return base_.is_open() && file.inode == identity_.inode && file.device == identity_.device;
  }
  bool left_open() const noexcept { return mark_.state == layout::BaseState::open; }
  Status open_base() noexcept;
  Status refuse_base() noexcept;
  Status verify_names() noexcept;
  Status each_part() noexcept;
  Status each_of_image(std::string_view image, bool of_mark) noexcept;
  Status each_aside(std::string_view image) noexcept;
  // The file at the path, if it is of that kind (`none`: of any), or begins with zeros and `empty`.
  Status each_file(std::string_view path, OwnKind kind, bool empty) noexcept;
  Status lock(FileStorage& file, const char* name) noexcept;
  Status each_segment() noexcept;
  Expected<bool> is_segment(std::string_view path) noexcept;
  Status remove_segments(std::string_view log, const Names& names) noexcept;
  Status find_logs(LogIds& others) noexcept;
  bool note_log(std::string_view part, LogIds& others) noexcept;
  bool needs_one_of(std::string_view path, const LogIds& logs) noexcept;
  Status refuse_parts_of_another() noexcept;
  Status list(std::string_view folder, Names& names) noexcept;
  Status remove(const FileStorage& file, std::string_view path) noexcept;
  Expected<mode_t> type_of(std::string_view path) noexcept;

  std::string_view path_;
  RealFileSystem files_;
  FileStorage base_;  // locked, if it is there
  layout::BaseMark mark_{};
  layout::Identity identity_{};
  bool is_image_ = false;  // the path is that of an image which was set aside
  std::uint64_t parts_ = 0;
  bool removes_ = false;  // else each_part() only looks
};

// --- the file ------------------------------------------------------------------------------------

Status Removal::open_base() noexcept {
  if (Status s = files_.hold(folder_of(path_), false); !s.ok()) return s;
  Status s = open_as_owner(base_, path_);
  if (s == StatusCode::not_found) {
    base_.close();
    return {};
  }
  if (!s.ok()) return with_path(path_, s);
  files_.resemble(base_.descriptor());
  const OwnKind kind = kind_of(base_.descriptor());
  is_image_ = kind == OwnKind::live_image && is_aside(path_);
  if (is_image_) return {};
  if (kind != OwnKind::pool) return refuse_base();
  (void)read_mark(base_, mark_);  // of a damaged one nothing is known
  s = base_.identity(identity_);
  if (s.ok() && left_open()) s = has_its_parts(base_, path_.data());
  if (s.ok() && left_open()) s = verify_names();
  return s.ok() ? Status() : with_path(path_, s);
}

// As an open would.
Status Removal::refuse_base() noexcept {
  auto info = Pool::inspect(path_);
  if (!info) return std::move(info.error());
  return with_path(path_, Status::format(StatusCode::busy, "was replaced meanwhile; try again"));
}

// Under another name the file would be left without what its log and its image have.
Status Removal::verify_names() noexcept {
  PathText unfinished;
  FileStorage second;
  const bool half_made = unfinished.assign(path_, kUnfinished) &&
                         second.open(unfinished.c_str(), FileStorage::Access::observer).ok();
  layout::Identity other{};
  const bool own = half_made && second.identity(other).ok() && is_base(other);
  const std::uint64_t names = base_.names();
  if (names <= (own ? 2U : 1U)) return {};
  return Status::format(StatusCode::invalid_argument,
                        "was left open, and its file has %lu names (hard links); remove the "
                        "others first",
                        names);
}

// --- parts ---------------------------------------------------------------------------------------

// S_IFMT bits, of a link as such; 0: there is nothing.
Expected<mode_t> Removal::type_of(std::string_view path) noexcept {
  RealFileSystem::Place at{};
  if (Status s = files_.find(path, at); !s.ok()) return fail(std::move(s));
  struct stat info{};
  if (::fstatat(at.folder, at.name, &info, AT_SYMLINK_NOFOLLOW) != 0) return mode_t{0};
  return info.st_mode & S_IFMT;
}

Status Removal::list(std::string_view folder, Names& names) noexcept {
  bool memory = true;
  Status s = files_.list(folder, [&](std::string_view name) {
    if (memory) memory = names.push_back(name);
  });
  return memory ? std::move(s) : Status(StatusCode::out_of_memory);
}

// Another file may have taken the name.
Status Removal::remove(const FileStorage& file, std::string_view path) noexcept {
  PathText now;
  if (!file.has_name(now)) {
    return Status::format(StatusCode::busy, "%.*s: was replaced meanwhile; try again", length(path),
                          path.data());
  }
  Status s = files_.remove(path);
  return s == StatusCode::not_found ? Status() : std::move(s);
}

// The lock of a killed process ends with its memory.
Status Removal::lock(FileStorage& file, const char* name) noexcept {
  for (const std::uint64_t began = RealPlatform::now_ns();;) {
    Status s = file.open(name, FileStorage::Access::owner);
    if (s != StatusCode::busy) return s;
    if (RealPlatform::now_ns() - began > kPatience) {
      return Status::format(StatusCode::busy, "is in use by another process; close it there first");
    }
    file.close();
    nap();
  }
}

Status Removal::each_file(std::string_view path, OwnKind kind, bool empty) noexcept {
  auto type = type_of(path);
  if (!type) return std::move(type.error());
  RealFileSystem::Place at{};
  Status s = files_.find(path, at);
  if (!s.ok() || !S_ISREG(*type)) return s;
  FileStorage looked, file;
  looked.look_in(at.folder);
  file.look_in(at.folder);
  s = looked.open(at.name, FileStorage::Access::observer);
  if (s == StatusCode::not_found) return {};
  if (!s.ok()) return with_path(path, s);
  const OwnKind found = kind_of(looked.descriptor());
  const bool part = found == OwnKind::none ? empty && begins_with_zeros(looked.descriptor())
                                           : kind == OwnKind::none || found == kind;
  if (!part) return {};
  ++parts_;
  layout::Identity same{};
  if (s = looked.identity(same); !s.ok()) return with_path(path, s);
  if (is_base(same)) return removes_ ? remove(looked, path) : Status();
  if (s = lock(file, at.name); !s.ok()) return with_path(path, s);
  if (base_.is_open() && !file.is_of_user_of(base_)) {
    return Status::format(StatusCode::untrusted,
                          "%.*s: another user could have put it there; move it away, or give it "
                          "the owner and the mode of the pool",
                          length(path), path.data());
  }
  return removes_ ? remove(file, path) : Status();
}

Status Removal::each_aside(std::string_view image) noexcept {
  Names names;
  bool memory = true;
  Status s = list_aside(files_, image, [&](std::string_view name) {
    if (memory) memory = names.push_back(name);
  });
  if (!memory) return StatusCode::out_of_memory;
  for (const auto& name : names) {
    PathText path;
    if (!path.assign(image.substr(0, image.rfind('/') + 1), name))
      return StatusCode::invalid_argument;
    const bool dirty = !is_aside(name);
    if (s.ok())
      s = each_file(path.c_str(), dirty ? OwnKind::dirty_log : OwnKind::live_image, false);
  }
  return s;
}

// `of_mark`: the base was left open with this image, so an empty one is what a power failure has
// left of it.
Status Removal::each_of_image(std::string_view image, bool of_mark) noexcept {
  Status s = each_aside(image);
  const struct {
    const char* suffix;
    OwnKind kind;
    bool empty;
  } parts[] = {{"-dirty.creating", OwnKind::none, true},
               {".creating", OwnKind::none, true},
               {"-dirty", OwnKind::dirty_log, of_mark},
               {"", OwnKind::live_image, of_mark}};
  for (const auto& part : parts) {
    PathText path;
    if (s.ok() && !path.assign(image, part.suffix)) return StatusCode::invalid_argument;
    if (s.ok()) s = each_file(path.c_str(), part.kind, part.empty);
  }
  return s;
}

Status Removal::each_part() noexcept {
  PathText path;
  if (is_image_)
    return path.assign(path_, "-dirty") ? each_file(path.c_str(), OwnKind::dirty_log, false)
                                        : StatusCode::invalid_argument;
  if (!path.assign(path_, kUnfinished)) return StatusCode::invalid_argument;
  if (Status s = each_file(path.c_str(), OwnKind::none, true); !s.ok()) return s;
  PathText beside, named;
  if (!beside.assign(path_, kPoolParts[1])) return StatusCode::invalid_argument;
  // The image that the mark of a copy names is of the pool that was copied.
  const bool has_image = mark_.magic != 0 && of_this_file(mark_, identity_) &&
                         LiveImage::path_of(mark_, path_, named).ok();
  const std::string_view image(named.c_str());
  const bool elsewhere = has_image && image != beside.c_str();
  if (Status s = each_of_image(beside.c_str(), left_open() && has_image && !elsewhere); !s.ok())
    return s;
  if (elsewhere) {
    Status s = files_.hold(image.substr(0, image.rfind('/')), false);
    if (s.ok()) s = each_of_image(image, left_open());
    if (!s.ok() && s != StatusCode::not_found) return s;
  }
  return each_segment();
}

// --- the log -------------------------------------------------------------------------------------

Expected<bool> Removal::is_segment(std::string_view path) noexcept {
  auto type = type_of(path);
  if (!type) return fail(std::move(type.error()));
  if (!S_ISREG(*type)) return false;
  auto file = files_.open(path, FileSystem::Open::reading);
  if (!file) return fail(std::move(file.error()));
  const OwnKind kind = kind_of(*file);
  const bool segment = kind == OwnKind::segment ||
                       (kind == OwnKind::none && begins_with_zeros(*file));  // not finished
  files_.close(*file);
  return segment;
}

Status Removal::remove_segments(std::string_view log, const Names& names) noexcept {
  for (const auto& name : names) {
    Status s = remove_in(files_, log, name);
    if (!s.ok() && s != StatusCode::not_found) return s;
  }
  return files_.remove_folder(log);
}

// A folder of that name is the log if it has a segment, or if it is empty and the pool had a log.
Status Removal::each_segment() noexcept {
  PathText log;
  if (!log.assign(path_, kPoolParts[0])) return StatusCode::invalid_argument;
  auto type = type_of(log.c_str());
  if (!type) return std::move(type.error());
  if (!S_ISDIR(*type)) return {};
  Names names;
  if (Status s = list(log.c_str(), names); !s.ok()) return s;
  PathText within, path, foreign;
  std::size_t segments = 0;
  for (const auto& name : names) {
    if (!within.assign(log.c_str(), "/") || !path.assign(within.c_str(), name))
      return StatusCode::invalid_argument;
    auto segment = is_name_of_segment(name) ? is_segment(path.c_str()) : Expected<bool>(false);
    if (!segment) return std::move(segment.error());
    if (*segment) {
      ++segments;
    } else {
      foreign = path;
    }
  }
  if (segments == 0 && (mark_.magic == 0 || !names.empty())) return {};
  if (segments != names.size()) {
    return Status::format(StatusCode::exists,
                          "%s: is no part of the pool, so nothing is removed; move it away, and "
                          "try again",
                          foreign.c_str());
  }
  if (Status s = files_.hold(log.c_str(), true); !s.ok()) return s;
  ++parts_;
  return removes_ ? remove_segments(log.c_str(), names) : Status();
}

// --- parts of another pool -----------------------------------------------------------------------

// Adds the id that a segment or a live image has, unless it is that of the file here. No checksums:
// a damaged part may be needed, too. Returns false if memory is short.
bool Removal::note_log(std::string_view part, LogIds& others) noexcept {
  auto type = type_of(part);
  OpenFile file(files_);
  if (!type || !S_ISREG(*type) || !file.open(part, FileSystem::Open::reading).ok()) return true;
  layout::LiveHead live{};
  layout::SegmentHead segment{};
  layout::PartHead first{};
  (void)files_.read(*file, &live, sizeof(live), layout::kMarkOffset);
  (void)files_.read(*file, &segment, sizeof(segment), 0);
  (void)files_.read(*file, &first, sizeof(first), kPage);
  LogId id{};
  if (live.magic == layout::kLiveMagic || live.magic == layout::kOldLiveMagic) {
    std::memcpy(id.bytes, live.log_id, sizeof(id.bytes));
  } else if (segment.magic == layout::kSegmentMagic) {
    std::memcpy(id.bytes, segment.log_id, sizeof(id.bytes));
  } else if (first.magic == layout::kPartMagic) {
    std::memcpy(id.bytes, first.log_id, sizeof(id.bytes));
  } else {
    return true;
  }
  const auto same = [&](const LogId& other) { return layout::same_id(other.bytes, id.bytes); };
  const bool own = mark_.magic != 0 && layout::same_id(mark_.log_id, id.bytes);
  return own || std::any_of(others.begin(), others.end(), same) || others.push_back(id);
}

// The ids that the parts have, but that of the file here.
Status Removal::find_logs(LogIds& others) noexcept {
  PathText path, log, within;
  if (!path.assign(path_, kPoolParts[1]) || !log.assign(path_, kPoolParts[0]) ||
      !within.assign(log.c_str(), "/"))
    return StatusCode::invalid_argument;
  bool memory = note_log(path.c_str(), others);
  auto type = type_of(log.c_str());
  if (!type) return std::move(type.error());
  Names names;
  if (S_ISDIR(*type)) {
    if (Status s = list(log.c_str(), names); !s.ok()) return s;
  }
  for (const auto& name : names) {
    if (!is_name_of_segment(name) || !path.assign(within.c_str(), name)) continue;
    memory = memory && note_log(path.c_str(), others);
  }
  return memory ? Status() : Status(StatusCode::out_of_memory);
}

// Whether the file is a pool that was left open with one of these logs.
bool Removal::needs_one_of(std::string_view path, const LogIds& logs) noexcept {
  auto type = type_of(path);
  OpenFile file(files_);
  if (!type || !S_ISREG(*type) || !file.open(path, FileSystem::Open::reading).ok()) return false;
  BaseMarks marks(files_, *file);
  if (kind_of(*file) != OwnKind::pool || !marks.read().ok()) return false;
  const layout::BaseMark& mark = marks.mark();
  const auto same = [&](const LogId& id) { return layout::same_id(id.bytes, mark.log_id); };
  return mark.state == layout::BaseState::open && std::any_of(logs.begin(), logs.end(), same);
}

// A file that was renamed after a kill has left its parts behind, and is nothing without them. It
// is looked for in the same folder only.
Status Removal::refuse_parts_of_another() noexcept {
  LogIds logs;
  if (is_image_) return {};
  if (Status s = find_logs(logs); !s.ok() || logs.empty()) return s;
  PathText owner;
  Status s = files_.list(folder_of(path_), [&](std::string_view name) {
    PathText path;
    const bool found = *owner.c_str() == '\0' &&
                       path.assign(path_.substr(0, path_.rfind('/') + 1), name) &&
                       needs_one_of(path.c_str(), logs);
    if (found) owner = path;
  });
  if (!s.ok() || *owner.c_str() == '\0') return s;
  return Status::format(
      StatusCode::exists,
      "%.*s: the log or the live image of this name belongs to the pool %s, which was renamed or "
      "copied, so nothing is removed; to keep that pool, %srename it to %.*s; if its data is not "
      "needed, remove it first (perdure remove %s)",
      length(path_), path_.data(), owner.c_str(),
      base_.is_open() ? "move away the file that has this name, and " : "", length(path_),
      path_.data(), owner.c_str());
}

// --- all of it -----------------------------------------------------------------------------------

Status Removal::run() noexcept {
  Status s = open_base();
  if (s.ok()) s = each_part();
  if (!s.ok()) return s;
  if (!base_.is_open() && parts_ == 0) {
    return Status::format(StatusCode::not_found,
                          "%.*s: there is no such file, and no part of a pool of that name; check "
                          "the path",
                          length(path_), path_.data());
  }
  if (s = refuse_parts_of_another(); !s.ok()) return s;
  removes_ = true;
  s = each_part();
  if (s.ok() && base_.is_open()) s = remove(base_, path_);
  return s.ok() ? files_.sync_folder(folder_of(path_), kNoSite) : std::move(s);
}

}  // namespace

Status destroy(std::string_view path) {
  PathText given;
  if (path.empty() || !given.assign(path)) {
    return Status::format(StatusCode::invalid_argument, "%.*s: a path has 1 to %d bytes and no NUL",
                          length(path.substr(0, 64)), path.data(), PATH_MAX - 1);
  }
  char resolved[PATH_MAX];
  struct stat info{};
  const bool there = resolve_path(given.c_str(), resolved);
  if (::lstat(given.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
    return Status::format(StatusCode::invalid_argument,
                          "%s: is a symbolic link; name the file that it leads to%s%s",
                          given.c_str(), there ? ", " : "", there ? resolved : "");
  }
  if (!there) {
    return Status::format(StatusCode::not_found, "%s: there is no such folder; check the path",
                          given.c_str());
  }
  const std::unique_ptr<Removal> removal(new (std::nothrow) Removal(resolved));
  return removal != nullptr ? removal->run() : Status(StatusCode::out_of_memory);
}

}  // namespace perdure
