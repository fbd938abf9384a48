// Runs the explorations of perdure-explore for every engine of the testers' list, at a part of the
// crash points. Tests for a hazard of one engine are with that engine's tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "perdure/pool.h"
#include "testing/engines/engine_list.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

// An engine that is built but not listed would get no explorer, scheduler, mutants or torture.
TEST(EnginesUnderTest, AreThoseThatAreBuilt) {
  std::set<std::pair<Engine, bool>> built, listed;
  for (const EngineInfo& info : engines()) {
    built.emplace(info.engine, info.ordered);
  }
  for (const EngineUnderTest* row : engines_under_test()) listed.emplace(row->engine, row->ordered);
  EXPECT_EQ(built, listed) << "testing/engines/engine_list.cc";
}

constexpr std::uint32_t kPointsIn = 9;  // one in this many crash points

struct EngineExploration {
  const EngineUnderTest* engine;
  Exploration exploration;
};

std::vector<EngineExploration> explorations() {
  std::vector<EngineExploration> all;
  for (const EngineUnderTest* engine : engines_under_test()) {
    for (Exploration& e : engine_explorations(*engine, Preset::fast)) {
      // Of the sequences, a few for each first operation.
      if (e.name.starts_with("sequences.") && !e.name.ends_with("3")) continue;
      all.push_back({engine, std::move(e)});
    }
  }
  return all;
}
std::string exploration_name(const ::testing::TestParamInfo<EngineExploration>& row) {
  std::string name = row.param.engine->name() + "_" + row.param.exploration.name;
  std::ranges::replace(name, '.', '_');
  return name;
}

class EnginesCrash : public ::testing::TestWithParam<EngineExploration> {};
INSTANTIATE_TEST_SUITE_P(Engines, EnginesCrash, ::testing::ValuesIn(explorations()),
                         exploration_name);

TEST_P(EnginesCrash, NothingIsLost) {
  Exploration e = GetParam().exploration;
  e.options.points_in = std::max(e.options.points_in, kPointsIn);
  const ExploreReport report = run_exploration(e, test_name(), 1);
  std::printf("%s\n", report.summary().c_str());
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_GT(report.images, 0U);
  EXPECT_EQ(report.unexplained_lines, 0U);
}

}  // namespace
}  // namespace perdure::testing
