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
        EXPECT_GE(resize.entries * 4, resize.slots_before * 3) << "load factor at an expansion";
      }
    }
    must(pool.close());
  }
}

}  // namespace
}  // namespace perdure::test
