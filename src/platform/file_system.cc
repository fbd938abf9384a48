#include "platform/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "util/path.h"

namespace perdure {

namespace {

StatusCode code_of(int error) noexcept {
  switch (error) {
    case ENOENT:
      return StatusCode::not_found;
    case EEXIST:
    case ENOTEMPTY:
      return StatusCode::exists;
    case ENOSPC:
    case EDQUOT:
      return StatusCode::pool_full;
    default:
      return StatusCode::io;
  }
}

// The error in errno.
Status failed(const char* what, std::string_view path) noexcept {
  const int error = errno;
  return Status::format(code_of(error), "%.*s: cannot %s: %s", static_cast<int>(path.size()),
                        path.data(), what, std::strerror(error));
}

Status failed(const char* what, int file) noexcept {
  const int error = errno;
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

template <class Call>
Status on_path(const char* what, std::string_view path, Call call) noexcept {
  PathText name;
  if (!name.assign(path)) return too_long(path);
  return call(name.c_str()) == 0 ? Status() : failed(what, path);
}

}  // namespace

Expected<FileSystem::File> RealFileSystem::open(std::string_view path, Open how) noexcept {
  PathText name;
  if (!name.assign(path)) return fail(too_long(path));
  const int fresh = how == Open::fresh ? O_CREAT | O_EXCL : 0;
  const int access = how == Open::reading ? O_RDONLY : O_RDWR;
  // O_NONBLOCK: opening a FIFO must fail, not hang.
  const int file = repeated([&] {
    return ::open(name.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | fresh, 0644);
  });
  if (file < 0) return fail(failed(fresh != 0 ? "create" : "open", path));
  struct stat info{};
  if (::fstat(file, &info) == 0 && S_ISREG(info.st_mode)) return file;
  ::close(file);
  return fail(StatusCode::io, "%.*s: is not a regular file", static_cast<int>(path.size()),
              path.data());
}

void RealFileSystem::close(File file) noexcept { ::close(file); }

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

// Not repeated: after a failure a second sync can return ok for writes that were lost.
Status RealFileSystem::sync(File file) noexcept {
  return ::fdatasync(file) == 0 ? Status() : failed("sync", file);
}

Expected<std::uint64_t> RealFileSystem::size(File file) noexcept {
  struct stat info{};
  if (::fstat(file, &info) != 0) return fail(failed("ask for the size", file));
  return static_cast<std::uint64_t>(info.st_size);
}

void RealFileSystem::forget(File file) noexcept {
  (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
}

bool RealFileSystem::lock(File file, Lock how) noexcept {
  const int operation = how == Lock::none ? LOCK_UN : how == Lock::shared ? LOCK_SH : LOCK_EX;
  return repeated([&] { return ::flock(file, operation | LOCK_NB); }) == 0;
}

Expected<int> RealFileSystem::descriptor(File file) noexcept {
  const int copy = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return fail(failed("open once more", file));
  return copy;
}

Status RealFileSystem::rename(std::string_view from, std::string_view to) noexcept {
  PathText target;
  if (!target.assign(to)) return too_long(to);
  return on_path("rename", from, [&](const char* name) { return ::rename(name, target.c_str()); });
}

Status RealFileSystem::remove(std::string_view path) noexcept {
  return on_path("remove", path, ::unlink);
}

Status RealFileSystem::make_folder(std::string_view path) noexcept {
  return on_path("create", path, [](const char* name) { return ::mkdir(name, 0700); });
}

Status RealFileSystem::remove_folder(std::string_view path) noexcept {
  return on_path("remove", path, ::rmdir);
}

Status RealFileSystem::sync_folder(std::string_view path) noexcept {
  PathText name;
  if (!name.assign(path)) return too_long(path);
  const int folder =
      repeated([&] { return ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (folder < 0) return failed("open", path);
  Status done;
  if (::fsync(folder) != 0) done = failed("sync", path);
  ::close(folder);
  return done;
}

Status RealFileSystem::list(std::string_view path,
                            FunctionRef<void(std::string_view)> visit) noexcept {
  PathText name;
  if (!name.assign(path)) return too_long(path);
  DIR* const folder = ::opendir(name.c_str());
  if (folder == nullptr) return failed("list", path);
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

}  // namespace perdure
