#include "platform/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <utility>

#include "platform/descriptors.h"
#include "platform/nap.h"
#include "platform/no_space.h"
#include "platform/real_platform.h"

namespace perdure {

namespace {

StatusCode code_of(int error) noexcept {
  if (is_no_space(error)) return StatusCode::pool_full;
  if (error == ENOENT) return StatusCode::not_found;
  return error == EEXIST || error == ENOTEMPTY ? StatusCode::exists : StatusCode::io;
}

// The error in errno.
Status failed(const char* what, std::string_view path) noexcept {
  const int error = errno;
  return Status::format(code_of(error), "%.*s: cannot %s: %s", static_cast<int>(path.size()),
                        path.data(), what, std::strerror(error));
}

Status failed(const char* what, int file, int error = errno) noexcept {
  char link[32];
  char text[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t n = ::readlink(link, text, sizeof(text));
  errno = error;
  return failed(what, n > 0 ? std::string_view(text, static_cast<std::size_t>(n)) : "a file");
}

Status too_long(std::string_view path) noexcept {
  return Status::format(StatusCode::invalid_argument,
                        "%.*s: a path has less than %d bytes and no NUL",
                        static_cast<int>(path.size()), path.data(), PATH_MAX);
}

// Calls call() again while a signal interrupts it.
template <class Call>
auto repeated(Call call) noexcept {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

constexpr std::uint32_t kOthersWrite = S_IWGRP | S_IWOTH;

bool same_file(const struct stat& a, const struct stat& b) noexcept {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}
bool same_file(int a, int b) noexcept {
  struct stat first{}, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && same_file(first, second);
}

RealFileSystem::Place nowhere() noexcept { return {.folder = AT_FDCWD, .name = "", .path = {}}; }

}  // namespace

// --- names ---------------------------------------------------------------------------------------

RealFileSystem::~RealFileSystem() { let_go(); }

void RealFileSystem::let_go() noexcept {
  for (Held& held : held_) {
    if (held.folder >= 0 && held.alone) (void)::flock(held.folder, LOCK_UN);
  }
  abandon();
}

void RealFileSystem::abandon() noexcept {
  for (Held& held : held_) {
    if (held.folder >= 0) ::close(std::exchange(held.folder, -1));
  }
}

const RealFileSystem::Held* RealFileSystem::held(std::string_view path) const noexcept {
  const auto* found = std::ranges::find_if(
      held_, [&](const Held& held) { return held.folder >= 0 && path == held.path.c_str(); });
  return found != held_.end() ? found : nullptr;
}

Status RealFileSystem::find(std::string_view path, Place& place) const noexcept {
  if (!place.path.assign(path)) return too_long(path);
  const std::size_t slash = path.rfind('/');
  const Held* const folder = slash == std::string_view::npos ? nullptr : held(folder_of(path));
  place.folder = folder != nullptr ? folder->folder : AT_FDCWD;
  place.name = place.path.c_str() + (folder != nullptr ? slash + 1 : 0);
  return {};
}

template <class Call>
Status RealFileSystem::on_name(const char* what, std::string_view path, Call call) const noexcept {
  Place at = nowhere();
  if (Status s = find(path, at); !s.ok()) return s;
  return call(at.folder, at.name) == 0 ? Status() : failed(what, path);
}

// A new open file of the folder: it can be listed, and locked.
Expected<int> RealFileSystem::open_folder(std::string_view path) const noexcept {
  const Held* const here = held(path);
  Place at{.folder = here != nullptr ? here->folder : AT_FDCWD, .name = ".", .path = {}};
  if (here == nullptr) {
    if (Status s = find(path, at); !s.ok()) return fail(std::move(s));
  }
  const int folder = above_streams(
      repeated([&] { return ::openat(at.folder, at.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (folder < 0) return fail(failed("open", path));
  return folder;
}

// That of the same path, or a free one; null: there is none.
RealFileSystem::Held* RealFileSystem::room_for(std::string_view path) noexcept {
  if (const Held* const here = held(path); here != nullptr) return const_cast<Held*>(here);
  auto* const free = std::ranges::find_if(held_, [](const Held& held) { return held.folder < 0; });
  return free != held_.end() ? free : nullptr;
}

// Takes the open folder, also after an error.
Status RealFileSystem::keep(Held& place, std::string_view path, int folder, bool alone) noexcept {
  place.alone = alone;
  (void)place.path.assign(path);
  if (place.folder < 0) {
    place.folder = folder;
    return {};
  }
  const bool moved = ::dup3(folder, place.folder, O_CLOEXEC) >= 0;  // others may use the number
  Status s = moved ? Status() : failed("hold", path);
  ::close(folder);
  return s;
}

Status RealFileSystem::hold_open(std::string_view path, int folder) noexcept {
  Held* const place = room_for(path);
  if (place == nullptr) return StatusCode::out_of_memory;
  const int own = above_streams(::fcntl(folder, F_DUPFD_CLOEXEC, 0));
  return own < 0 ? failed("hold", path) : keep(*place, path, own, false);
}

Status RealFileSystem::hold(std::string_view path, bool alone) noexcept {
  constexpr int kTries = 2000;  // naps: the kernel ends the locks of a killed process one by one
  Held* const place = room_for(path);
  if (place == nullptr) return StatusCode::out_of_memory;
  Place at = nowhere();
  if (Status s = find(path, at); !s.ok()) return s;
  const int links = alone ? O_NOFOLLOW : 0;
  const int folder = above_streams(repeated(
      [&] { return ::openat(at.folder, at.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | links); }));
  if (folder < 0) return failed("open", path);
  if (place->folder >= 0 && same_file(place->folder, folder)) {
    ::close(folder);
    return {};
  }
  Status s = alone ? verify(path, folder) : Status();
  for (int i = 0; s.ok() && alone && !lock(folder, Lock::exclusive); ++i) {
    if (i == kTries) {
      s = Status::format(StatusCode::busy,
                         "%.*s: another pool that is open uses this folder; close it first",
                         static_cast<int>(path.size()), path.data());
    }
    nap();
  }
  if (!s.ok()) {
    ::close(folder);
    return s;
  }
  return keep(*place, path, folder, alone);
}

void RealFileSystem::resemble(File file) noexcept {
  struct stat info{};
  if (::fstat(file, &info) != 0) return;
  model_ = {.user = info.st_uid, .group = info.st_gid, .mode = info.st_mode & 0777U};
}

// Best effort: a file that is less open than the model serves this process.
void RealFileSystem::apply_model(int file, bool folder) const noexcept {
  if (!model_) return;
  struct stat info{};
  if (::fstat(file, &info) != 0) return;
  if (info.st_uid != model_->user) (void)::fchown(file, model_->user, ~gid_t{0});
  const bool grouped =
      info.st_gid == model_->group || ::fchown(file, ~uid_t{0}, model_->group) == 0;
  std::uint32_t mode = model_->mode & (grouped ? 0777U : 0700U);
  if (folder) mode |= 0700U | (mode & 0444U) >> 2;
  (void)::fchmod(file, mode);
}

Status RealFileSystem::verify(std::string_view path, int file) const noexcept {
  if (!model_) return {};
  struct stat info{};
  if (::fstat(file, &info) != 0) return failed("ask for the owner", path);
  const bool own = info.st_uid == ::geteuid() || info.st_uid == 0 || info.st_uid == model_->user ||
                   ((model_->mode & S_IWGRP) != 0 && info.st_gid == model_->group);
  const std::uint32_t more = info.st_mode & kOthersWrite & ~model_->mode;
  if (own && more == 0) return {};
  return Status::format(StatusCode::untrusted,
                        "%.*s: is of user %u and has mode %o, so another user could have put it "
                        "there; move it away, or give it the owner and the mode of the pool",
                        static_cast<int>(path.size()), path.data(), info.st_uid,
                        info.st_mode & 07777U);
}

Status RealFileSystem::rename(std::string_view from, std::string_view to) noexcept {
  Place target = nowhere();
  if (Status s = find(to, target); !s.ok()) return s;
  return on_name("rename", from, [&](int folder, const char* name) {
    return ::renameat(folder, name, target.folder, target.name);
  });
}

Status RealFileSystem::remove(std::string_view path) noexcept {
  return on_name("remove", path,
                 [](int folder, const char* name) { return ::unlinkat(folder, name, 0); });
}

Status RealFileSystem::make_folder(std::string_view path) noexcept {
  Status made = on_name("create", path,
                        [](int folder, const char* name) { return ::mkdirat(folder, name, 0700); });
  if (!made.ok() || !model_) return made;
  auto folder = open_folder(path);
  if (!folder) return std::move(folder.error());
  apply_model(*folder, true);
  ::close(*folder);
  return {};
}

// A folder that is held is removed if its name still leads to it.
Status RealFileSystem::remove_folder(std::string_view path) noexcept {
  const Held* const here = held(path);
  return on_name("remove", path, [&](int folder, const char* name) {
    struct stat own{}, named{};
    const bool other = here != nullptr && ::fstat(here->folder, &own) == 0 &&
                       ::fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
                       !same_file(own, named);
    return other ? 0 : ::unlinkat(folder, name, AT_REMOVEDIR);
  });
}

Status RealFileSystem::sync_folder(std::string_view path, AnySite /*site*/) noexcept {
  auto folder = open_folder(path);
  if (!folder) return std::move(folder.error());
  Status done;
  if (::fsync(*folder) != 0) done = failed("sync", path);
  ::close(*folder);
  return done;
}

Status RealFileSystem::list(std::string_view path,
                            FunctionRef<void(std::string_view)> visit) noexcept {
  auto opened = open_folder(path);
  if (!opened) return std::move(opened.error());
  DIR* const folder = ::fdopendir(*opened);
  if (folder == nullptr) {
    Status s = failed("list", path);
    ::close(*opened);
    return s;
  }
  Status done;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(folder);
    if (entry == nullptr) {
      if (errno != 0) done = failed("list", path);
      break;
    }
    const std::string_view text(entry->d_name);
    if (text != "." && text != "..") visit(text);
  }
  ::closedir(folder);
  return done;
}

// --- files ---------------------------------------------------------------------------------------

Expected<FileSystem::File> RealFileSystem::open(std::string_view path, Open how) noexcept {
  Place at = nowhere();
  if (Status s = find(path, at); !s.ok()) return fail(std::move(s));
  const int fresh = how == Open::fresh ? O_CREAT | O_EXCL : 0;
  const int access = how == Open::reading ? O_RDONLY : O_RDWR;
  // O_NONBLOCK: opening a FIFO must fail, not hang.
  const int file = above_streams(repeated([&] {
    return ::openat(at.folder, at.name, access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | fresh, 0600);
  }));
  if (file < 0) return fail(failed(fresh != 0 ? "create" : "open", path));
  struct stat info{};
  const bool regular = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  Status s = regular ? Status()
                     : Status::format(StatusCode::io, "%.*s: is not a regular file",
                                      static_cast<int>(path.size()), path.data());
  if (fresh != 0) {
    apply_model(file, false);
  } else if (s.ok()) {
    s = verify(path, file);
  }
  if (s.ok()) return file;
  ::close(file);
  return fail(std::move(s));
}

void RealFileSystem::close(File file) noexcept { ::close(file); }

Expected<FileSystem::File> RealFileSystem::borrow(std::string_view path, int descriptor) noexcept {
  struct stat own{}, named{};
  Status s = on_name("look at", path, [&](int folder, const char* name) {
    return ::fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW);
  });
  if (!s.ok()) return fail(std::move(s));
  if (::fstat(descriptor, &own) == 0 && same_file(own, named)) return descriptor;
  return fail(StatusCode::busy, "another file took its name meanwhile; try again");
}

// Another file is not opened: its close would end the locks that this process has in it.
Expected<FileSystem::File> RealFileSystem::reopen(File file, std::string_view path) noexcept {
  auto found = borrow(path, file);
  if (!found) return found;
  auto again = open(path, Open::existing);
  if (!again) return again;
  if (same_file(file, *again)) return again;
  close(*again);
  return fail(StatusCode::busy);
}

Expected<std::size_t> RealFileSystem::read(File file, void* buffer, std::size_t n,
                                           std::uint64_t offset) noexcept {
  std::size_t done = 0;
  while (done < n) {
    const ssize_t got = repeated([&] {
      return ::pread(file, static_cast<char*>(buffer) + done, n - done,
                     static_cast<off_t>(offset + done));
    });
    if (got < 0) return fail(failed("read", file));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Status RealFileSystem::write(File file, const void* bytes, std::size_t n,
                             std::uint64_t offset) noexcept {
  if (beyond_limit(offset + n)) return failed("write", file, EFBIG);
  for (std::size_t done = 0; done < n;) {
    const ssize_t put = repeated([&] {
      return ::pwrite(file, static_cast<const char*>(bytes) + done, n - done,
                      static_cast<off_t>(offset + done));
    });
    if (put < 0) return failed("write", file);
    done += static_cast<std::size_t>(put);
  }
  return {};
}

Status RealFileSystem::allocate(File file, std::uint64_t offset, std::uint64_t length) noexcept {
  if (beyond_limit(offset + length)) return failed("reserve space", file, EFBIG);
  const auto call = [&] {
    return ::fallocate(file, 0, static_cast<off_t>(offset), static_cast<off_t>(length));
  };
  if (repeated(call) == 0) return {};
  if (errno != EOPNOTSUPP) return failed("reserve space", file);
  // The C library reads and writes a byte of each block. Within the file another thread may write.
  auto end = size(file);
  if (!end) return std::move(end.error());
  if (offset + length <= *end) return {};
  const std::uint64_t begin = std::max(offset, *end);
  const auto replacement = [&] {
    errno = ::posix_fallocate(file, static_cast<off_t>(begin),
                              static_cast<off_t>(offset + length - begin));
    return errno == 0 ? 0 : -1;
  };
  return repeated(replacement) == 0 ? Status() : failed("reserve space", file);
}

Status RealFileSystem::punch(File file, std::uint64_t offset, std::uint64_t length) noexcept {
  const auto call = [&] {
    return ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(length));
  };
  if (repeated(call) == 0) return {};
  if (errno != EOPNOTSUPP) return failed("give space back", file);
  return Status::format(StatusCode::unsupported, "the file system cannot punch holes");
}

void RealFileSystem::violated([[maybe_unused]] const Assertion& assertion) noexcept {
  if constexpr (RealPlatform::kAsserts) RealPlatform::violated(assertion);
}

// Not repeated: after a failure a second sync can return ok for writes that were lost.
Status RealFileSystem::sync(File file, AnySite /*site*/) noexcept {
  return ::fdatasync(file) == 0 ? Status() : failed("sync", file);
}

Expected<std::uint64_t> RealFileSystem::size(File file) noexcept {
  struct stat info{};
  if (::fstat(file, &info) != 0) return fail(failed("ask for the size", file));
  return static_cast<std::uint64_t>(info.st_size);
}

// Does not ask for the times of the file. Since Linux 6.13, the next write after that makes them
// finer, and the sync of that write has to write them, too.
Expected<FileSystem::Facts> RealFileSystem::facts(File file) noexcept {
  struct statx facts{};
  if (::statx(file, "", AT_EMPTY_PATH, STATX_INO | STATX_NLINK, &facts) == 0) {
    return Facts{.device = makedev(facts.stx_dev_major, facts.stx_dev_minor),
                 .inode = facts.stx_ino,
                 .names = facts.stx_nlink};
  }
  struct stat info{};
  if (::fstat(file, &info) != 0) return fail(failed("ask for its place", file));
  return Facts{.device = info.st_dev, .inode = info.st_ino, .names = info.st_nlink};
}

void RealFileSystem::forget(File file) noexcept {
  (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
}

bool RealFileSystem::lock(File file, Lock how) noexcept {
  const int operation = how == Lock::none ? LOCK_UN : how == Lock::shared ? LOCK_SH : LOCK_EX;
  return repeated([&] { return ::flock(file, operation | LOCK_NB); }) == 0;
}

}  // namespace perdure
