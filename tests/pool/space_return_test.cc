// test: tsan
// Free space goes back to the file system without a compact(): from the file, and in durability
// `buffered` from the live image and the base. What a reserve keeps; and extents of threads that
// have ended.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/other_boot.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Texts = Map<std::uint64_t, std::string_view>;

class SpaceReturnOfTheBase : public ::testing::Test {
 protected:
  SpaceReturnOfTheBase() { std::filesystem::create_directory(folder_); }
  ~SpaceReturnOfTheBase() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static Texts map_of(Pool& pool) { return must(pool.map<std::uint64_t, std::string_view>("map")); }
  static void put(Texts& map, std::uint64_t values) {
    for (std::uint64_t i = 0; i < values; ++i) must(map.put(i, text(i)));
  }
  static std::string text(std::uint64_t i) {
    return std::string(1_MiB, static_cast<char>('a' + i % 26));
  }
  // That the pool's file takes on its medium.
  std::uint64_t file_bytes() const {
    struct stat info{};
    EXPECT_EQ(::stat(path_.c_str(), &info), 0);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  }
  // Waits, for a minute at most: the disk may be slow.
  template <class F>
  static bool comes(F&& f) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!f()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  const std::string folder_ = on_disk("-space");
  const std::string path_ = folder_ + "/pool";
};
class SpaceReturn : public SpaceReturnOfTheBase, public ::testing::WithParamInterface<Durability> {
 protected:
  Pool open(std::uint32_t threads = 1) const {
    return must(Pool::open(
        path_, {.durability = GetParam(), .max_size = 1_GiB, .background_threads = threads}));
  }
};
INSTANTIATE_TEST_SUITE_P(Durabilities, SpaceReturn,
                         ::testing::Values(Durability::process, Durability::buffered),
                         [](const auto& row) { return std::string(durability_name(row.param)); });

TEST_P(SpaceReturn, WhatWasErasedGoesAndTheRestStays) {
  Pool pool = open();
  Texts map = map_of(pool);
  put(map, 160);
  if (GetParam() == Durability::buffered) must(pool.fold_log());
  EXPECT_GT(file_bytes(), 160_MiB);
  for (std::uint64_t i = 0; i < 150; ++i) must(map.erase(i));
  EXPECT_TRUE(comes([&] { return must(pool.stats()).punched_bytes > 64_MiB; }))
      << must(pool.stats()).punched_bytes;
  EXPECT_TRUE(comes([&] { return file_bytes() < 112_MiB; })) << file_bytes();
  EXPECT_GE(must(pool.stats()).disk_bytes, 32_MiB) << "the reserve";
  for (std::uint64_t i = 150; i < 160; ++i) EXPECT_EQ(must(map.get(i)), text(i));
  put(map, 100);  // where the holes are
  must(pool.close());
  pool = open();
  map = map_of(pool);
  EXPECT_TRUE(must(pool.check({.deep = true})).ok());
  for (std::uint64_t i = 0; i < 160; ++i) {
    if (i < 100 || i >= 150) {
      EXPECT_EQ(must(map.get(i)), text(i));
    }
  }
}

TEST_P(SpaceReturn, AReserveServesValuesThatAreReplaced) {
  Pool pool = open();
  Texts map = map_of(pool);
  for (int round = 0; round < 10; ++round) put(map, 16);
  // Not all of any round: limbo may hold a few more values if a thread loses its core.
  EXPECT_LT(must(pool.stats()).punched_bytes, 16_MiB);
}

TEST_P(SpaceReturn, WithoutThreadsItIsTheProgramsWork) {
  Pool pool = open(0);
  Texts map = map_of(pool);
  put(map, 100);
  for (std::uint64_t i = 0; i < 100; ++i) must(map.erase(i));
  while (must(pool.run_background())) {
  }
  EXPECT_GT(must(pool.stats()).punched_bytes, 50_MiB);
}

// The erases are in no cut yet when the space of the live image goes. That of the base must not go
// before one: the power fails then.
TEST_F(SpaceReturnOfTheBase, GoesAfterACut) {
  const auto open = [&] {
    return must(Pool::open(path_, {.durability = Durability::buffered,
                                   .buffered = {.interval_ms = 3'600'000},
                                   .max_size = 1_GiB,
                                   .background_threads = 0}));
  };
  const ChildEnd end = run_child([&] {
    Pool pool = open();
    Texts map = map_of(pool);
    put(map, 120);
    must(pool.sync());
    must(pool.fold_log());
    for (std::uint64_t i = 0; i < 100; ++i) must(map.erase(i));
    for (int seconds = 0; seconds < 5 && file_bytes() > 90_MiB; ++seconds) {
      while (must(pool.run_background())) {
      }
      ::sleep(1);  // folds that the background asks for come once a second
    }
    require(file_bytes() < 90_MiB, "the base has given space back");
    ::_exit(0);
  });
  ASSERT_TRUE(end.ok()) << end;
  std::filesystem::remove(path_ + "-live");
  std::filesystem::remove(path_ + "-live-dirty");
  restart_machine(path_);
  Pool pool = open();
  Texts map = map_of(pool);
  EXPECT_TRUE(must(pool.check({.deep = true})).ok());
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_FALSE(must(map.get(i)).has_value());
  for (std::uint64_t i = 100; i < 120; ++i) EXPECT_EQ(must(map.get(i)), text(i));
}

// The space of an erased value lies in limbo while a read goes on. What is erased after it takes it
// along.
TEST_P(SpaceReturn, AReadHoldsItBack) {
  Pool pool = open();
  Texts map = map_of(pool);
  put(map, 120);
  std::latch inside(1), leave(1);
  std::thread reader([&] {
    (void)must(map.read(119, [&](std::string_view) {
      inside.count_down();
      leave.wait();
    }));
  });
  inside.wait();
  for (std::uint64_t i = 0; i < 100; ++i) must(map.erase(i));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(must(pool.stats()).punched_bytes, 0U);
  leave.count_down();
  reader.join();
  for (std::uint64_t i = 100; i < 119; ++i) must(map.erase(i));
  EXPECT_TRUE(comes([&] { return must(pool.stats()).punched_bytes > 60_MiB; }));
}

// It may have lost its core within the last erase before the pool rests: nothing is freed after it.
TEST_P(SpaceReturn, AThreadThatLeavesSoonHoldsNothingBack) {
  Pool pool = open(0);
  Texts map = map_of(pool);
  put(map, 120);
  std::latch inside(1), leave(1);
  std::thread reader([&] {
    (void)must(map.read(119, [&](std::string_view) {
      inside.count_down();
      leave.wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }));
  });
  inside.wait();
  for (std::uint64_t i = 0; i < 100; ++i) must(map.erase(i));
  leave.count_down();
  while (must(pool.run_background())) {
  }
  reader.join();
  EXPECT_GT(must(pool.stats()).punched_bytes, 50_MiB);
}

// Each thread takes an extent of 64 KiB or more. When the threads have ended, one thread fills what
// they have left.
TEST_P(SpaceReturn, ExtentsOfEndedThreadsAreUsed) {
  constexpr std::uint64_t kThreads = 200;
  Pool pool = open();
  Texts map = map_of(pool);
  std::latch all(kThreads);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      must(map.put(t, std::string(900, 'v')));
      all.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::uint64_t before = must(pool.stats()).assigned_bytes;
  std::uint64_t n = kThreads;
  // Three quarters of what those extents have: 64 KiB hold 64 records.
  for (; n < kThreads + kThreads * 48; ++n) must(map.put(n, std::string(900, 'v')));
  EXPECT_LT(must(pool.stats()).assigned_bytes, before + 8_MiB);
}

}  // namespace
}  // namespace perdure::test
