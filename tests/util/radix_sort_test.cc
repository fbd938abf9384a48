// test: cross
// radix_sort: against std::sort, where the words differ in any of their bytes.
#include "util/radix_sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace perdure {
namespace {

struct Item {
  std::uint64_t word;
  std::uint32_t number;
};

// Sorts items with these words, and expects the same items in order.
void expect_sorted(const std::vector<std::uint64_t>& words) {
  std::vector<Item> items;
  for (const std::uint64_t word : words) {
    items.push_back({word, static_cast<std::uint32_t>(items.size())});
  }
  radix_sort(std::span(items), [](const Item& item) { return item.word; });
  std::vector<bool> met(words.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    ASSERT_TRUE(i == 0 || items[i - 1].word <= items[i].word) << i;
    ASSERT_EQ(items[i].word, words[items[i].number]);
    ASSERT_FALSE(met[items[i].number]);
    met[items[i].number] = true;
  }
}

TEST(RadixSort, SortsByAnyBytes) {
  std::mt19937_64 random(1);
  for (const std::size_t count : {0, 1, 2, 48, 49, 300, 5000}) {
    for (unsigned shift = 0; shift < 64; shift += 4) {
      for (const std::uint64_t kinds : {1ULL, 2ULL, 1000ULL, 1ULL << 40}) {
        std::vector<std::uint64_t> words(count);
        for (std::uint64_t& word : words) word = random() % kinds << shift;
        expect_sorted(words);
      }
    }
  }
}

TEST(RadixSort, SortsWhatIsInOrderAndInReverse) {
  std::vector<std::uint64_t> words(10'000);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * 3;
  expect_sorted(words);
  std::reverse(words.begin(), words.end());
  expect_sorted(words);
}

}  // namespace
}  // namespace perdure
