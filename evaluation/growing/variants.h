// Our engines with other numbers of slots in a bucket than they have in a pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "evaluation/engine_table.h"
#include "evaluation/growing/figures.h"

namespace perdure::paper {

struct Variant {
  GrowingScheme scheme;  // makes a small table
  // Makes a table with room for about `items`.
  std::unique_ptr<EngineTable> (*make)(bench::MemoryHeap& memory, std::uint64_t items);
};

// The number of slots in a pool comes first.
std::span<const Variant> clevel_variants();
std::span<const Variant> level_variants();

}  // namespace perdure::paper
