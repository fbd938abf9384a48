// `perdure bench`: reads the options, runs once, and prints the result as JSON or as a table. The
// work is in bench/.
#include "bench_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "bench/harness/calibrate.h"
#include "bench/harness/heap_bench.h"
#include "bench/harness/options.h"
#include "bench/harness/perdure_subject.h"
#include "bench/harness/report.h"
#include "bench/harness/run.h"

namespace perdure::cli {

namespace {

int complain(const bench::Failure& failure) {
  const bool advised =
      failure.exit_status != exit_usage || failure.message.find(';') != std::string::npos;
  say(fmt::format("perdure: {}{}\n", failure.message,
                  advised ? "" : "; perdure bench --help shows how"));
  return failure.exit_status;
}

int calibrate_only(const bench::BenchOptions& options, const bench::Calibration& calibration) {
  if (options.json) {
    fmt::print("{}\n", bench::to_json(calibration).dump(2));
  } else {
    fmt::print("{}", bench::calibration_text(calibration));
  }
  return 0;
}

int heap_only(const bench::BenchOptions& options) {
  auto cost = bench::measure_heap(options.work.threads);
  if (!cost) return complain(cost.error());
  if (options.json) {
    const nlohmann::json out = {{"threads", options.work.threads},
                                {"pair_ns", cost->pair_ns},
                                {"pairs_per_s", cost->pairs_per_s},
                                {"speedup", cost->speedup},
                                {"flushes_per_pair", cost->flushes_per_pair},
                                {"fences_per_pair", cost->fences_per_pair}};
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("allocate + free: {:.1f} ns, {:.4f} write-backs, {:.4f} fences a pair\n",
               cost->pair_ns, cost->flushes_per_pair, cost->fences_per_pair);
    if (options.work.threads > 1) {
      fmt::print("{} threads: {:.1f} M pairs/s, {:.2f} of one thread\n", options.work.threads,
                 cost->pairs_per_s / 1e6, cost->speedup);
    }
  }
  return 0;
}

}  // namespace

int run_bench(int argc, char** argv) {
  auto parsed = bench::parse_options(bench::Program::bench, argc, argv);
  if (!parsed) return complain(parsed.error());
  if (!*parsed) return 0;  // help
  const bench::BenchOptions& options = **parsed;
  if (options.heap) return heap_only(options);
  bench::Progress progress(!options.json && ::isatty(STDERR_FILENO) != 0);

  std::optional<bench::Calibration> calibration;
  if (options.calibrate) {
    auto measured = bench::calibrate(options.path, progress);
    if (!measured) return complain(measured.error());
    calibration = *measured;
    if (options.workloads.empty()) return calibrate_only(options, *calibration);
  }

  const auto subject = bench::make_perdure_subject(
      bench::perdure_options(options, *engine_named(options.engines.front())));
  auto result = bench::run_subject(*subject, options, progress);
  if (!result) return complain(result.error());
  result->calibration = calibration;
  if (options.json) {
    fmt::print("{}\n", bench::to_json(*result, options).dump(2));
  } else {
    fmt::print("{}", bench::table(*result, options));
  }
  return bench::judge_result(*result);
}

}  // namespace perdure::cli
