// The cost of an operation, by the processor time and the counters of this thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "evaluation/figures.h"
#include "perdure/pool.h"

namespace perdure::paper {

// Per operation. NaN: not measured.
struct Cost {
  double ns = std::numeric_limits<double>::quiet_NaN();
  double flushes = 0;
  double fences = 0;
  double bytes = 0;
};

// Calls operation(key) for the keys, which must return true. Returns the median of the means of
// five blocks.
template <class F>
Cost timed(std::span<const std::uint64_t> keys, F&& operation) {
  constexpr std::size_t kBlocks = 5;
  std::array<double, kBlocks> means;
  const std::size_t length = keys.size() / kBlocks;
  const Counters before = thread_counters();
  for (std::size_t block = 0; block < kBlocks; ++block) {
    bool all = true;
    const std::uint64_t begin = cpu_ns();
    for (std::size_t i = block * length; i < (block + 1) * length; ++i) all &= operation(keys[i]);
    means[block] = static_cast<double>(cpu_ns() - begin) / static_cast<double>(length);
    require(all, "an operation returned a wrong result");
  }
  std::ranges::sort(means);
  const Counters after = thread_counters();
  const auto each = [&](std::uint64_t a, std::uint64_t b) {
    return static_cast<double>(b - a) / static_cast<double>(length * kBlocks);
  };
  return {.ns = means[kBlocks / 2],
          .flushes = each(before.flushes, after.flushes),
          .fences = each(before.fences, after.fences),
          .bytes = each(before.written_lines, after.written_lines) * kLine};
}

}  // namespace perdure::paper
