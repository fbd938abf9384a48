// test: explores
// Every engine's interleavings that show a missing write-back or fence: clean as they are, and not
// with one of the mutants that they are to show. The sites of these are reached only while another
// thread is inside its write, or matter only to another thread.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "testing/engines/engine_list.h"
#include "testing/sim/sites.h"
#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

struct EngineInterleaving {
  std::string engine;
  NamedInterleaving scenario;
};

std::vector<EngineInterleaving> all_interleavings() {
  std::vector<EngineInterleaving> all;
  for (const EngineUnderTest* row : engines_under_test()) {
    for (NamedInterleaving& one : row->interleavings()) {
      all.push_back({row->name(), std::move(one)});
    }
  }
  return all;
}

class Interleavings : public ::testing::TestWithParam<EngineInterleaving> {};
INSTANTIATE_TEST_SUITE_P(Engines, Interleavings, ::testing::ValuesIn(all_interleavings()),
                         [](const auto& row) {
                           return row.param.engine + "_" + row.param.scenario.name;
                         });

TEST_P(Interleavings, ShowWhatTheyAreAbout) {
  const auto& [engine, scenario] = GetParam();
  // The scenarios of clevel run for each key or each pair of keys: minutes under a sanitizer, which
  // does not notice planted bugs.
  const bool slow = sanitized() && engine == "clevel";
  if (slow && std::string_view(scenario.name) == "I4_X4_reuse_beside_a_move") GTEST_SKIP();
  expect_clean(scenario.run(test_name(), false));
  if (slow) return;
  for (const std::string_view planted : scenario.shows) {
    const std::size_t colon = planted.find(':');
    const auto mutant = parse_mutant(planted.substr(colon + 1));
    const ScopedMutant scoped(planted.substr(0, colon), mutant.value());
    ASSERT_TRUE(scoped.matched()) << planted;
    const InterleaveReport report = scenario.run(test_name("red"), /*quiet=*/true);
    EXPECT_FALSE(report.ok()) << planted << "\n" << report.summary();
  }
}

}  // namespace
}  // namespace perdure::testing
