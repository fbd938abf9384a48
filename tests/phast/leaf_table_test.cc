// Home lines: the slot of a new entry, and the line that a lookup prefetches.
#include "index/phast/leaf_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "platform/real_platform.h"

namespace perdure::phast {
namespace {

using Default = Traits<RealPlatform, IntegerCodec, DefaultGeometry>;
using Desc = Descriptor<Default>;
constexpr std::uint32_t kLines = DefaultGeometry::kLeafEntries / kLineEntries;

TEST(HomeLine, EveryLineIsTheHomeOfAboutAsManyFingerprints) {
  std::uint32_t fingerprints[kLines] = {};
  for (unsigned f = 1; f < 256; ++f) {
    const std::uint32_t line = home_of<DefaultGeometry>(static_cast<std::uint8_t>(f));
    ASSERT_LT(line, kLines);
    ++fingerprints[line];
  }
  for (const std::uint32_t n : fingerprints) EXPECT_NEAR(n, 255.0 / kLines, 1.5);
}

TEST(HomeLine, IsFilledFirstThenAnyOther) {
  const auto desc = std::make_unique<Desc>();
  constexpr std::uint8_t kFingerprint = 200;
  const std::uint32_t home = home_of<DefaultGeometry>(kFingerprint) * kLineEntries;
  ASSERT_NE(home, 0U);
  for (std::uint32_t i = 0; i < kLineEntries; ++i) {
    const std::uint32_t slot = desc->free_slot(0, kFingerprint);
    EXPECT_EQ(slot, home + i);
    desc->set_fingerprint(slot, kFingerprint);
  }
  EXPECT_EQ(desc->free_slot(0, kFingerprint), 0U) << "the home line is full";
  desc->set_fingerprint(home + 1, 0);
  EXPECT_EQ(desc->free_slot(0, kFingerprint), home + 1);
  // A slot that another thread is filling counts as taken.
  EXPECT_EQ(desc->free_slot(kHeld | (home + 2), kFingerprint), 0U);
}

TEST(HomeLine, AFullLeafHasNoSlot) {
  const auto desc = std::make_unique<Desc>();
  for (std::uint32_t i = 0; i < DefaultGeometry::kLeafEntries; ++i) {
    const std::uint32_t slot = desc->free_slot(0, static_cast<std::uint8_t>(4 * i + 1));
    ASSERT_LT(slot, DefaultGeometry::kLeafEntries);
    ASSERT_TRUE(desc->is_free(slot));
    desc->set_fingerprint(slot, 1);
  }
  EXPECT_EQ(desc->free_slot(0, 77), kNoSlot);
}

TEST(HomeLine, APlaceFollowsItsLeaf) {
  LeafTable<Default> table;
  ASSERT_TRUE(table.reserve(8).ok());
  const std::uint32_t number = table.take();
  table.set_leaf(number, 4711);
  EXPECT_EQ(table.place(number), 4711U);
  EXPECT_EQ(table[number].leaf.load(), 4711U);
}

}  // namespace
}  // namespace perdure::phast
