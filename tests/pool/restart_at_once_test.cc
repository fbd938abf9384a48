// test: explores
// The guarantees that a pool gives to an engine that restarts at once. The engine serves before its
// blocks are marked and before a killed process's stores are durable. Damage found then is not
// hidden.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "format/layout.h"
#include "testing/torture/lossy_target.h"
#include "tests/support/little_pool.h"
#include "tests/support/support.h"

namespace perdure {
namespace {

class RestartAtOnce : public LittlePool {
 protected:
  // A map of 100 entries in a closed pool. From now on it restarts at once.
  void make(bool beside = false) {
    Pool pool = open();
    auto map = map_of(pool);
    for (std::uint64_t k = 0; k < 100; ++k) EXPECT_TRUE(map.insert(k, k * 3).ok());
    if (beside) {
      auto other = pool.map<std::uint64_t, std::uint64_t>("o", {.phast = {.partition_bits = 2}});
      for (std::uint64_t k = 1; k <= 500; ++k) EXPECT_TRUE(other->insert(k, k).ok());
    }
    EXPECT_TRUE(pool.close().ok());
    little_rules().at_once = true;
  }
  Pool driven() { return open({.max_size = 16_MiB, .background_threads = 0}); }
  static std::uint64_t marked() { return little_rules().mark_steps; }
  static void expect_whole(Pool& pool) {
    auto report = pool.check({.deep = true});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_TRUE(report->ok()) << report->first();
    EXPECT_EQ(report->leaked_blocks, 0U);
  }
  static void expect_entries(Pool& pool) {
    auto map = map_of(pool);
    for (std::uint64_t k = 0; k < 100; ++k) {
      ASSERT_EQ(*map.get(k), std::optional<std::uint64_t>(k * 3)) << k;
    }
  }
  static constexpr std::uint64_t kSteps = 60;  // 120 slots, 2 at a time
};

TEST_F(RestartAtOnce, ServesBeforeItsBlocksAreMarked) {
  for (const bool beside : {false, true}) {
    ::unlink(path_.c_str());
    testing::reset_little_rules();
    make(beside);
    Pool pool = driven();
    EXPECT_EQ(marked(), 0U);
    expect_entries(pool);
    auto map = map_of(pool);
    ASSERT_TRUE(map.insert(1000, 1).absent());  // runs a step
    ASSERT_TRUE(map.erase(0).present());
    EXPECT_LE(marked(), 2U);
    while (*pool.run_background()) {
    }
    EXPECT_EQ(marked(), kSteps);
    expect_whole(pool);
    ASSERT_TRUE(map.insert(0, 0).absent());
    expect_entries(pool);
  }
}

TEST_F(RestartAtOnce, AThreadMarksBesideMutations) {
  make();
  Pool pool = open();
  auto map = map_of(pool);
  for (std::uint64_t round = 0; round < 2000; ++round) {
    const std::uint64_t k = 100 + round % 15;
    ASSERT_TRUE(map.insert(k, round).absent());
    ASSERT_TRUE(map.erase(k).present());
  }
  ASSERT_TRUE(soon([] { return marked() == kSteps; }));
  expect_whole(pool);
  expect_entries(pool);
}

// Until an erase is fenced it has not freed the block, and a reader may use it even longer. A sweep
// that ends in between must not hand it out (I4 of the heap).
TEST_F(RestartAtOnce, WhatAnEraseTakesAwayIsNotSweptUnderIt) {
  make();
  Pool pool = driven();
  auto map = map_of(pool);
  little_rules().in_an_erase = [&] {  // in its guard, so another thread calls the pool
    std::thread([&] {
      while (*pool.run_background()) {
      }
      for (std::uint64_t k = 0; k < 15; ++k) ASSERT_TRUE(map.insert(1000 + k, k).absent());
    }).join();
  };
  ASSERT_TRUE(map.erase(0).present());
  expect_whole(pool);  // the erased block is free now
  for (std::uint64_t k = 0; k < 4; ++k) ASSERT_TRUE(map.insert(2000 + k, 77).absent());
  for (std::uint64_t k = 0; k < 15; ++k) {
    EXPECT_EQ(*map.get(1000 + k), std::optional<std::uint64_t>(k)) << k;
  }
}

TEST_F(RestartAtOnce, ACheckFinishesTheSweep) {
  make(true);
  Pool pool = driven();
  expect_whole(pool);
  EXPECT_EQ(marked(), kSteps);
  expect_entries(pool);
}

// Marking finds damage while the pool serves: no checksum covers the content then.
TEST_F(RestartAtOnce, DamageFoundBehindTheOpenIsNotBuried) {
  make();
  std::string bytes = test::read_bytes(path_);
  const std::uint64_t magic = testing::LittleEngine<RealPlatform>::kMagic;
  const std::size_t root = bytes.find(std::string_view(reinterpret_cast<const char*>(&magic), 8));
  ASSERT_NE(root, std::string::npos);
  const std::uint64_t nowhere = 3;  // replaces the last slot's block
  std::memcpy(&bytes[root + 64 + 119 * 16], &nowhere, sizeof(nowhere));
  test::write_bytes(path_, bytes);
  {
    Pool observed = open({.mode = OpenMode::read_only});
    const auto map = observed.map<std::uint64_t, std::uint64_t>("m", kLittle);
    EXPECT_EQ(map.error().code(), StatusCode::corruption);
  }
  enum class Found { before_the_sync, by_the_sync, by_a_thread };
  for (const Found found : {Found::before_the_sync, Found::by_the_sync, Found::by_a_thread}) {
    Pool pool = found == Found::by_a_thread ? open({.max_size = 16_MiB}) : driven();
    while (found == Found::before_the_sync && *pool.run_background()) {
    }
    EXPECT_EQ(pool.sync().code(), StatusCode::corruption);
    EXPECT_FALSE(Pool::inspect(path_)->synced);
    const auto report = pool.check();
    ASSERT_TRUE(report.has_value() && !report->ok());
    EXPECT_TRUE(report->first().starts_with("map m: ")) << report->first();
    EXPECT_EQ(pool.close().code(), StatusCode::corruption);
    EXPECT_FALSE(Pool::inspect(path_)->clean);
  }
}

// The open reads no word of the extent table. A damaged one that is found later is not buried, and
// with the word everything is back.
TEST_F(RestartAtOnce, ADamagedExtentTableFoundBehindTheOpenIsNotBuried) {
  make();
  const std::string sound = test::read_bytes(path_);
  layout::Header header;
  std::memcpy(&header, sound.data(), sizeof(header));
  const std::uint64_t magic = testing::LittleEngine<RealPlatform>::kMagic;
  const std::size_t root = sound.find(std::string_view(reinterpret_cast<const char*>(&magic), 8));
  const std::uint64_t extents = (header.file_bytes - header.data_offset) / header.extent_bytes;
  std::uint64_t later = 0;
  enum class Found { by_the_background, by_a_thread, by_sync, by_check, by_close };
  for (std::uint64_t extent = 0; extent < extents; ++extent) {
    const std::size_t at = header.table_offset + extent * 8;
    std::string bytes = sound;
    bytes[at + 5] ^= 1;  // of the checksum, also of a word that says virgin
    for (const Found found : {Found::by_the_background, Found::by_a_thread, Found::by_sync,
                              Found::by_check, Found::by_close}) {
      test::write_bytes(path_, bytes);
      const std::string what = "extent table: word " + std::to_string(extent) + " is damaged";
      for (const OpenMode mode : {OpenMode::read_only, OpenMode::existing}) {
        // A reader, and an owner that needs this very word.
        if (mode == OpenMode::existing &&
            (root - header.data_offset) / header.extent_bytes != extent)
          continue;
        auto refused = Pool::open(path_, {.mode = mode});
        ASSERT_FALSE(refused.has_value());
        EXPECT_EQ(refused.error().code(), StatusCode::corruption);
        EXPECT_NE(refused.error().message().find(what), std::string_view::npos);
        if (mode == OpenMode::existing) bytes.clear();
      }
      if (bytes.empty()) break;
      ++later;
      Pool pool = found == Found::by_a_thread ? open({.max_size = 16_MiB}) : driven();
      auto map = map_of(pool);
      (void)map.insert(1000, 1);  // may find it
      while (found == Found::by_the_background && *pool.run_background()) {
      }
      if (found == Found::by_sync || found == Found::by_a_thread) {
        EXPECT_EQ(pool.sync().code(), StatusCode::corruption);
        EXPECT_FALSE(Pool::inspect(path_)->synced);
      }
      if (found != Found::by_close) {
        const auto report = pool.check();
        ASSERT_TRUE(report.has_value() && !report->ok());
        EXPECT_EQ(report->first(), what);
        EXPECT_EQ(pool.compact().error().code(), StatusCode::corruption);
      }
      EXPECT_EQ(pool.close().code(), StatusCode::corruption);
      EXPECT_FALSE(Pool::inspect(path_)->clean);
      // Repaired, it is the pool of a killed process.
      bytes = test::read_bytes(path_);
      bytes[at + 5] ^= 1;
      test::write_bytes(path_, bytes);
      Pool again = driven();
      expect_entries(again);
      expect_whole(again);
      bytes = sound;
      bytes[at + 5] ^= 1;
    }
  }
  EXPECT_GE(later, 5U);
}

TEST_F(RestartAtOnce, AMapDroppedMeanwhileLeavesNothing) {
  make(true);
  Pool pool = driven();
  (void)pool.run_background();
  (void)pool.run_background();
  ASSERT_TRUE(pool.drop("m").ok());
  const std::uint64_t before = marked();
  while (*pool.run_background()) {
  }
  EXPECT_EQ(marked(), before);
  expect_whole(pool);
  auto map = map_of(pool);  // another map, in the space of the first
  for (std::uint64_t k = 0; k < 100; ++k) ASSERT_TRUE(map.insert(k, k * 3).absent());
  expect_entries(pool);
  expect_whole(pool);
}

TEST_F(RestartAtOnce, AMapMadeMeanwhileIsKept) {
  make();
  Pool pool = driven();
  auto other = pool.map<std::uint64_t, std::uint64_t>("o", {.phast = {.partition_bits = 2}});
  ASSERT_TRUE(other.has_value()) << other.error().message();
  for (std::uint64_t k = 1; k <= 500; ++k) ASSERT_TRUE(other->insert(k, k).absent());
  auto more = pool.map<std::uint64_t, std::uint64_t>("m2", kLittle);
  ASSERT_TRUE(more.has_value()) << more.error().message();
  ASSERT_TRUE(more->insert(5, 6).absent());
  expect_whole(pool);
  ASSERT_TRUE(pool.close().ok());
  Pool again = driven();
  expect_entries(again);
  expect_whole(again);
}

TEST_F(RestartAtOnce, ClosedAndSyncedInTheMiddle) {
  make();
  for (int i = 0; i < 3; ++i) {
    Pool pool = driven();
    (void)pool.run_background();
    expect_entries(pool);
    if (i == 1) {
      ASSERT_TRUE(pool.sync().ok());
      EXPECT_TRUE(Pool::inspect(path_)->synced);
    }
    ASSERT_TRUE(pool.close({.sync = i != 2}).ok());
  }
  Pool pool = driven();
  EXPECT_TRUE(pool.info()->clean);
  expect_whole(pool);
  expect_entries(pool);
}

TEST_F(RestartAtOnce, ReadOnlyAndUntrustedPoolsMarkAtOpen) {
  make();
  const std::size_t threads = threads_of_this_process();
  {
    Pool pool = open({.mode = OpenMode::read_only});
    EXPECT_EQ(marked(), kSteps);
    EXPECT_EQ(threads_of_this_process(), threads);
    expect_entries(pool);
    expect_whole(pool);
  }
  {
    Pool pool = driven();
    expect_entries(pool);
    ASSERT_TRUE(pool.close({.sync = false}).ok());
  }
  const std::string copy = path_ + "-copy";
  std::filesystem::copy_file(path_, copy, std::filesystem::copy_options::overwrite_existing);
  const std::uint64_t before = marked();
  auto pool = Pool::open(copy, {.accept_untrusted = true, .background_threads = 0});
  ASSERT_TRUE(pool.has_value()) << pool.error().message();
  EXPECT_EQ(marked(), before + kSteps);
  expect_entries(*pool);
  ::unlink(copy.c_str());
}

// 4d: an insert into a full pool waits for the sweep before it returns pool_full.
TEST_F(RestartAtOnce, AFullPoolIsSweptFirst) {
  for (const std::uint32_t threads : {0U, 1U}) {
    ::unlink(path_.c_str());
    testing::reset_little_rules();
    const PoolOptions small{.max_size = 1_MiB, .background_threads = threads};
    const MapOptions flat{.phast = {.partition_bits = 0}};
    const std::string large(900, 'x');
    std::uint64_t stored = 0;
    {
      Pool pool = open(small);
      auto map = map_of(pool);
      for (std::uint64_t k = 0; k < 100; ++k) ASSERT_TRUE(map.insert(k, k * 3).ok());
      auto other = pool.map<std::uint64_t, std::string_view>("o", flat);
      ASSERT_TRUE(other.has_value());
      while (other->insert(stored + 1, large).ok()) ++stored;
      ASSERT_GT(stored, 200U);
      for (std::uint64_t k = 1; k <= 20; ++k) ASSERT_TRUE(other->erase(k).present());
      ASSERT_TRUE(pool.close().ok());
    }
    little_rules().at_once = true;
    Pool pool = open(small);
    auto other = pool.map<std::uint64_t, std::string_view>("o", flat);
    ASSERT_TRUE(other.has_value());
    for (std::uint64_t k = 1; k <= 10; ++k) {
      auto inserted = other->insert(k, large);
      ASSERT_TRUE(inserted.ok()) << inserted.status().message();
    }
    EXPECT_EQ(marked(), kSteps);
    expect_entries(pool);
    expect_whole(pool);
  }
}

// On memory, the first touch of a page costs a fault. An open that does not touch all pages leaves
// that to the background, in steps that files on a disk do not have.
TEST_F(RestartAtOnce, MemoryIsMappedInTheBackground) {
  if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  const std::string on_disk = path_;
  std::uint64_t steps[2] = {};
  for (const bool memory : {false, true}) {
    if (memory) path_ = "/dev/shm/" + std::filesystem::path(on_disk).filename().string();
    ::unlink(path_.c_str());
    testing::reset_little_rules();
    make();
    Pool pool = driven();
    if ((pool.info()->medium == Medium::volatile_ram) != memory) {
      ::unlink(path_.c_str());
      GTEST_SKIP() << path_ << " is on something else";
    }
    while (*pool.run_background()) ++steps[memory ? 1 : 0];
    expect_whole(pool);
    expect_entries(pool);
    ASSERT_TRUE(pool.close().ok());
    ::unlink(path_.c_str());
  }
  EXPECT_GT(steps[1], steps[0]);
}

// The write-back after a kill also continues while the pool serves.
TEST_F(RestartAtOnce, AfterAKill) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto pool = Pool::open(path_, {.durability = Durability::emulated, .max_size = 16_MiB});
    auto map = pool->map<std::uint64_t, std::uint64_t>("m", kLittle);
    for (std::uint64_t k = 0; k < 100; ++k) (void)map->insert(k, k * 3);
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_GT(child, 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  little_rules().at_once = true;
  Pool pool = driven();
  EXPECT_FALSE(pool.info()->clean);
  EXPECT_EQ(pool.info()->durability, Durability::emulated);
  EXPECT_EQ(marked(), 0U);
  expect_entries(pool);
  expect_whole(pool);
  EXPECT_EQ(marked(), kSteps);
}

// A process that only reads does not wait for the recovery at close. It leaves the same state as
// another kill.
TEST_F(RestartAtOnce, ACloseLeavesTheRecoveryToTheNextOpen) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto pool = Pool::open(path_, {.max_size = 16_MiB});
    auto map = pool->map<std::uint64_t, std::uint64_t>("m", kLittle);
    for (std::uint64_t k = 0; k < 100; ++k) (void)map->insert(k, k * 3);
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_GT(child, 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  little_rules().at_once = true;
  for (std::uint64_t k = 1000; k < 1003; ++k) {
    Pool pool = driven();
    EXPECT_FALSE(pool.info()->clean);
    expect_entries(pool);
    ASSERT_TRUE(map_of(pool).insert(k, k).absent());  // a mutation is as durable as ever
    ASSERT_TRUE(pool.close({.finish_recovery = false}).ok());
    EXPECT_FALSE(Pool::inspect(path_)->clean);
    EXPECT_FALSE(Pool::inspect(path_)->in_use);
  }
  {
    Pool pool = driven();
    for (std::uint64_t k = 1000; k < 1003; ++k) {
      EXPECT_EQ(*map_of(pool).get(k), std::optional<std::uint64_t>(k));
    }
    expect_whole(pool);  // ends the recovery: this close is then an ordinary one
    ASSERT_TRUE(pool.close({.finish_recovery = false}).ok());
  }
  EXPECT_TRUE(Pool::inspect(path_)->clean);
  // A closed pool is closed again, although its walk has just begun.
  Pool pool = driven();
  expect_entries(pool);
  ASSERT_TRUE(pool.close({.finish_recovery = false}).ok());
  EXPECT_TRUE(Pool::inspect(path_)->clean);
}

// ---- torture ----

struct LittleUnderLoss {
  static constexpr Engine kEngine = testing::kLittleEngine;
  template <bool Bytes>
  using Map = testing::LittleEngine<testing::LossyPlatform>;
  template <bool Bytes>
  static Expected<std::uint64_t> create(const EngineContext<testing::LossyPlatform>& context,
                                        const MapKinds&) {
    return Map<Bytes>::create(context);
  }
};

TEST_F(RestartAtOnce, TheLossyTargetChecksAndClosesBesideNoStep) {
  little_rules().turns = kEndless;
  little_rules().in_a_step = [] { std::this_thread::sleep_for(std::chrono::microseconds(300)); };
  testing::LossyTarget<LittleUnderLoss, false> target;
  ASSERT_TRUE(
      target.open({.mode = "lossless", .keys = "integer"}, path_, testing::LossyJournal::make())
          .ok());
  ASSERT_TRUE(soon([] { return little_rules().steps > 3; }));
  for (int i = 0; i < 10; ++i) {
    std::uint64_t entries = 0;
    ASSERT_EQ(target.check(entries), "");
  }
  ASSERT_TRUE(target.close().ok());
  const std::uint64_t steps = little_rules().steps;
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  EXPECT_EQ(little_rules().steps, steps);
}

TEST_F(RestartAtOnce, TheLossyTargetAsksTheEngineToCompact) {
  testing::LossyTarget<LittleUnderLoss, false> target;
  ASSERT_TRUE(
      target.open({.mode = "lossless", .keys = "integer"}, path_, testing::LossyJournal::make())
          .ok());
  ASSERT_TRUE(target.compact().ok());
  EXPECT_EQ(little_rules().compacted, 1U);
  EXPECT_TRUE(target.close().ok());
}

// A pool of the torture serves at once, as users' pools do. The blocks that its map's results
// depend on are written back first.
TEST_F(RestartAtOnce, TheLossyTargetToo) {
  little_rules().at_once = true;
  const testing::TortureOptions options{.mode = "lossless", .keys = "integer"};
  testing::LossyJournal* journal = testing::LossyJournal::make();
  const std::string key(8, 'k'), value(8, 'v');
  {
    testing::LossyTarget<LittleUnderLoss, false> killed;
    ASSERT_TRUE(killed.open(options, path_, journal).ok());
    ASSERT_TRUE(killed.insert(key, value).value_or(false));
  }
  testing::reset_site_counts();
  testing::LossyTarget<LittleUnderLoss, false> target;
  ASSERT_TRUE(target.open(options, path_, journal).ok());
  std::string found;
  ASSERT_TRUE(target.find(key, found).value_or(false));
  EXPECT_EQ(found, value);
  EXPECT_GT(testing::find_site("pool.settle.extent")->fence_count, 0U);
  EXPECT_EQ(testing::find_site("pool.open.write_back")->fence_count, 0U);
  std::uint64_t entries = 0;
  EXPECT_EQ(target.check(entries), "");
  EXPECT_EQ(entries, 1U);
  EXPECT_EQ(marked(), kSteps);
  EXPECT_TRUE(target.close().ok());
}

testing::TortureReport torture_little(const std::string& mode, const std::string& mutant) {
  const testing::TortureOptions options{.engine = "little",
                                        .mode = mode,
                                        .keys = "integer",
                                        .path = std::filesystem::temp_directory_path().string(),
                                        .mutant = mutant,
                                        .cycles = mutant.empty() ? 60U : 200U,
                                        .threads = 1,  // it has one writer
                                        .keys_per_thread = 60,
                                        .more_keys = 0};
  testing::LossyJournal* journal = testing::LossyJournal::make();
  const auto report =
      testing::run_torture(options, [=](const testing::TortureOptions& o, const std::string& file) {
        return testing::open_lossy<LittleUnderLoss>(o, file, journal);
      });
  std::printf("%s %s\n", report.summary(options).c_str(), mutant.c_str());
  return report;
}

TEST_F(RestartAtOnce, LosesNothingUnderTorture) {
  little_rules().at_once = true;
  for (const char* mode : {"lossy", "lossless"}) {
    const testing::TortureReport report = torture_little(mode, "");
    EXPECT_TRUE(report.ok()) << report.failure;
    EXPECT_GT(report.acknowledged, 0U);
  }
  EXPECT_FALSE(torture_little("lossy", "little.insert.slot:drop_flush").ok());
}

}  // namespace
}  // namespace perdure
