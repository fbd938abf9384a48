// The measurements of PhaST's evaluation with one thread (paper, section 5.2).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "bench/harness/memory_heap.h"
#include "bench/paper/figures.h"
#include "bench/paper/ordered/ordered_map.h"

namespace perdure::paper {

struct OrderedOptions {
  std::uint64_t items = 1'000'000;  // inserted before the clock starts, and once more with it
  std::uint32_t runs = 5;           // of each map, in turns, of which the median counts
};

// How many times the paper's PhaST is faster.
struct PaperRatios {
  std::optional<double> insert, search, scan;
};
struct OrderedScheme {
  const char* name;
  std::unique_ptr<OrderedMap> (*make)(bench::MemoryHeap& memory);
  PaperRatios paper;
};
inline constexpr std::size_t kOrderedCount = 6;
std::span<const OrderedScheme, kOrderedCount> ordered_schemes();  // phast first

void ordered_figures(const OrderedOptions& options, Report& report);

}  // namespace perdure::paper
