// Drains of level hashing that are disturbed: by damage, a full pool, scans. Nobody waits for ever,
// and what is left over is taken up again.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support.h"
#include "testing/engines/level_subject.h"

namespace perdure::testing {
namespace {

// A table with a level to drain, of one bucket at a time, by whoever needs room and by those who
// call work(): no thread does it.
class Table {
 public:
  explicit Table(std::uint64_t keys) {
    SimPlatform::seed(1);
    memory_.set_mode(SimMode::plain);
    EXPECT_TRUE(subject_.create(memory_).ok());
    EXPECT_TRUE(subject_.open(memory_, 1).ok());
    for (std::uint64_t key = 1; key <= keys || levels() < 3; ++key) {
      EXPECT_TRUE(put(next_++));
    }
    memory_.settle();
    memory_.set_mode(SimMode::recording);
  }
  Expected<bool> put(std::uint64_t key) { return subject_.call(insert(key, key)); }
  std::uint64_t next() { return next_++; }
  std::uint64_t levels() { return subject_.stats().levels.size(); }
  void work() { subject_.background(); }
  // What wakes nobody is not done.
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
  LevelSubject<level::IntegerCodec, level::Geometry<1, 1, 1, 1, 1>>& subject() { return subject_; }

 private:
  SimMemory memory_{2 << 20};
  LevelSubject<level::IntegerCodec, level::Geometry<1, 1, 1, 1, 1>> subject_;
  std::uint64_t next_ = 1;
  std::vector<std::uint64_t> ballast_;
};

// A write-back of a drain fails while another thread waits for its end.
TEST(LevelDrain, APoisonedPoolHoldsNobodyUp) {
  std::uint64_t poisoned = 0;
  for (std::uint64_t keys = 20; keys < 60; ++keys) {
    for (std::uint64_t number = 1; number <= 8; ++number) {
      const ScopedWorld world;
      Table table(keys);
      const auto drain = [&] {
        for (int i = 0; i < 20; ++i) table.work();
      };
      const auto fill = [&] {
        for (int i = 0; i < 60 && table.put(table.next()); ++i) {
        }
      };
      std::uint64_t seen = 0;
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

}  // namespace
}  // namespace perdure::testing
