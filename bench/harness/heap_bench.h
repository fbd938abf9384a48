// The cost of the heap alone: allocate and free, one thread, over memory, as the pool configures
// it for `emulated` durability.
#pragma once

#include "bench/workloads/data.h"

namespace perdure::bench {

struct HeapCost {
  double pair_ns = 0;  // one allocate and one free; median of 5 runs
  double flushes_per_pair = 0;
  double fences_per_pair = 0;
};

// Batches of 1,000 blocks of mixed sizes, freed in another order than they were allocated.
Result<HeapCost> measure_heap();

}  // namespace perdure::bench
