// PhaST's part of what perdure-explore explores.
#pragma once

#include <vector>

#include "testing/explored.h"

namespace perdure::testing {

SubjectFactory phast_maps(KeyKind keys, const MapSetup& setup);
std::vector<Exploration> phast_directed(Preset preset);

}  // namespace perdure::testing
