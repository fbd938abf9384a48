// The multi-version store under the scheduler.
#pragma once

#include "testing/schedule/races.h"

namespace perdure::testing {

RaceList pskiplist_races();
std::vector<NamedInterleaving> pskiplist_interleavings();

}  // namespace perdure::testing
