// Trials: the crash explorations, interleavings, scenarios and bit flips that a mutant has to
// survive. Each is deterministic and green without one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "testing/explorer.h"

namespace perdure::testing {

struct Trial {
  std::string name;
  std::function<std::string()> run;  // says what is wrong; empty: nothing
};

struct EngineUnderTest;  // testing/engine_list.h

// Of pool, heap and the engine; explorations once per seed in [1, seeds].
std::vector<Trial> trials(const EngineUnderTest& engine, std::uint32_t seeds);

// How far the explorations of a trial go.
ExploreOptions trial_options();

}  // namespace perdure::testing
