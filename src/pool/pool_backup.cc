// Pool::backup(), back_up(), inspect_backup() and restore(). Built with exceptions: BackupInfo
// holds a std::string, which attempt() fills.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "backup/backup_reader.h"
#include "format/header.h"
#include "platform/descriptors.h"
#include "pool/left_open.h"
#include "pool/output_check.h"
#include "pool/pool_impl.h"
#include "pool/with_path.h"

namespace perdure {

namespace {

using detail::PoolImpl;

// A folder that one backup or restore uses at a time; the lock ends with the process.
class FolderLock {
 public:
  FolderLock() = default;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (folder_ < 0) return;
    (void)::flock(folder_, LOCK_UN);  // also if a child of fork has the file
    ::close(folder_);
  }

  Status take(const char* path, int how) noexcept {
    folder_ = above_streams(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (folder_ < 0) {
      return Status::format(errno == ENOENT ? StatusCode::not_found : StatusCode::io,
                            "%s: cannot open the folder: %s", path, std::strerror(errno));
    }
    if (::flock(folder_, how | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) {
      return Status::format(StatusCode::io, "%s: cannot lock the folder: %s", path,
                            std::strerror(errno));
    }
    return Status::format(StatusCode::busy, "%s: another backup or restore uses this folder", path);
  }
  int folder() const noexcept { return folder_; }

 private:
  int folder_ = -1;
};

// Where a link leads, unless another user has put it there.
Status follow_link(PathText& name) noexcept {
  struct stat info{};
  if (::lstat(name.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return {};
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return Status::format(StatusCode::untrusted,
                          "%s: is a link of user %u to another folder; name that folder",
                          name.c_str(), info.st_uid);
  }
  char resolved[PATH_MAX];
  if (::realpath(name.c_str(), resolved) != nullptr && name.assign(resolved)) return {};
  return Status::format(StatusCode::io, "%s: cannot follow the link: %s", name.c_str(),
                        std::strerror(errno));
}

// Without the slashes at its end, and without a link.
Status folder_name(std::string_view folder, PathText& name) noexcept {
  while (folder.size() > 1 && folder.ends_with('/')) folder.remove_suffix(1);
  if (!folder.empty() && name.assign(folder)) return follow_link(name);
  return Status::format(StatusCode::invalid_argument,
                        "a folder has a name of 1 to %d bytes and no NUL", PATH_MAX - 1);
}

// What is made from here on has the permissions of this file.
void resemble(FileSystem& files, std::string_view path) noexcept {
  OpenFile model(files);
  if (model.open(path, FileSystem::Open::reading).ok()) files.resemble(*model);
}

BackupEpoch to_public(const layout::BackupEpoch& epoch) noexcept {
  return {.epoch = epoch.epoch, .unix_ns = epoch.unix_ns};
}

Expected<BackupInfo> to_public(const layout::BackupHead& head) {
  BackupInfo out;
  const bool copied =
      detail::attempt([&] { out.uuid = std::string_view(detail::uuid_text(head.uuid)); });
  if (!copied) return fail(StatusCode::out_of_memory);
  out.first = to_public(head.first);
  out.last = to_public(head.last);
  out.base_bytes = head.base_bytes;
  out.log_bytes = head.log_bytes;
  out.made_unix_ns = head.made_unix_ns;
  out.ends_unix_ns = head.ends_unix_ns;
  out.closed = head.kind == layout::BackupKind::closed;
  return out;
}

bool same_file(std::string_view left, std::string_view right) noexcept {
  PathText path[2];
  struct stat info[2] = {};
  return path[0].assign(left) && path[1].assign(right) && ::stat(path[0].c_str(), &info[0]) == 0 &&
         ::stat(path[1].c_str(), &info[1]) == 0 && info[0].st_dev == info[1].st_dev &&
         info[0].st_ino == info[1].st_ino;
}

// A backup may remove what it finds in its folder: that must not be the pool, nor its log.
Status make_folder(FileSystem& files, const char* folder, const BackupSource& source) noexcept {
  if (Status s = check_output(folder); !s.ok()) return s;
  BackupFiles to(files, folder);
  if (Status s = to.name(); !s.ok()) return s;
  struct stat info{};
  const bool link = ::lstat(to.log(), &info) == 0 && S_ISLNK(info.st_mode);
  if (!link && !same_file(folder, source.log) && !same_file(to.log(), source.log) &&
      !same_file(to.base(), source.base))
    return to.make();
  return Status::format(StatusCode::invalid_argument,
                        "%s: has a part of the pool, or a link to one; choose another path",
                        folder);
}

Expected<BackupInfo> write_backup(const BackupSource& source, std::string_view folder,
                                  const BackupOptions& options) {
  RealFileSystem files;
  PathText name;
  if (Status s = folder_name(folder, name); !s.ok()) return fail(std::move(s));
  FolderLock lock;
  resemble(files, source.base);
  Status s = make_folder(files, name.c_str(), source);
  if (s.ok()) s = lock.take(name.c_str(), LOCK_EX);
  if (s.ok()) s = files.hold_open(name.c_str(), lock.folder());
  if (!s.ok()) return fail(std::move(s));
  const auto progress = [&](std::uint64_t done, std::uint64_t total) {
    if (options.progress != nullptr) options.progress(options.progress_context, done, total);
  };
  BackupWriter writer(files, source, files, name.c_str(), progress);
  if (s = writer.run(); !s.ok()) return fail(std::move(s));
  auto info = to_public(writer.head());
  if (!info) return info;
  info->extended = writer.extended();
  info->copied_bytes = writer.copied();
  return info;
}

// Whether a file that is no part of a log, or whose log is folded, can be copied as it is.
Status is_closed(FileStorage& storage, std::string_view path) {
  if (storage.lock_holder() != 0) {
    return Status::format(StatusCode::busy,
                          "another process has it open, in a durability that has no cuts to copy; "
                          "close it there first, or use `buffered`");
  }
  std::unique_ptr<std::byte[]> pages(new (std::nothrow) std::byte[layout::kDirectoryOffset]);
  if (pages == nullptr) return StatusCode::out_of_memory;
  const std::int64_t n = storage.read(pages.get(), layout::kDirectoryOffset, 0);
  if (n < 0) return Status::format(StatusCode::io, "cannot read: %s", std::strerror(errno));
  const bool whole = n == static_cast<std::int64_t>(layout::kDirectoryOffset);
  layout::Header header;
  layout::Identity identity;
  Status s = read_header(pages.get(), whole ? storage.size() : static_cast<std::uint64_t>(n),
                         header, nullptr, true, path);
  if (s.ok()) s = storage.identity(identity);
  if (!s.ok()) return s;
  if (const char* reason = distrust(header, identity)) return refuse_untrusted(reason, path);
  if (header.close_state != layout::CloseState::dirty) return {};
  return Status::format(StatusCode::invalid_argument,
                        "its last process did not close it; open and close it first (perdure "
                        "check %.*s)",
                        length(path), path.data());
}

}  // namespace

Expected<BackupInfo> PoolImpl::backup(std::string_view folder, const BackupOptions& options) {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  if (!buffered_) {
    return fail(wrap(Status::format(
        StatusCode::unsupported,
        "a pool that is open here can be backed up in durability `buffered` only; close it, and "
        "back up its file with back_up()")));
  }
  if (PathText moved; !base_.has_name(moved)) {
    return fail(wrap(Status::format(StatusCode::io,
                                    "its file was moved or replaced while it was open, and a "
                                    "backup finds it by its name; move it back, or close it")));
  }
  const std::uint64_t now = RealPlatform::unix_ns();
  if (Status s = sync(); !s.ok()) return fail(std::move(s));
  auto made = write_backup(buffered_->source(now), folder, options);
  if (platform_.poisoned()) return fail(platform_.failure());
  return made;
}

Expected<BackupInfo> back_up(std::string_view path, std::string_view folder,
                             const BackupOptions& options) {
  PathText given, log;
  char resolved[PATH_MAX];
  if (!given.assign(path)) {
    return fail(StatusCode::invalid_argument, "%.*s..: a path has less than %d bytes and no NUL",
                length(path.substr(0, 64)), path.data(), PATH_MAX);
  }
  FileStorage storage;
  Status s = storage.open(path, FileStorage::Access::observer);
  if (s.ok() && ::realpath(given.c_str(), resolved) == nullptr)
    s = Status::format(StatusCode::io, "cannot resolve its path: %s", std::strerror(errno));
  layout::BaseMark mark;
  if (s.ok()) s = read_mark(storage, mark);
  if (s.ok()) {
    const bool left = mark.state == layout::BaseState::open;
    s = left ? has_its_parts(storage, resolved) : is_closed(storage, path);
  }
  if (!s.ok()) return fail(with_path(path, s));
  if (!log.assign(resolved, "-log"))
    return fail(StatusCode::invalid_argument, "%.*s: the path is too long", length(path),
                path.data());
  BackupSource source{.base = resolved, .log = log.c_str()};
  if (auto info = Pool::inspect(path)) source.ends_unix_ns = info->durable_unix_ns;
  return write_backup(source, folder, options);
}

Expected<BackupInfo> inspect_backup(std::string_view folder) {
  RealFileSystem files;
  PathText name;
  if (Status s = folder_name(folder, name); !s.ok()) return fail(std::move(s));
  BackupFiles from(files, name.c_str());
  if (Status s = from.read(); !s.ok()) return fail(std::move(s));
  return to_public(from.head());
}

// --- restore -------------------------------------------------------------------------------------

namespace {

constexpr std::string_view kRestoring = ".restoring-";  // and 16 digits

// The file that becomes the pool, with what an open of it makes beside it. Its name is used once,
// and it is locked until it has its final name. So another restore can tell it from what an
// interrupted one has left.
class Restoring {
 public:
  Restoring(FileSystem& files, std::string_view path) noexcept : files_(files), path_(path) {}
  Restoring(const Restoring&) = delete;
  Restoring& operator=(const Restoring&) = delete;
  ~Restoring() {
    if (made_) remove(name_.c_str());
  }

  // Errors: exists (the name, or a part of another pool of that name), invalid_argument (a part of
  // a pool or of a backup has that name), and those of files.
  Status make() noexcept;
  FileSystem::File file() const noexcept { return *file_; }
  // Opens and closes it, so that it is trusted.
  Status verify() noexcept;
  Status publish() noexcept;

 private:
  Status refuse_parts() noexcept;
  bool own(std::string_view name, FileSystem::File file) noexcept;
  void remove_left() noexcept;
  void remove(std::string_view name) noexcept;
  Status open_and_close(Durability durability) noexcept;

  FileSystem& files_;
  std::string_view path_;
  PathText name_;
  OpenFile file_{files_};
  bool made_ = false;
};

Status Restoring::refuse_parts() noexcept {
  struct stat info{};
  PathText part;
  for (const char* suffix : {"", kPoolParts[0], kPoolParts[1], kPoolParts[2]}) {
    if (!part.assign(path_, suffix)) {
      return Status::format(StatusCode::invalid_argument,
                            "%.*s..: the path is too long, or has a NUL",
                            length(path_.substr(0, 64)), path_.data());
    }
    if (::lstat(part.c_str(), &info) != 0) continue;
    return *suffix == '\0'
               ? Status::format(StatusCode::exists, "%s: exists; a restore makes a new file",
                                part.c_str())
               : Status::format(StatusCode::exists,
                                "%s: is left of a pool whose file is gone; if that was renamed, it "
                                "needs this: bring it back; otherwise, if its data is not needed, "
                                "remove what is left (perdure remove %.*s), or move it away",
                                part.c_str(), length(path_), path_.data());
  }
  return check_place(path_);
}

// Whether this call has locked the file, which still has that name.
bool Restoring::own(std::string_view name, FileSystem::File file) noexcept {
  if (!files_.lock(file, FileSystem::Lock::exclusive)) return false;
  PathText path;
  struct stat here{}, there{};
  return path.assign(name) && ::fstat(file, &here) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

// What interrupted restores of this pool have left.
void Restoring::remove_left() noexcept {
  const std::string_view file = path_.substr(path_.rfind('/') + 1);
  int others = 0;  // that are in use, or cannot be removed
  for (int i = 0; i < 16; ++i) {
    PathText left;
    int skip = others;
    (void)files_.list(folder_of(path_), [&](std::string_view name) {
      const bool restoring = name.size() == file.size() + kRestoring.size() + 16 &&
                             name.starts_with(file) &&
                             name.substr(file.size()).starts_with(kRestoring) &&
                             segment_number(name.substr(name.size() - 16)) != 0;
      if (restoring && skip-- == 0) {
        const std::string_view end = name.substr(file.size());
        if (!left.assign(path_, end)) left = {};
      }
    });
    if (*left.c_str() == '\0') return;
    OpenFile old(files_);
    const bool ours =
        old.open(left.c_str(), FileSystem::Open::existing).ok() && own(left.c_str(), *old);
    if (ours) remove(left.c_str());
    struct stat info{};
    others += ::lstat(left.c_str(), &info) == 0 ? 1 : 0;
  }
}

Status Restoring::make() noexcept {
  if (Status s = refuse_parts(); !s.ok()) return s;
  remove_left();
  for (int attempt = 0; attempt < 8; ++attempt) {
    const SegmentName digits = segment_name(RealPlatform::random() % (kMostNumber - 1) + 1);
    PathText base, longest;
    if (!base.assign(path_, kRestoring) || !name_.assign(base.c_str(), digits) ||
        !longest.assign(name_.c_str(), kPoolParts[2])) {
      return Status::format(StatusCode::invalid_argument, "%.*s: the path is too long",
                            length(path_), path_.data());
    }
    Status s = file_.open(name_.c_str(), FileSystem::Open::fresh);
    if (!s.ok() && s != StatusCode::exists) return s;
    made_ = s.ok() && own(name_.c_str(), *file_);  // another restore may have taken it for left
    if (made_) return {};
  }
  return Status::format(StatusCode::busy, "%.*s: other restores make this pool", length(path_),
                        path_.data());
}

void Restoring::remove(std::string_view name) noexcept {
  (void)files_.remove(name);
  PathText log, part;
  if (!log.assign(name, kPoolParts[0])) return;
  Array<std::uint64_t> numbers;
  (void)list_segments(files_, log.c_str(), numbers);
  for (const std::uint64_t number : numbers)
    (void)remove_in(files_, log.c_str(), segment_name(number));
  (void)remove_in(files_, log.c_str(), kUnnamedSegment);
  (void)files_.remove_folder(log.c_str());
  for (const char* suffix : {kPoolParts[1], kPoolParts[2]}) {
    if (part.assign(name, suffix)) (void)files_.remove(part.c_str());
  }
}

Status Restoring::open_and_close(Durability durability) noexcept {
  const PoolOptions options{.mode = OpenMode::existing,
                            .accept_untrusted = true,
                            .durability = durability,
                            .background_threads = 0};
  auto pool = Pool::open(name_.c_str(), options);
  if (!pool) return std::move(pool.error());
  Status s;
  // An untrusted pool was checked by the open.
  if (PoolImpl::of(*pool).opened_trusted()) {
    s = PoolImpl::of(*pool).verify_content();
    if (!s.ok()) s = with_path(name_.c_str(), s);
  }
  Status closed = pool->close();
  return s.ok() ? std::move(closed) : std::move(s);
}

// In its own durability, unless this medium cannot give that.
Status Restoring::verify() noexcept {
  Status s = open_and_close(Durability::automatic);
  return s == StatusCode::unsupported ? open_and_close(Durability::process) : std::move(s);
}

Status Restoring::publish() noexcept {
  PathText to;
  if (!to.assign(path_)) return StatusCode::invalid_argument;
  constexpr unsigned kNoReplace = 1;
  long renamed =
      ::syscall(SYS_renameat2, AT_FDCWD, name_.c_str(), AT_FDCWD, to.c_str(), kNoReplace);
  if (renamed != 0 && (errno == EINVAL || errno == ENOSYS)) {  // the file system does not have it
    if (Status s = refuse_parts(); !s.ok()) return s;
    renamed = ::rename(name_.c_str(), to.c_str());
  }
  if (renamed != 0) {
    return Status::format(errno == EEXIST ? StatusCode::exists : StatusCode::io,
                          "%s: cannot name the restored pool: %s", to.c_str(),
                          std::strerror(errno));
  }
  made_ = false;
  return files_.sync_folder(folder_of(path_), kNoSite);
}

Expected<layout::BackupEpoch> choose(const BackupReader& backup,
                                     const RestoreOptions& options) noexcept {
  if (options.epoch && options.unix_ns) {
    return fail(StatusCode::invalid_argument, "name an epoch or a time, not both");
  }
  if (options.epoch) return backup.at_epoch(*options.epoch);
  if (options.unix_ns) return backup.at_time(*options.unix_ns);
  return backup.last();
}

}  // namespace

Expected<BackupEpoch> restore(std::string_view folder, std::string_view path,
                              const RestoreOptions& options) {
  RealFileSystem files;
  PathText name;
  FolderLock lock;
  if (Status s = folder_name(folder, name); !s.ok()) return fail(std::move(s));
  if (Status s = lock.take(name.c_str(), LOCK_SH); !s.ok()) return fail(std::move(s));
  BackupReader backup(files, name.c_str());
  Status s = backup.read();
  if (s.ok()) s = backup.scan();
  if (!s.ok()) return fail(std::move(s));
  auto epoch = choose(backup, options);
  if (!epoch) return fail(std::move(epoch.error()));
  const auto progress = [&](std::uint64_t done, std::uint64_t total) {
    if (options.progress != nullptr) options.progress(options.progress_context, done, total);
  };
  PathText base;
  if (path_in(name.c_str(), layout::kBackupBase, base).ok()) resemble(files, base.c_str());
  Restoring pool(files, path);
  s = pool.make();
  if (s.ok()) s = backup.write_to(pool.file(), *epoch, progress);
  if (s.ok()) s = pool.verify();
  if (s.ok()) s = pool.publish();
  if (!s.ok()) return fail(std::move(s));
  return to_public(*epoch);
}

}  // namespace perdure
