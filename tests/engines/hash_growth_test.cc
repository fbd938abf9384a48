// test: nightly
// The structures of the hash tables while they grow: levels, and bytes per entry.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <span>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

const std::uint64_t kEntries = scaled(10'000'000, 400'000, 50'000);
constexpr PoolOptions kPool{.durability = Durability::process, .max_size = 4_GiB};

// Sums over a sample of moments.
struct Seen {
  std::uint64_t moments = 0;
  double sum = 0;
  double most = 0;
  void add(double value) {
    ++moments;
    sum += value;
    most = std::max(most, value);
  }
  double mean() const { return sum / static_cast<double>(moments); }
};

double per(std::uint64_t bytes, std::uint64_t entries) {
  return static_cast<double>(bytes) / static_cast<double>(entries);
}

// One thread inserts, and a background thread rehashes.
TEST(HashGrowth, ClevelHasThreeLevelsMostOfTheTime) {
  TempPath path;
  Pool pool = open_pool(path, kPool);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", {.engine = Engine::clevel}));
  const std::uint64_t step = kEntries / 200;
  std::uint64_t of_three = 0;
  Seen bytes;
  for (std::uint64_t i = 1; i <= kEntries; ++i) {
    ASSERT_TRUE(was_absent(map.insert(mix(i), i)));
    if (i % step != 0 || i < 10'000) continue;
    const MapStats stats = map.stats();
    if (stats.levels.size() <= 3) ++of_three;
    bytes.add(per(stats.pm_bytes, stats.entries));
  }
  std::printf(
      "%llu entries: 3 levels or fewer at %.3f of %llu moments, bytes per entry %.1f on "
      "average, %.1f at most\n",
      static_cast<unsigned long long>(kEntries), per(of_three, bytes.moments),
      static_cast<unsigned long long>(bytes.moments), bytes.mean(), bytes.most);
  // Short runs share the machine with others, which delay the rehash. In sanitized builds the
  // rehash is nearly always behind, and their purpose is to find errors.
  if (!san()) {
    EXPECT_GT(of_three * (at_length() ? 2 : 8), bytes.moments);
  }
  EXPECT_LE(bytes.most, at_length() ? 64.0 : 80.0);
}

constexpr std::uint64_t kSlots = 6;  // of a bucket

// The table's own bytes, without the space that is ready for the next level.
TEST(HashGrowth, LevelIsFullWhenItExpands) {
  TempPath path;
  Pool pool = open_pool(path, kPool);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", {.engine = Engine::level}));
  for (std::uint64_t i = 1; i <= kEntries; ++i) ASSERT_TRUE(was_absent(map.insert(mix(i), i)));
  const MapStats stats = map.stats();
  std::uint64_t slots = 0;
  for (const LevelStats& level : stats.levels) slots += level.slots;
  Seen bytes;
  for (const ResizeStats& resize : stats.resizes) {
    if (resize.entries < 10'000) continue;
    // With three levels, the last of which is nearly drained, most slots of that level are empty.
    if (std::popcount(resize.slots_before / kSlots) != 2) continue;
    EXPECT_FALSE(resize.shrink);
    EXPECT_GE(per(resize.entries, resize.slots_before), 0.85) << resize.slots_before;
    bytes.add(per(stats.pm_bytes, slots) / per(resize.entries, resize.slots_before));
  }
  ASSERT_GE(bytes.moments, san() ? 1U : 2U);
  std::printf(
      "%llu entries: %llu expansions, bytes per entry before one %.1f on average, %.1f at "
      "most\n",
      static_cast<unsigned long long>(kEntries), static_cast<unsigned long long>(bytes.moments),
      bytes.mean(), bytes.most);
  EXPECT_LE(bytes.most, 27.0);
}

}  // namespace
}  // namespace perdure::test
