// Clevel hashing where its own structure shows: chosen collisions, levels, resizes.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "index/clevel/hash.h"
#include "index/clevel/layout.h"
#include "tests/conformance/support.h"

namespace perdure::test {
namespace {

using Numbers = Map<std::uint64_t, std::uint64_t>;
constexpr MapOptions kClevel{.engine = Engine::clevel};

// The secret of the only map in the file.
clevel::Seed seed_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t at = 0; at + sizeof(clevel::layout::Root) <= bytes.size(); at += 64) {
    clevel::layout::Root root;
    std::memcpy(&root, bytes.data() + at, sizeof(root));
    if (root.magic == clevel::layout::kRootMagic) return {.a = root.seed[0], .b = root.seed[1]};
  }
  throw std::runtime_error("no root block");
}
// In a level of so many; they say which those in every smaller one are.
std::pair<std::uint64_t, std::uint64_t> buckets_of(std::uint64_t key, const clevel::Seed& seed,
                                                   std::uint64_t buckets = 256) {
  const clevel::Probe probe{.hash = clevel::hash_word(key, seed)};
  return {probe.first(buckets - 1), probe.second(buckets - 1)};
}
std::vector<std::uint64_t> colliding_keys(const clevel::Seed& seed, std::size_t n) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 1; keys.size() < n; ++key) {
    if (keys.empty() || buckets_of(key, seed) == buckets_of(keys[0], seed)) keys.push_back(key);
  }
  return keys;
}

TEST(Clevel, KeysThatWereChosenToCollideGrowNothing) {
  TempPath path;
  Pool pool = open_pool(path, {.durability = Durability::process, .max_size = 64_MiB});
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
  const clevel::Seed seed = seed_in(path);
  const std::vector<std::uint64_t> keys = colliding_keys(seed, 200);
  std::vector<std::uint64_t> held;
  std::vector<std::uint64_t> refused;
  for (const std::uint64_t key : keys) {
    const auto inserted = map.insert(key, key);
    if (inserted) {
      held.push_back(key);
    } else {
      ASSERT_EQ(inserted.error().code(), StatusCode::hash_overflow) << inserted.error().message();
      refused.push_back(key);
    }
  }
  ASSERT_GT(held.size(), 16U);
  ASSERT_GT(refused.size(), 16U);
  std::uint64_t slots = 0;
  std::uint64_t largest = 0;
  for (const LevelStats& level : map.stats().levels) {
    slots += level.slots;
    largest = std::max(largest, level.slots);
  }
  EXPECT_LT(slots, 8U * 512U);
  for (const std::uint64_t key : held) ASSERT_EQ(must(map.find(key)), std::optional(key));
  for (const std::uint64_t key : refused) ASSERT_EQ(must(map.find(key)), std::nullopt);
  expect_sound(pool);
  // Others go, and one fits again; what goes from a level that is being drained leaves no room.
  std::size_t kept = held.size();
  while (!map.insert(refused.front(), 1)) {
    ASSERT_GT(kept, 0U);
    ASSERT_TRUE(must(map.erase(held[--kept])));
  }
  // Keys with a bucket that is none of these in the largest level never noticed.
  const std::uint64_t buckets = largest / 8;
  const auto [a, b] = buckets_of(keys[0], seed, buckets);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::uint64_t key = 1ULL << 40 | i;
    const auto [first, second] = buckets_of(key, seed, buckets);
    if ((first == a || first == b) && (second == a || second == b)) continue;
    ASSERT_TRUE(must(map.insert(key, i)));
  }
  for (std::size_t i = 0; i < held.size(); ++i) ASSERT_EQ(must(map.contains(held[i])), i < kept);
  expect_sound(pool);
}

TEST(Clevel, StatsTellLevelsAndResizes) {
  TempPath path;
  std::uint64_t entries = 0;
  while (entries < 46'000) {  // in two sessions
    Pool pool = open_pool(
        path, {.durability = Durability::process, .max_size = 64_MiB, .background_threads = 0});
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    while (must(pool.run_background())) {
    }
    const std::uint64_t first = entries;
    for (; entries < first + 23'000; ++entries) ASSERT_TRUE(must(map.insert(entries, 1)));
    for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(must(map.erase(first + i)));
    for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(must(map.insert(first + i, 2)));
    while (must(pool.run_background())) {
    }
    const MapStats stats = map.stats();
    EXPECT_EQ(stats.entries, entries);
    ASSERT_EQ(stats.levels.size(), 2U);
    EXPECT_EQ(stats.levels[0].slots, 2 * stats.levels[1].slots);
    EXPECT_EQ(stats.levels[0].entries + stats.levels[1].entries, entries);
    ASSERT_FALSE(stats.resizes.empty());
    std::uint64_t last = first;
    for (const ResizeStats& resize : stats.resizes) {
      EXPECT_EQ(resize.slots_after, 2 * resize.slots_before);
      EXPECT_EQ(resize.buckets * 8 * 3, resize.slots_before);
      EXPECT_LE(resize.moved, resize.slots_before / 3);
      EXPECT_GE(resize.end_ns, resize.begin_ns);
      EXPECT_GE(resize.entries, last);
      EXPECT_LE(resize.entries, resize.slots_before);
      EXPECT_FALSE(resize.shrink);
      last = resize.entries;
      if (resize.slots_before > 1000) {
        EXPECT_GE(resize.entries * 5, resize.slots_before * 4) << "load factor at an expansion";
      }
    }
    must(pool.close());
  }
}

// Right after an open, too, when the sweep that counts what is allocated has not begun.
TEST(Clevel, StatsCountWhatIsAllocated) {
  TempPath path;
  const PoolOptions options{
      .durability = Durability::process, .max_size = 64_MiB, .background_threads = 0};
  std::uint64_t allocated = 0;
  for (const bool again : {false, true}) {
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    for (std::uint64_t i = 0; i < 10'000 && !again; ++i) ASSERT_TRUE(must(map.insert(i, i)));
    if (!again) (void)must(pool.compact());  // nothing lies ready that a close gives back
    const PoolStats stats = must(pool.stats());
    EXPECT_GT(stats.allocated_bytes, 10'000U * 32);
    EXPECT_LT(stats.fragmentation, 0.9);
    if (again) {
      EXPECT_EQ(stats.allocated_bytes, allocated);
    }
    allocated = stats.allocated_bytes;
    must(pool.close());
  }
}

std::uint64_t slots_of(const MapStats& stats) {
  std::uint64_t slots = 0;
  for (const LevelStats& level : stats.levels) slots += level.slots;
  return slots;
}

// By a thread of the pool, and by the call itself.
TEST(Clevel, CompactMakesTheTableFitItsEntries) {
  for (const std::uint32_t threads : {0U, 1U}) {
    TempPath path;
    const PoolOptions options{
        .durability = Durability::emulated, .max_size = 64_MiB, .background_threads = threads};
    std::uint64_t slots = 0;
    {
      Pool pool = open_pool(path, options);
      auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
      for (std::uint64_t i = 0; i < 50'000; ++i) ASSERT_TRUE(must(map.insert(i, i + 1)));
      for (std::uint64_t i = 1'000; i < 50'000; ++i) ASSERT_TRUE(must(map.erase(i)));
      const MapStats before = map.stats();
      EXPECT_GT(must(pool.compact()), 0U);
      const MapStats after = map.stats();
      slots = slots_of(after);
      EXPECT_LT(slots * 16, slots_of(before));
      EXPECT_GE(slots, 1'250U);
      EXPECT_EQ(after.entries, 1'000U);
      EXPECT_EQ(after.levels.size(), 2U);
      std::uint64_t shrinks = 0;
      for (const ResizeStats& resize : after.resizes) {
        if (!resize.shrink) continue;
        ++shrinks;
        EXPECT_EQ(resize.slots_after, slots);
        EXPECT_EQ(resize.entries, 1'000U);
      }
      EXPECT_EQ(shrinks, 2U) << "one for each of the two levels that went";
      for (std::uint64_t i = 0; i < 2'000; ++i) {
        ASSERT_EQ(must(map.find(i)), i < 1'000 ? std::optional(i + 1) : std::nullopt);
      }
      // It fits, and is left alone.
      (void)must(pool.compact());
      EXPECT_EQ(slots_of(map.stats()), slots);
      expect_sound(pool);
      must(pool.close());
    }
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    for (std::uint64_t i = 1'000; i < 20'000; ++i) ASSERT_TRUE(must(map.insert(i, i + 1)));
    for (std::uint64_t i = 0; i < 20'000; ++i) ASSERT_EQ(must(map.find(i)), std::optional(i + 1));
    EXPECT_GT(slots_of(map.stats()), 8 * slots);
    expect_sound(pool);
  }
}

// A level that lies ready for a growth that has not come goes with a compaction, and the table can
// grow all the same.
TEST(Clevel, CompactGivesBackTheLevelThatLiesReady) {
  TempPath path;
  Pool pool = open_pool(
      path, {.durability = Durability::process, .max_size = 64_MiB, .background_threads = 0});
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
  constexpr std::uint64_t kLine = 64;
  const auto beside_levels = [&] {  // bytes that are neither items nor levels in use
    const MapStats stats = map.stats();
    return stats.pm_bytes - stats.entries * 32 - slots_of(stats) / 8 * kLine;
  };
  const std::uint64_t root = beside_levels();
  std::uint64_t key = 0;
  std::uint64_t size = 0;
  do {  // one that grows when it is full lies ready before
    ASSERT_LT(key, 40'000U);
    ASSERT_TRUE(must(map.insert(key, key)));
    ++key;
    while (must(pool.run_background())) {
    }
    size = slots_of(map.stats());
  } while (size < 10'000 || beside_levels() < size / 8 * kLine);
  EXPECT_GE(key * 5, size * 3) << "not before three of five slots are used";
  (void)must(pool.compact());
  EXPECT_EQ(slots_of(map.stats()), size);
  EXPECT_EQ(beside_levels(), root);
  for (; slots_of(map.stats()) == size; ++key) ASSERT_TRUE(must(map.insert(key, key)));
  expect_sound(pool);
}

}  // namespace
}  // namespace perdure::test
