// The fingers of the skiplists by themselves: which words have one, and how their table is
// replaced.
#include "index/skiplist/fingers.h"

#include <cstdint>

#include "platform/real_platform.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

class SkiplistFingers : public ::testing::Test {
 protected:
  using Fingers = skiplist::Fingers<RealPlatform>;
  void TearDown() override { epochs_.drain_all(); }
  std::uint64_t nearest(std::uint64_t word) {
    const EpochGuard<RealPlatform> guard(epochs_);
    std::uint64_t places[Fingers::kNear];
    fingers_.near(word, places);
    return places[0] != 0 ? places[0] : places[1];
  }
  RealPlatform platform_;
  EpochDomain<RealPlatform> epochs_{platform_};
  Fingers fingers_{epochs_};
};

// A key before all those that there were when the intervals were cut is in none of them, though its
// distance from the first one wraps round to the last one.
TEST_F(SkiplistFingers, AWordBeforeTheFirstHasNone) {
  constexpr std::uint64_t kEnd = ~std::uint64_t{0};
  for (const std::uint64_t margin : {std::uint64_t{1} << 40, std::uint64_t{1} << 48}) {
    Fingers fingers(epochs_);
    fingers.grow(16'384, margin, kEnd - margin);
    ASSERT_TRUE(fingers.any());
    const EpochGuard<RealPlatform> guard(epochs_);
    std::uint64_t places[Fingers::kNear];
    for (const std::uint64_t word : {std::uint64_t{0}, std::uint64_t{5}, margin - 1}) {
      fingers.name(word, 64);
      EXPECT_FALSE(fingers.vacant(word));
      for (const std::uint64_t behind : {margin, kEnd / 2, kEnd - margin, kEnd}) {
        fingers.near(behind, places);
        EXPECT_EQ(places[0] + places[1], 0U) << "from " << word << " to " << behind;
      }
    }
  }
}

// Where most keys share a word there is no table; nor does every lookup try for one.
TEST_F(SkiplistFingers, KeysThatShareAWordHaveNone) {
  for (const std::uint64_t span : {0, 1, 100}) {
    fingers_.grow(1'000, 7, 7 + span);
    EXPECT_FALSE(fingers_.any());
    EXPECT_FALSE(fingers_.outgrown(1'999));
    EXPECT_TRUE(fingers_.outgrown(2'000));
  }
  fingers_.grow(2'000, 7, 7 + 100'000);
  EXPECT_TRUE(fingers_.any());
  fingers_.name(50, 96);
  EXPECT_EQ(nearest(51), 96U);
}

// A reader may use an outgrown table until the epochs have passed. The thread that copies retires
// nothing.
TEST_F(SkiplistFingers, AnOutgrownTableIsReturned) {
  fingers_.grow(64, 0, 6'400);
  fingers_.name(10, 32);
  const std::uint64_t bytes = fingers_.bytes();
  fingers_.grow(128, 0, 6'400);
  Fingers::Outgrown outgrown = nullptr;
  while (outgrown == nullptr) {
    outgrown = fingers_.copy_some([](std::uint64_t) { return 10; },
                                  [](std::uint64_t, auto&& copy) { copy(); });
  }
  EXPECT_EQ(nearest(11), 32U);
  EXPECT_GT(fingers_.bytes(), bytes);
  EXPECT_EQ(epochs_.limbo_count(), 0U);
  const EpochGuard<RealPlatform> guard(epochs_);
  const std::uint64_t both = fingers_.bytes();
  fingers_.retire(outgrown);
  EXPECT_EQ(fingers_.bytes(), both - bytes);
  EXPECT_EQ(epochs_.limbo_count(), 1U);
  fingers_.retire(nullptr);
  EXPECT_EQ(epochs_.limbo_count(), 1U);
}

// A name that goes while it is copied, and one whose node's stripe is held, are not in the next
// table.
TEST_F(SkiplistFingers, ANameThatGoesIsNotCopied) {
  for (const bool held : {false, true}) {
    Fingers fingers(epochs_);
    fingers.grow(64, 0, 6'400);
    fingers.name(10, 32);
    fingers.grow(128, 0, 6'400);
    ASSERT_TRUE(fingers.growing());
    Fingers::Outgrown outgrown = nullptr;
    while (outgrown == nullptr) {
      outgrown = fingers.copy_some([](std::uint64_t) { return 10; },
                                   [&](std::uint64_t, auto&& copy) {
                                     if (held) return;
                                     fingers.unname(10, 32);
                                     copy();
                                   });
    }
    EXPECT_FALSE(fingers.names(10, 32));
    fingers.name(10, 64);
    EXPECT_TRUE(fingers.names(10, 64));
    const EpochGuard<RealPlatform> guard(epochs_);
    fingers.retire(outgrown);
  }
}

}  // namespace
}  // namespace perdure::test
