// Failures of what the library asks of the C library and the kernel: the k-th call of one kind, or
// that and all after it. Calls of libperdure.a are wrapped by the linker (--wrap, see
// tests/CMakeLists.txt); operator new is replaced, so allocations inside libstdc++ count too.
//
// Only calls made while armed count: arm around library calls alone. Thread safety: any thread may
// call what is wrapped; arming is for one.
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
  nothrow_new,   // operator new(nothrow), malloc, calloc, realloc: null
  throwing_new,  // std::bad_alloc
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
};
inline constexpr Fault kLastFault = Fault::thread;
const char* fault_name(Fault fault) noexcept;

// What the machine is pretended to be: which file system lies under a pool, and what files of the
// system say. Nothing need be armed.
struct Pretence {
  std::uint32_t file_system = 0;  // magic of statfs; 0: what it is
  bool dax = false;               // MAP_SYNC is taken
  bool eadr = false;              // libpmem2 says that caches are flushed on power loss
  bool disk = false;              // every block device is a plain disk
  const char* file = nullptr;     // this file cannot be opened, or if
  const char* text = nullptr;     // there is one, says this
  bool unreadable = false;        // or is opened, but cannot be read
  bool same_random = false;       // random numbers are the same in every run
};
void pretend(const Pretence& pretence) noexcept;
// While it lives.
class Pretended {
 public:
  explicit Pretended(const Pretence& pretence) { pretend(pretence); }
  ~Pretended() { pretend({}); }
  Pretended(const Pretended&) = delete;
  Pretended& operator=(const Pretended&) = delete;
};
inline constexpr std::uint32_t kXfs = 0x58465342;  // magic of statfs

// A path on the disk of the build folder: memory can neither be synced nor mapped synchronously.
inline std::string on_disk(const char* name) {
  const char* build = std::getenv("PERDURE_BUILD_DIR");
  const std::filesystem::path folder = build != nullptr ? build : ".";
  return (folder / ("perdure-test-" + std::to_string(getpid()) + name)).string();
}

// From now on calls of this kind count; the k-th fails (1: the first), and with `sticky` all later
// ones; with `error`, or with what such a call usually fails with.
void set_fault(Fault fault, std::uint64_t k, bool sticky, int error = 0) noexcept;
std::uint64_t faults_fired() noexcept;
// Of these, in calls of the thread that asks: none of the background's.
std::uint64_t faults_fired_here() noexcept;
// Planted: what fails does nothing and answers that it did, as if the library did not look. An
// allocation and mmap answer memory that nobody may touch; open a file, but not the one asked for.
void set_unnoticed(bool on) noexcept;

// Counts and injects while it lives.
class Armed {
 public:
  Armed() noexcept;
  ~Armed();
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
};

// The k-th such call of the library fails while it lives.
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
