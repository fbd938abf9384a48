// Shared by the black-box suites (conformance, model, concurrent, api): seeds, pool files that are
// removed, child processes, and unwrapping of Expected. Tests may throw: a failed must() ends the
// test case with the library's own message.
//
// Environment: PERDURE_SEED replays a randomised test. PERDURE_SAN=1 shrinks sizes, because
// sanitizers are ten times slower. PERDURE_LONG=1 runs every combination, which takes a night.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "perdure/perdure.h"

namespace perdure::test {

inline bool san() {
  static const bool on = [] {
    const char* text = std::getenv("PERDURE_SAN");
    return text != nullptr && *text == '1';
  }();
  return on;
}
// Whether to run every combination, which takes too long for every change.
inline bool at_length() {
  static const bool on = std::getenv("PERDURE_LONG") != nullptr;
  return on;
}
inline std::uint64_t scaled(std::uint64_t full, std::uint64_t shrunken) {
  return san() ? shrunken : full;
}
inline std::uint64_t scaled(std::uint64_t full, std::uint64_t fast, std::uint64_t shrunken) {
  return scaled(at_length() ? full : fast, shrunken);
}

// One seed per process: one number replays any failure.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("PERDURE_SEED");
    if (text != nullptr && *text != '\0') return std::uint64_t{std::strtoull(text, nullptr, 0)};
    return std::uint64_t{std::random_device{}()};
  }();
  return value;
}
inline std::string seed_note() { return "replay with PERDURE_SEED=" + std::to_string(seed()); }
#define PERDURE_TRACE_SEED() SCOPED_TRACE(::perdure::test::seed_note())

inline constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// splitmix64: small, copyable, the same sequence with every standard library.
class Rng {
 public:
  using result_type = std::uint64_t;
  explicit Rng(std::uint64_t start = seed()) : state_(start) {}
  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return ~std::uint64_t{0}; }
  std::uint64_t operator()() {
    const std::uint64_t value = mix(state_);
    state_ += 0x9E3779B97F4A7C15ULL;
    return value;
  }
  std::uint64_t below(std::uint64_t n) { return (*this)() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

inline std::string describe(const Status& status) {
  return std::string(status_code_name(status.code())) + ": " + std::string(status.message());
}

template <class T>
T must(Expected<T> result) {
  if (!result) throw std::runtime_error("the library returned " + describe(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}
inline void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error("the library returned " + describe(status));
}
inline void must(const Found& found) { must(found.status()); }
inline bool was_present(const Found& found) {
  must(found);
  return found.present();
}
inline bool was_absent(const Found& found) {
  must(found);
  return found.absent();
}

template <class T>
StatusCode code_of(const Expected<T>& result) {
  return result ? StatusCode::ok : result.error().code();
}
inline StatusCode code_of(const Status& status) { return status.code(); }
inline StatusCode code_of(const Found& found) { return found.status().code(); }
inline StatusCode code_of(const Exchanged& done) { return done.status().code(); }

// gtest prints codes as names.
inline void print_code(StatusCode code, std::ostream* out) { *out << status_code_name(code); }

// Child processes cannot use EXPECT: they throw, and the parent sees exit status 99.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

inline const std::filesystem::path& scratch_dir() {
  static const std::filesystem::path dir = [] {
    std::filesystem::path found = std::filesystem::temp_directory_path();
    if (const char* build = std::getenv("PERDURE_BUILD_DIR")) found = build;
    struct statvfs shm{};
    const bool roomy = statvfs("/dev/shm", &shm) == 0 && access("/dev/shm", W_OK) == 0 &&
                       std::uint64_t{shm.f_bavail} * shm.f_frsize >= 1_GiB;
    if (roomy) found = "/dev/shm";
    // A test that died by a signal left its files: removes those of dead processes.
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(found, ignored)) {
      long pid = 0;
      const std::string name = entry.path().filename().string();
      if (std::sscanf(name.c_str(), "perdure-test-%ld-", &pid) != 1 || pid <= 0) continue;
      if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) {
        std::filesystem::remove_all(entry.path(), ignored);
      }
    }
    return found;
  }();
  return dir;
}

// A path on the disk of the build folder, because memory can neither be synced nor mapped
// synchronously.
inline std::string on_disk(const char* name) {
  const char* build = std::getenv("PERDURE_BUILD_DIR");
  const std::filesystem::path folder = build != nullptr ? build : ".";
  return (folder / ("perdure-test-" + std::to_string(getpid()) + name)).string();
}

// A unique path. The destructor removes the file or folder there.
class TempPath : public std::string {
 public:
  explicit TempPath(std::string_view tag = "pool") {
    static std::atomic<unsigned> counter{0};
    assign((scratch_dir() / ("perdure-test-" + std::to_string(getpid()) + "-" +
                             std::to_string(counter++) + "-" + std::string(tag)))
               .string());
  }
  TempPath(const TempPath&) = delete;
  TempPath& operator=(const TempPath&) = delete;
  ~TempPath() {
    std::error_code ignored;
    std::filesystem::remove_all(str(), ignored);
  }
  const std::string& str() const { return *this; }
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::string bytes;
  in.seekg(0, std::ios::end);
  bytes.resize(static_cast<std::size_t>(in.tellg()));
  in.seekg(0);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}
// Rewrites in place: a pool remembers its inode.
inline void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

struct ChildEnd {
  bool exited = false;
  int code = 0;    // if it exited
  int signal = 0;  // otherwise
  bool ok() const { return exited && code == 0; }
};
inline std::ostream& operator<<(std::ostream& out, const ChildEnd& end) {
  return end.exited ? out << "exit status " << end.code : out << "signal " << end.signal;
}

inline ChildEnd wait_child(pid_t pid) {
  int raw = 0;
  while (waitpid(pid, &raw, 0) < 0 && errno == EINTR) {
  }
  ChildEnd end;
  end.exited = WIFEXITED(raw);
  if (end.exited) {
    end.code = WEXITSTATUS(raw);
  } else {
    end.signal = WTERMSIG(raw);
  }
  return end;
}

// Forks. The child runs `body` and exits with 0, or with 99 after it printed the message of an
// exception to stderr. SIGALRM ends a child that hangs.
template <class F>
pid_t start_child(F&& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid != 0) return pid;
  alarm(120);
  int code = 99;
  try {
    body();
    code = 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(code);
}
template <class F>
ChildEnd run_child(F&& body) {
  return wait_child(start_child(std::forward<F>(body)));
}

inline Pool open_pool(const std::string& path, const PoolOptions& options) {
  return must(Pool::open(path, options));
}

// Call it after every reopen: no violation, and no block lost by the heap.
inline void expect_sound(const Pool& pool) {
  auto report = pool.check({.deep = true});
  ASSERT_TRUE(report.has_value()) << describe(report.error());
  EXPECT_EQ(report->leaked_blocks, 0U);
  for (const auto& violation : report->violations) ADD_FAILURE() << violation;
}

}  // namespace perdure::test

namespace perdure {
inline void PrintTo(StatusCode code, std::ostream* out) { test::print_code(code, out); }
}  // namespace perdure
