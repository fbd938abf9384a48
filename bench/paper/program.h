// The frame of the programs that print an evaluation as Markdown.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <string>
#include <vector>

#include "bench/paper/figures.h"

namespace perdure::paper {

// A group of figures, under the paper's name for them: "7". Without a name it cannot be chosen.
template <class Options>
struct Group {
  std::string name;
  void (*measure)(const Options&, Report&);
};

// Parses the command line, and prints each group of figures when it is measured. Returns the exit
// status: 3 if a step failed.
template <class Options>
int print_groups(const char* name, const char* what, int argc, char** argv,
                 void (*declare)(CLI::App&, Options&), const std::vector<Group<Options>>& groups) {
  try {
    Options options;
    CLI::App app(what, name);
    declare(app, options);
    std::vector<std::string> names;
    for (const Group<Options>& group : groups) {
      if (!group.name.empty()) names.push_back(group.name);
    }
    std::vector<std::string> only;
    if (!names.empty()) {
      app.add_option("--only", only, "these figures, not all")
          ->delimiter(',')
          ->check(CLI::IsMember(names));
    }
    CLI11_PARSE(app, argc, argv);
    for (const Group<Options>& group : groups) {
      if (!only.empty() && std::ranges::find(only, group.name) == only.end()) continue;
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

template <class Options>
int print_figures(const char* name, const char* what, int argc, char** argv,
                  void (*declare)(CLI::App&, Options&),
                  std::initializer_list<void (*)(const Options&, Report&)> figures) {
  std::vector<Group<Options>> groups;
  for (const auto figure : figures) groups.push_back({"", figure});
  return print_groups<Options>(name, what, argc, argv, declare, groups);
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
