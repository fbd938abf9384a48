// What threads do to a skiplist at once: the scenarios of `as` and `ascs`.
#pragma once

#include "testing/schedule/races.h"

namespace perdure::testing {

RaceList as_races();
RaceList ascs_races();

}  // namespace perdure::testing
