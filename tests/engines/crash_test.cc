// Every engine of the testers' list under the crash explorer: random workloads at every crash point,
// and the explorations of perdure-explore at a part of the points. Tests for a hazard of one engine
// are with that engine's tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perdure/pool.h"
#include "testing/crash/workloads.h"
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

// --- random workloads, every crash point ---

// Mutations do the background work, so that what a workload reaches is in its operations.
class RandomCrash : public ::testing::TestWithParam<const EngineUnderTest*> {
 protected:
  SubjectFactory subjects(KeyKind keys, ValueKind values = ValueKind::word) const {
    return engine_.subjects(keys, {.values = values, .background_thread = false});
  }
  // Records take longer.
  void explore_records(KeyKind keys, const OpSource& source) const {
    explore(subjects(keys, ValueKind::bytes), source, random_options(150, 20), operations_ * 2 / 3,
            (workloads_ * 2 + 2) / 3);
  }

  const EngineUnderTest& engine_ = *GetParam();
  const std::size_t operations_ = engine_.random_operations;
  const std::size_t workloads_ = engine_.random_workloads;
};
INSTANTIATE_TEST_SUITE_P(Engines, RandomCrash, ::testing::ValuesIn(engines_under_test()),
                         [](const auto& row) { return row.param->name(); });

TEST_P(RandomCrash, Words) {
  explore(subjects(KeyKind::integer), integer_op, random_options(60, 12), operations_, workloads_);
}
TEST_P(RandomCrash, Records) { explore_records(KeyKind::integer, integer_record_op); }
TEST_P(RandomCrash, ByteStrings) { explore_records(KeyKind::bytes, bytes_op); }
TEST_P(RandomCrash, Arrays) {
  if (!engine_.arrays) GTEST_SKIP() << "are byte strings";
  explore(subjects(KeyKind::array), integer_op, random_options(60, 12), operations_ * 5 / 6,
          (workloads_ * 2 + 2) / 3);
}

// P13, G10: nothing that opens before it is whole.
TEST_P(RandomCrash, P13_G10_Create) {
  explore(subjects(KeyKind::integer), integer_op, create_options(), 6, 2);
}

// X1: killed at every crash point, the machine goes on, and loses power during recovery or after it.
TEST_P(RandomCrash, X1_KillThenPowerLoss) {
  const ExploreReport report = explore(subjects(KeyKind::integer), integer_op, kill_options(),
                                       operations_ / 4, workloads_ / 2);
  EXPECT_GE(report.kill_runs, at_least(20));
  EXPECT_GE(report.second_images, at_least(200));
}

// G11: power fails again inside recovery, and recovery starts once more.
TEST_P(RandomCrash, G11_SecondCrashInsideRecovery) {
  const ExploreReport report = explore(subjects(KeyKind::integer), integer_op, recovery_options(),
                                       operations_ / 2, workloads_ / 2);
  EXPECT_GE(report.second_images, at_least(100));
}

// --- the explorations of perdure-explore ---

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
  expect_clean(run_exploration(e, test_name(), 1));
}

}  // namespace
}  // namespace perdure::testing
