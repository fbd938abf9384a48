// test: cross
// Text, Array and Findings, which uses both, with little DRAM.
#include "util/containers.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "index/findings.h"

namespace perdure {
namespace {

TEST(TextTest, HoldsUpToItsSizeAndCutsTheRest) {
  Text<5> text;
  EXPECT_TRUE(text.empty());
  EXPECT_STREQ(text.c_str(), "");
  text = "12345";
  EXPECT_EQ(text, "12345");
  text = "123456789";
  EXPECT_EQ(text, "12345");
  EXPECT_STREQ(text.c_str(), "12345");
  text = "x";
  EXPECT_EQ(text.size(), 1U);
  EXPECT_STREQ(text.c_str(), "x");
  text = std::string_view("a\0b", 3);
  EXPECT_EQ(text, std::string("a\0b", 3));
}

TEST(TextTest, ComparesAsText) {
  const Text<8> a(std::string_view("abc"));
  const Text<8> b(std::string_view("abd"));
  EXPECT_TRUE(a == a);
  EXPECT_FALSE(a == b);
  EXPECT_TRUE(a != b);
  EXPECT_TRUE(a == std::string("abc"));
  EXPECT_TRUE("abc" == a);
}

TEST(ArrayTest, GrowsAndMoves) {
  Array<std::unique_ptr<int>> array;
  EXPECT_TRUE(array.empty());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(array.push_back(std::make_unique<int>(i)));
  ASSERT_EQ(array.size(), 100U);
  int expected = 0;
  for (const auto& item : array) EXPECT_EQ(*item, expected++);
  Array<std::unique_ptr<int>> other = std::move(array);
  EXPECT_TRUE(array.empty());  // NOLINT(bugprone-use-after-move): tests the moved-from state
  EXPECT_EQ(array.begin(), array.end());
  EXPECT_EQ(*other.front(), 0);
  EXPECT_EQ(*other[99], 99);
  array = std::move(other);
  EXPECT_EQ(array.size(), 100U);
  EXPECT_TRUE(other.empty());  // NOLINT(bugprone-use-after-move)
  ASSERT_TRUE(other.push_back(nullptr));
  EXPECT_EQ(other.size(), 1U);
}

TEST(ArrayTest, DestroysEachItemOnce) {
  const auto item = std::make_shared<int>(1);
  {
    Array<std::shared_ptr<int>> array;
    for (int i = 0; i < 9; ++i) ASSERT_TRUE(array.push_back(item));
    EXPECT_EQ(item.use_count(), 10);
    EXPECT_EQ(array.pop_back(), item);
    EXPECT_EQ(item.use_count(), 9);
    array.clear();
    EXPECT_EQ(item.use_count(), 1);
    ASSERT_TRUE(array.push_back(item));
    EXPECT_FALSE(array.reserve(~std::size_t{0}));
    EXPECT_EQ(array.size(), 1U);
    array = Array<std::shared_ptr<int>>();
    EXPECT_EQ(item.use_count(), 1);
    ASSERT_TRUE(array.push_back(item));
  }
  EXPECT_EQ(item.use_count(), 1);
}

TEST(FindingsTest, CountsWhatItDoesNotKeep) {
  Findings report;
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.first(), "");
  for (int i = 0; i < 150; ++i) report.add("violation " + std::to_string(i));
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.violation_count, 150U);
  EXPECT_EQ(report.violations.size(), CheckReport::kMaxViolations);
  EXPECT_EQ(report.first(), "violation 0");
  EXPECT_EQ(report.violations[99], "violation 99");
}

}  // namespace
}  // namespace perdure
