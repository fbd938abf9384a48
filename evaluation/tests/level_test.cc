// Level hashing as printed: what its design decisions do, and its expansion.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "bench/harness/memory_heap.h"
#include "bench/workloads/random.h"
#include "evaluation/hash/mix.h"
#include "evaluation/hash/two_level.h"
#include "perdure/pool.h"
#include "tests/support/support.h"

namespace perdure::paper {
namespace {

using test::must;
using Printed = TwoLevel<RealPlatform, 4>;

class PaperLevel : public ::testing::Test {
 protected:
  PaperLevel() {
    memory_.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
    must(memory_.open(64_KiB, 1024));
  }
  std::unique_ptr<Printed> make(std::uint32_t log_top, const Decisions& decisions = {}) {
    return must(Printed::make_with(memory_.platform(), memory_.heap(), log_top, decisions));
  }
  // Inserts keys, beginning with this one, until the table is full. Returns its load factor.
  static double fill(Table& table, std::uint64_t first = 0) {
    for (std::uint64_t n = first;; ++n) {
      auto inserted = table.insert(bench::mix64(n), n);
      if (inserted) {
        EXPECT_TRUE(*inserted);
        continue;
      }
      EXPECT_EQ(inserted.error(), StatusCode::pool_full);
      return static_cast<double>(table.items()) / static_cast<double>(table.slots());
    }
  }
  static void expect_items(Table& table) {
    for (std::uint64_t n = 0; n < table.items(); ++n) {
      std::uint64_t value = 0;
      ASSERT_TRUE(must(table.find(bench::mix64(n), value)));
      ASSERT_EQ(value, n);
    }
    Findings report;
    table.check(report);
    EXPECT_TRUE(report.ok()) << report.first();
    EXPECT_EQ(report.entries, table.items());
  }
  bench::MemoryHeap memory_;
};

// Figure 2.
TEST_F(PaperLevel, EachDecisionRaisesTheLoad) {
  Decisions decisions{.two_hashes = false, .two_levels = false, .movement = false};
  std::vector<double> loads;
  const auto measure = [&] {
    auto table = make(13, decisions);
    loads.push_back(fill(*table));
    expect_items(*table);
  };
  measure();
  decisions.two_hashes = true;
  measure();
  decisions.two_levels = true;
  measure();
  decisions.movement = true;
  measure();
  EXPECT_LT(loads[0], 0.3);
  EXPECT_LT(loads[0], loads[1]);
  EXPECT_LT(loads[1], loads[2]);
  EXPECT_LT(loads[2], loads[3]);
  EXPECT_GT(loads[3], 0.9);
}

// Figure 4: after an expansion the bottom level is nearly full, and only movements to the top level
// make room in it.
TEST_F(PaperLevel, MovementsUpwardsRaiseTheLoadAfterAnExpansion) {
  double loads[2];
  for (const bool upwards : {false, true}) {
    auto table = make(12, {.upwards = upwards});
    EXPECT_GT(fill(*table), 0.9);
    const std::uint64_t slots = table->slots();
    must(table->expand());
    EXPECT_EQ(table->slots(), 2 * slots);
    expect_items(*table);
    loads[upwards ? 1 : 0] = fill(*table, table->items());
    expect_items(*table);
  }
  EXPECT_GT(loads[1], loads[0] + 0.02);
}

TEST_F(PaperLevel, SearchesOfBothKindsFindEverything) {
  for (const bool dynamic : {false, true}) {
    auto table = make(10, {.dynamic_search = dynamic});
    fill(*table);
    for (int i = 0; i < 3; ++i) {
      must(table->expand());
      expect_items(*table);
      std::uint64_t value = 0;
      for (std::uint64_t n = 0; n < 1000; ++n) {
        ASSERT_FALSE(must(table->find(bench::mix64((1ULL << 40) + n), value)));
      }
      fill(*table, table->items());
    }
  }
}

// A movement within an expansion is 3F 3S for each item of the bottom level, and only for those.
TEST_F(PaperLevel, AnExpansionMovesTheBottomLevel) {
  auto table = make(10);
  fill(*table);
  const std::uint64_t bottom = table->slots() / 3;
  const Counters before = thread_counters();
  must(table->expand());
  const Counters after = thread_counters();
  const std::uint64_t moved = (after.flushes - before.flushes) / 3;
  EXPECT_GT(moved, bottom / 2);
  EXPECT_LE(moved, bottom);
  EXPECT_LE(after.fences - before.fences, moved * 3 + 2);  // the level's block has its own
}

// Figures 8 b and 12: an update goes into an empty slot of its bucket, else through the log. A
// bucket of two slots is one line, so the lines tell which.
TEST_F(PaperLevel, UpdatesAreLogFreeWhereTheBucketHasRoom) {
  using Small = TwoLevel<RealPlatform, 2>;
  for (const bool opportunistic : {false, true}) {
    const auto table = must(
        Small::make_with(memory_.platform(), memory_.heap(), 8, {.opportunistic = opportunistic}));
    for (const double load : {0.5, 0.8}) {
      const auto items = static_cast<std::uint64_t>(load * static_cast<double>(table->slots()));
      for (std::uint64_t n = table->items(); n < items; ++n) {
        ASSERT_TRUE(must(table->insert(bench::mix64(n), n)));
      }
      std::uint64_t log_free = 0;
      for (std::uint64_t n = 0; n < items; ++n) {
        const std::uint64_t before = thread_counters().written_lines;
        ASSERT_TRUE(must(table->update(bench::mix64(n), n)));
        const std::uint64_t lines = thread_counters().written_lines - before;
        ASSERT_TRUE(lines == 1 || lines == 2);
        log_free += 2 - lines;
      }
      EXPECT_EQ(log_free, opportunistic ? table->log_free_items() : 0);
      EXPECT_GT(table->log_free_items(), 0U);
      EXPECT_LT(table->log_free_items(), items);
      expect_items(*table);
    }
  }
}

// Figures 16 and 17: a mix inserts its share, finds the records that were there, and ends below the
// last load. It notices a wrong value and a lost key.
TEST_F(PaperLevel, AMixChecksWhatItDoes) {
  for (const std::uint32_t share : kInsertShares) {
    auto table = make(10);
    const Mix mix = Mix::of_slots(table->slots(), share);
    for (std::uint64_t n = 0; n < mix.records(); ++n) {
      ASSERT_TRUE(must(table->insert(bench::mix64(n), n)));
    }
    for (std::uint64_t i = 0; i < mix.requests(); ++i) ASSERT_TRUE(mix.run(*table, i));
    expect_items(*table);
    EXPECT_EQ(table->items(), mix.items_after());
    EXPECT_NEAR(static_cast<double>(mix.items_after() - mix.records()),
                static_cast<double>(mix.requests()) * share / 100, 100);
    EXPECT_LT(mix.items_after(), table->slots() * 85 / 100);
    for (std::uint64_t n = 0; n < mix.records(); ++n) {
      ASSERT_TRUE(
          must(n % 2 == 0 ? table->erase(bench::mix64(n)) : table->update(bench::mix64(n), n + 1)));
    }
    for (std::uint64_t i = 0; i < mix.requests(); ++i) ASSERT_FALSE(mix.run(*table, i));
  }
}

}  // namespace
}  // namespace perdure::paper
