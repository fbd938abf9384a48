// One run: creates a subject, runs all phases, reads every key back, closes and reopens the store,
// kills a process that uses it, reopens and removes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/calibrate.h"
#include "bench/harness/driver.h"
#include "bench/harness/options.h"
#include "bench/harness/progress.h"
#include "bench/harness/subject.h"

namespace perdure::bench {

struct RunResult {
  std::string engine;
  std::string medium;
  std::string durability;
  std::string version;
  std::optional<double> key_bytes;  // mean length of the keys, with --keys and byte strings
  std::optional<Calibration> calibration;
  std::vector<PhaseResult> phases;
  Footprint footprint;  // before the first delete phase, otherwise after the last phase
  std::optional<double> close_seconds;
  std::optional<double> reopen_clean_seconds;
  std::optional<double> reopen_killed_seconds;
  std::optional<double> first_lookup_seconds;  // from the start of the open after the kill
  std::uint64_t missing = 0;
  std::uint64_t unexpected = 0;
};

// Removes the files afterwards, also on failure, unless options.keep.
Result<RunResult> run_subject(Subject& subject, const BenchOptions& options, Progress& progress);

}  // namespace perdure::bench
