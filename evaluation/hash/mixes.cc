// Figure 16: mixes of searches and insertions by YCSB's zipfian distribution, by medium.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "evaluation/figures.h"
#include "evaluation/hash/mix.h"

namespace perdure::paper {
namespace {

constexpr std::size_t kMixCount = std::size(kInsertShares);
// By medium, scheme and mix: milliseconds of a million requests, in each run.
using Times =
    std::array<std::array<std::array<std::vector<double>, kMixCount>, kLogged>, kMediumCount>;

// Returns NaN if the table grew meanwhile.
double run(const Scheme& scheme, const Options& options, const Medium& medium,
           std::uint32_t insert_share) {
  Ground ground(options);
  use(ground.memory, kMedia[0]);
  const auto table = must(scheme.make(ground.memory, options.log_slots));
  const Mix mix = Mix::of_slots(table->slots(), insert_share);
  for (std::uint64_t n = 0; n < mix.records(); ++n) {
    require(must(table->insert(bench::mix64(n), n)), "a key was there before");
  }
  use(ground.memory, medium);
  bool right = true;
  const std::uint64_t begin = cpu_ns();
  for (std::uint64_t i = 0; i < mix.requests(); ++i) right &= mix.run(*table, i);
  const std::uint64_t taken = cpu_ns() - begin;
  require(right, "a request returned a wrong result");
  require(table->items() == mix.items_after(), "a mix lost items");
  table->settle();
  if (table->grew_at() != 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(taken) / static_cast<double>(mix.requests());
}

// NaN if any run is.
double middle(const std::vector<double>& values) {
  for (const double value : values) {
    if (std::isnan(value)) return value;
  }
  return median(values);
}

void print_times(const Times& times, Report& report) {
  std::vector<std::string> columns = {"write-back", "table"};
  columns.insert(columns.end(), std::begin(kMixNames), std::end(kMixNames));
  report.heading("Milliseconds of a million requests, by search/insertion (figure 16)", columns);
  for (std::size_t m = 0; m < kMediumCount; ++m) {
    for (std::size_t s = 0; s < kLogged; ++s) {
      std::vector<std::string> row = {s == 0 ? kMedia[m].name : "", schemes()[s].name};
      for (const auto& values : times[m][s]) {
        const double ms = middle(values);
        row.push_back(std::isnan(ms) ? "-" : fmt::format("{:.0f}", ms));
      }
      report.row(row);
    }
  }
}

// The text has the speedups of the mix with the most insertions.
void print_gains(const Times& times, Report& report) {
  static constexpr const char* kPaper[] = {"over 2.7", "over 1.7", "over 1.5"};
  report.heading("The others by level, search/insertion 10/90 (figure 16)",
                 {"table", "the paper", "DRAM", "200 ns", "600 ns", "1,000 ns"});
  for (std::size_t s = kBaselines; s < kLogged; ++s) {
    std::vector<std::string> row = {schemes()[s].name, s < kPrinted ? kPaper[s - kBaselines] : "-"};
    for (const auto& medium : times) {
      row.push_back(fmt::format("{:.2f}", middle(medium[s].back()) / middle(medium[0].back())));
    }
    report.row(row);
  }
}

}  // namespace

void mixes(const Options& options, Report& report) {
  Options smaller = options;  // 120 tables and runs of each
  smaller.log_slots = std::max(options.log_slots - 3, 14U);
  Times times;
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    for (std::size_t m = 0; m < kMediumCount; ++m) {
      for (std::size_t mix = 0; mix < kMixCount; ++mix) {
        for (std::size_t s = 0; s < kLogged; ++s) {
          times[m][s][mix].push_back(run(schemes()[s], smaller, kMedia[m], kInsertShares[mix]));
        }
      }
    }
  }
  print_times(times, report);
  print_gains(times, report);
}

}  // namespace perdure::paper
