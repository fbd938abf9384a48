// test: explores, starts first
// Every engine of the testers' list under the crash explorer: random workloads at every crash
// point, and the explorations of perdure-guard at a part of the points. Tests for a hazard of one
// engine are with that engine's tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
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
  const EngineUnderTest& engine() const { return *GetParam(); }
  ExploreReport explore_random(KeyKind keys, ValueKind values, const OpSource& source,
                               const ExploreOptions& options,
                               const RandomWorkloads& workloads) const {
    return explore(engine().subjects(keys, {.values = values, .background_thread = false}), source,
                   options, workloads.operations, workloads.number);
  }
  // A part of the workloads of integers, for options that make many images of each point.
  ExploreReport explore_some(const ExploreOptions& options, std::size_t part) const {
    const auto& [number, operations] = engine().random_words;
    return explore_random(KeyKind::integer, ValueKind::word, integer_op, options,
                          {(number + 1) / 2, operations / part});
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, RandomCrash, ::testing::ValuesIn(engines_under_test()),
                         [](const auto& row) { return row.param->name(); });

// Only engines that keep arrays inline. The others keep them as byte strings.
class RandomArrayCrash : public RandomCrash {};
std::vector<const EngineUnderTest*> engines_with_arrays() {
  std::vector<const EngineUnderTest*> rows;
  std::ranges::copy_if(engines_under_test(), std::back_inserter(rows), &EngineUnderTest::arrays);
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Engines, RandomArrayCrash, ::testing::ValuesIn(engines_with_arrays()),
                         [](const auto& row) { return row.param->name(); });

TEST_P(RandomCrash, Words) {
  explore_random(KeyKind::integer, ValueKind::word, integer_op, random_options(60, 12),
                 engine().random_words);
}
TEST_P(RandomCrash, Records) {
  explore_random(KeyKind::integer, ValueKind::bytes, integer_record_op, random_options(150, 20),
                 engine().random_records);
}
TEST_P(RandomCrash, ByteStrings) {
  explore_random(KeyKind::bytes, ValueKind::bytes, bytes_op, random_options(150, 20),
                 engine().random_strings);
}
TEST_P(RandomArrayCrash, Arrays) {
  explore_random(KeyKind::array, ValueKind::word, integer_op, random_options(60, 12),
                 {engine().random_records.number, 100});
}

// P13, G10: nothing that opens before it is whole.
TEST_P(RandomCrash, P13_G10_Create) {
  explore_random(KeyKind::integer, ValueKind::word, integer_op, create_options(), {2, 6});
}

// X1: killed at every crash point, the machine goes on. It loses power during recovery or later. A
// kill comes before a fence, and an operation that changes nothing has none: clevel has 14 kills in
// 15 operations, pskiplist 38 in 30.
TEST_P(RandomCrash, X1_KillThenPowerLoss) {
  const ExploreReport report = explore_some(kill_options(), 4);
  EXPECT_GE(report.kill_runs, at_least(report.operations / 2));
  EXPECT_GE(report.second_images, at_least(10 * report.operations));
}

// G11: power fails again inside recovery, and recovery starts once more.
TEST_P(RandomCrash, G11_SecondCrashInsideRecovery) {
  const ExploreReport report = explore_some(recovery_options(), 2);
  EXPECT_GE(report.second_images, at_least(5 * report.operations));
}

// --- the explorations of perdure-guard ---

constexpr std::uint32_t kPointsIn = 25;  // one in this many crash points

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
