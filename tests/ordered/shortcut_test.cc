// test: cross
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
  Owner shortcut(Subject::make(1000, 1399, 4));
  for (std::uint32_t leaf = 1; leaf <= 4; ++leaf) {
    EXPECT_TRUE(shortcut->fill(leaf, leaf == 1, 899 + 100 * leaf, 999 + 100 * leaf, 100));
  }
  return shortcut;
}

// Leaf 1 has all words up to this one. There are intervals for so many leaves.
Owner one_leaf(std::uint64_t last, std::uint32_t leaves) {
  Owner shortcut(Subject::make(0, last, leaves));
  EXPECT_TRUE(shortcut->fill(1, true, 0, last, 1000));
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
  const Owner shortcut(Subject::make(1000, 1015, 4));  // an interval for each word
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
  shortcut->forget(2, begin_of(2), begin_of(3) - 1);
  for (std::uint64_t word = 1000; word < 1400; ++word) EXPECT_NE(shortcut->leaf_of(word), 2U);
  EXPECT_EQ(shortcut->leaf_of(begin_of(2) + 50), kNoLeaf);
  EXPECT_EQ(shortcut->leaf_of(begin_of(4) + 50), 4U);
}

// A leaf with a long range is named in steps; meanwhile it is divided, and its left part goes.
TEST(Shortcut, IsFilledInSteps) {
  const Owner shortcut(Subject::make(0, 999, 125));  // an interval for each word
  EXPECT_TRUE(shortcut->fill(1, true, 0, 9, 100));
  EXPECT_FALSE(shortcut->fill(2, false, 9, 899, 100));
  EXPECT_EQ(shortcut->leaf_of(109), 2U);
  EXPECT_EQ(shortcut->leaf_of(110), kNoLeaf);
  shortcut->split(2, 9, 59, 3, 899);
  EXPECT_EQ(shortcut->leaf_of(59), 2U);
  EXPECT_EQ(shortcut->leaf_of(60), 3U);
  shortcut->forget(2, 10, 59);
  EXPECT_EQ(shortcut->leaf_of(59), kNoLeaf);
  EXPECT_FALSE(shortcut->fill(3, false, 9, 899, 100));
  EXPECT_TRUE(shortcut->fill(3, false, 9, 899, 1000));
  EXPECT_TRUE(shortcut->fill(4, false, 899, 999, 1000));
  for (std::uint64_t word = 0; word < 1000; ++word) {
    ASSERT_EQ(shortcut->leaf_of(word), word < 10    ? 1U
                                       : word < 60  ? kNoLeaf
                                       : word < 900 ? 3U
                                                    : 4U)
        << word;
  }
  EXPECT_TRUE(shortcut->useful());
}

// A split that would visit very many intervals at once spends the table.
TEST(Shortcut, ALongVisitSpendsIt) {
  constexpr std::uint64_t kWords = 100'000;  // an interval for each
  const Owner shortcut(Subject::make(0, kWords - 1, kWords / 8));
  EXPECT_TRUE(shortcut->fill(1, true, 0, kWords - 1, kWords));
  shortcut->split(1, 0, kWords - 1001, 2, kWords - 1);
  EXPECT_FALSE(shortcut->spent());
  EXPECT_EQ(shortcut->leaf_of(kWords - 1), 2U);
  shortcut->split(1, 0, 9, 3, kWords - 1001);
  EXPECT_TRUE(shortcut->spent());
}

// Every unlink makes the range of the next leaf longer, but not the work.
TEST(Shortcut, UnlinksFromLeftToRightDoNotSpendIt) {
  constexpr std::uint32_t kLeaves = 1000;
  const Owner shortcut(Subject::make(0, 100 * kLeaves - 1, kLeaves));
  for (std::uint32_t leaf = 1; leaf <= kLeaves; ++leaf) {
    const std::uint64_t begin = 100 * (std::uint64_t{leaf} - 1);
    EXPECT_TRUE(shortcut->fill(leaf, leaf == 1, begin == 0 ? 0 : begin - 1, begin + 99, 100));
  }
  for (std::uint32_t leaf = 2; leaf < kLeaves; ++leaf) {
    shortcut->forget(leaf, 100, 100 * std::uint64_t{leaf} - 1);
    ASSERT_EQ(shortcut->leaf_of(100 * std::uint64_t{leaf} - 50), kNoLeaf);
    ASSERT_EQ(shortcut->leaf_of(100 * std::uint64_t{leaf} + 50), leaf + 1);
  }
  EXPECT_FALSE(shortcut->spent());
}

TEST(Shortcut, EvenSplitsDoNotSpendIt) {
  const Owner shortcut = one_leaf((1ULL << 20) - 1, 64);
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
  const Owner uneven = one_leaf(1ULL << 40, 2);
  const std::uint64_t width = 1ULL << 37;
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(uneven->fill(2 + i, false, width * i + 1, width * i + 2, 1));
  }
  EXPECT_FALSE(uneven->useful());
}

TEST(Shortcut, CoversTheWholeKeySpace) {
  const Owner shortcut = one_leaf(~std::uint64_t{0}, 1);
  EXPECT_EQ(shortcut->leaf_of(0), 1U);
  EXPECT_EQ(shortcut->leaf_of(~std::uint64_t{0}), 1U);
  shortcut->split(1, 0, 1ULL << 63, 2, ~std::uint64_t{0});
  EXPECT_EQ(shortcut->leaf_of(~std::uint64_t{0}), 2U);
  EXPECT_EQ(shortcut->leaf_of(1), 1U);
}

}  // namespace
}  // namespace perdure::ordered
