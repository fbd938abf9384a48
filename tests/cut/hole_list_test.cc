// test: injects
// HoleList: which ranges a fold brings to the base, and which came too late for it.
#include "cut/hole_list.h"

#include <utility>
#include <vector>

#include "platform/real_platform.h"
#include "tests/support/inject.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

Ranges taken(HoleList<RealPlatform>& holes) {
  Ranges all;
  holes.take([&](std::uint64_t offset, std::uint64_t length) { all.emplace_back(offset, length); });
  return all;
}

TEST(HoleList, AFoldTakesWhatWasNotedBeforeIt) {
  HoleList<RealPlatform> holes;
  holes.note(5'000, 1'000);
  holes.note(4'000, 1'000);  // joins it, as does the next one
  holes.note(1'000, 3'000);
  holes.note(9'000, 100);
  EXPECT_EQ(taken(holes), Ranges());
  holes.close();
  holes.note(20'000, 7);
  EXPECT_EQ(taken(holes), (Ranges{{1'000, 5'000}, {9'000, 100}}));
  EXPECT_EQ(taken(holes), Ranges());
  holes.close();
  EXPECT_EQ(taken(holes), (Ranges{{20'000, 7}}));
}

TEST(HoleList, AFoldThatIsGivenUpLeavesItsRangesToTheNext) {
  HoleList<RealPlatform> holes;
  holes.note(1, 1);
  holes.close();
  holes.note(3, 1);
  holes.close();
  EXPECT_EQ(taken(holes), (Ranges{{1, 1}, {3, 1}}));
}

// holes.H1: a range that was used and punched again while a fold was under way; and all, if the
// fold has failed.
TEST(HoleList, WhatNoFoldHasEndedForIsNew) {
  HoleList<RealPlatform> holes;
  holes.note(1'000, 1'000);
  EXPECT_TRUE(holes.is_new(1'500, 1));
  holes.close();
  EXPECT_TRUE(holes.is_new(1'500, 1));
  holes.note(1'500, 100);
  EXPECT_EQ(taken(holes), (Ranges{{1'000, 1'000}}));
  EXPECT_TRUE(holes.is_new(1'000, 501));
  EXPECT_TRUE(holes.is_new(1'599, 1));
  EXPECT_FALSE(holes.is_new(1'000, 500));
  EXPECT_FALSE(holes.is_new(1'600, 100));
  holes.close();
  EXPECT_EQ(taken(holes), (Ranges{{1'500, 100}}));
  EXPECT_FALSE(holes.is_new(1'000, 1'000));
}

TEST(HoleList, WithoutMemoryEverythingIsNewUntilAFoldHasEnded) {
  HoleList<RealPlatform> holes;
  {
    const Failing none(Fault::nothrow_new, 1, true);
    holes.note(1'000, 1'000);
  }
  EXPECT_TRUE(holes.is_new(7, 1));
  holes.close();
  EXPECT_TRUE(holes.is_new(7, 1));
  EXPECT_EQ(taken(holes), Ranges());
  EXPECT_FALSE(holes.is_new(7, 1));
}

}  // namespace
}  // namespace perdure::test
