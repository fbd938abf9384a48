// perdure-compare: runs the same generated work through the same driver over perdure and foreign
// engines. It also prints the rows in which perdure is slower.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/foreign.h"
#include "bench/harness/calibrate.h"
#include "bench/harness/options.h"
#include "bench/harness/perdure_subject.h"
#include "bench/harness/report.h"
#include "bench/harness/run.h"

namespace perdure::bench {
namespace {

int complain(const Failure& failure) {
  fmt::print(stderr, "perdure-compare: {}\n", failure.message);
  return failure.exit_status;
}

std::unique_ptr<Subject> make_subject(const std::string& name, const BenchOptions& options) {
  if (const auto engine = engine_named(name)) {
    PerdureOptions of_engine = perdure_options(options, *engine);
    of_engine.needs_order = false;  // its row has no scans; rows of other engines may
    return make_perdure_subject(of_engine);
  }
  const ForeignOptions foreign{.path = options.path,
                               .key = options.key,
                               .value = options.value,
                               .threads = options.work.threads,
                               .max_size = options.max_size,
                               .capacity = options.capacity};
  if (name == "std_map") return make_std_map_subject(foreign);
  if (name == "libcuckoo") return make_libcuckoo_subject(foreign);
  if (name == "tbb") return make_tbb_subject(foreign);
  if (name == "lmdb") return make_lmdb_subject(foreign);
  if (name == "rocksdb") return make_rocksdb_subject(foreign);
  return make_null_subject(foreign);
}

int compare(int argc, char** argv) {
  auto parsed = parse_options(Program::compare, argc, argv);
  if (!parsed) return complain(parsed.error());
  if (!*parsed) return 0;  // help
  const BenchOptions& options = **parsed;
  Progress progress(!options.json && ::isatty(STDERR_FILENO) != 0);

  std::optional<Calibration> calibration;
  if (options.calibrate) {
    auto measured = calibrate(options.path, progress);
    if (!measured) return complain(measured.error());
    calibration = *measured;
  }
  std::vector<RunResult> results;
  int status = 0;
  for (const std::string& name : options.engines) {
    if (options.workloads.empty()) break;  // only calibration was asked for
    const std::unique_ptr<Subject> subject = make_subject(name, options);
    auto result = run_subject(*subject, options, progress);
    if (!result) return complain(result.error());
    result->calibration = calibration;
    // The null engine finds nothing by design.
    if (name != "null") status = std::max(status, judge_result(*result));
    results.push_back(std::move(*result));
  }
  if (options.json) {
    nlohmann::ordered_json json = {
        {"calibration", calibration ? to_json(*calibration) : nlohmann::ordered_json()},
        {"runs", nlohmann::ordered_json::array()}};
    for (const RunResult& result : results) json["runs"].push_back(to_json(result, options));
    fmt::print("{}\n", json.dump(2));
  } else {
    if (calibration) fmt::print("{}", calibration_text(*calibration));
    fmt::print("{}", comparison(results, options));
  }
  std::fflush(stdout);
  return status;
}

}  // namespace
}  // namespace perdure::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return perdure::bench::compare(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perdure-compare: %s\n", error.what());
    return perdure::bench::kExitIo;
  }
}
