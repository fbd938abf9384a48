// perdure-paper-growing: the evaluation of clevel hashing with few threads (paper, section 4) with
// our engines and its baselines, in one run, as Markdown.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/paper/growing/figures.h"

namespace perdure::paper {
namespace {

int figures(int argc, char** argv) {
  GrowingOptions options;
  CLI::App app("Tables that grow, as in the clevel paper, measured here, as Markdown.",
               "perdure-paper-growing");
  app.add_option("--items", options.items, "inserted into an empty table")
      ->check(CLI::Range(1'000, 100'000'000))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads; one is measured, too")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--runs", options.runs, "runs of each table, in turns, of which the median counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Report report;
  growing_figures(options, report);
  fmt::print("{}", report.text);
  return 0;
}

}  // namespace
}  // namespace perdure::paper

int main(int argc, char** argv) {
  try {
    return perdure::paper::figures(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perdure-paper-growing: %s\n", error.what());
    return 3;
  }
}
