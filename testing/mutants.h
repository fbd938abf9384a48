// Mutants: does the crash explorer notice when one write-back or fence of the library is missing?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "testing/explorer.h"

namespace perdure::testing {

// The explorations that a mutant has to survive, cheapest first; `effort` multiplies their seeds.
// Each runs with crash points in create, second crashes and kills.
std::vector<ExploreReport> run_explorations(std::uint32_t effort, bool stop_at_red);

// Runs them under the mutant in a child process. True: red, or crashed, or hung.
bool mutant_is_red(const std::string& site, Mutant mutant, std::uint32_t effort);

}  // namespace perdure::testing
