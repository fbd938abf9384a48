// The flush and fence budgets of level hashing, as docs/design/level.md has them.
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "tests/support/cost.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

class LevelBudget : public ::testing::Test {
 protected:
  template <class K, class V>
  Map<K, V> map(std::uint64_t buckets) {
    return must(pool_.map<K, V>("m", {.engine = Engine::level, .level = {.buckets = buckets}}));
  }
  TempPath path_;
  // No thread in the background, so that its work is counted here.
  Pool pool_ = open_pool(
      path_, {.durability = Durability::emulated, .max_size = 256_MiB, .background_threads = 0});
};

TEST_F(LevelBudget, IntegerMutationsCostOneFlushAndOneFence) {
  auto map = this->map<std::uint64_t, std::uint64_t>(1 << 12);
  const Cost one{1, 1};
  const Cost none{0, 0};
  const std::uint64_t n = 10'000;  // of 36,864 slots
  for (std::uint64_t i = 0; i < n; ++i) {
    ASSERT_EQ(cost_of([&] { must(map.insert(i, i)); }), one) << "insert " << i;
  }
  for (std::uint64_t i = 0; i < n; ++i) {
    ASSERT_EQ(cost_of([&] { must(map.update(i, i + 1)); }), one) << "update " << i;
    ASSERT_EQ(cost_of([&] { must(map.put(i, i + 2)); }), one) << "upsert " << i;
    ASSERT_EQ(cost_of([&] { must(map.get(i)); }), none) << "find " << i;
    ASSERT_EQ(cost_of([&] { must(map.insert(i, 0)); }), none) << "insert, exists " << i;
    ASSERT_EQ(cost_of([&] { must(map.erase(i + n)); }), none) << "erase, absent " << i;
  }
  for (std::uint64_t i = 0; i < n; ++i) {
    ASSERT_EQ(cost_of([&] { must(map.erase(i)); }), one) << "erase " << i;
    ASSERT_EQ(cost_of([&] { must(map.get(i)); }), none) << "find, absent " << i;
  }
}

// Until it grows an insert costs 1F 1S, or 3F 3S if it moves an item; and it is full by then.
TEST_F(LevelBudget, MovementsCostThreeAndTheTableIsFull) {
  const std::uint64_t buckets = 1 << 12;
  auto map = this->map<std::uint64_t, std::uint64_t>(buckets);
  std::map<Cost, std::uint64_t> costs;
  std::uint64_t n = 0;
  for (; map.stats().resizes.empty(); ++n) {
    const Cost cost = cost_of([&] { must(map.insert(mix(n), n)); });
    if (map.stats().resizes.empty()) ++costs[cost];
  }
  const double load = static_cast<double>(n) / static_cast<double>(buckets * 3 / 2 * 6);
  std::printf("load at the first expansion: %.4f; 1F 1S: %llu, 3F 3S: %llu\n", load,
              static_cast<unsigned long long>(costs[{1, 1}]),
              static_cast<unsigned long long>(costs[{3, 3}]));
  EXPECT_EQ((costs[{1, 1}] + costs[{3, 3}]), n - 1);
  EXPECT_GT((costs[{3, 3}]), 0U);
  EXPECT_GE(load, 0.90);
}

// The load before each expansion of a growing table.
TEST_F(LevelBudget, EveryExpansionComesLate) {
  auto map = this->map<std::uint64_t, std::uint64_t>(1 << 7);
  const std::uint64_t n = scaled(1'000'000, 50'000);
  double load = 0;
  double least = 1;
  std::uint64_t resizes = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    must(map.insert(mix(i), i));
    if ((i & 15) != 0) continue;
    const MapStats stats = map.stats();
    if (stats.resizes.size() != resizes) {
      std::printf("expansion %llu at load %.4f\n",
                  static_cast<unsigned long long>(stats.resizes.size()), load);
      if (resizes > 3) least = std::min(least, load);  // larger than a few hundred buckets
      resizes = stats.resizes.size();
    }
    load = stats.load_factor;
  }
  EXPECT_GE(least, 0.85);
}

// Both words of a value: into the line's other slot with one write-back, and if that is taken,
// where it is, with three. A word alone is replaced by one store.
TEST_F(LevelBudget, ArraysLieInTheirLines) {
  using Key = std::array<char, 16>;
  using Value = std::array<std::uint64_t, 1>;
  const auto key = [](std::uint64_t i) {
    Key out;
    std::memcpy(out.data(), &i, 8);
    std::memcpy(out.data() + 8, &i, 8);
    return out;
  };
  const auto value = [](std::uint64_t i) {
    std::array<char, 15> out;
    out.fill(static_cast<char>(i));
    return out;
  };
  auto map = this->map<Key, std::array<char, 15>>(1 << 10);
  const Cost one{1, 1};
  const Cost none{0, 0};
  const std::uint64_t n = 4'000;  // of 6,144 slots
  for (std::uint64_t i = 0; i < n; ++i) {
    ASSERT_EQ(cost_of([&] { must(map.insert(key(i), value(1))); }), one) << "insert " << i;
    ASSERT_EQ(cost_of([&] { must(map.get(key(i))); }), none) << "find " << i;
  }
  std::map<Cost, std::uint64_t> costs;
  for (std::uint64_t i = 0; i < n; ++i) {
    ++costs[cost_of([&] { must(map.update(key(i), value(2))); })];
    std::array<char, 15> head = value(2);
    head[3] = 'h';
    ASSERT_EQ(cost_of([&] { must(map.update(key(i), head)); }), one) << "one word " << i;
    ASSERT_EQ(must(map.get(key(i))), std::optional(head));
  }
  std::printf("updates of 15 bytes at a load of %.2f: 1F 1S: %lu, 2F 2S: %lu, 3F 3S: %lu\n",
              map.stats().load_factor, costs[one], costs[{2, 2}], costs[{3, 3}]);
  EXPECT_GT(costs[one], n / 20);
  EXPECT_GT((costs[{2, 2}]), n / 20);
  EXPECT_GT((costs[{3, 3}]), n / 4);
  EXPECT_EQ(costs.size(), 3U);
  for (std::uint64_t i = 0; i < n; ++i) {
    ASSERT_EQ(cost_of([&] { must(map.erase(key(i))); }), one) << "erase " << i;
  }

  auto words = must(pool_.map<Key, Value>("words", {.engine = Engine::level}));
  for (std::uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(cost_of([&] { must(words.insert(key(i), {i})); }), one);
    ASSERT_EQ(cost_of([&] { must(words.update(key(i), {~i})); }), one);
    ASSERT_EQ(must(words.get(key(i))), std::optional(Value{~i}));
  }
}

TEST_F(LevelBudget, ByteStringsCostTheirRecordAndTwoFences) {
  auto map = this->map<std::string_view, std::string_view>(1 << 8);
  const std::string value(100, 'v');
  for (int i = 0; i < 40; ++i) {
    const std::string key = "0123456789abcd" + std::to_string(10 + i);
    const Cost cost = cost_of([&] { must(map.insert(key, value)); });
    if (i == 0) continue;  // may take an extent
    EXPECT_EQ(cost.fences, 2U) << "insert " << i;
    EXPECT_LE(cost.flushes, 5U) << "insert " << i;
    EXPECT_EQ(cost_of([&] { must(map.update(key, value)); }).fences, 2U) << "update " << i;
    EXPECT_EQ(cost_of([&] { must(map.get(key)); }), (Cost{0, 0}));
    EXPECT_EQ(cost_of([&] { must(map.erase(key)); }), (Cost{1, 1})) << "erase " << i;
  }
}

}  // namespace
}  // namespace perdure::test
