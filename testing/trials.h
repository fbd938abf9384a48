// Trials: the crash explorations, interleavings, scenarios and bit flips that a mutant has to
// survive. Each is deterministic and green without one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::testing {

struct Trial {
  std::string name;
  std::function<std::string()> run;  // says what is wrong; empty: nothing
};

// Of pool, heap and the engine, cheap ones first; explorations once per seed in [1, seeds]. Empty
// if there is no such engine.
std::vector<Trial> trials(std::string_view engine, std::uint32_t seeds);

}  // namespace perdure::testing
