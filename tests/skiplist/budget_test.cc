// The flush and fence budgets of the skiplists, as docs/design/atomic_skiplists.md has them,
// counted by the platform.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Cost = std::pair<std::uint64_t, std::uint64_t>;  // write-backs, fences
constexpr std::uint64_t kMaxHeight = 24;
constexpr std::uint64_t lines_of_node(std::uint64_t height) { return (24 + 8 * height + 63) / 64; }
// Of an insert of `as` by the height of the tower. The last link of a tower above 1 is written back
// by the next insert or erase.
Cost insert_cost(std::uint64_t height, std::uint64_t lines) {
  return {lines + std::max<std::uint64_t>(height - 1, 1), std::max<std::uint64_t>(height, 2)};
}

class SkiplistBudget : public ::testing::TestWithParam<Engine> {
 protected:
  static constexpr std::uint64_t kKeys = 4'000;

  template <class K, class V>
  Map<K, V> map() {
    return must(pool_.map<K, V>("m", {.engine = GetParam()}));
  }
  // Without an extent that it takes or gives back, which costs 1F 1S.
  Cost cost_of(const std::function<void()>& operation) {
    const std::uint64_t assigned = must(pool_.stats()).assigned_bytes;
    const Counters before = thread_counters();
    operation();
    const Counters after = thread_counters();
    const std::uint64_t extents = must(pool_.stats()).assigned_bytes != assigned ? 1 : 0;
    return {after.flushes - before.flushes - extents, after.fences - before.fences - extents};
  }
  TempPath path_;
  // No thread in the background, so that its work is counted here.
  Pool pool_ = open_pool(
      path_, {.durability = Durability::emulated, .max_size = 256_MiB, .background_threads = 0});
};
INSTANTIATE_TEST_SUITE_P(Engines, SkiplistBudget, ::testing::Values(Engine::as, Engine::ascs),
                         [](const auto& row) { return std::string(engine_name(row.param)); });

TEST_P(SkiplistBudget, IntegersCostTheirTower) {
  auto map = this->map<std::uint64_t, std::uint64_t>();
  const bool as = GetParam() == Engine::as;
  const Cost one{1, 1};
  const Cost none{0, 0};
  std::vector<Cost> costs;
  std::vector<std::uint64_t> height(kKeys, 1);
  Cost sum{0, 0};
  std::uint64_t short_nodes = 0;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const Cost cost = cost_of([&] { must(map.insert(mix(i), i)); });
    sum = {sum.first + cost.first, sum.second + cost.second};
    const std::string text = "insert " + std::to_string(i) + ": " + std::to_string(cost.first) +
                             "F " + std::to_string(cost.second) + "S";
    costs.push_back(cost);
    if (as) continue;
    // One tower of 2^21 has a fourth line.
    ASSERT_TRUE(cost.first <= lines_of_node(kMaxHeight) + 1 && cost.second == 2) << text;
    short_nodes += cost.first == 2 ? 1 : 0;
  }
  std::printf("write-backs per insert: %.3f, fences: %.3f\n",
              static_cast<double>(sum.first) / static_cast<double>(kKeys),
              static_cast<double>(sum.second) / static_cast<double>(kKeys));
  // One line and the link; taller nodes have two lines.
  if (!as) {
    EXPECT_GT(short_nodes, kKeys * 9 / 10);
  }
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const std::uint64_t key = mix(i);
    ASSERT_EQ(cost_of([&] { must(map.update(key, i + 1)); }), one) << "update " << i;
    ASSERT_EQ(cost_of([&] { must(map.put(key, i + 2)); }), one) << "upsert " << i;
    ASSERT_EQ(cost_of([&] { must(map.get(key)); }), none) << "find " << i;
    ASSERT_EQ(cost_of([&] { must(map.insert(key, 0)); }), none) << "insert, exists " << i;
    ASSERT_EQ(cost_of([&] { must(map.erase(key + 1)); }), none) << "erase, absent " << i;
    ASSERT_EQ(cost_of([&] { must(map.update(key + 1, 0)); }), none) << "update, absent " << i;
  }
  EXPECT_EQ(cost_of([&] { must(map.for_each([](std::uint64_t, std::uint64_t) { return true; })); }),
            none);
  // The fences of an erase tell the height. Each tower owes one link, which a later change of a
  // neighbour writes back, once.
  std::uint64_t towers = 0;
  std::uint64_t settled = 0;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const Cost cost = cost_of([&] { must(map.erase(mix(i))); });
    height[i] = cost.second;
    const Cost own = as ? insert_cost(height[i], lines_of_node(height[i])) : costs[i];
    ASSERT_EQ(costs[i].second, own.second) << "insert " << i;
    ASSERT_GE(costs[i].first, own.first) << "insert " << i;
    ASSERT_GE(cost.first, height[i]) << "erase " << i;
    towers += height[i] > 1 ? 1 : 0;
    settled += costs[i].first - own.first + cost.first - height[i];
    ASSERT_EQ(cost_of([&] { must(map.get(mix(i))); }), none) << "find, absent " << i;
  }
  EXPECT_EQ(settled, towers);
  if (!as) return;
  for (const std::uint64_t h : {1, 2, 3}) {
    EXPECT_NEAR(static_cast<double>(std::ranges::count(height, h)), static_cast<double>(kKeys >> h),
                kKeys / 16.0);
  }
  EXPECT_GT(std::ranges::count(height, std::uint64_t{4}), 0);
}

TEST_P(SkiplistBudget, ByteStringsCostTheirNodeAndItsTower) {
  const std::string value(100, 'v');
  const auto key_of = [](std::uint64_t i) { return "customer:" + std::to_string(mix(i)); };
  auto map = this->map<std::string_view, std::string_view>();
  const bool as = GetParam() == Engine::as;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const std::string key = key_of(i);
    const std::size_t bytes = 24 + (key.size() + 7) / 8 * 8 + value.size();
    const auto cost_at = [&](std::uint64_t h) {
      const std::uint64_t k = (bytes + 8 * h + 63) / 64;
      return as ? insert_cost(h, k) : Cost(k + 1, 2);
    };
    const Cost cost = cost_of([&] { must(map.insert(key, value)); });
    // A blob of 116 bytes lies in two lines, or in three.
    const Cost update = cost_of([&] { must(map.update(key, value)); });
    EXPECT_LE(update.first, 4U) << "update " << i;
    EXPECT_EQ(update.second, 2U) << "update " << i;
    EXPECT_EQ(cost_of([&] { must(map.get(key)); }), Cost(0, 0)) << "find " << i;
    const Cost erase = cost_of([&] { must(map.erase(key)); });
    std::uint64_t h = as ? erase.second : 1;
    while (!as && h < kMaxHeight && cost_at(h) != cost) ++h;
    ASSERT_EQ(cost, cost_at(h)) << "insert " << i << ": " << cost.first << "F " << cost.second;
    EXPECT_EQ(erase, as ? Cost(h + (h > 1 ? 1 : 0), h) : Cost(1, 1)) << "erase " << i;
  }
}

}  // namespace
}  // namespace perdure::test
