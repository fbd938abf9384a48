// test: explores
// Drains of level hashing that are disturbed: by damage, a full pool, scans. No thread waits for
// ever, and the rest of a drain is taken up again.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "testing/engines/level_subject.h"
#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

// A table with a level to drain, one bucket at a time. No background thread does it: mutations that
// need room do, and work().
class Table {
 public:
  Table() {
    SimPlatform::seed(1);
    memory_.set_mode(SimMode::plain);
    EXPECT_TRUE(subject_.create(memory_).ok());
    EXPECT_TRUE(subject_.open(memory_, 1).ok());
    memory_.settle();
    memory_.set_mode(SimMode::recording);
  }
  explicit Table(std::uint64_t keys) : Table() {
    for (std::uint64_t key = 1; key <= keys || levels() < 3; ++key) {
      EXPECT_TRUE(put(next_++));
    }
  }
  Expected<bool> put(std::uint64_t key) { return subject_.call(insert(key, key)); }
  std::uint64_t next() { return next_++; }
  Expected<bool> gone(std::uint64_t key) { return subject_.call(erase(key)); }
  std::uint64_t levels() { return subject_.stats().levels.size(); }
  void work() { subject_.background(); }
  // Runs only what was woken.
  void work_until_rest() {
    while (subject_.pool().core().background().run_some()) {
    }
  }
  // All that a descriptor could take.
  void fill_pool() {
    Heap<SimPlatform>& heap = subject_.pool().heap();
    for (;;) {
      auto block = heap.allocate(sizeof(level::layout::Descriptor), BlockKind::plain);
      if (!block) break;
      ballast_.push_back(*block);
    }
  }
  void free_pool() {
    for (const std::uint64_t block : ballast_) subject_.pool().heap().discard(block);
    ballast_.clear();
  }
  SimMemory& memory() { return memory_; }
  SimPlatform& platform() { return subject_.pool().platform(); }
  LevelSubject<level::IntegerCodec, SlowGeometry>& subject() { return subject_; }

 private:
  SimMemory memory_{2 << 20};
  LevelSubject<level::IntegerCodec, SlowGeometry> subject_;
  std::uint64_t next_ = 1;
  std::vector<std::uint64_t> ballast_;
};

// A write-back of a drain fails while another thread waits for its end.
TEST(LevelDrain, APoisonedPoolHoldsNoThreadUp) {
  std::uint64_t poisoned = 0;
  for (std::uint64_t keys = 20; keys < 60; ++keys) {
    for (std::uint64_t number = 1; number <= 8; ++number) {
      const ScopedWorld world;
      std::uint64_t seen = 0;
      Table table(keys);
      const auto drain = [&] {
        for (int i = 0; i < 20; ++i) table.work();
      };
      const auto fill = [&] {
        for (int i = 0; i < 60 && table.put(table.next()); ++i) {
        }
      };
      table.memory().before_fence = [&](const SiteInfo& info) {
        if (std::string(info.name) != "level.drain.copy" || ++seen != number) return;
        table.platform().poison();
        ++poisoned;
      };
      Scheduler scheduler;
      DirectedStrategy strategy({{0, fence_of("level.drain.copy", number)}, {1}, {0}, {1}});
      ASSERT_TRUE(scheduler.run({drain, fill}, strategy)) << keys << ' ' << scheduler.where();
    }
  }
  EXPECT_GT(poisoned, 20U);
}

// Inserts, steps and a scan in any order while nothing can be allocated; then something can.
void expect_taken_up(std::uint64_t seed) {
  const ScopedWorld world;
  Table table(20 + seed % 40);
  const auto fill = [&] {
    for (int i = 0; i < 6; ++i) (void)table.put(table.next()).has_value();
  };
  const auto drain = [&] {
    for (int i = 0; i < 12; ++i) table.work();
  };
  const auto scan = [&] {
    (void)table.subject().scan(false, [](const std::string&, const std::string&) {});
  };
  table.fill_pool();
  Scheduler scheduler;
  PctStrategy strategy(3, 4, 6'000, seed);
  ASSERT_TRUE(scheduler.run({fill, drain, scan}, strategy)) << seed << ' ' << scheduler.where();
  table.free_pool();
  table.work_until_rest();
  ASSERT_EQ(table.levels(), 2U) << seed;
  for (const ResizeStats& resize : table.subject().stats().resizes) {
    ASSERT_LE(resize.buckets * 9, resize.slots_before) << "a third has these slots of three";
  }
}
// An insert takes the last batch and gives it up for a scan; when that is over the background finds
// no batch, and rests; then the insert sets the drain back.
TEST(LevelDrain, WhatAScanHeldUpIsTakenUp) {
  const ScopedWorld world;
  std::uint64_t puts = 0;  // as many until one drains
  {
    bool drained = false;
    Table table(0);
    table.memory().before_fence = [&](const SiteInfo& info) {
      drained = drained || std::string(info.name) == "level.drain.copy";
    };
    for (; !drained; ++puts) ASSERT_TRUE(table.put(table.next()));
  }
  bool ended = false;
  for (std::uint64_t until = 0; !ended; ++until) {
    for (std::uint64_t more = 0; more < 12; ++more) {
      Table table(0);
      for (std::uint64_t i = 1; i < puts; ++i) ASSERT_TRUE(table.put(table.next()));
      const auto put = [&] { (void)table.put(table.next()).has_value(); };
      const auto scan = [&] {
        (void)table.subject().scan(false, [](const std::string&, const std::string&) {});
      };
      const auto drain = [&] {
        for (int i = 0; i < 4; ++i) table.work();
      };
      Scheduler scheduler;
      DirectedStrategy strategy(
          {{0, steps(until)}, {1, steps(40)}, {0, steps(more)}, {1}, {2}, {0}});
      ASSERT_TRUE(scheduler.run({put, scan, drain}, strategy)) << scheduler.where();
      ended = strategy.ends()[0] == LegEnd::ended;
      table.work_until_rest();
      ASSERT_EQ(table.levels(), 2U) << until << ' ' << more;
    }
  }
}
TEST(LevelDrain, WhatAFullPoolHeldUpIsTakenUp) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    ASSERT_NO_FATAL_FAILURE(expect_taken_up(seed));
  }
}

TEST(LevelDrain, AShrinkThatFoundNoSpaceIsMadeLater) {
  const ScopedWorld world;
  Table table(60);
  table.work_until_rest();
  const std::uint64_t resizes = table.subject().stats().resizes.size();
  table.fill_pool();
  for (std::uint64_t key = 4, end = table.next(); key < end; ++key)
    (void)table.gone(key).has_value();
  table.work_until_rest();
  ASSERT_EQ(table.subject().stats().resizes.size(), resizes);
  table.free_pool();
  table.work_until_rest();
  const EngineStats stats = table.subject().stats();
  ASSERT_GT(stats.resizes.size(), resizes);
  EXPECT_TRUE(stats.resizes[stats.resizes.size() - 1].shrink);
}

// Keys of two buckets in every level of at most four: more than half as many slots hold.
TEST(LevelDrain, CompactEndsWhereAShrinkIsUndone) {
  const ScopedWorld world;
  Table table;
  const level::layout::Root* root = level_root(table.memory());
  ASSERT_NE(root, nullptr);
  const level::Seeds seeds{{root->seeds[0], root->seeds[1]}};
  for (std::uint64_t key = 1, made = 0; made < 14; ++key) {
    const level::Probe probe = level::place(key, seeds);
    if ((probe.hashes[0] % 4 + probe.hashes[1] % 4) != 1) continue;
    ASSERT_TRUE(table.put(key));
    ++made;
    table.work_until_rest();
  }
  const std::size_t resizes = table.subject().stats().resizes.size();
  const auto smaller = table.subject().apply({OpKind::compact, {}, {}});
  ASSERT_TRUE(smaller);
  const EngineStats stats = table.subject().stats();
  ASSERT_EQ(stats.resizes.size(), resizes + 1);
  const ResizeStats& last = stats.resizes[resizes];
  EXPECT_TRUE(last.shrink);
  EXPECT_EQ(last.slots_after, last.slots_before);
}

}  // namespace
}  // namespace perdure::testing
