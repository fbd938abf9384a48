// Single bits flipped in a small simulated pool that was closed cleanly, one at a time: for the
// mutants that skip a checksum. tests/api/bit_flip_test.cc flips the bits of real files.
#pragma once

#include <string>

#include "testing/subject.h"

namespace perdure::testing {

// Says which flip was silent: open and check find nothing, and an answer is wrong; or the flip is
// in a word of the extent table, where open or check must find every one. Two bits of every word
// that is not 0.
std::string flipped_bits(const SubjectFactory& factory, const OpSource& source);

}  // namespace perdure::testing
