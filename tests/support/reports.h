// Shared by explorations and schedules: the name of a run, and what its report must say.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "testing/crash/explorer.h"
#include "testing/schedule/interleaver.h"

namespace perdure::testing {

inline bool sanitized() {
  const char* san = std::getenv("PERDURE_SAN");
  return san != nullptr && *san == '1';
}

inline std::string test_name(const std::string& part = {}) {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info->test_suite_name()) + "." + info->name() + (part.empty() ? "" : "/") +
         part;
}

template <class Report>
void expect_crossed(const Report& report, const std::set<std::string>& sites) {
  for (const std::string& site : sites) {
    EXPECT_TRUE(report.sites_crossed.contains(site)) << site << " was not crossed by a crash";
  }
}

// Something was explored, without a violation, and a crash crossed each of the sites.
inline void expect_clean(const ExploreReport& report, const std::set<std::string>& sites = {}) {
  std::printf("%s\n", report.summary().c_str());
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_GT(report.images, 0U);
  EXPECT_EQ(report.unexplained_lines, 0U);
  expect_crossed(report, sites);
}
inline void expect_clean(const InterleaveReport& report, const std::set<std::string>& sites = {}) {
  std::printf("%s\n", report.summary().c_str());
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_GT(report.schedules, 0U);
  expect_crossed(report, sites);
}

}  // namespace perdure::testing
