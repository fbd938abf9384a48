// What cuts take, and the shares of threads in it.
#include "cut/cut_pace.h"

#include <cstdint>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kRate = 1'000'000;  // lines a second

TEST(Pace, FollowsTheCuts) {
  CutPace pace(kRate);
  EXPECT_EQ(pace.lines_in(kSecond), kRate);
  for (int i = 0; i < 40; ++i) pace.learn(200'000, kSecond / 10);
  EXPECT_NEAR(static_cast<double>(pace.lines_in(kSecond)), 2e6, 2e4);
  // A cut after another one has little to write: all was noted while that was made.
  for (int i = 0; i < 40; ++i) pace.learn(200'000, i % 2 == 0 ? kSecond / 5 : 1000);
  EXPECT_NEAR(static_cast<double>(pace.lines_in(kSecond)), 2e6, 4e5);
  for (int i = 0; i < 100; ++i) pace.learn(100, kSecond / 10);
  EXPECT_GT(pace.lines_in(kSecond), kRate) << "a cut of a few lines shows nothing";
  EXPECT_GE(pace.lines_in(1), 1000U) << "a cut is worth some lines";
}

// The share of each of two threads is a quarter of what cuts take.
TEST(Pace, AThreadWithinItsShareGoesOn) {
  CutPace pace(kRate);
  ThreadAccount little, much;
  std::uint64_t noted_little = 0, noted_much = 0;
  std::uint64_t now = 5 * kSecond;
  (void)pace.has_share(little, noted_little, 2, now);
  (void)pace.has_share(much, noted_much, 2, now);
  for (int ms = 0; ms < 3000; ++ms) {
    now += kSecond / 1000;
    noted_little += kRate / 8 / 1000;
    noted_much += kRate / 1000;
    ASSERT_TRUE(pace.has_share(little, noted_little, 2, now)) << ms;
  }
  EXPECT_FALSE(pace.has_share(much, noted_much, 2, now));
  EXPECT_FALSE(pace.has_share(much, noted_much, 2, now + 5 * kSecond)) << "it owes more than that";
  EXPECT_TRUE(pace.has_share(much, noted_much, 2, now + 10 * kSecond));
}

// It was not asked for a long time, because nothing was short.
TEST(Pace, TheTimeBetweenCounts) {
  CutPace pace(kRate);
  ThreadAccount account;
  (void)pace.has_share(account, 0, 1, kSecond);
  EXPECT_TRUE(pace.has_share(account, 10 * kRate, 1, 100 * kSecond));
  EXPECT_FALSE(pace.has_share(account, 12 * kRate, 1, 101 * kSecond)) << "a share is not kept";
  EXPECT_TRUE(pace.has_share(account, 12 * kRate, 1, 109 * kSecond)) << "nor is a debt";
}

}  // namespace
}  // namespace perdure::test
