// The measurements of PhaST's evaluation with one thread (paper, sections 5.2 and 5.4).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "bench/harness/memory_heap.h"
#include "bench/paper/figures.h"
#include "bench/paper/ordered/ordered_map.h"

namespace perdure::paper {

struct OrderedOptions {
  std::uint64_t items = 1'000'000;  // inserted before the clock starts, and once more with it
  std::uint32_t runs = 3;           // of each map, in turns, of which the median counts
};

struct OrderedScheme {
  const char* name;
  std::unique_ptr<OrderedMap> (*make)(bench::MemoryHeap& memory);
};
inline constexpr std::size_t kOrderedCount = 6;
// phast, FAST-FAIR, FPTree, NV-Skiplist, wB+-Tree, WORT.
std::span<const OrderedScheme, kOrderedCount> ordered_schemes();

void operations(const OrderedOptions& options, Report& report);      // figure 7
void ycsb_workloads(const OrderedOptions& options, Report& report);  // figure 9
void tail_latencies(const OrderedOptions& options, Report& report);  // figure 10
void one_partition(const OrderedOptions& options, Report& report);   // figure 15 (a)

}  // namespace perdure::paper
