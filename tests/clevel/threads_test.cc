// Clevel hashing by real threads: growth while nothing is rehashed, and rehash by several threads.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

constexpr MapOptions kClevel{.engine = Engine::clevel};

// A scan that does not end holds the rehash back. Inserts by two threads go on: the table gets more
// levels, of which each is larger.
TEST(ClevelThreads, InsertsGoOnBesideAScanThatDoesNotEnd) {
  TempPath path;
  Pool pool = open_pool(path, {.durability = Durability::process, .max_size = 256_MiB});
  auto map = must(
      pool.map<std::uint64_t, std::uint64_t>("m", {.engine = Engine::clevel, .capacity = 10'000}));
  const std::uint64_t keys = scaled(200'000, 50'000);
  ASSERT_TRUE(was_absent(map.insert(0, 0)));
  std::atomic<bool> inside = false;
  std::atomic<bool> over = false;
  std::thread scan([&] {
    EXPECT_TRUE(map.for_each([&](std::uint64_t, std::uint64_t) {
                     inside = true;
                     while (!over) std::this_thread::yield();
                     return false;
                   })
                    .has_value());
  });
  while (!inside) std::this_thread::yield();
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t key = 1 + t; key < keys; key += 2) {
        ASSERT_TRUE(was_absent(map.insert(key, key))) << key;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  scan.join();
  const std::size_t levels = map.stats().levels.size();
  EXPECT_LE(levels, 15U);
  for (std::uint64_t key = 0; key < keys; ++key) {
    ASSERT_EQ(must(map.get(key)), std::optional(key));
  }
  expect_sound(pool);
}

TEST(ClevelThreads, SeveralThreadsRehash) {
  TempPath path;
  Pool pool = open_pool(
      path, {.durability = Durability::process, .max_size = 256_MiB, .background_threads = 3});
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
  const std::uint64_t keys = scaled(300'000, 30'000);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t key = t; key < keys; key += 2) {
        ASSERT_TRUE(was_absent(map.insert(key, key)));
        if (key % 4 < 2) continue;
        ASSERT_TRUE(was_present(map.update(key - 2, key)));
        if (key % 8 >= 6) {
          ASSERT_TRUE(was_present(map.erase(key - 4)));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint64_t key = 0; key < keys; ++key) {
    const bool erased = key % 8 >= 2 && key % 8 < 4 && key + 4 < keys;
    const bool updated = key % 4 < 2 && key + 2 < keys;
    ASSERT_EQ(must(map.get(key)), erased ? std::nullopt : std::optional(updated ? key + 2 : key))
        << key;
  }
  expect_sound(pool);
  must(pool.close());
}

}  // namespace
}  // namespace perdure::test
