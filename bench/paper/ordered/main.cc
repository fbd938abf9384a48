// perdure-paper-ordered: the evaluation of PhaST with one thread (paper, section 5.2, figure 7)
// with our engine and its baselines, in one run, as Markdown.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/paper/ordered/figures.h"

namespace perdure::paper {
namespace {

int figures(int argc, char** argv) {
  OrderedOptions options;
  CLI::App app("Figure 7 of the PhaST paper, measured here, as Markdown.", "perdure-paper-ordered");
  app.add_option("--items", options.items,
                 "inserted before the clock starts, and once more with it")
      ->check(CLI::Range(1'000, 100'000'000))
      ->capture_default_str();
  app.add_option("--runs", options.runs, "runs of each map, in turns, of which the median counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Report report;
  ordered_figures(options, report);
  fmt::print("{}", report.text);
  return 0;
}

}  // namespace
}  // namespace perdure::paper

int main(int argc, char** argv) {
  try {
    return perdure::paper::figures(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perdure-paper-ordered: %s\n", error.what());
    return 3;
  }
}
