// The measurements of PhaST's evaluation (paper, sections 2, 5.2 to 5.4).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/harness/memory_heap.h"
#include "evaluation/figures.h"
#include "evaluation/ordered/ordered_map.h"

namespace perdure::paper {

struct OrderedOptions {
  std::uint64_t items = 1'000'000;  // inserted before the clock starts, and once more with it
  std::uint32_t runs = 3;           // of each map, in turns, of which the median counts
  std::vector<std::uint32_t> threads = {1, 2, 4, 8, 16, 32};  // of figures 11 and 12
  std::string folder = "/dev/shm";                            // for the pool that is recovered
};

struct OrderedScheme {
  const char* name;
  std::unique_ptr<OrderedMap> (*make)(bench::MemoryHeap& memory);
};
inline constexpr std::size_t kOrderedCount = 6;
// phast, FAST-FAIR, FPTree, NV-Skiplist, wB+-Tree, WORT.
std::span<const OrderedScheme, kOrderedCount> ordered_schemes();
// The same, then std::map.
std::span<const OrderedScheme, kOrderedCount + 1> anchored_schemes();
// phast and FAST-FAIR for any number of threads.
std::span<const OrderedScheme, 2> shared_schemes();

void memory_costs(const OrderedOptions& options, Report& report);           // table 1, figure 2 a
void skiplist_writes(const OrderedOptions& options, Report& report);        // figure 2 b
void operations(const OrderedOptions& options, Report& report);             // figure 7
void insert_parts(const OrderedOptions& options, Report& report);           // figure 8 a
void levels_above(const OrderedOptions& options, Report& report);           // figure 8 b
void ycsb_workloads(const OrderedOptions& options, Report& report);         // figure 9
void tail_latencies(const OrderedOptions& options, Report& report);         // figure 10
void operations_by_threads(const OrderedOptions& options, Report& report);  // figure 11 a to c
void cache_misses(const OrderedOptions& options, Report& report);           // figure 11 d
void ycsb_by_threads(const OrderedOptions& options, Report& report);        // figure 12 a, c, e
void latencies_by_threads(const OrderedOptions& options, Report& report);   // figure 12 b, d, f
void inner_node_sizes(const OrderedOptions& options, Report& report);       // figure 13
void leaf_sizes(const OrderedOptions& options, Report& report);             // figure 14
void one_partition(const OrderedOptions& options, Report& report);          // figure 15 a
void large_data_set(const OrderedOptions& options, Report& report);         // figure 15 b
void values_of_any_size(const OrderedOptions& options, Report& report);     // figure 15 c
void recovery_by_threads(const OrderedOptions& options, Report& report);    // figure 15 d
void dram_bytes(const OrderedOptions& options, Report& report);             // table 3

}  // namespace perdure::paper
