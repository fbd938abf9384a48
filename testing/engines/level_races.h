// Level hashing under the scheduler.
#pragma once

#include "testing/races.h"

namespace perdure::testing {

RaceList level_races();

}  // namespace perdure::testing
