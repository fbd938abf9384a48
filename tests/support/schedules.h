// Shared by the tests of interleavings: operations, sizes that the environment sets, and a scenario
// of several engines.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "testing/crash/workloads.h"
#include "testing/engines/phast_subject.h"
#include "testing/schedule/interleaver.h"
#include "testing/schedule/race_ops.h"
#include "tests/support/reports.h"

namespace perdure::testing {

// Runs one in n schedules with two preemptions, a fraction of these in sanitized builds, and all
// with PERDURE_SCHEDULES=all.
inline std::uint32_t thinned(std::uint32_t n) {
  const char* wanted = std::getenv("PERDURE_SCHEDULES");
  if (wanted != nullptr && std::string(wanted) == "all") return 1;
  return sanitized() ? n * 16 : n;
}

// Of keys 5 and 6, which are there, and 9: a thread stands between its store and its fence at the
// site, and another thread's operation comes.
struct Unfenced {
  const char* part;
  Op write;
  std::string site;
  Op other;
  bool waits = false;  // for the writer; else it writes back and fences itself
};
inline void expect_results_between_store_and_fence(
    const SubjectFactory& factory, const std::vector<Unfenced>& cases,
    const EnumerationLimits& limits = InterleaveOptions{}.limits) {
  for (const Unfenced& c : cases) {
    for (const bool flushed : {false, true}) {
      Interleaver interleaver(factory, {.name = test_name(c.part),
                                        .setup = {insert(5, 1), insert(6, 1)},
                                        .threads = {{c.write}, {c.other}},
                                        .limits = limits});
      const Until stop = flushed ? fence_of(c.site) : flush_of(c.site);
      const auto report = interleaver.directed({{0, stop}, {1, done()}, {0, done()}});
      expect_clean(report);
      ASSERT_EQ(report.legs.size(), 3U);
      EXPECT_EQ(report.legs[1], c.waits ? LegEnd::blocked : LegEnd::reached) << c.part;
    }
  }
}

}  // namespace perdure::testing
