// BenchOptions: the command lines of `perdure bench` and `perdure-compare`, parsed and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workloads/data.h"
#include "bench/workloads/real_keys.h"
#include "bench/workloads/work.h"
#include "perdure/options.h"

namespace perdure::bench {

struct BenchOptions {
  std::vector<std::string> engines;  // exactly one, except for perdure-compare
  std::vector<Workload> workloads;   // empty: only calibration
  WorkOptions work = {};
  DataKind key = {};                  // with `keys`, only their type
  std::optional<RealKeys> keys = {};  // --keys
  DataKind value = {};
  Durability durability = Durability::automatic;
  std::uint32_t write_latency_ns = 0;
  std::uint32_t interval_ms = 100;  // between cuts of durability `buffered`
  bool sync = false;                // each change is durable when the next operation begins
  std::uint64_t max_size = 64_GiB;
  std::uint64_t capacity = 0;            // MapOptions::capacity
  std::uint32_t recovery_threads = 0;    // as in PoolOptions
  std::uint32_t background_threads = 1;  // as in PoolOptions
  bool interleave = false;               // likewise
  std::uint64_t touch = 0;               // bytes of memory to write to before the run
  bool clock_all = false;                // clocks every operation
  bool dependent = false;                // computes each key from the result before
  std::string path;
  bool json = false;
  bool keep = false;
  bool calibrate = false;
  bool heap = false;  // measures only the heap
};

enum class Program : std::uint8_t { bench, compare };

// Returns nullopt if it printed help. The message of a failure is for standard error. `foreign`:
// the names of engines that perdure-compare has beside perdure's own.
Result<std::optional<BenchOptions>> parse_options(Program program, int argc, char** argv,
                                                  std::span<const std::string_view> foreign = {});

// parse_count: "10M" is ten million. parse_bytes: "64MiB" and "64M" are 2^26.
std::optional<std::uint64_t> parse_count(std::string_view text) noexcept;
std::optional<std::uint64_t> parse_bytes(std::string_view text) noexcept;

}  // namespace perdure::bench
