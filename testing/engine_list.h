// The engines that torture and interleavings know. A new one is a row in engine_list.cc.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "perdure/options.h"
#include "testing/lossy_platform.h"
#include "testing/races.h"
#include "testing/torture_runner.h"

namespace perdure::testing {

using OpenLossy = Expected<std::unique_ptr<TortureTarget>> (*)(const TortureOptions& options,
                                                               const std::string& file,
                                                               LossyJournal* journal);

struct EngineUnderTest {
  Engine engine;
  bool ordered;
  OpenLossy open_lossy;      // open_lossy<Row>, testing/lossy_target.h
  const char* lossy_mutant;  // SITE:op that torture with integer keys has to notice
  RaceList (*races)();       // its scenarios for the scheduler
  const char* race_mutant;   // SITE:op that a schedule of theirs has to notice
};

std::span<const EngineUnderTest> engines_under_test();
const EngineUnderTest* find_engine_under_test(const std::string& name);  // null: none

}  // namespace perdure::testing
