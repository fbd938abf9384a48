#include "tests/support/inject.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace perdure::test {

namespace {

std::atomic<bool> armed{false};
std::atomic<Fault> chosen{Fault::none};
std::atomic<std::uint64_t> calls_left{0};
std::atomic<bool> stays{false};
std::atomic<bool> unnoticed{false};
std::atomic<bool> deadly{false};
std::atomic<std::uint64_t> fired{0};
thread_local std::uint64_t fired_here = 0;
std::atomic<int> instead{0};  // replaces the usual error, unless 0
std::atomic<void*> untouchable{nullptr};
Pretence pretence;

}  // namespace

// Not in the anonymous namespace, because the wrappers below use it.
bool fails(Fault fault, int error) noexcept {
  if (!armed.load(std::memory_order_relaxed) || chosen.load() != fault) return false;
  const std::uint64_t left = calls_left.load();
  if (left == 0) {
    if (!stays.load()) return false;
  } else {
    calls_left.store(left - 1);
    if (left != 1) return false;
  }
  if (deadly.load()) kill(getpid(), SIGKILL);
  fired.fetch_add(1);
  ++fired_here;
  errno = instead != 0 ? instead.load() : error;
  return true;
}
// The return value of a call that failed.
bool is_unnoticed() noexcept { return unnoticed; }
bool is_chosen(Fault fault) noexcept { return chosen == fault; }
int failed_call(int error) noexcept { return unnoticed ? 0 : error; }
void* failed_call(void* error) noexcept { return unnoticed ? untouchable.load() : error; }

const Pretence& pretended() noexcept { return pretence; }
bool is_pretended(const char* path) noexcept {
  return pretence.file != nullptr && std::strcmp(path, pretence.file) == 0;
}
// Opens a file with the pretended content.
int open_pretended() noexcept {
  if (pretence.unreadable) return open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (pretence.text == nullptr) {
    errno = EACCES;
    return -1;
  }
  const int fd = memfd_create("pretended", MFD_CLOEXEC);
  if (fd >= 0 && write(fd, pretence.text, std::strlen(pretence.text)) >= 0) lseek(fd, 0, SEEK_SET);
  return fd;
}

const char* fault_name(Fault fault) noexcept {
  static constexpr const char* kNames[] = {"none",    "nothrow_new", "throwing_new",    "mmap",
                                           "madvise", "ftruncate",   "posix_fallocate", "fallocate",
                                           "msync",   "fdatasync",   "fsync",           "open",
                                           "lock",    "pread",       "fstat",           "link",
                                           "statfs",  "thread",      "write_back",      "unlink"};
  return kNames[static_cast<std::size_t>(fault)];
}

void set_unnoticed(bool on) noexcept {
  constexpr std::size_t kBytes = 1 << 20;
  if (on) untouchable = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unnoticed = on;
}
void set_deadly(bool on) noexcept { deadly = on; }
void pretend(const Pretence& what) noexcept { pretence = what; }
void set_fault(Fault fault, std::uint64_t k, bool sticky, int error) noexcept {
  chosen = fault;
  instead = error;
  calls_left = k;
  stays = sticky;
  fired = 0;
}
std::uint64_t faults_fired() noexcept { return fired.load(); }
std::uint64_t faults_fired_here() noexcept { return fired_here; }

Armed::Armed() noexcept { armed = true; }
Armed::~Armed() { armed = false; }

}  // namespace perdure::test

using perdure::test::failed_call;
using perdure::test::fails;
using perdure::test::Fault;
using perdure::test::is_chosen;
using perdure::test::is_pretended;
using perdure::test::is_unnoticed;
using perdure::test::open_pretended;
using perdure::test::pretended;

extern "C" void* __real_malloc(std::size_t n);  // NOLINT(bugprone-reserved-identifier)

// ---- operator new; the default delete and new[] end in these ----

void* operator new(std::size_t n) {
  if (!fails(Fault::throwing_new, ENOMEM)) {
    if (void* p = __real_malloc(n == 0 ? 1 : n); p != nullptr) return p;
  }
  throw std::bad_alloc();
}
void* operator new[](std::size_t n) { return operator new(n); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return fails(Fault::nothrow_new, ENOMEM) ? failed_call(nullptr) : __real_malloc(n == 0 ? 1 : n);
}
void* operator new[](std::size_t n, const std::nothrow_t& tag) noexcept {
  return operator new(n, tag);
}
void* operator new(std::size_t n, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  if (fails(Fault::nothrow_new, ENOMEM)) return failed_call(nullptr);
  const auto align = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(align, (n + align - 1) / align * align);
}
void* operator new[](std::size_t n, std::align_val_t align, const std::nothrow_t& tag) noexcept {
  return operator new(n, align, tag);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

// ---- functions that the linker wraps ----

// NOLINTBEGIN(bugprone-reserved-identifier)
namespace {

// A planted failure of an open; or, unnoticed, of another file.
template <class Open>
int open_or_fail(Open real) noexcept {
  if (!fails(Fault::open, EMFILE)) return real();
  return is_unnoticed() ? memfd_create("unasked", MFD_CLOEXEC) : -1;
}

}  // namespace

extern "C" {

void* __wrap_malloc(std::size_t n) {
  return fails(Fault::nothrow_new, ENOMEM) ? failed_call(nullptr) : __real_malloc(n);
}
void* __real_calloc(std::size_t n, std::size_t size);
void* __wrap_calloc(std::size_t n, std::size_t size) {
  return fails(Fault::nothrow_new, ENOMEM) ? failed_call(nullptr) : __real_calloc(n, size);
}
void* __real_realloc(void* p, std::size_t n);
void* __wrap_realloc(void* p, std::size_t n) {
  return fails(Fault::nothrow_new, ENOMEM) ? failed_call(nullptr) : __real_realloc(p, n);
}
void* __real_mmap(void* p, std::size_t n, int protection, int flags, int fd, off_t offset);
void* __wrap_mmap(void* p, std::size_t n, int protection, int flags, int fd, off_t offset) {
  if (fails(Fault::mmap, ENOMEM)) return failed_call(MAP_FAILED);
  if (pretended().dax && (flags & MAP_SYNC) != 0) {
    flags = (flags & ~(MAP_SYNC | MAP_SHARED_VALIDATE)) | MAP_SHARED;
  }
  return __real_mmap(p, n, protection, flags, fd, offset);
}
ssize_t __real_getrandom(void* p, std::size_t n, unsigned flags);
ssize_t __wrap_getrandom(void* p, std::size_t n, unsigned flags) {
  if (!pretended().same_random) return __real_getrandom(p, n, flags);
  std::memset(p, 0x5A, n);
  return static_cast<ssize_t>(n);
}
int __real_madvise(void* p, std::size_t n, int advice);
int __wrap_madvise(void* p, std::size_t n, int advice) {
  // A library that ignores the length of the file also ignores whether it has pages.
  if (is_unnoticed() && is_chosen(Fault::ftruncate)) return 0;
  return fails(Fault::madvise, ENOMEM) ? -1 : __real_madvise(p, n, advice);
}
int __real_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size) {
  return fails(Fault::ftruncate, ENOSPC) ? failed_call(-1) : __real_ftruncate(fd, size);
}
int __real_posix_fallocate(int fd, off_t offset, off_t n);
int __wrap_posix_fallocate(int fd, off_t offset, off_t n) {
  return fails(Fault::posix_fallocate, ENOSPC) ? failed_call(errno)
                                               : __real_posix_fallocate(fd, offset, n);
}
int __real_fallocate(int fd, int mode, off_t offset, off_t n);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t n) {
  return fails(Fault::fallocate, EIO) ? failed_call(-1) : __real_fallocate(fd, mode, offset, n);
}
int __real_msync(void* p, std::size_t n, int flags);
int __wrap_msync(void* p, std::size_t n, int flags) {
  return fails(Fault::msync, EIO) ? failed_call(-1) : __real_msync(p, n, flags);
}
int __real_sync_file_range(int fd, off64_t offset, off64_t n, unsigned flags);
int __wrap_sync_file_range(int fd, off64_t offset, off64_t n, unsigned flags) {
  return fails(Fault::write_back, EIO) ? failed_call(-1)
                                       : __real_sync_file_range(fd, offset, n, flags);
}
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd) {
  return fails(Fault::fdatasync, EIO) ? failed_call(-1) : __real_fdatasync(fd);
}
int __real_fsync(int fd);
int __wrap_fsync(int fd) { return fails(Fault::fsync, EIO) ? failed_call(-1) : __real_fsync(fd); }
int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  if (is_pretended(path)) return open_pretended();
  return open_or_fail([&] { return __real_open(path, flags, mode); });
}
int __real_openat(int folder, const char* path, int flags, ...);
int __wrap_openat(int folder, const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return open_or_fail([&] { return __real_openat(folder, path, flags, mode); });
}
int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
  std::va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  // The lock ends with the descriptor, whatever an unlock returns.
  const bool unlocks =
      command == F_OFD_SETLK && static_cast<const struct flock*>(argument)->l_type == F_UNLCK;
  return !unlocks && fails(Fault::lock, ENOLCK) ? failed_call(-1)
                                                : __real_fcntl(fd, command, argument);
}
ssize_t __real_pread(int fd, void* p, std::size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void* p, std::size_t n, off_t offset) {
  return fails(Fault::pread, EIO) ? -1 : __real_pread(fd, p, n, offset);
}
int __real_fstat(int fd, struct stat* out);
int __wrap_fstat(int fd, struct stat* out) {
  return fails(Fault::fstat, EIO) ? -1 : __real_fstat(fd, out);
}
int __real_fstatfs(int fd, struct statfs* out);
int __wrap_fstatfs(int fd, struct statfs* out) {
  if (fails(Fault::statfs, EIO)) return -1;
  const int result = __real_fstatfs(fd, out);
  if (pretended().file_system != 0) out->f_type = static_cast<long>(pretended().file_system);
  return result;
}
std::FILE* __real_fopen(const char* path, const char* mode);
std::FILE* __wrap_fopen(const char* path, const char* mode) {
  if (!is_pretended(path)) return __real_fopen(path, mode);
  const int fd = open_pretended();
  return fd < 0 ? nullptr : fdopen(fd, mode);
}
[[gnu::weak]] int __real_pmem2_map_get_store_granularity(void* map);  // present only with libpmem2
int __wrap_pmem2_map_get_store_granularity(void* map) {
  constexpr int kByte = 0;  // PMEM2_GRANULARITY_BYTE
  return pretended().eadr ? kByte : __real_pmem2_map_get_store_granularity(map);
}
ssize_t __real_readlink(const char* path, char* out, std::size_t n);
ssize_t __wrap_readlink(const char* path, char* out, std::size_t n) {
  constexpr char kDisk[] = "../../block/vda";
  constexpr char kDevices[] = "/sys/dev/block/";
  if (!pretended().disk || std::strncmp(path, kDevices, sizeof(kDevices) - 1) != 0) {
    return __real_readlink(path, out, n);
  }
  const std::size_t bytes = std::min(n, sizeof(kDisk) - 1);
  std::memcpy(out, kDisk, bytes);
  return static_cast<ssize_t>(bytes);
}
int __real_linkat(int from_folder, const char* from, int to_folder, const char* to, int flags);
int __wrap_linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  return fails(Fault::link, EIO) ? failed_call(-1)
                                 : __real_linkat(from_folder, from, to_folder, to, flags);
}
int __real_unlinkat(int folder, const char* name, int flags);
int __wrap_unlinkat(int folder, const char* name, int flags) {
  return fails(Fault::unlink, EIO) ? failed_call(-1) : __real_unlinkat(folder, name, flags);
}
int __real_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument);
int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument) {
  return fails(Fault::thread, EAGAIN) ? EAGAIN
                                      : __real_pthread_create(thread, attributes, run, argument);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
