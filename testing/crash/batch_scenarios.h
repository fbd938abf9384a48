// A pool that was left within a batch, for the mutants: the next open finds a damaged record.
#pragma once

#include <vector>

#include "testing/crash/heap_scenarios.h"
#include "testing/crash/subject.h"

namespace perdure::testing {

// `factory` makes pools of records with integer keys.
std::vector<HeapScenario> batch_scenarios(const SubjectFactory& factory);

}  // namespace perdure::testing
