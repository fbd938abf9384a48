#include "pool/output_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "backup/backup_format.h"
#include "cut/segment_names.h"
#include "format/layout.h"
#include "platform/dirty_log.h"
#include "platform/real_platform.h"
#include "pool/with_path.h"

namespace perdure {

namespace {

class Beginning {
 public:
  explicit Beginning(int file) noexcept {
    for (std::size_t done = 0; done < sizeof(bytes_);) {
      const ssize_t got =
          ::pread(file, bytes_ + done, sizeof(bytes_) - done, static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      failed_ = got < 0;
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
  }
  template <class T>
  T at(std::size_t offset) const noexcept {
    T value;
    std::memcpy(&value, bytes_ + offset, sizeof(value));
    return value;
  }
  bool is_zero() const noexcept {
    return !failed_ && std::ranges::all_of(bytes_, [](std::byte b) { return b == std::byte{}; });
  }

 private:
  std::byte bytes_[2 * layout::kHeaderBytes] = {};
  bool failed_ = false;
};

// Of a base whose headers are damaged.
bool is_mark(const layout::BaseMark& mark) noexcept {
  const bool known =
      mark.state == layout::BaseState::closed || mark.state == layout::BaseState::open;
  return mark.magic == layout::kMarkMagic && known;
}

// A text can begin with a magic number, so a second field must fit. No checksum: a damaged file is
// not to be replaced, either.
OwnKind kind_by(const Beginning& file) noexcept {
  const auto mark = file.at<layout::BaseMark>(layout::kMarkOffset);
  if (mark.magic == layout::kLiveMagic || mark.magic == layout::kOldLiveMagic)
    return OwnKind::live_image;
  for (const std::size_t copy : {std::size_t{0}, layout::kHeaderBytes}) {
    if (file.at<std::uint64_t>(copy) == layout::kMagic &&
        file.at<std::uint32_t>(copy + offsetof(layout::Header, endian_tag)) == layout::kEndianTag)
      return OwnKind::pool;
    if (is_mark(file.at<layout::BaseMark>(copy + layout::kMarkOffset))) return OwnKind::pool;
  }
  const auto segment = file.at<layout::SegmentHead>(0);
  if (segment.magic == layout::kSegmentMagic && segment.number < kMostNumber)
    return OwnKind::segment;
  const auto part = file.at<layout::PartHead>(kPage);  // the first one, without the head before it
  if (part.magic == layout::kPartMagic && part.offset == kPage) return OwnKind::segment;
  const std::uint64_t words[3] = {file.at<std::uint64_t>(0), file.at<std::uint64_t>(8),
                                  file.at<std::uint64_t>(16)};
  if (DirtyLog<RealPlatform>::begins_log(words)) return OwnKind::dirty_log;
  const auto head = file.at<layout::BackupHead>(0);
  constexpr std::uint32_t kMostVersion = 1 << 16;
  return head.magic == layout::kBackupMagic && head.version < kMostVersion ? OwnKind::backup
                                                                           : OwnKind::none;
}

class ReadOnly {
 public:
  explicit ReadOnly(const char* path) noexcept
      // O_NONBLOCK: a FIFO must not make it wait.
      : file_(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ReadOnly(const ReadOnly&) = delete;
  ReadOnly& operator=(const ReadOnly&) = delete;
  ~ReadOnly() {
    if (file_ >= 0) ::close(file_);
  }
  int operator*() const noexcept { return file_; }

 private:
  int file_;
};

bool is(OwnKind kind, std::string_view path) noexcept {
  PathText text;
  return text.assign(path) && kind_of(*ReadOnly(text.c_str())) == kind;
}

bool is_backup(std::string_view folder) noexcept {
  PathText path;
  for (const char* head : {layout::kBackupHead, layout::kBackupNewHead}) {
    if (path_in(folder, head, path).ok() && is(OwnKind::backup, path.c_str())) return true;
  }
  return false;
}

Status refuse(const char* what, std::string_view whose = "") noexcept {
  return Status::format(StatusCode::invalid_argument, "is %s%.*s; choose another path", what,
                        length(whose), whose.data());
}

}  // namespace

OwnKind kind_of(int file) noexcept {
  struct stat info{};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) return OwnKind::none;
  return kind_by(Beginning(file));
}

bool begins_with_zeros(int file) noexcept { return Beginning(file).is_zero(); }

const char* own_kind(int file) noexcept {
  switch (kind_of(file)) {
    case OwnKind::none:
      return nullptr;
    case OwnKind::pool:
      return "a pool";
    case OwnKind::live_image:
      return "the live image of a pool";
    case OwnKind::segment:
      return "a segment of a log";
    case OwnKind::dirty_log:
      return "the log of dirty lines of a pool";
    case OwnKind::backup:
      return "the head of a backup";
  }
  return nullptr;
}

bool resolve_path(const char* path, char (&out)[PATH_MAX]) noexcept {
  if (::realpath(path, out) != nullptr) return true;
  const std::string_view given(path);
  const std::size_t slash = given.rfind('/');
  PathText folder;
  const std::string_view parent =
      slash == std::string_view::npos ? "." : given.substr(0, slash + 1);
  if (!folder.assign(parent) || ::realpath(folder.c_str(), out) == nullptr) return false;
  const std::string_view name = given.substr(slash + 1);
  std::size_t end = std::strlen(out);
  if (end + 1 + name.size() >= PATH_MAX) return false;
  if (out[end - 1] != '/') out[end++] = '/';
  end += name.copy(out + end, name.size());
  out[end] = '\0';
  return true;
}

Status verify_place(std::string_view path) noexcept {
  PathText given;
  char resolved[PATH_MAX];
  if (!given.assign(path) || !resolve_path(given.c_str(), resolved))
    return {};  // no file can be there
  const std::string_view whole(resolved);
  const std::size_t slash = whole.rfind('/');
  const std::string_view folder = whole.substr(0, slash), name = whole.substr(slash + 1);
  for (const std::string_view suffix : kPoolParts) {
    const std::string_view pool =
        whole.substr(0, whole.size() - std::min(whole.size(), suffix.size()));
    if (whole.ends_with(suffix) && is(OwnKind::pool, pool))
      return refuse("the place of a part of the pool ", pool);
  }
  const bool of_log = segment_number(name) != 0 || name == kUnnamedSegment;
  const std::string_view log = kPoolParts[0];
  if (of_log && folder.ends_with(log) &&
      is(OwnKind::pool, folder.substr(0, folder.size() - log.size())))
    return refuse("the place of a segment of a log");
  constexpr std::string_view kLog = "/log";
  if (of_log && folder.ends_with(kLog) && is_backup(folder.substr(0, folder.size() - kLog.size())))
    return refuse("the place of a part of a backup");
  for (const char* part :
       {layout::kBackupBase, layout::kBackupLog, layout::kBackupHead, layout::kBackupNewHead}) {
    if (name == part && is_backup(folder)) return refuse("the place of a part of a backup");
  }
  return {};
}

Status check_place(std::string_view path) noexcept {
  Status s = verify_place(path);
  return s.ok() ? Status() : with_path(path, s);
}

Status check_output(std::string_view path) noexcept {
  PathText given;
  struct stat info{};
  if (!given.assign(path)) return {};
  if (::stat(given.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
    const ReadOnly file(given.c_str());
    if (*file < 0) {
      return Status::format(StatusCode::io,
                            "%.*s: cannot read it, so it may be a pool: %s; choose another path, "
                            "or remove it first",
                            length(path), path.data(), std::strerror(errno));
    }
    if (const char* kind = own_kind(*file)) return with_path(path, refuse(kind));
  }
  return check_place(path);
}

}  // namespace perdure
