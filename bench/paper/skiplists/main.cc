// perdure-paper-skiplist: the evaluation of the atomic skiplists' paper (section IV, figures 6 to
// 10) with our engines and its baselines, in one run, as Markdown.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/paper/skiplists/figures.h"

namespace perdure::paper {
namespace {

int figures(int argc, char** argv) {
  ListOptions options;
  CLI::App app("Figures 6 to 10 of the atomic skiplists' paper, measured here, as Markdown.",
               "perdure-paper-skiplist");
  app.add_option("--items", options.items, "in the largest list; half and a quarter, too")
      ->check(CLI::Range(1'000, 100'000'000))
      ->capture_default_str();
  app.add_option("--sample", options.sample, "operations behind each latency")
      ->check(CLI::Range(100, 10'000'000))
      ->capture_default_str();
  app.add_option("--stream", options.stream, "operations behind each throughput")
      ->check(CLI::Range(1'000, 100'000'000))
      ->capture_default_str();
  app.add_option("--runs", options.runs, "runs of each list, in turns, of which the median counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Report report;
  list_figures(options, report);
  fmt::print("{}", report.text);
  return 0;
}

}  // namespace
}  // namespace perdure::paper

int main(int argc, char** argv) {
  try {
    return perdure::paper::figures(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perdure-paper-skiplist: %s\n", error.what());
    return 3;
  }
}
