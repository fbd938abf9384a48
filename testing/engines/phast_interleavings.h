// PhaST under the scheduler.
#pragma once

#include <vector>

#include "testing/schedule/races.h"

namespace perdure::testing {

RaceList phast_races();
// For the mutants of sites that one thread alone does not come to.
std::vector<NamedInterleaving> phast_interleavings();

}  // namespace perdure::testing
