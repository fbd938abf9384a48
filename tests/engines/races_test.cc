// test: explores
// Every engine's races: all schedules with one preemption, a part of those with two, and with three
// threads some under random priorities. perdure-guard runs them all. They reach what they are
// about.
#include "testing/schedule/races.h"

#include <gtest/gtest.h>

#include "testing/engines/engine_list.h"
#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

struct EngineRace {
  std::string engine;
  Race race;
};

std::vector<EngineRace> all_races() {
  std::vector<EngineRace> all;
  for (const EngineUnderTest* row : engines_under_test()) {
    for (Race& race : row->races()) all.push_back({row->name(), std::move(race)});
  }
  return all;
}

class Races : public ::testing::TestWithParam<EngineRace> {};
INSTANTIATE_TEST_SUITE_P(Engines, Races, ::testing::ValuesIn(all_races()), [](const auto& row) {
  return row.param.engine + "_" + row.param.race.name;
});

TEST_P(Races, NoScheduleViolatesAnything) {
  const auto& [engine, race] = GetParam();
  InterleaveOptions options = options_of(race, engine);
  Interleaver interleaver(race.subjects, options);
  expect_clean(race.exhaustive() ? interleaver.exhaustive(2, thinned(2 * race.thin))
                                 : interleaver.pct(sanitized() ? 60 : 500, 3),
               race.reaches);
}

}  // namespace
}  // namespace perdure::testing
