// Runs of each scheme in turns, and the tables of what they measure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/harness/histogram.h"
#include "evaluation/figures.h"

namespace perdure::paper {

struct Figure {
  double mops = 0;
  double flushes = 0;  // of an operation
  double fences = 0;
};

// The figures of one evaluation. The first scheme is ours.
struct Turns {
  std::string kind;  // of the schemes: "map"
  std::vector<std::string> schemes;
  std::vector<std::string> phases;
  // How many times the paper's own scheme is faster, by scheme and phase; empty or 0: the paper
  // does not say.
  std::vector<std::vector<double>> paper = {};
  std::size_t anchors = 0;  // the last schemes, which are none of the paper's: not in the costs
  std::vector<std::vector<std::vector<Figure>>> runs = {};  // by scheme, turn and phase

  // `run` gets the number of a scheme and returns a figure for each phase.
  template <class F>
  void take(std::uint32_t count, F run) {
    runs.resize(schemes.size());
    for (std::uint32_t turn = 0; turn < count; ++turn) {
      for (std::size_t s = 0; s < schemes.size(); ++s) runs[s].push_back(run(s));
    }
  }
  // The medians, with the range of all runs.
  void print_rates(const std::string& title, Report& report) const;
  // The medians of our rate by that of the others in the same turn. Bold: below the paper's.
  void print_ratios(const std::string& title, Report& report) const;
  void print_costs(const std::string& title, Report& report) const;

 private:
  std::vector<double> rates(std::size_t scheme, std::size_t phase) const;
  double claim(std::size_t scheme, std::size_t phase) const;
  void head(const std::string& title, Report& report) const;
};

// The quantiles of latencies; `of_run` returns the histogram of a run of a scheme.
struct Quantiles {
  std::string kind;
  std::vector<std::string> schemes;
  std::vector<double> quantiles;
  std::vector<std::vector<std::vector<double>>> runs = {};  // by scheme, quantile and turn

  template <class F>
  void take(std::uint32_t count, F of_run) {
    runs.assign(schemes.size(), std::vector<std::vector<double>>(quantiles.size()));
    for (std::uint32_t turn = 0; turn < count; ++turn) {
      for (std::size_t s = 0; s < schemes.size(); ++s) {
        const bench::Histogram histogram = of_run(s);
        for (std::size_t q = 0; q < quantiles.size(); ++q) {
          runs[s][q].push_back(static_cast<double>(histogram.percentile(quantiles[q])));
        }
      }
    }
  }
  // The medians, in ns.
  void print(const std::string& title, Report& report) const;
};

// The names of schemes, for Turns.
template <class Schemes>
std::vector<std::string> names_of(const Schemes& schemes) {
  std::vector<std::string> names;
  for (const auto& scheme : schemes) names.emplace_back(scheme.name);
  return names;
}

}  // namespace perdure::paper
