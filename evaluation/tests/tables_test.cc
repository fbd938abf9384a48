// The tables that level hashing is compared with, and itself as printed: their results, their
// largest load, and the costs of their mutations.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <vector>

#include "bench/harness/memory_heap.h"
#include "evaluation/hash/bch.h"
#include "evaluation/hash/path.h"
#include "evaluation/hash/pfht.h"
#include "evaluation/hash/read_counter.h"
#include "evaluation/hash/two_level.h"
#include "perdure/pool.h"

namespace perdure::paper {
namespace {

using Made = Expected<std::unique_ptr<Table>>;
using Make = Made (*)(RealPlatform&, Heap<RealPlatform>&, std::uint32_t);

struct Kind {
  const char* name;
  Make make;
  std::uint32_t log_slots;  // its parameter 0: log2 of buckets, or of half the slots
  double least_load;        // the paper's figure 10, or its text
};
constexpr Kind kKinds[] = {
    {"Bch4", &Bch<RealPlatform, 4>::make, 2, 0.85},
    {"Bch8", &Bch<RealPlatform, 8>::make, 3, 0.90},
    {"Pfht4", &Pfht<RealPlatform, 4>::make, 2, 0.90},
    {"Pfht8", &Pfht<RealPlatform, 8>::make, 3, 0.90},
    {"Path", &Path<RealPlatform>::make, 1, 0.90},
    {"Level4", &TwoLevel<RealPlatform, 4>::make, 2, 0.90},
};

class PaperTables : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    memory_.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
    ASSERT_TRUE(memory_.open(64_KiB, 512).ok());
  }
  std::unique_ptr<Table> make(std::uint32_t log_slots) {
    auto table =
        GetParam().make(memory_.platform(), memory_.heap(), log_slots - GetParam().log_slots);
    EXPECT_TRUE(table.has_value());
    return std::move(*table);
  }
  static bool done(const Expected<bool>& result) {
    EXPECT_TRUE(result.has_value()) << result.error().message();
    return result.value_or(false);
  }
  // Inserts until the table refuses. Returns the number of its items.
  static std::uint64_t fill(Table& table) {
    for (std::uint64_t n = 0;; ++n) {
      auto inserted = table.insert(bench::mix64(n), n);
      if (inserted) continue;
      EXPECT_EQ(inserted.error(), StatusCode::pool_full);
      return n;
    }
  }
  static void expect_sound(Table& table) {
    Findings report;
    table.check(report);
    EXPECT_TRUE(report.ok()) << report.first();
    EXPECT_EQ(report.entries, table.items());
  }

  bench::MemoryHeap memory_;
};

// Compares with a std::map, nearly full all the time: items are evicted, moved and stashed.
TEST_P(PaperTables, ReturnsWhatAMapReturns) {
  auto table = make(12);
  std::map<std::uint64_t, std::uint64_t> model;
  bench::Random random(7);
  const std::uint64_t keys = table->slots() * 93 / 100;
  for (std::uint64_t n = 0; n < keys * 40; ++n) {
    const std::uint64_t key = bench::mix64(random.below(keys));
    const auto at = model.find(key);
    switch (random.below(6)) {
      case 0:
      case 1:
      case 2: {
        auto inserted = table->insert(key, n);
        if (!inserted) {  // full: nothing has changed
          ASSERT_EQ(inserted.error(), StatusCode::pool_full);
          ASSERT_EQ(at, model.end());
          ASSERT_GT(model.size(), table->slots() / 2);
        } else {
          ASSERT_EQ(*inserted, at == model.end());
          model.emplace(key, n);
        }
        break;
      }
      case 3:
        ASSERT_EQ(done(table->update(key, n)), at != model.end());
        if (at != model.end()) at->second = n;
        break;
      case 4:
        ASSERT_EQ(done(table->erase(key)), at != model.end());
        if (at != model.end()) model.erase(at);
        break;
      default: {
        std::uint64_t value = 0;
        ASSERT_EQ(done(table->find(key, value)), at != model.end());
        if (at != model.end()) {
          ASSERT_EQ(value, at->second);
        }
      }
    }
    ASSERT_EQ(table->items(), model.size());
  }
  std::map<std::uint64_t, std::uint64_t> found;
  ASSERT_TRUE(table
                  ->for_each([&](std::uint64_t key, std::uint64_t value) {
                    ASSERT_TRUE(found.emplace(key, value).second) << "twice";
                  })
                  .ok());
  EXPECT_EQ(found, model);
  expect_sound(*table);
}

TEST_P(PaperTables, GetsAsFullAsThePaperSays) {
  auto table = make(16);
  const std::uint64_t items = fill(*table);
  const double load = static_cast<double>(items) / static_cast<double>(table->slots());
  std::printf("%s is full at %.4f\n", GetParam().name, load);
  EXPECT_EQ(table->items(), items);
  EXPECT_GE(load, GetParam().least_load);
  EXPECT_LT(load, 1.0);
  for (std::uint64_t n = 0; n < items; ++n) {
    std::uint64_t value = 0;
    ASSERT_TRUE(done(table->find(bench::mix64(n), value)));
    ASSERT_EQ(value, n);
  }
  expect_sound(*table);
}

// The paper's scheme: 2F 2S for an insert and an update, 1F 1S for a delete, if no item moves.
TEST_P(PaperTables, CostsWhatThePapersSchemeCosts) {
  using Cost = std::pair<std::uint64_t, std::uint64_t>;
  auto table = make(12);
  const auto cost_of = [](const std::function<bool()>& operation) {
    const Counters before = thread_counters();
    EXPECT_TRUE(operation());
    const Counters after = thread_counters();
    return Cost{after.flushes - before.flushes, after.fences - before.fences};
  };
  for (std::uint64_t n = 0; n < 400; ++n) {
    std::uint64_t value = 0;
    ASSERT_EQ(cost_of([&] { return done(table->insert(n, n)); }), (Cost{2, 2}));
    ASSERT_EQ(cost_of([&] { return !done(table->insert(n, n + 1)); }), (Cost{0, 0}));
    ASSERT_EQ(cost_of([&] { return done(table->update(n, n + 1)); }), (Cost{2, 2}));
    ASSERT_EQ(cost_of([&] { return done(table->find(n, value)); }), (Cost{0, 0}));
    ASSERT_EQ(value, n + 1);
  }
  for (std::uint64_t n = 0; n < 400; ++n) {
    ASSERT_EQ(cost_of([&] { return done(table->erase(n)); }), (Cost{1, 1}));
  }
  // In DRAM nothing is written back, and no update makes a copy.
  memory_.platform().configure(FlushMode::none, best_flush_instruction(), 0);
  ASSERT_EQ(cost_of([&] { return done(table->insert(1, 1)); }), (Cost{0, 0}));
  const std::uint64_t lines = thread_counters().written_lines;
  ASSERT_EQ(cost_of([&] { return done(table->update(1, 2)); }), (Cost{0, 0}));
  EXPECT_LE(thread_counters().written_lines - lines, 1U);
}

// A bucket of four slots lies in two lines, a slot of path hashing in one.
void expect_lines(Made (*make)(ReadCounter&, Heap<ReadCounter>&, std::uint32_t),
                  std::uint64_t found, std::uint64_t missing) {
  bench::BasicMemoryHeap<ReadCounter> memory;
  ASSERT_TRUE(memory.open(64_KiB, 512).ok());
  auto table = make(memory.platform(), memory.heap(), 8);
  ASSERT_TRUE(table.has_value());
  ASSERT_TRUE((*table)->insert(1, 2).value());
  ReadCounter::begin(1 << 12);
  std::uint64_t value = 0;
  const auto lines_of = [&](std::uint64_t key, bool there) {
    const std::uint64_t before = ReadCounter::lines();
    ReadCounter::begin_search();
    EXPECT_EQ((*table)->find(key, value).value(), there);
    return ReadCounter::lines() - before;
  };
  EXPECT_EQ(lines_of(1, true), found);
  EXPECT_EQ(ReadCounter::misses(), found);
  EXPECT_EQ(lines_of(1, true), found);
  EXPECT_EQ(ReadCounter::misses(), found);  // they are in the cache now
  EXPECT_EQ(lines_of(3, false), missing);
  ReadCounter::begin(0);
}

TEST(PaperReads, LinesOfASearch) {
  expect_lines(&Bch<ReadCounter, 4>::make, 1, 4);
  expect_lines(&Pfht<ReadCounter, 4>::make, 1, 5);  // and the head of a chain of the stash
  expect_lines(&TwoLevel<ReadCounter, 4>::make, 1, 8);
}

INSTANTIATE_TEST_SUITE_P(All, PaperTables, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace perdure::paper
