#include "platform/file_storage.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "platform/descriptors.h"
#include "platform/medium.h"
#include "platform/memory_limit.h"
#include "platform/memory_nodes.h"
#include "platform/no_space.h"
#include "util/arena.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace perdure {

namespace {

Status system_error(StatusCode code, const char* what) noexcept {
  return Status::format(code, "%s: %s", what, std::strerror(errno));
}

Status cannot_create() noexcept {
  if (is_no_space(errno)) return system_error(StatusCode::pool_full, "cannot create");
  return Status::format(StatusCode::io, "cannot create: %s; choose another directory, or change it",
                        std::strerror(errno));
}

bool folder_of(std::string_view path, PathText& out) noexcept {
  const std::size_t slash = path.rfind('/');
  return out.assign(slash == std::string_view::npos ? "." : path.substr(0, slash + 1));
}

// Leaves errno as it is.
bool has_folder(std::string_view path) noexcept {
  const int error = errno;
  PathText folder;
  struct stat info{};
  const bool is = folder_of(path, folder) && ::stat(folder.c_str(), &info) == 0;
  errno = error;
  return is;
}

Status bad_path() noexcept {
  return Status::format(StatusCode::invalid_argument, "a path has less than %d bytes and no NUL",
                        PATH_MAX);
}

Status is_a_directory() noexcept {
  return Status::format(StatusCode::invalid_argument, "is a directory; name a file in it");
}

constexpr std::uint64_t kHugeFrom = std::uint64_t{32} << 20;  // smaller files keep 4 KiB pages
// Huge pages per call. Each call first makes all cores hand over pages that they hold back, and
// waits for that: up to 25 ms where other threads of the machine are busy.
constexpr std::uint64_t kHugeBatch = 4;

}  // namespace

bool read_boot_id(std::uint8_t (&id)[16]) noexcept {
  std::memset(id, 0, sizeof(id));
  char text[64] = {};
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == EACCES;
  const auto n = ::read(fd, text, sizeof(text) - 1);
  ::close(fd);
  if (n < 0) return false;
  int digits = 0;
  for (ssize_t i = 0; i < n && digits < 32; ++i) {
    const char c = text[i];
    int value = -1;
    if (c >= '0' && c <= '9') value = c - '0';
    if (c >= 'a' && c <= 'f') value = c - 'a' + 10;
    if (value < 0) continue;
    id[digits / 2] = static_cast<std::uint8_t>(id[digits / 2] << 4 | value);
    ++digits;
  }
  if (digits != 32) std::memset(id, 0, sizeof(id));
  return true;
}

FileStorage::~FileStorage() { close(); }

void FileStorage::unmap() noexcept {
  if (base_ == nullptr) return;
  ignore_bus_errors(base_);
  munmap(base_, capacity_);
  base_ = nullptr;
}

void FileStorage::take(FileStorage& other) noexcept {
  path_ = other.path_;
  folder_ = other.folder_;
  fd_ = std::exchange(other.fd_, -1);
  access_ = other.access_;
  medium_ = other.medium_;
  size_.store(other.size(), std::memory_order_relaxed);
}

void FileStorage::close() noexcept {
  unmap();
  // A child of fork that has the descriptor, too, must not keep the lock.
  if (access_ != Access::observer) unlock();
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  in_memory_ = false;
}

void FileStorage::abandon() noexcept {
  base_ = nullptr;
  access_ = Access::observer;  // the lock is the parent's
}

void FileStorage::refresh_size() noexcept {
  struct stat info{};
  if (fstat(fd_, &info) == 0) size_ = static_cast<std::uint64_t>(info.st_size);
}

Status FileStorage::open(std::string_view path, Access access) noexcept {
  if (!path_.assign(path)) return bad_path();
  // O_NONBLOCK: opening a FIFO must fail, not hang.
  const int flags = (access == Access::owner ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK |
                    (folder_ >= 0 ? O_NOFOLLOW : 0);
  const int fd = above_streams(::openat(folder(), path_.c_str(), flags));
  if (fd < 0) {
    if (errno == ENOENT) return Status::format(StatusCode::not_found, "no such file");
    if (errno == EISDIR) return is_a_directory();
    if (errno == EACCES || errno == EROFS) {
      const bool writes = access == Access::owner;
      return Status::format(StatusCode::io,
                            "no permission to open it for %s (%s); change its mode%s",
                            writes ? "writing" : "reading", std::strerror(errno),
                            writes ? ", or open it read-only" : "");
    }
    return system_error(StatusCode::io, "cannot open");
  }
  return adopt(fd, access);
}

Status FileStorage::create(std::string_view path, unsigned permissions) noexcept {
  if (!path_.assign(path) || !new_path_.assign(path, ".creating")) return bad_path();
  struct stat info{};
  if (::fstatat(folder(), path_.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    return ::fstatat(folder(), path_.c_str(), &info, 0) != 0
               ? Status::format(StatusCode::not_found, "is a symbolic link that leads nowhere")
               : Status::format(StatusCode::exists, "the file exists");
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    const int fd = above_streams(::openat(folder(), new_path_.c_str(), flags, permissions));
    if (fd >= 0) return adopt(fd, Access::owner);
    // ENOENT is also what /proc and others return that take no new files.
    if (errno == ENOENT && !has_folder(path_.c_str())) {
      return Status::format(StatusCode::not_found,
                            "cannot create: no such directory; make it first");
    }
    if (errno != EEXIST) return cannot_create();
    // Another process creates this pool, or was killed while it did: the lock tells which.
    const int other = above_streams(
        ::openat(folder(), new_path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    if (other < 0) continue;
    fd_ = other;
    const bool stale = lock().ok();
    if (stale) remove_own(new_path_.c_str());
    ::close(fd_);
    fd_ = -1;
    if (!stale) {
      return Status::format(StatusCode::busy, "another process is creating it; try again");
    }
  }
  return cannot_create();
}

Status FileStorage::publish() noexcept {
  // link() fails where rename() would replace a file that was made meanwhile.
  struct stat own{};
  struct stat named{};
  const bool known = fstat(fd_, &own) == 0;
  const bool there = ::fstatat(folder(), new_path_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0;
  // Another process that makes it may have found the file before this one had its lock.
  const bool lost =
      there ? own.st_ino != named.st_ino || own.st_dev != named.st_dev : errno == ENOENT;
  if (known && lost) {
    return Status::format(StatusCode::busy, "another process is creating it; try again");
  }
  if (::linkat(folder(), new_path_.c_str(), folder(), path_.c_str(), 0) != 0) {
    return errno == EEXIST ? Status::format(StatusCode::exists, "the file exists")
                           : system_error(StatusCode::io, "cannot name the new pool");
  }
  remove_own(new_path_.c_str());
  Status s = sync_name();
  if (!s.ok()) remove_own(path_.c_str());
  return s;
}

// The name must survive whenever the content does. File systems that sync no folders, and folders
// that may not be read, hold only pools that promise less than `power`.
Status FileStorage::sync_name() const noexcept {
  const bool promised = medium_.msync_is_ordered || medium_.medium == Medium::cache_line ||
                        medium_.medium == Medium::eadr;
  PathText path;
  (void)folder_of(path_.c_str(), path);
  const int fd = ::openat(folder(), path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == EACCES && !promised) return {};
    return system_error(StatusCode::io,
                        "cannot open its directory, which has to be readable to be synced");
  }
  const bool synced = fsync(fd) == 0 || (errno == EINVAL && !promised);
  const int error = errno;
  ::close(fd);
  errno = error;
  return synced ? Status() : system_error(StatusCode::io, "cannot sync its directory");
}

int FileStorage::folder() const noexcept { return folder_ >= 0 ? folder_ : AT_FDCWD; }

bool FileStorage::is_named(const char* path) const noexcept {
  struct stat own{};
  struct stat other{};
  return fstat(fd_, &own) == 0 && ::fstatat(folder(), path, &other, AT_SYMLINK_NOFOLLOW) == 0 &&
         own.st_ino == other.st_ino && own.st_dev == other.st_dev;
}

void FileStorage::remove_own(const char* path) const noexcept {
  if (is_named(path)) ::unlinkat(folder(), path, 0);
}
void FileStorage::discard_new() noexcept { remove_own(new_path_.c_str()); }

bool FileStorage::has_name(PathText& now) const noexcept {
  struct stat own{};
  struct stat other{};
  if (fstat(fd_, &own) != 0) return true;  // cannot tell
  if (::fstatat(folder(), path_.c_str(), &other, 0) == 0 && own.st_ino == other.st_ino &&
      own.st_dev == other.st_dev) {
    return true;
  }
  char link[32];
  char text[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd_);
  const ssize_t n = ::readlink(link, text, sizeof(text));
  if (n > 0) (void)now.assign(std::string_view(text, static_cast<std::size_t>(n)));
  return false;
}

void FileStorage::remove_second_name() noexcept {
  PathText second;
  if (second.assign(path_.c_str(), ".creating")) remove_own(second.c_str());
}
void FileStorage::remove_name() noexcept { remove_own(path_.c_str()); }

Status FileStorage::adopt(int fd, Access access) noexcept {
  fd_ = fd;
  access_ = access;
  struct stat info{};
  if (fstat(fd, &info) != 0) return system_error(StatusCode::io, "cannot stat");
  if (S_ISDIR(info.st_mode)) return is_a_directory();
  if (!S_ISREG(info.st_mode)) {
    return Status::format(StatusCode::invalid_argument,
                          S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)
                              ? "is a device; name a regular file (of a devdax device: a file on a "
                                "file system with -o dax on it)"
                              : "is not a regular file; name one");
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
  if (access != Access::observer) {
    if (Status s = lock(); !s.ok()) return s;
  }
  detect_medium();
  return {};
}

// An open-file-description lock: it also excludes another open in this process, and ends with the
// last descriptor of this open.
Status FileStorage::lock() noexcept {
  struct flock request{};
  request.l_type = access_ == Access::owner ? F_WRLCK : F_RDLCK;
  request.l_whence = SEEK_SET;
  if (fcntl(fd_, F_OFD_SETLK, &request) == 0) return {};
  if (errno == EAGAIN || errno == EACCES) return StatusCode::busy;
  // Where the file system has no locks, no process can become the owner.
  return access_ == Access::owner ? system_error(StatusCode::io, "cannot lock") : Status();
}

void FileStorage::unlock() noexcept {
  struct flock request{};
  request.l_type = F_UNLCK;
  request.l_whence = SEEK_SET;
  if (fd_ >= 0) (void)fcntl(fd_, F_OFD_SETLK, &request);
}

// Pid of a holder that refuses this lock, or -1; 0 if there is none.
std::int64_t FileStorage::in_the_way(short lock) const noexcept {
  struct flock request{};
  request.l_type = lock;
  request.l_whence = SEEK_SET;
  if (fcntl(fd_, F_OFD_GETLK, &request) != 0 || request.l_type == F_UNLCK) return 0;
  return request.l_pid > 0 ? request.l_pid : -1;
}

std::int64_t FileStorage::lock_holder() const noexcept { return in_the_way(F_RDLCK); }
// One call: in between an owner could go.
bool FileStorage::has_readers() const noexcept {
  struct flock request{};
  request.l_type = F_WRLCK;
  request.l_whence = SEEK_SET;
  return fcntl(fd_, F_OFD_GETLK, &request) == 0 && request.l_type == F_RDLCK;
}

bool FileStorage::backs(std::uint64_t bytes) const noexcept {
  struct stat info{};
  return fstat(fd_, &info) == 0 && static_cast<std::uint64_t>(info.st_size) >= bytes;
}

std::int64_t FileStorage::read(void* buffer, std::size_t n, std::uint64_t offset) const noexcept {
  return pread(fd_, buffer, n, static_cast<off_t>(offset));
}

// The kernel tells each open file once. It tells a call that waits for a part of the file about the
// whole file, and behind its end there is nothing to wait for. A file of an overlay is told by the
// sync of a mapping only: that is of the file below.
int FileStorage::ask_for_errors() const noexcept {
  constexpr off64_t kBehind = off64_t{1} << 42;
  if (std::strcmp(medium_.filesystem, "overlayfs") != 0)
    return ::sync_file_range(fd_, kBehind, 1, SYNC_FILE_RANGE_WAIT_BEFORE);
  void* const page = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd_, kBehind);
  if (page == MAP_FAILED) return 0;
  const int done = msync(page, kPage, MS_SYNC);
  const int error = errno;
  munmap(page, kPage);
  errno = error;
  return done;
}

bool FileStorage::lost_writes() noexcept {
  if (!lost_ && ask_for_errors() != 0) {
    lost_ = errno == EIO || errno == ENOSPC || errno == EDQUOT;
  }
  return lost_;
}

Status FileStorage::reserve(std::uint64_t offset, std::uint64_t n) noexcept {
  if (medium_.medium == Medium::volatile_ram) {  // a write has its space at once
    std::uint64_t limit = 0;
    return leaves_room(n, limit) ? Status() : beyond_memory(limit);
  }
  const auto call = [&] {
    return fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(n));
  };
  int done = call();
  while (done != 0 && errno == EINTR) done = call();
  if (done == 0 || errno == EOPNOTSUPP) return {};
  return is_no_space(errno) ? full("no space left")
                            : system_error(StatusCode::io, "cannot reserve space");
}

void FileStorage::report_lost_pages_of(const void* begin, std::uint64_t bytes) noexcept {
  if (lost_pages_ != nullptr) (void)watch_bus_errors(begin, bytes, *lost_pages_);
}

Status FileStorage::map(std::uint64_t capacity) noexcept { return map_file(fd_, capacity); }

Status FileStorage::map_memory(std::uint64_t capacity) noexcept {
  in_memory_ = true;
  set_size(0);
  return map_file(-1, capacity);
}

// `fd`: -1 for memory.
Status FileStorage::map_file(int fd, std::uint64_t capacity) noexcept {
  // A huge page is possible only where file offset and address agree modulo its size.
  const std::uint64_t padded = capacity + kHugePage;
  void* reserved =
      mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return Status::format(StatusCode::out_of_memory,
                          "cannot reserve %lu bytes of address space; raise RLIMIT_AS", padded);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(reserved);
  const auto aligned = (begin + kHugePage - 1) & ~(kHugePage - 1);
  if (aligned > begin) munmap(reserved, aligned - begin);
  if (begin + padded > aligned + capacity) {
    munmap(reinterpret_cast<void*>(aligned + capacity), begin + padded - aligned - capacity);
  }
  const int sharing = access_ == Access::owner
                          ? MAP_SHARED
                          : MAP_PRIVATE | MAP_NORESERVE | (in_memory_ ? MAP_ANONYMOUS : 0);
  void* mapped = MAP_FAILED;
  if (access_ == Access::owner && medium_.medium >= Medium::cache_line &&
      medium_.medium != Medium::network) {
    mapped = mmap(reinterpret_cast<void*>(aligned), capacity, PROT_READ | PROT_WRITE,
                  MAP_SHARED_VALIDATE | MAP_SYNC | MAP_FIXED, fd, 0);
  }
  if (mapped == MAP_FAILED) {
    mapped = mmap(reinterpret_cast<void*>(aligned), capacity, PROT_READ | PROT_WRITE,
                  sharing | MAP_FIXED, fd, 0);
  }
  if (mapped == MAP_FAILED) {
    munmap(reinterpret_cast<void*>(aligned), capacity);
    return system_error(StatusCode::io, "cannot map");
  }
  base_ = static_cast<std::byte*>(mapped);
  capacity_ = capacity;
  // A child of fork must not write to its parent's pool: without the mapping it cannot.
  madvise(base_, capacity_, MADV_DONTFORK);
  report_lost_pages_of(base_, capacity_);
  if (interleaves_) {
    place_pages();
  } else if (medium_.medium == Medium::volatile_ram && interleaved(base_)) {
    nodes_ = memory_nodes();  // by an earlier open, or by the mount
  }
  return {};
}

Status FileStorage::lengthen(std::uint64_t bytes) noexcept {
  if (bytes <= size()) return {};
  if (beyond_limit(bytes)) return beyond_the_limit();
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return full("cannot extend");
  size_.store(bytes, std::memory_order_release);
  return {};
}

Status FileStorage::write(const void* bytes, std::size_t n, std::uint64_t offset) noexcept {
  if (beyond_limit(offset + n)) return beyond_the_limit();
  if (!backs(size())) return shortened();
  for (std::size_t done = 0; done < n;) {
    const ssize_t put = pwrite(fd_, static_cast<const char*>(bytes) + done, n - done,
                               static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0)
      return is_no_space(errno) ? full("no space left")
                                : system_error(StatusCode::io, "cannot write");
    done += static_cast<std::size_t>(put);
  }
  return {};
}

Status FileStorage::map_part(int fd, std::uint64_t from, std::uint64_t to, int protection,
                             int flags) noexcept {
  to = std::min(to, capacity_);
  if (from >= to) return {};
  const auto offset = static_cast<off_t>(from);
  std::byte* const at = base_ + from;
#ifdef PERDURE_TSAN  // TSan takes a mapping for a write to all of it
  const long mapped = ::syscall(SYS_mmap, at, to - from, protection, flags | MAP_FIXED, fd, offset);
  const bool refused = mapped == -1;
#else
  const bool refused = mmap(at, to - from, protection, flags | MAP_FIXED, fd, offset) == MAP_FAILED;
#endif
  if (refused) {
    return system_error(errno == ENOMEM ? StatusCode::out_of_memory : StatusCode::io,
                        "cannot map a part");
  }
  madvise(at, to - from, MADV_DONTFORK);
  return {};
}

Status FileStorage::show(int other, std::uint64_t from, std::uint64_t to) noexcept {
  if (access_ == Access::owner) return map_part(other, from, to, PROT_READ, MAP_SHARED);
  return map_part(other, from, to, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);
}

Status FileStorage::show_own(std::uint64_t from, std::uint64_t to) noexcept {
  const int sharing = access_ == Access::owner ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE;
  return map_part(fd_, from, to, PROT_READ | PROT_WRITE, sharing);
}

Status FileStorage::keep_private(int other, std::uint64_t from, std::uint64_t to) noexcept {
  return map_part(other >= 0 ? other : fd_, from, to, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_NORESERVE);
}

std::byte* FileStorage::map_start(std::uint64_t bytes) noexcept {
  const int protection = access_ == Access::owner ? PROT_READ | PROT_WRITE : PROT_READ;
  void* start = mmap(nullptr, bytes, protection, MAP_SHARED, fd_, 0);
  if (start == MAP_FAILED) return nullptr;
  madvise(start, bytes, MADV_DONTFORK);
  report_lost_pages_of(start, bytes);
  return static_cast<std::byte*>(start);
}

void FileStorage::unmap_start(std::byte* start, std::uint64_t bytes) noexcept {
  ignore_bus_errors(start);
  munmap(start, bytes);
}

void FileStorage::place_pages() noexcept {
  const std::uint32_t nodes = memory_nodes();
  const bool ram = medium_.medium == Medium::volatile_ram && access_ == Access::owner;
  const int error = nodes == 0 ? errno : ram ? perdure::interleave(base_, capacity_) : 0;
  if (error != 0) {
    log_->say(LogLevel::info, "the system does not interleave memory (%s)", std::strerror(error));
  } else if (nodes == 1) {
    log_->say(LogLevel::info, "there is one memory node: to interleave changes nothing");
  } else if (!ram) {
    log_->say(LogLevel::info,
              "only tables in DRAM are interleaved: the system decides where pages of a file on %s "
              "lie",
              medium_.filesystem);
  } else {
    nodes_ = nodes;
  }
}

// tmpfs gives huge pages by mount option only, which is `never` nearly everywhere, but it collapses
// small pages on request. One small page is enough: the rest of the huge page may be empty. It
// decides on which memory node the huge page lies. Best effort.
void FileStorage::make_huge(std::uint64_t from, std::uint64_t to) noexcept {
  if (to < kHugeFrom) return;
  const std::uint64_t end = to / kHugePage * kHugePage;
  for (std::uint64_t at = from / kHugePage * kHugePage; at < end; at += kHugeBatch * kHugePage) {
    if (!collapse(at, std::min(at + kHugeBatch * kHugePage, end))) return;
  }
}

// False: the others need not be tried.
bool FileStorage::collapse(std::uint64_t from, std::uint64_t to) noexcept {
  for (std::uint64_t chunk = from; chunk < to; chunk += kHugePage) {
    const std::uint64_t page = chunk + deciding_page(chunk / kHugePage, nodes_) * 4096;
    if (madvise(base_ + page, 4096, MADV_POPULATE_WRITE) != 0) return false;
  }
  if (madvise(base_ + from, to - from, MADV_COLLAPSE) == 0) return true;
  for (std::uint64_t chunk = from; chunk < to; chunk += kHugePage) {  // one may have ended the call
    if (madvise(base_ + chunk, kHugePage, MADV_COLLAPSE) == 0) continue;
    const int error = errno;
    if (!huge_refused_) {
      log_->say(LogLevel::warning, "the system gives no huge pages (%s); small ones serve, slower",
                std::strerror(error));
    }
    huge_refused_ = true;
    if (error == EINVAL) return false;
  }
  return true;
}

void FileStorage::populate(std::uint64_t offset, std::uint64_t length) noexcept {
  // The range is assigned: the file is not shorter. If it was cut short, this has no effect.
  madvise(base_ + offset / 4096 * 4096, offset % 4096 + length, MADV_POPULATE_READ);
}

void FileStorage::will_read(std::uint64_t offset, std::uint64_t length) noexcept {
  if (medium_.medium == Medium::page)
    madvise(base_ + offset / 4096 * 4096, offset % 4096 + length, MADV_WILLNEED);
}
void FileStorage::read_alone(bool alone) noexcept {
  if (medium_.medium == Medium::page) madvise(base_, size(), alone ? MADV_RANDOM : MADV_NORMAL);
}

Status FileStorage::full(const char* what, const char* advice) const noexcept {
  return Status::format(StatusCode::pool_full, "%s: the file cannot grow beyond %lu bytes; %s",
                        what, size(), advice);
}
// Whether the range has no hole. It has one if the system cannot tell.
bool FileStorage::has_space(std::uint64_t offset, std::uint64_t end) const noexcept {
  return ::lseek(fd_, static_cast<off_t>(offset), SEEK_HOLE) >= static_cast<off_t>(end);
}
Status FileStorage::beyond_memory(std::uint64_t limit) const noexcept {
  return Status::format(StatusCode::pool_full,
                        "the memory limit of the container (cgroup: %lu bytes) is nearly reached: "
                        "the file is in memory, and cannot grow beyond %lu bytes; raise the "
                        "limit, delete entries, or keep the file on a disk",
                        limit, size());
}
Status FileStorage::beyond_the_limit() const noexcept {
  return full("the file size limit (ulimit -f) is reached",
              "raise it, or create the pool with a smaller maximum");
}

// The file was cut short. Growing it, or setting the size back after a failure, would put zeros
// there and hide that.
Status FileStorage::shortened() const noexcept {
  return Status::format(StatusCode::poisoned, "the file became shorter; restore a copy of it");
}

// Removes only the space that an allocation has added: its range may begin with live content.
// False: the file is shorter than before.
bool FileStorage::take_back(std::uint64_t before, std::uint64_t end) noexcept {
  if (!backs(before)) return false;
  if (end > before && backs(before + 1) && ftruncate(fd_, static_cast<off_t>(before)) == 0) {
    size_ = before;
  }
  return true;
}

Status FileStorage::allocate(std::uint64_t offset, std::uint64_t length) noexcept {
  const std::uint64_t end = offset + length;
  // The stores of others stay in their memory, where a page of the file has space.
  if (access_ != Access::owner && !in_memory_)
    return end <= size() ? Status() : Status(StatusCode::read_only);
  LatchGuard guard(latch_);
  if (in_memory_) {
    if (end > capacity_) return StatusCode::pool_full;
    set_size(std::max(size(), end));
    return {};
  }
  if (beyond_limit(end)) return beyond_the_limit();
  const std::uint64_t before = size();
  if (!backs(before)) return shortened();
  if (watch_ != nullptr && end > before) {
    if (Status s = watch_->before_growth(end); !s.ok()) return s;
  }
  if (watch_ != nullptr && offset < before) {
    if (Status s = watch_->before_reuse(offset, std::min(end, before) - offset); !s.ok()) return s;
  }
  if (medium_.medium == Medium::volatile_ram && base_ != nullptr && end <= capacity_) {
    std::uint64_t limit = 0;
    if (!has_space(offset, end) && !leaves_room(length, limit)) return beyond_memory(limit);
    if (end > before && ftruncate(fd_, static_cast<off_t>(end)) != 0) return full("cannot extend");
    size_.store(std::max(before, end), std::memory_order_release);
    make_huge(std::max(before, offset), end);  // not of a hole before it
    // Populating allocates, and returns an error where a plain access would end the process.
    if (madvise(base_ + offset, length, MADV_POPULATE_WRITE) == 0) return {};
    if (errno != EINVAL) {
      if (!take_back(before, end)) return shortened();
      return full("no space left on the file system");
    }
  }
  int error = EINTR;
  while (error == EINTR) {
    error = posix_fallocate(fd_, static_cast<off_t>(offset), static_cast<off_t>(length));
  }
  if (error != 0) {
    if (!take_back(before, end)) return shortened();
    errno = error;
    if (is_no_space(error)) return full("no space left");
    return system_error(StatusCode::io, "cannot allocate space");
  }
  size_.store(std::max(before, end), std::memory_order_release);
  return {};
}

Status FileStorage::punch(std::uint64_t offset, std::uint64_t length) noexcept {
  if (access_ != Access::owner) return StatusCode::read_only;
  if (watch_ != nullptr) watch_->before_punch(offset, length);
  return punch_again(offset, length);
}

Status FileStorage::punch_again(std::uint64_t offset, std::uint64_t length) noexcept {
  const auto call = [&] {
    return fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(length));
  };
  int done = call();
  while (done != 0 && errno == EINTR) done = call();
  if (done == 0) return {};
  if (errno == EOPNOTSUPP) {
    return Status::format(StatusCode::unsupported, "the file system cannot punch holes");
  }
  return system_error(StatusCode::io, "cannot give space back");
}

std::uint64_t FileStorage::names() const noexcept {
  struct stat info{};
  return fstat(fd_, &info) == 0 ? info.st_nlink : 0;
}

bool FileStorage::is_of_user_of(const FileStorage& other) const noexcept {
  struct stat own{};
  struct stat model{};
  if (fstat(fd_, &own) != 0 || fstat(other.fd_, &model) != 0) return false;
  const bool user = own.st_uid == geteuid() || own.st_uid == 0 || own.st_uid == model.st_uid ||
                    ((model.st_mode & S_IWGRP) != 0 && own.st_gid == model.st_gid);
  return user && (own.st_mode & (S_IWGRP | S_IWOTH) & ~model.st_mode) == 0;
}

void FileStorage::set_mode_of(const FileStorage& other) noexcept {
  struct stat info{};
  if (fstat(other.fd_, &info) != 0) return;
  if (geteuid() == 0) (void)fchown(fd_, info.st_uid, ~gid_t{0});
  const bool same_group = fchown(fd_, ~uid_t{0}, info.st_gid) == 0;
  (void)fchmod(fd_, info.st_mode & (same_group ? 0777 : 0700));
}

std::uint64_t FileStorage::disk_bytes() const noexcept {
  struct stat info{};
  if (fstat(fd_, &info) != 0) return 0;
  return static_cast<std::uint64_t>(info.st_blocks) * 512;  // the unit of st_blocks
}

Status FileStorage::sync(std::uint64_t, std::uint64_t) noexcept {
  if (access_ != Access::owner || medium_.medium == Medium::volatile_ram || !synced_) return {};
  if (fdatasync(fd_) == 0) return {};
  return system_error(StatusCode::io, "cannot write back (the pool's content is in doubt)");
}

Status FileStorage::identity(layout::Identity& out) const noexcept {
  out = {};
  if (!read_boot_id(out.boot_id)) return system_error(StatusCode::io, "cannot read the boot's id");
  struct stat info{};
  if (fstat(fd_, &info) != 0) return system_error(StatusCode::io, "cannot stat");
  out.device = info.st_dev;
  out.inode = info.st_ino;
  struct statfs filesystem{};
  if (fstatfs(fd_, &filesystem) != 0) return system_error(StatusCode::io, "cannot statfs");
  out.filesystem_id =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(filesystem.f_fsid.__val[0])) |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(filesystem.f_fsid.__val[1])) << 32;
  out.pid = static_cast<std::uint64_t>(getpid());
  (void)gethostname(out.host, sizeof(out.host) - 1);
  return {};
}

void FileStorage::detect_medium() noexcept { medium_ = detect(fd_); }

}  // namespace perdure
