// test: tsan, cross
// Clevel hashing where its own structure shows: chosen collisions, levels, resizes.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "index/clevel/hash.h"
#include "index/clevel/layout.h"
#include "testing/checksums/checksums.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Numbers = Map<std::uint64_t, std::uint64_t>;
constexpr MapOptions kClevel{.engine = Engine::clevel};

// Of the only map in the file.
clevel::layout::Root root_in(const std::string& bytes) {
  for (std::size_t at = 0; at + sizeof(clevel::layout::Root) <= bytes.size(); at += 64) {
    clevel::layout::Root root;
    std::memcpy(&root, bytes.data() + at, sizeof(root));
    if (root.magic == clevel::layout::kRootMagic) return root;
  }
  throw std::runtime_error("no root block");
}
// Its secret.
clevel::Seed seed_in(const std::string& path) {
  const clevel::layout::Root root = root_in(read_bytes(path));
  return {.a = root.seed[0], .b = root.seed[1]};
}
// Where its buckets lie in which a slot is used.
std::vector<std::size_t> used_buckets(const std::string& bytes) {
  const std::string empty(64, '\0');
  std::vector<std::size_t> used;
  for (const std::uint64_t word : root_in(bytes).levels) {
    if (word == 0) continue;
    const std::size_t begin = word & clevel::kOffsetMask & ~std::uint64_t{63};
    for (std::size_t n = 0; n < std::size_t{1} << (word & 63); ++n) {
      if (bytes.compare(begin + n * 64, 64, empty) != 0) used.push_back(begin + n * 64);
    }
  }
  return used;
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
    if (inserted.ok()) {
      held.push_back(key);
    } else {
      ASSERT_EQ(code_of(inserted), StatusCode::hash_overflow) << describe(inserted.status());
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
  for (const std::uint64_t key : held) ASSERT_EQ(must(map.get(key)), std::optional(key));
  for (const std::uint64_t key : refused) ASSERT_EQ(must(map.get(key)), std::nullopt);
  expect_sound(pool);
  // Others go, and one fits again; what goes from a level that is being drained leaves no room.
  std::size_t kept = held.size();
  while (!map.insert(refused.front(), 1).ok()) {
    ASSERT_GT(kept, 0U);
    ASSERT_TRUE(was_present(map.erase(held[--kept])));
  }
  // Keys with a bucket that is none of these in the largest level never noticed.
  const std::uint64_t buckets = largest / 8;
  const auto [a, b] = buckets_of(keys[0], seed, buckets);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::uint64_t key = 1ULL << 40 | i;
    const auto [first, second] = buckets_of(key, seed, buckets);
    if ((first == a || first == b) && (second == a || second == b)) continue;
    ASSERT_TRUE(was_absent(map.insert(key, i)));
  }
  for (std::size_t i = 0; i < held.size(); ++i)
    ASSERT_EQ(was_present(map.contains(held[i])), i < kept);
  expect_sound(pool);
}

TEST(Clevel, StatsTellLevelsAndResizes) {
  TempPath path;
  std::uint64_t entries = 0;
  while (entries < 50'000) {  // in two sessions, each of which fills 3 * 2^n * 8 slots
    Pool pool = open_pool(
        path, {.durability = Durability::process, .max_size = 64_MiB, .background_threads = 0});
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    while (must(pool.run_background())) {
    }
    const std::uint64_t first = entries;
    for (; entries < first + 25'000; ++entries) ASSERT_TRUE(was_absent(map.insert(entries, 1)));
    for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(was_present(map.erase(first + i)));
    for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(was_absent(map.insert(first + i, 2)));
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
    for (std::uint64_t i = 0; i < 10'000 && !again; ++i) ASSERT_TRUE(was_absent(map.insert(i, i)));
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
      for (std::uint64_t i = 0; i < 50'000; ++i) ASSERT_TRUE(was_absent(map.insert(i, i + 1)));
      for (std::uint64_t i = 1'000; i < 50'000; ++i) ASSERT_TRUE(was_present(map.erase(i)));
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
        ASSERT_EQ(must(map.get(i)), i < 1'000 ? std::optional(i + 1) : std::nullopt);
      }
      // It fits, and is left alone.
      (void)must(pool.compact());
      EXPECT_EQ(slots_of(map.stats()), slots);
      expect_sound(pool);
      must(pool.close());
    }
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    for (std::uint64_t i = 1'000; i < 20'000; ++i) ASSERT_TRUE(was_absent(map.insert(i, i + 1)));
    for (std::uint64_t i = 0; i < 20'000; ++i) ASSERT_EQ(must(map.get(i)), std::optional(i + 1));
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
    ASSERT_TRUE(was_absent(map.insert(key, key)));
    ++key;
    while (must(pool.run_background())) {
    }
    if (key % 64 == 0) size = slots_of(map.stats());  // which looks at every slot
  } while (key % 64 != 0 || size < 10'000 || beside_levels() < size / 8 * kLine);
  EXPECT_GE(key * 5, size * 3) << "not before three of five slots are used";
  (void)must(pool.compact());
  EXPECT_EQ(slots_of(map.stats()), size);
  EXPECT_EQ(beside_levels(), root);
  while (slots_of(map.stats()) == size) {  // which looks at every slot
    for (const std::uint64_t end = key + scaled(1, 64); key < end; ++key) {
      ASSERT_TRUE(was_absent(map.insert(key, key)));
    }
  }
  expect_sound(pool);
}

constexpr PoolOptions kDriven{
    .durability = Durability::process, .max_size = 64_MiB, .background_threads = 0};

// A closed pool whose map lacks slots: what is there is served; once the walk has been through the
// table no lookup returns "absent", nothing is vouched for, and the next open knows at once.
void expect_lost(const std::string& path, const std::string& bytes, std::uint64_t entries) {
  write_bytes(path, bytes);
  for (const bool again : {false, true}) {
    Pool pool = open_pool(path, kDriven);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    while (!again && must(pool.run_background())) {
    }
    if (again) (void)must(pool.run_background());
    std::uint64_t refused = 0;
    for (std::uint64_t i = 0; i < entries; ++i) {
      const auto found = map.get(i);
      if (found) {
        ASSERT_EQ(*found, std::optional(i + 1)) << i;
      } else {
        ASSERT_EQ(found.error(), StatusCode::corruption);
        ++refused;
      }
    }
    EXPECT_GT(refused, 0U);
    EXPECT_LE(refused, 8U);
    EXPECT_EQ(map.get(entries).error(), StatusCode::corruption);
    EXPECT_EQ(code_of(map.insert(entries, 1)), StatusCode::corruption);
    EXPECT_EQ(code_of(map.erase(entries)), StatusCode::corruption);
    std::uint64_t visited = 0;
    const auto scanned = map.for_each([&](std::uint64_t, std::uint64_t) { return ++visited > 0; });
    ASSERT_FALSE(scanned);
    EXPECT_EQ(scanned.error(), StatusCode::corruption);
    EXPECT_EQ(visited + refused, entries);
    EXPECT_FALSE(must(pool.check()).ok());
    EXPECT_EQ(pool.sync(), StatusCode::corruption);
    EXPECT_EQ(pool.close(), StatusCode::corruption);
  }
}

TEST(Clevel, ALineOfSlotsThatIsLostIsFoundByTheWalk) {
  TempPath path;
  const std::uint64_t entries = 2'000;
  {
    Pool pool = open_pool(path, kDriven);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    for (std::uint64_t i = 0; i < entries; ++i) ASSERT_TRUE(was_absent(map.insert(i, i + 1)));
    must(pool.close());
  }
  const std::string closed = read_bytes(path);
  const std::vector<std::size_t> used = used_buckets(closed);
  ASSERT_GT(used.size(), 200U);
  for (std::size_t i = 0; i < used.size(); i += san() ? 40 : 4) {
    SCOPED_TRACE(i);
    std::string bytes = closed;
    std::memset(bytes.data() + used[i], 0, 64);
    expect_lost(path, bytes, entries);
  }
  write_bytes(path, closed);
  Pool pool = open_pool(path, kDriven);
  expect_sound(pool);
  must(pool.close());
}

// Pages that are not the file's read as zeros: the map is not damaged, and nothing may say so in
// the file, which may be whole again.
TEST(Clevel, SlotsWhosePagesAreNotTheFilesAreNotTakenForLost) {
  TempPath path;
  const std::uint64_t entries = 2'000;
  {
    Pool pool = open_pool(path, kDriven);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    for (std::uint64_t i = 0; i < entries; ++i) ASSERT_TRUE(was_absent(map.insert(i, i + 1)));
    must(pool.close());
  }
  const std::string closed = read_bytes(path);
  const std::size_t cut = std::ranges::max(used_buckets(closed)) / 4096 * 4096;
  ASSERT_NO_THROW(root_in(closed.substr(0, cut))) << "the root block is to stay";
  {
    PoolOptions options = kDriven;
    options.handle_sigbus = true;
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    std::filesystem::resize_file(path.str(), cut);
    (void)pool.stats();  // brings the walk to its end first
    EXPECT_EQ(code_of(map.get(1)), StatusCode::poisoned);
    EXPECT_EQ(pool.close(), StatusCode::poisoned);
  }
  std::string mended = read_bytes(path);
  ASSERT_EQ(mended.size(), cut);
  write_bytes(path, mended + closed.substr(cut));
  Pool pool = open_pool(path, kDriven);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
  while (must(pool.run_background())) {
  }
  for (std::uint64_t i = 0; i < entries; ++i) ASSERT_EQ(must(map.get(i)), std::optional(i + 1));
  expect_sound(pool);
}

// Of other lines; a shallow check, which looks at no key, finds it, too.
TEST(Clevel, SlotsInAnotherPlaceAreFoundByTheWalk) {
  TempPath path;
  {
    Pool pool = open_pool(path, kDriven);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    for (std::uint64_t i = 0; i < 500; ++i) ASSERT_TRUE(was_absent(map.insert(i, i + 1)));
    must(pool.close());
  }
  const std::string closed = read_bytes(path);
  const std::vector<std::size_t> used = used_buckets(closed);
  ASSERT_GT(used.size(), 50U);
  for (std::size_t i = 1; i < used.size(); i += 5) {
    std::string bytes = closed;
    std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(used[i]),
                     bytes.begin() + static_cast<std::ptrdiff_t>(used[i] + 64),
                     bytes.begin() + static_cast<std::ptrdiff_t>(used[i - 1]));
    write_bytes(path, bytes);
    Pool pool = open_pool(path, kDriven);
    EXPECT_FALSE(must(pool.check()).ok()) << i;
    EXPECT_EQ(pool.close(), StatusCode::corruption) << i;
  }
}

// Changes a file that is mapped. It keeps its size.
void overwrite(const std::string& path, const std::string& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.flush());
}

// What a medium may do while the pool is open: slots that name no item, lengths beyond the file.
// The rehash must stop there. It goes on when they are right again.
TEST(Clevel, TheRehashStopsAtDamage) {
  TempPath path;
  Pool pool = open_pool(path, kDriven);
  auto map = must(pool.map<std::string_view, std::uint64_t>("m", kClevel));
  const auto levels = [&] {
    std::vector<std::uint64_t> words;
    for (const std::uint64_t word : root_in(read_bytes(path)).levels) {
      if (word != 0) words.push_back(word);
    }
    return words;
  };
  std::uint64_t entries = 0;
  while (levels().size() < 3) {
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(was_absent(map.insert(std::to_string(entries++), 1)));
  }
  const auto drains = levels();
  const std::uint64_t last = *std::ranges::min_element(drains, {}, [](auto w) { return w & 63; });
  const std::string whole = read_bytes(path);
  for (const bool in_item : {false, true}) {
    std::string bytes = whole;
    std::uint64_t damaged = 0;
    const std::size_t begin = last & clevel::kOffsetMask & ~std::uint64_t{63};
    for (std::size_t at = begin; at < begin + (std::size_t{64} << (last & 63)); at += 8) {
      std::uint64_t slot = 0;
      std::memcpy(&slot, bytes.data() + at, 8);
      if (slot <= clevel::kSealed) continue;
      ++damaged;
      if (in_item) {
        bytes[(slot & clevel::kOffsetMask) + 7] |= 7;  // a value of 2047 bytes
        bytes[(slot & clevel::kOffsetMask) + 4] = '\xff';
        bytes[(slot & clevel::kOffsetMask) + 5] = '\xff';
      } else {
        bytes[at + 5] ^= '\x40';
      }
    }
    ASSERT_GT(damaged, 0U);
    overwrite(path, bytes);
    for (int i = 0; i < 1'000 && pool.run_background().value_or(false); ++i) {
    }
    EXPECT_EQ(levels(), drains) << "a level with damage has left";
    overwrite(path, whole);
  }
  while (must(pool.run_background())) {
  }
  for (std::uint64_t i = 0; i < entries; ++i) {
    EXPECT_EQ(map.get(std::to_string(i)).value(), std::optional<std::uint64_t>(1)) << i;
  }
}

// A seal where nothing drains: an insert that makes room must not take it for an item.
TEST(Clevel, ASealWhereNothingDrainsIsFoundByTheWalk) {
  TempPath path;
  {
    Pool pool = open_pool(path, kDriven);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    for (std::uint64_t i = 0; i < 500; ++i) ASSERT_TRUE(was_absent(map.insert(i, i + 1)));
    while (must(pool.run_background())) {
    }
    must(pool.close());
  }
  std::string bytes = read_bytes(path);
  ASSERT_LE(std::ranges::count_if(root_in(bytes).levels, [](auto level) { return level != 0; }), 2)
      << "something drains";
  std::memcpy(bytes.data() + used_buckets(bytes).front(), &clevel::kSealed, 8);
  testing::fix_engines(bytes);
  testing::fix_pool(bytes);
  write_bytes(path, bytes);
  Pool pool = open_pool(path, kDriven);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
  while (pool.run_background().value_or(false)) {
  }
  std::uint64_t inserted = 0;
  for (std::uint64_t i = 500; i < 5'000; ++i) {
    const auto done = map.insert(i, i);
    inserted += done.ok() ? 1 : 0;
    ASSERT_TRUE(done.ok() || code_of(done) == StatusCode::corruption) << i;
  }
  EXPECT_EQ(inserted, 0U);
  EXPECT_EQ(pool.close(), StatusCode::corruption);
}

// What changes while the walk sums the slots, ahead of it and behind it, is no loss.
TEST(Clevel, TheWalkKnowsWhatChangesMeanwhile) {
  PERDURE_TRACE_SEED();
  TempPath path;
  Rng rng;
  std::map<std::uint64_t, std::uint64_t> model;
  const std::uint64_t keys = scaled(20'000, 3'000);
  for (int round = 0; round < 6; ++round) {
    Pool pool = open_pool(path, kDriven);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    for (std::uint64_t n = 0; n < keys / 2; ++n) {
      const std::uint64_t key = rng.below(keys);
      if (rng.one_in(2)) {
        ASSERT_EQ(was_absent(map.insert(key, n)), model.emplace(key, n).second);
      } else {
        ASSERT_EQ(was_present(map.erase(key)), model.erase(key) != 0);
      }
    }
    if (round % 2 == 0) expect_sound(pool);
    ASSERT_TRUE(pool.close().ok());
  }
  Pool pool = open_pool(path, kDriven);
  expect_sound(pool);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
  EXPECT_EQ(map.stats().entries, model.size());
  for (const auto& [key, value] : model) ASSERT_EQ(must(map.get(key)), std::optional(value));
}

// By threads, beside one of the pool.
TEST(Clevel, TheWalkKnowsWhatThreadsChangeMeanwhile) {
  TempPath path;
  const PoolOptions options{.durability = Durability::process, .max_size = 128_MiB};
  const std::uint64_t keys = scaled(200'000, 10'000);
  {
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    for (std::uint64_t key = 0; key < keys; key += 2) ASSERT_TRUE(was_absent(map.insert(key, key)));
    must(pool.close());
  }
  for (std::uint64_t round = 0; round < scaled(8, 3); ++round) {
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        // Even and odd keys take turns at being there.
        for (std::uint64_t n = t; n < keys / 40; n += 3) {
          const std::uint64_t pair = mix(n) % (keys / 2) / 3 * 3 + t;
          const std::uint64_t present = pair * 2;
          if (map.erase(present).present()) {
            EXPECT_TRUE(map.insert(present + 1, n).absent());
          } else {
            EXPECT_TRUE(map.erase(present + 1).present());
            EXPECT_TRUE(map.insert(present, n).absent());
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (round % 2 == 0) expect_sound(pool);
    ASSERT_TRUE(pool.close().ok());
  }
}

}  // namespace
}  // namespace perdure::test
