// test: cross
// merge_sort: a sort that stays in bounds even without an order.
#include "util/merge_sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace perdure {
namespace {

TEST(MergeSort, SortsWhatHasAnOrder) {
  std::mt19937_64 random(1);
  for (std::size_t count = 0; count < 70; ++count) {
    std::vector<std::uint64_t> items(count);
    for (std::uint64_t& item : items) item = random() % 50;
    std::vector<std::uint64_t> expected = items;
    std::sort(expected.begin(), expected.end());
    ASSERT_TRUE(merge_sort(items.data(), count, std::less<>()));
    EXPECT_EQ(items, expected);
  }
}

// Comparisons that no order gives: always true, always false, at random, and a pivot that rises
// meanwhile. Between guards that must not be compared with.
TEST(MergeSort, StaysInBoundsWithoutAnOrder) {
  constexpr std::uint64_t kGuard = ~std::uint64_t{0};
  constexpr std::size_t kGuards = 64;
  std::mt19937_64 random(2);
  for (int kind = 0; kind < 4; ++kind) {
    for (std::size_t count = 0; count < 70; ++count) {
      std::vector<std::uint64_t> items(count + 2 * kGuards, kGuard);
      for (std::size_t i = 0; i < count; ++i) items[kGuards + i] = i;
      const std::vector<std::uint64_t> before = items;
      std::uint64_t asked = 0;
      bool outside = false;
      ASSERT_TRUE(merge_sort(items.data() + kGuards, count, [&](std::uint64_t a, std::uint64_t b) {
        outside = outside || a == kGuard || b == kGuard;
        ++asked;
        if (outside || kind == 1) return false;
        if (kind == 2) return random() % 2 == 0;
        const std::uint64_t middle = count / 2;
        return kind == 0 || (asked > 3 && (a == middle || b == middle) ? b == middle : a < b);
      }));
      EXPECT_FALSE(outside) << kind << ", " << count;
      std::sort(items.begin() + kGuards, items.end() - kGuards);
      EXPECT_EQ(items, before) << kind << ", " << count;
    }
  }
}

}  // namespace
}  // namespace perdure
