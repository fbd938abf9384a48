// Chooses the combinations of line states to try at a crash point.
#pragma once

#include <cstdint>
#include <vector>

#include "testing/crash/subject.h"
#include "testing/sim/sim_memory.h"

namespace perdure::testing {

struct EnumerationLimits {
  std::uint64_t product = 256;  // up to this many combinations, all are tried
  std::uint32_t random = 24;    // beyond: random draws added to the systematic ones
  // Beyond: at most this many in total, or half of it in addition to the ones never left out. Those
  // are none, all, each line alone and all but each, for up to this many lines. If there are more,
  // recent lines come first, with a sample of the others.
  std::uint32_t sampled = 120;
};

// One combination: a choice for every pending line, and whether the new file size, the pending
// punches and the file's name reached the medium.
struct Combination {
  std::vector<std::uint32_t> choice;
  bool new_size = true;
  bool punched = false;
  bool new_name = true;
};
struct Enumeration {
  std::vector<Combination> combinations;
  bool exhaustive = true;  // no listed choice of any line was left out
  bool bounded = false;    // more than `sampled` lines: not every line was tried alone
};

// Exhaustive while the product of the choices is small. Otherwise: none, all, each line alone, all
// lines but one; and, as far as the limits allow, every combination of the recent lines or each
// state of one, prefixes in program order, pairs, and random draws. Deterministic in `seed`.
Enumeration enumerate(const SimMemory& memory, const std::vector<PendingLine>& pending,
                      const EnumerationLimits& limits, std::uint64_t seed);

}  // namespace perdure::testing
