// Shortcut: the leaf that an interval names after creation, splits and unlinks.
#include "index/ordered/shortcut.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "platform/real_platform.h"

namespace perdure::ordered {
namespace {

using Subject = Shortcut<RealPlatform>;
struct Free {
  void operator()(Subject* shortcut) const noexcept { Subject::free(shortcut); }
};
using Owner = std::unique_ptr<Subject, Free>;

// Four leaves, 1 to 4, of 100 words each, from word 1000 on.
Owner four_leaves() {
  Owner shortcut(Subject::make(1000, 1399, 4, 1));
  for (std::uint32_t leaf = 2; leaf <= 4; ++leaf) {
    shortcut->fill(leaf, 899 + 100 * leaf, 999 + 100 * leaf);
  }
  return shortcut;
}

std::uint64_t begin_of(std::uint32_t leaf) { return 900 + 100 * std::uint64_t{leaf}; }

// Expects the leaf that holds the word; or the one before it, if the word's interval begins there.
void expect_near(const Subject& shortcut, std::uint64_t word, std::uint32_t leaf) {
  const std::uint32_t named = shortcut.leaf_of(word);
  EXPECT_TRUE(named == leaf || named + 1 == leaf) << "word " << word << " names leaf " << named;
}

TEST(Shortcut, NamesTheLeafInWhichAnIntervalBegins) {
  const Owner shortcut = four_leaves();
  int exact = 0;
  for (std::uint64_t word = 1000; word < 1400; ++word) {
    const auto leaf = static_cast<std::uint32_t>((word - 900) / 100);
    expect_near(*shortcut, word, leaf);
    exact += shortcut->leaf_of(word) == leaf ? 1 : 0;
  }
  EXPECT_GT(exact, 300);
}

TEST(Shortcut, NamesNothingOutsideItsRange) {
  const Owner shortcut = four_leaves();
  EXPECT_EQ(shortcut->leaf_of(0), kNoLeaf);
  EXPECT_EQ(shortcut->leaf_of(999), kNoLeaf);
  EXPECT_EQ(shortcut->leaf_of(1500), kNoLeaf);
  EXPECT_EQ(shortcut->leaf_of(~std::uint64_t{0}), kNoLeaf);
}

// No address outside the intervals is computed; UndefinedBehaviorSanitizer would report one.
TEST(Shortcut, PrefetchesInsideItsRangeOnly) {
  const Owner shortcut(Subject::make(1000, 1015, 4, 1));  // an interval for each word
  const std::uint64_t words[] = {0, 999, 1000, 1015, 1016, 1ULL << 63, ~std::uint64_t{0}};
  for (const std::uint64_t word : words) shortcut->prefetch(word);
}

TEST(Shortcut, ASplitMovesTheIntervalsOfTheNewLeaf) {
  const Owner shortcut = four_leaves();
  shortcut->split(2, begin_of(2) - 1, begin_of(2) + 49, 9, begin_of(3) - 1);
  EXPECT_EQ(shortcut->leaf_of(begin_of(2) + 20), 2U);
  EXPECT_EQ(shortcut->leaf_of(begin_of(3) - 1), 9U);
  EXPECT_EQ(shortcut->leaf_of(begin_of(3) + 50), 3U);
}

TEST(Shortcut, AnIntervalWithAWholeLeafNamesNothing) {
  const Owner shortcut = four_leaves();
  // Down to one word: both halves end up inside an interval.
  std::uint32_t fresh = 10;
  for (std::uint64_t bound = begin_of(3) - 1; bound > begin_of(2) + 1; --bound) {
    shortcut->split(2, begin_of(2) - 1, bound - 1, fresh++, bound);
  }
  EXPECT_EQ(shortcut->leaf_of(begin_of(2) + 50), kNoLeaf);
  EXPECT_EQ(shortcut->leaf_of(begin_of(3) + 50), 3U);
}

TEST(Shortcut, AnUnlinkedLeafIsNamedNowhere) {
  const Owner shortcut = four_leaves();
  shortcut->replace(2, begin_of(2), begin_of(3) - 1, 3);
  for (std::uint64_t word = 1000; word < 1400; ++word) EXPECT_NE(shortcut->leaf_of(word), 2U);
  EXPECT_EQ(shortcut->leaf_of(begin_of(2) + 50), 3U);
  EXPECT_EQ(shortcut->leaf_of(begin_of(4) + 50), 4U);
}

// Every unlink makes the range of the next leaf longer.
TEST(Shortcut, UnlinksFromLeftToRightSpendIt) {
  constexpr std::uint32_t kLeaves = 1000;
  const Owner shortcut(Subject::make(0, 100 * kLeaves - 1, kLeaves, 1));
  for (std::uint32_t leaf = 2; leaf <= kLeaves; ++leaf) {
    shortcut->fill(leaf, 100 * (std::uint64_t{leaf} - 1) - 1, 100 * std::uint64_t{leaf} - 1);
  }
  std::uint32_t leaf = 2;
  while (!shortcut->spent() && leaf < kLeaves) {
    shortcut->replace(leaf, 100, 100 * std::uint64_t{leaf} - 1, leaf + 1);
    ++leaf;
  }
  EXPECT_GT(leaf, 20U);
  EXPECT_LT(leaf, kLeaves / 5);
}

TEST(Shortcut, EvenSplitsDoNotSpendIt) {
  const Owner shortcut(Subject::make(0, (1ULL << 20) - 1, 64, 1));
  std::uint32_t fresh = 2;
  for (std::uint64_t width = 1ULL << 20; width > 1ULL << 13; width /= 2) {
    for (std::uint64_t low = 0; low < 1ULL << 20; low += width) {
      const std::uint32_t old = shortcut->leaf_of(low + (low != 0 ? 1 : 0));
      shortcut->split(old, low == 0 ? 0 : low - 1, low + width / 2 - 1, fresh++, low + width - 1);
    }
  }
  EXPECT_FALSE(shortcut->spent());
}

TEST(Shortcut, IsUsefulWhereHalfOfItNamesALeaf) {
  const Owner even = four_leaves();
  EXPECT_TRUE(even->useful());
  EXPECT_GE(even->bytes(), 4 * 4 * sizeof(std::uint32_t));
  // A leaf lies whole in all intervals but the last.
  const Owner uneven(Subject::make(0, 1ULL << 40, 2, 1));
  const std::uint64_t width = 1ULL << 37;
  for (std::uint32_t i = 0; i < 8; ++i) {
    uneven->fill(2 + i, width * i + 1, width * i + 2);
  }
  EXPECT_FALSE(uneven->useful());
}

TEST(Shortcut, CoversTheWholeKeySpace) {
  const Owner shortcut(Subject::make(0, ~std::uint64_t{0}, 1, 1));
  EXPECT_EQ(shortcut->leaf_of(0), 1U);
  EXPECT_EQ(shortcut->leaf_of(~std::uint64_t{0}), 1U);
  shortcut->split(1, 0, 1ULL << 63, 2, ~std::uint64_t{0});
  EXPECT_EQ(shortcut->leaf_of(~std::uint64_t{0}), 2U);
  EXPECT_EQ(shortcut->leaf_of(1), 1U);
}

}  // namespace
}  // namespace perdure::ordered
