// The measurements of clevel hashing's evaluation with up to two threads (paper, sections 3.1 and
// 4): tables that begin small and grow.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/harness/memory_heap.h"
#include "evaluation/figures.h"
#include "evaluation/growing/growing_table.h"

namespace perdure::paper {

struct GrowingOptions {
  std::uint64_t items = 2'000'000;  // inserted into an empty table
  std::uint32_t threads = 2;        // one thread is measured, too
  std::uint32_t runs = 3;           // of each table, in turns, of which the median counts
};

struct GrowingScheme {
  const char* name;
  std::unique_ptr<GrowingTable> (*make)(bench::MemoryHeap& memory);
};
inline constexpr std::size_t kGrowingCount = 6;
std::span<const GrowingScheme, kGrowingCount> growing_schemes();  // clevel first

// Those that keep pointers to items, as all of the paper's do; clevel first.
std::vector<GrowingScheme> pointer_schemes();

// The tables of growing_schemes(), and libcuckoo in DRAM where the build found it: an anchor for
// other measurements.
std::vector<GrowingScheme> anchored_schemes();

void load_factors(const GrowingOptions& options, Report& report);  // figures 3 and 6
void slots(const GrowingOptions& options, Report& report);         // figure 5
// Each with one thread and with several.
void operations(const GrowingOptions& options, Report& report);        // figures 7, 8 and 11
void with_pointers(const GrowingOptions& options, Report& report);     // the same, by pointers
void insert_latencies(const GrowingOptions& options, Report& report);  // figure 9
void ycsb_workloads(const GrowingOptions& options, Report& report);    // figure 10
void rehash_threads(const GrowingOptions& options, Report& report);    // beside section 4.1

}  // namespace perdure::paper
