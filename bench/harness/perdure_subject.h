// PerdureSubject: a perdure pool with one map, through the public interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/harness/options.h"
#include "bench/harness/subject.h"
#include "perdure/options.h"

namespace perdure::bench {

// The name of the benchmark's map. A pool with this map and no other is one of ours and may be
// replaced.
inline constexpr const char* kBenchMap = "bench";

struct PerdureOptions {
  std::string path;
  Engine engine = Engine::phast;
  DataKind key = {};
  DataKind value = {};
  Durability durability = Durability::automatic;
  std::uint64_t max_size = 64_GiB;
  std::uint32_t write_latency_ns = 0;
  std::uint32_t interval_ms = 100;
  bool sync = false;
  std::uint64_t capacity = 0;  // MapOptions::capacity
  std::uint32_t recovery_threads = 0;
  std::uint32_t background_threads = 1;
  bool interleave = false;
  bool needs_order = false;  // create fails if the engine keeps no order
  bool needs_versions = false;
};

// The options that a command line gives to one engine.
PerdureOptions perdure_options(const BenchOptions& options, Engine engine);

std::unique_ptr<Subject> make_perdure_subject(const PerdureOptions& options);

}  // namespace perdure::bench
