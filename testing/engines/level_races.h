// Level hashing under the scheduler.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "testing/schedule/races.h"

namespace perdure::testing {

// Of these operations on integer keys those before the first, from number `from` on, that fences at
// this site; and that one.
struct Setup {
  std::vector<Op> before;
  Op next;
};
Setup until(const std::string& site, const std::vector<Op>& ops, std::size_t from = 0);

RaceList level_races();
std::vector<NamedInterleaving> level_interleavings();

}  // namespace perdure::testing
