// Failures of calls to the C library and the kernel: the k-th call of one kind, alone or with all
// later ones. The linker wraps calls of libperdure.a (--wrap, see tests/CMakeLists.txt). operator
// new is replaced: allocations inside libstdc++ count, too.
//
// Only calls made while armed count: arm around library calls alone. Thread safety: any thread may
// call the wrapped functions; only one may arm.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

namespace perdure::test {

enum class Fault : std::uint8_t {
  none,
  nothrow_new,   // operator new(nothrow), malloc, calloc, realloc return null
  throwing_new,  // throws std::bad_alloc
  mmap,
  madvise,
  ftruncate,
  posix_fallocate,
  fallocate,
  msync,
  fdatasync,
  fsync,
  open,
  lock,  // fcntl
  pread,
  fstat,
  link,
  statfs,
  thread,  // pthread_create
  // Of live images only: the kernel says that it could not write a page of the file back.
  write_back,
  unlink,  // unlinkat
};
inline constexpr Fault kLastFault = Fault::thread;  // that any pool can have
const char* fault_name(Fault fault) noexcept;

// A pretended machine: the file system of a pool, and the content of system files. It works without
// Armed.
struct Pretence {
  std::uint32_t file_system = 0;  // magic of statfs; 0: the real one
  bool dax = false;               // MAP_SYNC succeeds
  bool eadr = false;              // libpmem2 reports that caches are flushed on power loss
  bool disk = false;              // every block device is a plain disk
  const char* file = nullptr;     // cannot be opened, or, if `text` is set,
  const char* text = nullptr;     // has this content
  bool unreadable = false;        // `file` can be opened, but not read
  bool same_random = false;       // random numbers are the same in every run
};
void pretend(const Pretence& pretence) noexcept;
// Pretends during its life.
class Pretended {
 public:
  explicit Pretended(const Pretence& pretence) { pretend(pretence); }
  ~Pretended() { pretend({}); }
  Pretended(const Pretended&) = delete;
  Pretended& operator=(const Pretended&) = delete;
};
inline constexpr std::uint32_t kXfs = 0x58465342;  // magic of statfs

// From now on calls of this kind count. The k-th fails (1: the first); with `sticky` also all later
// ones. They fail with `error`, or with the usual error of such a call.
void set_fault(Fault fault, std::uint64_t k, bool sticky, int error = 0) noexcept;
std::uint64_t faults_fired() noexcept;
// Those in calls of the current thread; none of the background's.
std::uint64_t faults_fired_here() noexcept;
// Planted: a failing call does nothing and reports success, as if the library ignored failures. An
// allocation and mmap return memory that must not be touched; open opens another file.
void set_unnoticed(bool on) noexcept;

// Instead of an error, the process is killed in the call.
void set_deadly(bool on) noexcept;

// Counts and injects during its life.
class Armed {
 public:
  Armed() noexcept;
  ~Armed();
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
};

// The k-th such call of the library fails during its life.
class Failing {
 public:
  Failing(Fault fault, std::uint64_t k, bool sticky, int error = 0) {
    set_fault(fault, k, sticky, error);
  }
  ~Failing() { set_fault(Fault::none, 0, false); }
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;

 private:
  Armed armed_;
};

}  // namespace perdure::test
