// Races: scenarios of two or three threads that tests and perdure-guard run under every kind of
// schedule. Each name begins with its hazards (docs/design/hazards.md).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "testing/schedule/interleaver.h"

namespace perdure::testing {

struct Race {
  std::string name;
  SubjectFactory subjects;
  std::vector<Op> setup;
  std::vector<std::vector<Op>> threads;
  // Fast tests run no more than one in so many schedules with two preemptions.
  std::uint32_t thin = 24;
  EnumerationLimits limits = {.product = 32, .random = 4, .sampled = 12};
  // What a race of two threads is about: a crash must cross each of these sites.
  std::set<std::string> reaches = {};

  bool exhaustive() const { return threads.size() < 3; }
};
using RaceList = std::vector<Race>;

// A directed scenario that shows a missing write-back or fence. `name` is for the replay line.
using InterleavingScenario = InterleaveReport (*)(const std::string& name, bool quiet);
struct NamedInterleaving {
  const char* name;
  InterleavingScenario run;
  // SITE:op; mutants that this scenario notices, and that may need just this one.
  std::vector<const char*> shows = {};
};

inline InterleaveOptions options_of(const Race& race, const std::string& engine) {
  return {.name = engine + "." + race.name,
          .setup = race.setup,
          .threads = race.threads,
          .limits = race.limits};
}

}  // namespace perdure::testing
