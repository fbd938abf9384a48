// test: explores
// The guarantees that a pool gives to an engine: when its background work may run, and how a check
// and a sync treat it. An engine need not keep order.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include <unistd.h>

#include "tests/support/little_pool.h"

namespace perdure {
namespace {

using EngineContract = LittlePool;

TEST_F(EngineContract, WorkStartsWhenThePoolIsDirtyAndNotBefore) {
  bool dirty = false;
  little_rules().on_start = [&] {
    auto info = Pool::inspect(path_);
    dirty = info.has_value() && !info->clean;
  };
  const std::size_t before = threads_of_this_process();
  for (int open_number = 1; open_number <= 3; ++open_number) {
    little_rules().turns = 50;
    dirty = false;
    Pool pool = open();
    auto map = map_of(pool);
    EXPECT_EQ(little_rules().starts, open_number);
    EXPECT_TRUE(dirty);
    EXPECT_TRUE(soon([&] { return little_rules().turns == 0; }));
    EXPECT_EQ(threads_of_this_process(), before + 1);
    ASSERT_TRUE(map.put(static_cast<std::uint64_t>(open_number), 7).ok());
    ASSERT_TRUE(pool.close().ok());
    EXPECT_EQ(threads_of_this_process(), before);
  }
}

TEST_F(EngineContract, AReadOnlyPoolHasNoWork) {
  {
    Pool pool = open();
    ASSERT_TRUE(map_of(pool).insert(1, 2).ok());
  }
  little_rules().turns = kEndless;
  const int starts = little_rules().starts;
  const std::size_t before = threads_of_this_process();
  Pool pool = open({.mode = OpenMode::read_only});
  EXPECT_EQ(*map_of(pool).get(1), std::optional<std::uint64_t>(2));
  EXPECT_EQ(threads_of_this_process(), before);
  EXPECT_EQ(little_rules().starts, starts);
}

TEST_F(EngineContract, NoWorkOfAPoolThatIsRefused) {
  {
    Pool pool = open();
    ASSERT_TRUE(map_of(pool).insert(1, 2).ok());
    ASSERT_TRUE(pool.close({.sync = false}).ok());
  }
  const std::string copy = path_ + "-copy";
  std::filesystem::copy_file(path_, copy, std::filesystem::copy_options::overwrite_existing);
  const int starts = little_rules().starts;
  EXPECT_EQ(Pool::open(copy).error().code(), StatusCode::untrusted);
  EXPECT_EQ(little_rules().starts, starts);
  EXPECT_TRUE(Pool::open(copy, {.accept_untrusted = true}).has_value());
  EXPECT_EQ(little_rules().starts, starts + 1);
  ::unlink(copy.c_str());
}

TEST_F(EngineContract, ACheckRunsBesideNoStep) {
  little_rules().turns = kEndless;
  little_rules().in_a_step = [] { std::this_thread::sleep_for(std::chrono::microseconds(300)); };
  Pool pool = open();
  auto map = map_of(pool);
  ASSERT_TRUE(map.insert(1, 2).ok());
  ASSERT_TRUE(soon([] { return little_rules().steps > 3; }));
  for (int i = 0; i < 20; ++i) {
    auto report = pool.check({.deep = true});
    ASSERT_TRUE(report.has_value());
    ASSERT_TRUE(report->ok()) << report->first();
    EXPECT_EQ(report->leaked_blocks, 0U);
  }
  const std::uint64_t steps = little_rules().steps;
  EXPECT_TRUE(soon([&] { return little_rules().steps > steps; })) << "it goes on";
}

// Close audits nothing. It waits for one step, not for all work.
TEST_F(EngineContract, CloseEndsWorkThatHasNoEnd) {
  little_rules().turns = kEndless;
  Pool pool = open();
  (void)map_of(pool);
  ASSERT_TRUE(soon([] { return little_rules().steps > 3; }));
  ASSERT_TRUE(pool.close().ok());
  const std::uint64_t steps = little_rules().steps;
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  EXPECT_EQ(little_rules().steps, steps);
}

TEST_F(EngineContract, ADroppedMapHasNoWork) {
  little_rules().turns = kEndless;
  Pool pool = open();
  (void)map_of(pool);
  ASSERT_TRUE(soon([] { return little_rules().steps > 3; }));
  ASSERT_TRUE(pool.drop("m").ok());
  const std::uint64_t steps = little_rules().steps;
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  EXPECT_EQ(little_rules().steps, steps);
  auto report = pool.check({.deep = true});
  ASSERT_TRUE(report.has_value() && report->ok()) << report->first();
  EXPECT_EQ(report->leaked_blocks, 0U);
}

// Endless work, such as a rehash that inserts keep waking: sync gives up on the seal and writes
// back.
TEST_F(EngineContract, SyncDoesNotWaitForWorkWithoutEnd) {
  for (const std::uint32_t threads : {0U, 1U}) {
    testing::reset_little_rules();
    little_rules().turns = kEndless;
    little_rules().in_a_step = [] { std::this_thread::sleep_for(std::chrono::microseconds(200)); };
    Pool pool = open({.max_size = 16_MiB, .background_threads = threads});
    (void)map_of(pool);
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(pool.sync().ok());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << threads;
    EXPECT_FALSE(Pool::inspect(path_)->synced);
    little_rules().turns = 1;
    if (threads == 0) (void)pool.run_background();
    ASSERT_TRUE(soon([] { return little_rules().turns == 0; }));
    ASSERT_TRUE(pool.sync().ok());
    EXPECT_TRUE(Pool::inspect(path_)->synced) << "at rest again";
    ASSERT_TRUE(pool.close().ok());
  }
}

// The pool refuses an engine without order before it makes the map.
TEST_F(EngineContract, AnOrderedMapIsNotMadeOfAnEngineWithoutOrder) {
  Pool pool = open();
  EXPECT_EQ((pool.ordered_map<std::uint64_t, std::uint64_t>("m", kLittle).error()),
            StatusCode::unsupported);
  EXPECT_TRUE(pool.list()->empty());
  ASSERT_TRUE((pool.ordered_map<std::uint64_t, std::uint64_t>("o").has_value()));
  EXPECT_EQ((pool.ordered_map<std::uint64_t, std::uint64_t>("o", kLittle).error()),
            StatusCode::invalid_argument)
      << "it has another engine";
  (void)map_of(pool);
  EXPECT_EQ((pool.ordered_map<std::uint64_t, std::uint64_t>("m").error()), StatusCode::unsupported);
}

TEST_F(EngineContract, CompactAsksTheEngine) {
  Pool pool = open();
  (void)map_of(pool);
  ASSERT_TRUE(pool.compact().has_value());
  EXPECT_EQ(little_rules().compacted, 1U);
}

}  // namespace
}  // namespace perdure
