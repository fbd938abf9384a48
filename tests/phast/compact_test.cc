// test: tsan
// Pool::compact() of a phast map: records leave thin extents, and the content stays.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kKeys = 20000;

class PhastCompact : public ::testing::TestWithParam<Durability> {
 protected:
  using Texts = Map<std::string_view, std::string_view>;

  PhastCompact() { std::filesystem::create_directory(folder_); }
  ~PhastCompact() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static std::string key(std::uint64_t i) {
    return "key/" + std::to_string(i * 0x9E3779B97F4A7C15) + "/" + std::to_string(i);
  }
  static std::string value(std::uint64_t i) {
    return std::string(150, static_cast<char>('a' + i % 26)) + std::to_string(i);
  }
  Pool open() { return open_pool(path_, {.durability = GetParam(), .max_size = 256_MiB}); }
  static void expect_content(Texts& map) {
    std::uint64_t count = 0;
    must(map.for_each([&](std::string_view, std::string_view) { ++count; }));
    EXPECT_EQ(count, kKeys / 2);
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      const auto found = must(map.get(key(i)));
      ASSERT_EQ(found.has_value(), i % 2 == 1) << i;
      if (found) {
        ASSERT_EQ(*found, value(i));
      }
    }
  }

  const TempPath temporary_;  // in memory, where `buffered` is refused
  const std::string folder_ = on_disk("-compact");
  const std::string path_ =
      GetParam() == Durability::buffered ? folder_ + "/pool" : temporary_.str();
};
INSTANTIATE_TEST_SUITE_P(Durabilities, PhastCompact,
                         ::testing::Values(Durability::process, Durability::emulated,
                                           Durability::buffered),
                         [](const auto& row) { return std::string(durability_name(row.param)); });

TEST_P(PhastCompact, RecordsLeaveThinExtents) {
  Pool pool = open();
  Texts map = must(pool.map<std::string_view, std::string_view>("map"));
  for (std::uint64_t i = 0; i < kKeys; ++i) must(map.put(key(i), value(i)));
  for (std::uint64_t i = 0; i < kKeys; i += 2) must(map.erase(key(i)));
  const PoolStats before = must(pool.stats());
  EXPECT_GT(must(pool.compact()), before.allocated_bytes / 2);
  const PoolStats after = must(pool.stats());
  EXPECT_LT(after.assigned_bytes, before.assigned_bytes * 3 / 4);
  EXPECT_LT(after.fragmentation, 0.1);
  // Nothing is left to do.
  EXPECT_EQ(must(pool.compact()), 0U);
  expect_content(map);
  EXPECT_TRUE(must(pool.check({.deep = true})).ok());
  must(pool.close());
  pool = open();
  map = must(pool.map<std::string_view, std::string_view>("map"));
  expect_content(map);
  EXPECT_TRUE(must(pool.check({.deep = true})).ok());
}

// Each thread knows what its own keys have to be at every moment.
TEST_P(PhastCompact, OperationsGoOn) {
  Pool pool = open();
  Texts map = must(pool.map<std::string_view, std::string_view>("map"));
  for (std::uint64_t i = 0; i < kKeys; ++i) must(map.put(key(i), value(i)));
  for (std::uint64_t i = 0; i < kKeys; i += 2) must(map.erase(key(i)));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {  // entries come, and go again: extents become thin
    while (!stop) {
      for (std::uint64_t i = 0; i < kKeys; i += 2) must(map.put(key(i), value(i)));
      for (std::uint64_t i = 0; i < kKeys; i += 2) {
        EXPECT_EQ(must(map.get(key(i))), value(i));
        must(map.erase(key(i)));
      }
    }
  });
  threads.emplace_back([&] {  // and others stay
    for (std::uint64_t i = 1; !stop; i = (i + 2) % kKeys) {
      EXPECT_EQ(must(map.get(key(i))), value(i));
      must(map.put(key(i), value(i)));
    }
  });
  threads.emplace_back([&] {
    while (!stop) {
      std::uint64_t count = 0;  // of those that stay; their numbers are odd
      must(map.for_each([&](std::string_view found, std::string_view) {
        count += static_cast<std::uint64_t>(found.back() % 2);
      }));
      EXPECT_EQ(count, kKeys / 2);
    }
  });
  for (int i = 0; i < 20; ++i) must(pool.compact());
  stop = true;
  for (std::thread& thread : threads) thread.join();
  expect_content(map);
  EXPECT_TRUE(must(pool.check({.deep = true})).ok());
}

// Records of integer keys, and words that are replaced in their records.
TEST_P(PhastCompact, OtherRecordsMoveToo) {
  Pool pool = open();
  auto texts = must(pool.map<std::uint64_t, std::string_view>("texts"));
  auto words = must(pool.map<std::string_view, std::uint64_t>("words"));
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    must(texts.put(i, value(i)));
    must(words.put(key(i), i));
  }
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    if (i % 4 == 0) continue;
    must(texts.erase(i));
    must(words.erase(key(i)));
  }
  std::atomic<bool> stop{false};
  std::thread counts([&] {
    for (std::uint64_t n = 1; !stop; ++n) {
      must(words.put(key(400), n));
      EXPECT_EQ(must(words.get(key(400))), n);
    }
  });
  must(pool.compact());
  stop = true;
  counts.join();
  EXPECT_LT(must(pool.stats()).fragmentation, 0.3);
  for (std::uint64_t i = 0; i < kKeys; i += 4) {
    EXPECT_EQ(must(texts.get(i)), value(i));
    if (i != 400) {
      EXPECT_EQ(must(words.get(key(i))), i);
    }
  }
  EXPECT_TRUE(must(pool.check({.deep = true})).ok());
}

}  // namespace
}  // namespace perdure::test
