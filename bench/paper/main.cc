// perdure-paper-hash: the evaluation of level hashing's paper (section 5.2, figures 10 to 15) with
// our engines and its baselines, in one run, as Markdown.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/paper/figures.h"

namespace perdure::paper {

namespace {

int figures(int argc, char** argv) {
  Options options;
  CLI::App app("Figures 10 to 15 of the level hashing paper, measured here, as Markdown.",
               "perdure-paper-hash");
  app.add_option("--log-slots", options.log_slots, "tables of about 2^N slots")
      ->check(CLI::Range(14, 28))
      ->capture_default_str();
  app.add_option("--sample", options.sample, "operations behind each latency")
      ->check(CLI::Range(100, 10'000'000))
      ->capture_default_str();
  app.add_option("--runs", options.runs, "resizes behind each time, of which the median counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  for (const auto figure : {&max_load_factors, &latencies, &resizes}) {
    Report report;
    figure(options, report);
    fmt::print("{}", report.text);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace perdure::paper

int main(int argc, char** argv) {
  try {
    return perdure::paper::figures(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perdure-paper-hash: %s\n", error.what());
    return 3;
  }
}
