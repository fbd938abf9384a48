// What a pool of durability `buffered` costs beside one of `process`, where `perdure bench` does
// not say it: opens and closes, a restore after a power failure, single puts, memory, pools at
// rest.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "evaluation/figures.h"

namespace perdure::buffered {

struct Options {
  std::string folder = ".";                                    // of the pools
  std::vector<std::uint64_t> pools = {5'700'000, 28'000'000};  // records of those that are opened
  std::uint64_t records = 5'700'000;  // of the pool that is restored and put to
  std::uint64_t log_mebibytes = 640;  // that a restore reads
  std::uint32_t seconds = 25;         // of puts
  std::uint32_t at_rest = 64;         // pools
  std::uint32_t runs = 3;             // of each, in turns
};

void opens(const Options& options, paper::Report& report);
void restores(const Options& options, paper::Report& report);
void puts(const Options& options, paper::Report& report);
void chunk_copies(const Options& options, paper::Report& report);
void pools_at_rest(const Options& options, paper::Report& report);

// "median (least to most)", in units of `unit`.
inline std::string spread(const std::vector<double>& values, double unit, int digits) {
  const auto [least, most] = std::ranges::minmax(values);
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", paper::median(values) / unit, digits,
                     least / unit, digits, most / unit, digits);
}

}  // namespace perdure::buffered
