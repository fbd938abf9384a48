// Interleavings of PhaST that a missing write-back or fence shows in: for the mutants of its sites,
// and for the tests that name them.
#pragma once

#include <string>
#include <vector>

#include "testing/schedule/races.h"

namespace perdure::testing {

// A find, an insert, an erase and a scan that see another thread's update or erase before its
// fence (1c, X3, G1, 7).
InterleaveReport results_beside_writers(const std::string& name, bool quiet);
// The same with a value word inside a record.
InterleaveReport results_beside_record_writers(const std::string& name, bool quiet);
// A split whose insert finds the key taken; meanwhile a record that it moved away from is freed and
// its block used again (G12, X4, 1h iv).
InterleaveReport split_without_insert(const std::string& name, bool quiet);
// A leaf is unlinked, and another thread gets its block (G6, X4).
InterleaveReport unlinked_leaf_reused(const std::string& name, bool quiet);

std::vector<NamedInterleaving> phast_interleavings();
RaceList phast_races();

}  // namespace perdure::testing
