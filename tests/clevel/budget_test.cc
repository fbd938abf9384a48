// The flush and fence budgets of clevel hashing, counted by the platform. What the reclamation
// batch costs, 2F per item and 1S per batch, is seen in sums only.
#include <string>

#include "tests/support/cost.h"
#include "tests/support/subjects.h"

namespace perdure::test {
namespace {

const MapOptions kSized{.engine = Engine::clevel, .capacity = 10'000};

class ClevelBudget : public ::testing::Test {
 protected:
  ClevelBudget()
      : pool_(open_pool(path_, {.durability = Durability::emulated, .max_size = 256_MiB})) {}
  TempPath path_;
  Pool pool_;
};

TEST_F(ClevelBudget, IntegersCostOneFence) {
  auto map = must(pool_.map<std::uint64_t, std::uint64_t>("m", kSized));
  ASSERT_TRUE(was_absent(map.insert(1'000, 0)));  // the first item takes an extent
  for (std::uint64_t i = 0; i < 60; ++i) {
    EXPECT_EQ(cost_of([&] { must(map.insert(i, i)); }), (Cost{2, 1})) << "insert " << i;
    EXPECT_EQ(cost_of([&] { must(map.update(i, i + 1)); }), (Cost{1, 1})) << "update " << i;
    EXPECT_EQ(cost_of([&] { must(map.put(i, i + 2)); }), (Cost{1, 1})) << "upsert " << i;
    EXPECT_EQ(cost_of([&] { must(map.get(i)); }), (Cost{0, 0})) << "find " << i;
    EXPECT_EQ(cost_of([&] { must(map.insert(i, 0)); }), (Cost{0, 0})) << "exists " << i;
    EXPECT_EQ(cost_of([&] { must(map.erase(i + 5'000)); }), (Cost{0, 0})) << "absent " << i;
  }
  for (std::uint64_t i = 0; i < 60; ++i) {  // fewer than a batch
    EXPECT_EQ(cost_of([&] { must(map.erase(i)); }), (Cost{1, 1})) << "erase " << i;
    EXPECT_EQ(cost_of([&] { must(map.get(i)); }), (Cost{0, 0})) << "find, absent " << i;
  }
}

TEST_F(ClevelBudget, ErasesShareTheFenceOfABatch) {
  auto map = must(pool_.map<std::uint64_t, std::uint64_t>("m", kSized));
  const std::uint64_t n = 6'000;
  for (std::uint64_t i = 0; i < n; ++i) must(map.insert(i, i));
  const Cost cost = cost_of([&] {
    for (std::uint64_t i = 0; i < n; ++i) must(map.erase(i));
  });
  EXPECT_GE(cost.fences, n);
  EXPECT_LE(cost.fences, n + n / 16);
  EXPECT_LE(cost.flushes, 3 * n + n / 8);
}

TEST_F(ClevelBudget, ByteStringsAreInsertedWithOneFence) {
  auto map = must(pool_.map<std::string_view, std::string_view>("m", kSized));
  const std::string value(100, 'v');
  ASSERT_TRUE(was_absent(map.insert("a first one takes extents", value)));
  for (int i = 0; i < 60; ++i) {
    // 16 bytes of prefix, 16 of key, 100 of value: 3 or 4 lines, and the slot's.
    const std::string key = "0123456789abcd" + std::to_string(10 + i);
    const Cost cost = cost_of([&] { must(map.insert(key, value)); });
    if (i == 0) continue;  // an extent of its size class
    EXPECT_EQ(cost.fences, 1U) << "insert " << i;
    EXPECT_LE(cost.flushes, 5U) << "insert " << i;
  }
  for (int i = 0; i < 60; ++i) {
    const std::string key = "0123456789abcd" + std::to_string(10 + i);
    const Cost cost = cost_of([&] { must(map.update(key, value)); });
    if (i == 0) continue;
    EXPECT_EQ(cost.fences, 2U) << "update " << i;
    EXPECT_LE(cost.flushes, 5U) << "update " << i;
    EXPECT_EQ(cost_of([&] { must(map.get(key)); }), (Cost{0, 0}));
  }
}

}  // namespace
}  // namespace perdure::test
