// Shared by the tests of interleavings: operations, and one exploration as one expectation.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "testing/crash/workloads.h"
#include "testing/engines/phast_subject.h"
#include "testing/schedule/interleaver.h"
#include "testing/schedule/race_ops.h"

namespace perdure::testing {

inline bool sanitized() {
  const char* san = std::getenv("PERDURE_SAN");
  return san != nullptr && *san == '1';
}
// Runs one in n schedules with two preemptions, a fraction of these in sanitized builds, and all
// with PERDURE_SCHEDULES=all.
inline std::uint32_t thinned(std::uint32_t n) {
  const char* wanted = std::getenv("PERDURE_SCHEDULES");
  if (wanted != nullptr && std::string(wanted) == "all") return 1;
  return sanitized() ? n * 16 : n;
}

inline std::string test_name(const std::string& part = {}) {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info->test_suite_name()) + "." + info->name() + (part.empty() ? "" : "/") +
         part;
}

inline void expect_clean(const InterleaveReport& report) {
  std::printf("%s\n", report.summary().c_str());
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_GT(report.schedules, 0U);
}

}  // namespace perdure::testing
