// The frame of the programs that print an evaluation as Markdown.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "evaluation/figures.h"

namespace perdure::paper {

// Figures that are measured together, with their numbers in the paper or their names.
template <class Options>
struct Group {
  using Measure = void (*)(const Options&, Report&);
  Group(Measure what, std::vector<std::string> numbers = {})
      : measure(what), figures(std::move(numbers)) {}
  Measure measure;
  std::vector<std::string> figures;
};

// Parses the command line, and prints each group of figures when it is measured. If the groups have
// numbers, --only selects some of them. Returns the exit status: 3 if a step failed.
template <class Options>
int print_figures(const char* name, const char* what, int argc, char** argv,
                  void (*declare)(CLI::App&, Options&),
                  std::initializer_list<Group<Options>> groups) {
  try {
    Options options;
    CLI::App app(what, name);
    declare(app, options);
    std::vector<std::string> known;
    for (const auto& group : groups) {
      known.insert(known.end(), group.figures.begin(), group.figures.end());
    }
    std::vector<std::string> only;
    if (!known.empty()) {
      app.add_option("--only", only, "figures, with those that are measured beside them")
          ->delimiter(',')
          ->check(CLI::IsMember(known));
    }
    CLI11_PARSE(app, argc, argv);
    for (const auto& group : groups) {
      const bool chosen = std::ranges::any_of(
          group.figures, [&](const auto& figure) { return std::ranges::count(only, figure) != 0; });
      if (!only.empty() && !chosen) continue;
      Report report;
      group.measure(options, report);
      fmt::print("{}", report.text);
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 3;
  }
}

inline void declare_count(CLI::App& app, const char* name, std::uint64_t& count, const char* what,
                          std::uint64_t least) {
  app.add_option(name, count, what)
      ->check(CLI::Range(least, std::uint64_t{100'000'000}))
      ->capture_default_str();
}
inline void declare_runs(CLI::App& app, std::uint32_t& runs) {
  app.add_option("--runs", runs, "runs of each, in turns, of which the median counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
}

}  // namespace perdure::paper
