// Measures the heap alone: allocate and free with one thread over memory, configured as a pool does
// for `emulated` durability.
#pragma once

#include "bench/workloads/data.h"

namespace perdure::bench {

struct HeapCost {
  double pair_ns = 0;  // one allocate and one free; median of 5 runs
  double flushes_per_pair = 0;
  double fences_per_pair = 0;
};

// Allocates batches of 1,000 blocks of mixed sizes and frees them in another order.
Result<HeapCost> measure_heap();

}  // namespace perdure::bench
