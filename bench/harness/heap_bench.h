// Measures the heap alone: allocate and free over memory, configured as a pool does for `emulated`
// durability.
#pragma once

#include <cstdint>

#include "bench/workloads/data.h"

namespace perdure::bench {

// Medians of 5 runs. A pair is one allocate and one free.
struct HeapCost {
  double pair_ns = 0;      // of each thread, until the last one has ended
  double pairs_per_s = 0;  // of all threads
  double speedup = 1;      // pairs_per_s by that of one thread, whose runs come in between
  double flushes_per_pair = 0;
  double fences_per_pair = 0;
};

// Each thread allocates batches of 1,000 blocks of mixed sizes, and frees them in another order.
Result<HeapCost> measure_heap(std::uint32_t threads);

}  // namespace perdure::bench
