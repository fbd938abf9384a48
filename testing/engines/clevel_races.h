// Clevel hashing under the scheduler.
#pragma once

#include "testing/races.h"

namespace perdure::testing {

RaceList clevel_races();

}  // namespace perdure::testing
