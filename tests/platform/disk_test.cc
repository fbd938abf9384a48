// test: no asan, each engine
// Full disks, and files that shrink or vanish while a pool uses them.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/small_pool.h"

namespace perdure::test {
namespace {

// Fills until the disk or the limit refuses. Then every acknowledged entry must be present.
void fill_until_refused(const std::string& path, const PoolOptions& options) {
  std::uint64_t n = 0;
  {
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, Bytes>("m"));
    const std::string value(2'000, 'v');
    for (;; ++n) {
      const auto done = map.insert(n, value);
      if (done.ok()) continue;
      require(code_of(done) == StatusCode::pool_full, "full disk: " + describe(done.status()));
      break;
    }
    require(n > 100, "nothing fitted");
    for (std::uint64_t i = 0; i < n; ++i) {
      require(must(map.get(i)) == std::optional(value), "acknowledged entry lost");
    }
    for (std::uint64_t i = 0; i < n / 2; ++i)
      require(was_present(map.erase(i)), "erase on a full disk");
    for (std::uint64_t i = 0; i < n / 4; ++i) {
      const auto again = map.insert(i, value);
      require(again.absent(), "space that was freed is not usable");
    }
    const auto report = must(pool.check({.deep = true}));
    require(report.ok() && report.leaked_blocks == 0, "check");
    must(pool.close());
  }
  Pool pool = open_pool(path, options);
  auto map = must(pool.map<std::uint64_t, Bytes>("m"));
  for (std::uint64_t i = 0; i < n; ++i) {
    require(was_present(map.contains(i)) == (i < n / 4 || i >= n / 2), "lost on reopen");
  }
}

TEST(FullDisk, FileSizeLimitIsPoolFullAndNoSignal) {
  for (const Durability durability : {Durability::process, Durability::emulated}) {
    TempPath path;
    const ChildEnd end = run_child([&] {
      // The kernel sends SIGXFSZ beyond the limit. A program that sets limits ignores it.
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{12_MiB, RLIM_INFINITY};
      require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
      fill_until_refused(path, {.durability = durability, .max_size = 1_GiB});
    });
    EXPECT_TRUE(end.ok()) << end;
  }
}

TEST(FullDisk, CreatingBeyondTheLimitFailsWithoutAPool) {
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{1}, rlim_t{4'096}, rlim_t{65'536}}) {
    TempPath path;
    const ChildEnd end = run_child([&] {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{bytes, RLIM_INFINITY};
      require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
      const auto pool = Pool::open(path, small_pool());
      require(code_of(pool) == StatusCode::pool_full || code_of(pool) == StatusCode::io,
              "creation beyond the limit");
    });
    EXPECT_TRUE(end.ok()) << end << " with a limit of " << bytes;
    // The rest of it is no pool, and must not prevent a new one.
    if (std::filesystem::exists(path.str())) {
      EXPECT_FALSE(Pool::open(path, {.mode = OpenMode::existing}).has_value());
    }
    const auto pool = Pool::open(path, small_pool());
    EXPECT_TRUE(pool.has_value()) << "a failed creation blocks the path: "
                                  << (pool ? "" : describe(pool.error()));
  }
}

// Needs the right to mount a small tmpfs. The limit on file sizes above covers other systems.
TEST(FullDisk, SmallFileSystem) {
  TempPath dir("mount");
  std::filesystem::create_directory(dir.str());
  const ChildEnd end = run_child([&] {
    const bool mounted = (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
                         mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         mount("none", dir.str().c_str(), "tmpfs", 0, "size=12m") == 0;
    if (!mounted) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{9_MiB, RLIM_INFINITY};
      require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
    }
    fill_until_refused(dir.str() + "/pool", {.max_size = 1_GiB});
  });
  EXPECT_TRUE(end.ok()) << end;
}

TEST(Shrunk, TruncatedUnderItsOwnerIsReportedAtTheNextOpen) {
  TempPath path;
  const ChildEnd end = run_child([&] {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    const auto size = std::filesystem::file_size(path.str());
    require(truncate(path.str().c_str(), static_cast<off_t>(size / 2)) == 0, "truncate");
    (void)wrong_content(pool);  // raises SIGBUS, or returns an error
    (void)pool.close();
  });
  EXPECT_TRUE(end.exited || end.signal == SIGBUS) << end;
  if (end.exited && end.code == 0) {
    // The loss was not noticed at close. Then the file is whole again, or open refuses it.
    auto pool = Pool::open(path, small_pool());
    if (pool) {
      EXPECT_EQ(wrong_content(*pool), "");
    } else {
      EXPECT_EQ(pool.error().code(), StatusCode::corruption);
    }
    return;
  }
  expect_refused(path, {StatusCode::corruption});
}

TEST(Shrunk, RemovedUnderItsOwnerGoesOnUntilClose) {
  TempPath path;
  Pool pool = open_pool(path, small_pool());
  fill_pool(pool);
  ASSERT_EQ(unlink(path.str().c_str()), 0);
  EXPECT_EQ(wrong_content(pool), "");
  must(must(pool.map<std::uint64_t, std::uint64_t>("numbers", small_map())).insert(1, 1));
  (void)pool.close();
  EXPECT_FALSE(std::filesystem::exists(path.str()));
}

// From 64 MiB on, the space of the next growth exists before it is needed. Without a thread of the
// pool it does not.
TEST(Growth, IsPreparedInTheBackground) {
  for (const std::uint32_t threads : {0U, 1U}) {
    const TempPath path;
    PoolOptions options;
    options.background_threads = threads;
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, Bytes>("m"));
    const std::string value(4'000'000, 'v');
    for (std::uint64_t i = 0; i < 20; ++i) must(map.insert(i, value));
    const auto length = [&] { return std::filesystem::file_size(path.str()); };
    const std::uint64_t needed = must(pool.info()).file_bytes;
    ASSERT_GT(needed, 64U << 20);
    for (int i = 0; i < 1000 && threads != 0 && length() < needed + needed / 16; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(length() >= needed + needed / 16, threads != 0);
    for (std::uint64_t i = 20; i < 30; ++i) must(map.insert(i, value));
    EXPECT_EQ(must(map.get(29)), std::optional(value));
    const auto report = must(pool.check({}));
    EXPECT_TRUE(report.ok()) << report.first();
    must(pool.close());
    EXPECT_TRUE(Pool::open(path, options));
  }
}

}  // namespace
}  // namespace perdure::test
