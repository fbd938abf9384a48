// BenchOptions: the command line of `perdure bench` and of `perdure-compare`, parsed and judged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workloads/data.h"
#include "bench/workloads/work.h"
#include "perdure/options.h"

namespace perdure::bench {

struct BenchOptions {
  std::vector<std::string> engines;  // one, except for perdure-compare
  std::vector<Workload> workloads;   // empty: calibration only
  WorkOptions work = {};
  DataKind key = {};
  DataKind value = {};
  Durability durability = Durability::automatic;
  std::uint32_t write_latency_ns = 0;
  std::uint64_t max_size = 64_GiB;
  std::uint64_t capacity = 0;            // MapOptions::capacity
  std::uint32_t recovery_threads = 0;    // as in PoolOptions
  std::uint32_t background_threads = 1;  // likewise
  std::uint64_t touch = 0;               // bytes of memory to be had from the system beforehand
  bool clock_all = false;                // every operation between two readings of the clock
  bool dependent = false;                // each operation's key follows from the answer before
  std::string path;
  bool json = false;
  bool keep = false;
  bool calibrate = false;
  bool heap = false;  // the heap alone, nothing else
};

enum class Program : std::uint8_t { bench, compare };

// Nothing: help was printed. A failure: the message is for standard error.
Result<std::optional<BenchOptions>> parse_options(Program program, int argc, char** argv);

// "10M" is ten million; "64MiB", "64M" as a size is 2^26 bytes.
std::optional<std::uint64_t> parse_count(std::string_view text) noexcept;
std::optional<std::uint64_t> parse_bytes(std::string_view text) noexcept;

}  // namespace perdure::bench
