// What the phases of clevel hashing's evaluation share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/workloads/random.h"
#include "evaluation/growing/figures.h"
#include "evaluation/parallel.h"

namespace perdure::paper {

inline Word key_of(std::uint64_t n) noexcept { return bench::mix64(n + 1) | 1; }

// Opens a heap that a table of `items` fits in, with all that it leaves behind while it grows.
inline void open_for(bench::MemoryHeap& memory, std::uint64_t items) {
  constexpr std::uint64_t kBytesPerItem = 400;
  must(memory.open(64_KiB, items * kBytesPerItem / 64_KiB + 4096));
  memory.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
}

// Inserts, finds, finds what is missing, updates and deletes `items`; returns the figure of each.
std::vector<Figure> operation_phases(const GrowingScheme& scheme, std::uint64_t items,
                                     std::uint32_t threads);
inline std::vector<std::string> names_of_phases() {
  return {"insert", "find", "find missing", "update", "delete"};
}

}  // namespace perdure::paper
