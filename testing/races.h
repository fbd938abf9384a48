// Races: what two or three threads do at once, as scenarios that tests and perdure-interleave run
// under every kind of schedule. Each name begins with the hazards (docs/design/hazards.md) that it
// aims at.
#pragma once

#include <string>
#include <vector>

#include "testing/interleaver.h"

namespace perdure::testing {

struct Race {
  std::string name;
  SubjectFactory subjects;
  std::vector<Op> setup;
  std::vector<std::vector<Op>> threads;  // 2: exhaustive to two preemptions; 3: PCT
  // In the fast tests: of the schedules with two preemptions every so-many-th.
  std::uint32_t thin = 24;
  EnumerationLimits limits = {.product = 32, .random = 4, .sampled = 24};
};
using RaceList = std::vector<Race>;

RaceList phast_races();

}  // namespace perdure::testing
