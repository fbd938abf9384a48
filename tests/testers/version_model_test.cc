// test: explores
// The results that the version model accepts, and those that it rejects.
#include "testing/schedule/version_model.h"

#include <gtest/gtest.h>

#include "testing/schedule/version_ops.h"

namespace perdure::testing {
namespace {

bool takes(VersionModel& model, const Op& op, bool yes, const std::string& text = {}) {
  return model.explains(op, {.yes = yes, .text = text});
}
// Copies the model, because a rejected result has its effect, too.
bool would_take(VersionModel model, const Op& op, bool yes, const std::string& text = {}) {
  return takes(model, op, yes, text);
}

TEST(VersionModel, TakesRightResultsOnly) {
  VersionModel model;
  ASSERT_TRUE(takes(model, put(5, 1), true));
  EXPECT_FALSE(would_take(model, tag(), true, "2"));
  ASSERT_TRUE(takes(model, tag(), true, "1"));
  ASSERT_TRUE(takes(model, put(5, 2), false));
  EXPECT_FALSE(would_take(model, put(5, 3), true)) << "it is there";
  EXPECT_TRUE(would_take(model, get(5), true, word(2)));
  EXPECT_FALSE(would_take(model, get(5), true, word(1)));
  EXPECT_TRUE(would_take(model, get(5, 1), true, word(1)));
  EXPECT_FALSE(would_take(model, get(5, 1), true, word(2))) << "a closed version has changed";
  EXPECT_FALSE(would_take(model, get(5, 1), false, kRefused));
  EXPECT_TRUE(would_take(model, get(5, 2), false, kRefused));
  EXPECT_FALSE(would_take(model, get(5, 2), true, word(2))) << "it is open";
  EXPECT_TRUE(would_take(model, history(5), true, "1:1 2:2 "));
  EXPECT_FALSE(would_take(model, history(5), true, "2:2 ")) << "an entry is missing";
  EXPECT_FALSE(would_take(model, history(5), true, "1:2 2:2 ")) << "another key's";
  EXPECT_FALSE(would_take(model, history(5), true, "1:1 ")) << "not the last";
  ASSERT_TRUE(takes(model, gone(5), true));
  ASSERT_TRUE(takes(model, tag(), true, "2"));
  EXPECT_TRUE(would_take(model, diff(1, 2), true, "5:1>- "));
  EXPECT_FALSE(would_take(model, diff(1, 2), true, ""));
  EXPECT_FALSE(would_take(model, scan_at(1), true, ""));
  ASSERT_TRUE(takes(model, trim(2), true));
  EXPECT_TRUE(would_take(model, scan_at(1), false, kRefused));
  EXPECT_FALSE(would_take(model, scan_at(1), true, "5:1 "));
  EXPECT_TRUE(would_take(model, history(5), true, ""));
  EXPECT_TRUE(would_take(model, history(5), true, "1:1 2:- "));
  EXPECT_FALSE(would_take(model, history(5), true, "1:1 ")) << "version 2 does not have it";
}

TEST(VersionModel, MatchesWhatACrashLeaves) {
  VersionModel model;
  ASSERT_TRUE(takes(model, put(5, 1), true));
  ASSERT_TRUE(takes(model, tag(), true, "1"));
  const std::string range(1, kNamed);
  Model content{{at_present(find(5)).key, word(1)}, {get(5, 1).key, word(1)}, {range, "11"}};
  EXPECT_TRUE(model.matches(content));
  content[get(5, 2).key] = word(1);
  content[range] = "12";
  EXPECT_TRUE(model.matches(content)) << "more versions can be read than were tagged";
  content[range] = "22";
  EXPECT_FALSE(model.matches(content)) << "a version is lost";
  content[range] = "12";
  content[get(5, 1).key] = word(2);
  EXPECT_FALSE(model.matches(content)) << "a version has changed";
  content.erase(get(5, 1).key);
  EXPECT_FALSE(model.matches(content)) << "an entry of a version is lost";
}

}  // namespace
}  // namespace perdure::testing
