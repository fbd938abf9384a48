#include "bench/harness/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace perdure::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kQuantiles[] = {0.01, 0.05, 0.1,  0.2,  0.3,   0.4,   0.5,   0.6,    0.7,    0.8,
                                 0.9,  0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1};

// Rounds to `digits` decimal places.
double rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

Json optional_json(const std::optional<double>& value, int digits) {
  return value ? Json(rounded(*value, digits)) : Json();
}

std::optional<double> per(const std::optional<std::uint64_t>& amount, std::uint64_t count) {
  if (!amount || count == 0) return std::nullopt;
  return static_cast<double>(*amount) / static_cast<double>(count);
}

struct PerOperation {
  double flushes;
  double fences;
  double bytes_written;
  double allocations;
};

PerOperation per_operation(const Counters& counters, std::uint64_t operations) {
  const auto n = static_cast<double>(std::max<std::uint64_t>(operations, 1));
  constexpr double kLineBytes = 64;
  return {.flushes = static_cast<double>(counters.flushes) / n,
          .fences = static_cast<double>(counters.fences) / n,
          .bytes_written = static_cast<double>(counters.written_lines) * kLineBytes / n,
          .allocations = static_cast<double>(counters.allocations) / n};
}

// Pairs of a share of the operations and the latency that it does not exceed, for a plot.
Json latency_json(const Histogram& latency) {
  Json points = Json::array();
  for (const double quantile : kQuantiles) {
    points.push_back({quantile, latency.percentile(quantile)});
  }
  return points;
}

Json phase_json(const PhaseResult& phase) {
  Json json = {{"name", phase.name},
               {"operations", phase.operations},
               {"seconds", rounded(phase.seconds, 6)},
               {"wall_seconds", rounded(phase.wall_seconds, 6)},
               {"mops", rounded(phase.mops(), 4)},
               {"p50_ns", phase.latency.percentile(0.5)},
               {"p99_ns", phase.latency.percentile(0.99)},
               {"p999_ns", phase.latency.percentile(0.999)},
               {"max_ns", phase.latency.max()},
               {"latency_ns", latency_json(phase.latency)},
               {"flushes_per_op", nullptr},
               {"fences_per_op", nullptr},
               {"bytes_written_per_op", nullptr},
               {"allocs_per_op", nullptr}};
  if (phase.counters) {
    const PerOperation each = per_operation(*phase.counters, phase.operations);
    json["flushes_per_op"] = rounded(each.flushes, 4);
    json["fences_per_op"] = rounded(each.fences, 4);
    json["bytes_written_per_op"] = rounded(each.bytes_written, 2);
    json["allocs_per_op"] = rounded(each.allocations, 4);
  }
  return json;
}

std::string phase_row(const PhaseResult& phase) {
  std::string row = fmt::format("{:<14}{:>12}{:>10.3f}{:>9.3f} {:>8} {:>8} {:>9} {:>11}",
                                phase.name, phase.operations, phase.seconds, phase.mops(),
                                phase.latency.percentile(0.5), phase.latency.percentile(0.99),
                                phase.latency.percentile(0.999), phase.latency.max());
  if (phase.counters) {
    const PerOperation each = per_operation(*phase.counters, phase.operations);
    row += fmt::format("{:>9.2f}{:>8.2f}{:>9.1f}{:>8.3f}", each.flushes, each.fences,
                       each.bytes_written, each.allocations);
  }
  return row + "\n";
}

// A growth or shrink of a hash table: its time, the load of the table, and its cost.
Json resize_json(const ResizeStats& resize) {
  const bool over = resize.end_ns != 0;
  return {
      {"shrink", resize.shrink},
      {"seconds", over ? Json(static_cast<double>(resize.end_ns - resize.begin_ns) / 1e9) : Json()},
      {"slots_before", resize.slots_before},
      {"slots_after", resize.slots_after},
      {"entries", resize.entries},
      {"buckets", resize.buckets},
      {"moved", resize.moved}};
}

std::string resize_row(const ResizeStats& resize) {
  const std::uint64_t took = resize.end_ns != 0 ? resize.end_ns - resize.begin_ns : 0;
  return fmt::format("{:<14}{:>12} to {:>12} slots, {:>10.1f} ms, {:.3f} full, {} moved\n",
                     resize.shrink ? "shrink" : "growth", resize.slots_before, resize.slots_after,
                     static_cast<double>(took) / 1e6,
                     static_cast<double>(resize.entries) /
                         static_cast<double>(std::max<std::uint64_t>(resize.slots_before, 1)),
                     resize.moved);
}

std::string key_type(const BenchOptions& options) {
  return options.keys && options.key.is_string ? "string" : to_string(options.key);
}

// The keys in the head of a table.
std::string key_text(const RunResult& result, const BenchOptions& options) {
  if (!options.keys) return "key " + to_string(options.key);
  return fmt::format("keys {}{}", options.keys->name(),
                     result.key_bytes ? fmt::format(" of {:.1f} bytes", *result.key_bytes) : "");
}

std::string or_dash(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

}  // namespace

Json cuts_json(const CutCosts& cuts) {
  return {{"count", cuts.cuts},
          {"log_bytes", cuts.log_bytes},
          {"folds", cuts.folds},
          {"fold_bytes", cuts.fold_bytes},
          {"longest_stop_ns", cuts.longest_stop_ns}};
}

std::string cuts_row(const CutCosts& cuts) {
  constexpr double kMillion = 1e6;
  return fmt::format(
      "cuts: {}, {:.0f} MB of log; folds: {}, {:.0f} MB; longest stop of all stores {:.3f} ms\n",
      cuts.cuts, static_cast<double>(cuts.log_bytes) / kMillion, cuts.folds,
      static_cast<double>(cuts.fold_bytes) / kMillion,
      static_cast<double>(cuts.longest_stop_ns) / kMillion);
}

Json to_json(const Calibration& calibration) {
  return {{"persist_ns", rounded(calibration.persist_ns, 2)},
          {"load_ns", rounded(calibration.load_ns, 2)},
          {"cas_ns", rounded(calibration.cas_ns, 2)},
          {"persist_huge_ns", optional_json(calibration.persist_huge_ns, 2)},
          {"load_huge_ns", optional_json(calibration.load_huge_ns, 2)},
          {"cas_huge_ns", optional_json(calibration.cas_huge_ns, 2)},
          {"transfer_ns", rounded(calibration.transfer_ns, 2)},
          {"sync_ns", rounded(calibration.sync_ns, 0)}};
}

Json to_json(const RunResult& result, const BenchOptions& options) {
  const Footprint& footprint = result.footprint;
  Json phases = Json::array();
  for (const PhaseResult& phase : result.phases) phases.push_back(phase_json(phase));
  Json resizes = Json::array();
  for (const ResizeStats& resize : footprint.resizes) resizes.push_back(resize_json(resize));
  Json json = {
      {"engine", result.engine},
      {"medium", result.medium},
      {"durability", result.durability},
      {"threads", options.work.threads},
      {"key", key_type(options)},
      {"keys", options.keys ? Json(options.keys->name()) : Json()},
      {"key_bytes", optional_json(result.key_bytes, 1)},
      {"value", to_string(options.value)},
      {"records", options.work.records},
      {"dependent", options.dependent},
      {"sync", options.sync},
      {"shared", options.work.shared},
      {"seed", options.work.seed},
      {"version", result.version},
      {"calibration", result.calibration ? to_json(*result.calibration) : Json()},
      {"phases", std::move(phases)},
      {"bytes_per_entry_pm", optional_json(per(footprint.pm_bytes, footprint.entries), 2)},
      {"bytes_per_entry_dram", optional_json(per(footprint.dram_bytes, footprint.entries), 2)},
      {"load_factor", optional_json(footprint.load_factor, 4)},
      {"resizes", std::move(resizes)},
      {"close_seconds", optional_json(result.close_seconds, 6)},
      {"reopen_clean_seconds", optional_json(result.reopen_clean_seconds, 6)},
      {"reopen_killed_seconds", optional_json(result.reopen_killed_seconds, 6)},
      {"first_lookup_seconds", optional_json(result.first_lookup_seconds, 6)},
      {"missing", result.missing}};
  if (footprint.cuts) json["cuts"] = cuts_json(*footprint.cuts);
  if (result.unexpected != 0) json["unexpected"] = result.unexpected;
  return json;
}

std::string calibration_text(const Calibration& calibration) {
  const auto costs = [](const char* pages, double persist, double load, double cas) {
    return fmt::format(
        "{} pages: write-back and fence {:.0f} ns, dependent load {:.0f} ns, compare-and-swap "
        "{:.0f} ns (random 64-byte lines of 1 GiB)\n",
        pages, persist, load, cas);
  };
  std::string text =
      costs("4 KiB", calibration.persist_ns, calibration.load_ns, calibration.cas_ns);
  text += calibration.load_huge_ns
              ? costs("huge", calibration.persist_huge_ns.value_or(0), *calibration.load_huge_ns,
                      calibration.cas_huge_ns.value_or(0))
              : "huge pages: the system has none for this file\n";
  return text + fmt::format(
                    "transfer of a line between two threads {:.0f} ns\n"
                    "write and fdatasync of a page of this file {:.3f} ms\n",
                    calibration.transfer_ns, calibration.sync_ns / 1e6);
}

std::string table(const RunResult& result, const BenchOptions& options) {
  std::string text = fmt::format(
      "{} {}, {} on {}, {} thread{}, {}, value {}, {} records, {}, seed {}{}{}\n", result.engine,
      result.version, result.durability, result.medium, options.work.threads,
      options.work.threads == 1 ? "" : "s", key_text(result, options), to_string(options.value),
      options.work.records, distribution_name(options.work.distribution), options.work.seed,
      options.dependent ? ", dependent" : "", options.work.shared ? ", shared keys" : "");
  if (result.calibration) text += calibration_text(*result.calibration);
  text += fmt::format("\n{:<14}{:>12}{:>10}{:>9}{:>9}{:>9}{:>10}{:>12}{:>9}{:>8}{:>9}{:>8}\n",
                      "phase", "operations", "seconds", "M/s", "p50 ns", "p99 ns", "p99.9 ns",
                      "max ns", "flush/op", "fnc/op", "bytes/op", "alc/op");
  for (const PhaseResult& phase : result.phases) text += phase_row(phase);
  const Footprint& footprint = result.footprint;
  for (const ResizeStats& resize : footprint.resizes) text += resize_row(resize);
  text += fmt::format("\nbytes per entry: {} persistent, {} DRAM; load factor {}\n",
                      or_dash(per(footprint.pm_bytes, footprint.entries), 1),
                      or_dash(per(footprint.dram_bytes, footprint.entries), 1),
                      or_dash(footprint.load_factor, 3));
  if (footprint.cuts) text += cuts_row(*footprint.cuts);
  if (result.reopen_clean_seconds) {
    text += fmt::format(
        "close: {} s; open: {} s after it, {} s after kill -9, first lookup after {} s\n",
        or_dash(result.close_seconds, 4), or_dash(result.reopen_clean_seconds, 4),
        or_dash(result.reopen_killed_seconds, 4), or_dash(result.first_lookup_seconds, 4));
  }
  return text + fmt::format("missing: {}\n", result.missing);
}

std::string comparison(const std::vector<RunResult>& results, const BenchOptions& options) {
  std::string text = fmt::format(
      "M/s, {} thread{}, {}, value {}, {} records, seed {}{}{}\n\n{:<14}", options.work.threads,
      options.work.threads == 1 ? "" : "s",
      results.empty() ? "" : key_text(results.front(), options), to_string(options.value),
      options.work.records, options.work.seed, options.dependent ? ", dependent" : "",
      options.work.shared ? ", shared keys" : "", "engine");
  for (const Workload workload : options.workloads) {
    text += fmt::format("{:>13}", workload_name(workload));
  }
  text += fmt::format("{:>10}{:>10}{:>11}{:>9}\n", "B/entry", "+ DRAM", "reopen s", "missing");
  for (const RunResult& result : results) {
    text += fmt::format("{:<14}", result.engine);
    for (const PhaseResult& phase : result.phases) text += fmt::format("{:>13.3f}", phase.mops());
    const Footprint& footprint = result.footprint;
    text += fmt::format("{:>10}{:>10}{:>11}{:>9}\n",
                        or_dash(per(footprint.pm_bytes, footprint.entries), 1),
                        or_dash(per(footprint.dram_bytes, footprint.entries), 1),
                        or_dash(result.reopen_clean_seconds, 4), result.missing);
  }
  return text;
}

int judge_result(const RunResult& result) {
  if (result.missing == 0 && result.unexpected == 0) return 0;
  fmt::print(stderr,
             "perdure: {}: {} keys were not found with their value, {} keys were found that must "
             "be absent\n",
             result.engine, result.missing, result.unexpected);
  return kExitViolation;
}

}  // namespace perdure::bench
