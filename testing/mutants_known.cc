// Mutants that survive, with their argument, and bugs of others, with the mutant that is theirs.
#include "testing/mutants.h"

namespace perdure::testing {

const std::vector<Argument>& arguments() {
  static const std::vector<Argument> all{};
  return all;
}

const std::vector<HistoricalBug>& historical_bugs() {
  static const std::vector<HistoricalBug> all{};
  return all;
}

}  // namespace perdure::testing
