// Trials: the crash explorations, interleavings, scenarios and bit flips that must notice a mutant.
// Each is deterministic and passes without one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "testing/crash/explorer.h"

namespace perdure::testing {

struct Trial {
  std::string name;
  std::function<std::string()> run;  // returns "", or what is wrong
};

struct EngineUnderTest;  // testing/engines/engine_list.h

// Trials of pool, heap and the engine; explorations run once per seed in [1, seeds].
std::vector<Trial> trials(const EngineUnderTest& engine, std::uint32_t seeds);

// The depth of a trial's explorations.
ExploreOptions trial_options();

}  // namespace perdure::testing
