// Single bits flipped, and lines lost, in a small simulated pool that was closed cleanly, one at a
// time: for the mutants that skip a checksum. tests/api/bit_flip_test.cc flips the bits of real
// files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "testing/subject.h"

namespace perdure::testing {

// What an engine's own checksums cover in a closed pool, as [begin, end) of its file.
using Covered = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
using FindCovered = Covered (*)(const SimMemory& memory);

// What is flipped: a pool that has seen these operations, but for those that are none of a map.
struct FlipWork {
  const char* name;
  SubjectFactory factory;
  OpSource source;
  bool exchanged;  // of lost_lines()
};

// Says which flip was silent: open and check find nothing, and an answer is wrong; or the flip is
// in the extent table or in what `covered` finds, where open or check must find every one. Two bits
// of every other word that is not 0.
std::string flipped_bits(const SubjectFactory& factory, const OpSource& source,
                         FindCovered covered);

// The same for lines: one is zero, or (`exchanged`) two of those in use have changed places. And
// what was reported is reported again after a power failure that follows.
std::string lost_lines(const SubjectFactory& factory, const OpSource& source, bool exchanged);

}  // namespace perdure::testing
