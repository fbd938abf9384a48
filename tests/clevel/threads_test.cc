// test: no asan, tsan
// Clevel hashing by real threads: growth while nothing is rehashed, rehash by several threads, and
// inserts of the same keys. And the stripe alone, where more operations are in flight than it has
// latches.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "index/clevel/stripe.h"
#include "platform/real_platform.h"
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

// Of the inserts of a key between two erases one succeeds, whichever thread's. An erase of what an
// insert has just shown succeeds, too.
TEST(ClevelThreads, InsertsAndErasesOfTheSameKeys) {
  TempPath path;
  Pool pool = open_pool(path, {.durability = Durability::process, .max_size = 64_MiB});
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kClevel));
  constexpr std::uint64_t kKeys = 3;
  const std::uint64_t turns = scaled(60'000, 6'000);
  std::atomic<std::int64_t> gained[kKeys] = {};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t n = 0; n < turns; ++n) {
        const std::uint64_t key = (n / 2 + t) % kKeys;
        if (n % 2 == 0 ? was_absent(map.insert(key, t)) : was_present(map.erase(key))) {
          gained[key] += n % 2 == 0 ? 1 : -1;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    EXPECT_EQ(gained[key], must(map.get(key)).has_value() ? 1 : 0) << key;
  }
  expect_sound(pool);
  must(pool.close());
}

using Stripe = clevel::Stripe<RealPlatform>;

TEST(ClevelThreads, AStripeHasRoomForAnyNumberOfOperations) {
  Stripe stripe;
  std::vector<unsigned> places;
  for (int n = 0; n < 6; ++n) places.push_back(stripe.enter_insert());
  EXPECT_TRUE(stripe.inserting());
  // Inserts and an erase with a condition do not wait for each other.
  const unsigned alone = stripe.enter_alone();
  places.push_back(stripe.enter_insert());
  unsigned refused = 0;
  EXPECT_FALSE(stripe.try_enter(refused));
  stripe.leave(alone);
  // But it waits for an update, also for one in the crowd.
  places.push_back(stripe.enter());
  std::atomic<bool> entered = false;
  std::thread waiter([&] {
    const unsigned place = stripe.enter_alone();
    entered = true;
    stripe.leave(place);
  });
  while (stripe.try_enter(refused)) stripe.leave(refused);  // until it has marked the stripe
  EXPECT_FALSE(entered);
  for (const unsigned place : places) {
    EXPECT_TRUE(stripe.in_flight(Stripe::own(place)));
    stripe.leave(place);
  }
  waiter.join();
  EXPECT_FALSE(stripe.inserting());
  EXPECT_FALSE(stripe.in_flight(0));
}

}  // namespace
}  // namespace perdure::test
