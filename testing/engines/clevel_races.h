// Clevel hashing under the scheduler.
#pragma once

#include "testing/schedule/races.h"

namespace perdure::testing {

RaceList clevel_races();
// For the mutants of sites that one thread alone does not come to.
std::vector<NamedInterleaving> clevel_interleavings();

}  // namespace perdure::testing
