// Prints a run as one JSON object, or as a table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/harness/options.h"
#include "bench/harness/run.h"

namespace perdure::bench {

nlohmann::ordered_json to_json(const Calibration& calibration);
nlohmann::ordered_json to_json(const RunResult& result, const BenchOptions& options);

std::string calibration_text(const Calibration& calibration);
std::string table(const RunResult& result, const BenchOptions& options);

// One row per engine and one column per phase: millions of operations per second.
std::string comparison(const std::vector<RunResult>& results, const BenchOptions& options);

// Returns the exit status: kExitViolation, with a message on standard error, if keys were lost or
// found that were never written.
int judge_result(const RunResult& result);

}  // namespace perdure::bench
