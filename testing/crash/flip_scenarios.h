// Flips single bits and loses single lines, one at a time, in a small simulated pool that was
// closed cleanly. For the mutants that skip a checksum. tests/engines/bit_flip_test.cc flips the
// bits of real files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "testing/crash/subject.h"

namespace perdure::testing {

// Ranges [begin, end) of a closed pool's file that an engine's own checksums cover.
using Covered = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
using FindCovered = Covered (*)(const SimMemory& memory);

// The subject of the flips: a pool after these operations, without those that concern no map.
struct FlipWork {
  const char* name;
  SubjectFactory factory;
  OpSource source;
  bool exchanged;  // for lost_lines()
};

// Names a flip that was silent: open and check find nothing, and a result is wrong. In the extent
// table and in the ranges of `covered`, open or check must find every flip. Flips two bits of every
// other nonzero word.
std::string flipped_bits(const SubjectFactory& factory, const OpSource& source,
                         FindCovered covered);

// Does the same for lines: one is zeroed, or (`exchanged`) two used ones are exchanged. A reported
// loss must be reported again after a power failure that follows.
std::string lost_lines(const SubjectFactory& factory, const OpSource& source, bool exchanged);

}  // namespace perdure::testing
