// perdure-paper-skiplist: the evaluation of the atomic skiplists' paper (section IV, figures 6 to
// 10, and what stands in the place of table 2) with our engines and its baselines, in one run, as
// Markdown.
#include "evaluation/program.h"
#include "evaluation/skiplists/figures.h"

int main(int argc, char** argv) {
  using namespace perdure::paper;
  const auto declare = [](CLI::App& app, ListOptions& options) {
    declare_count(app, "--items", options.items, "in the largest list; half and a quarter, too",
                  1'000);
    declare_count(app, "--sample", options.sample, "operations behind each latency", 100);
    declare_count(app, "--stream", options.stream, "zipfian keys behind each throughput", 1'000);
    app.add_option("--folder", options.folder, "where the pools of table 2 are made")
        ->check(CLI::ExistingDirectory)
        ->capture_default_str();
    declare_runs(app, options.runs);
  };
  return print_figures<ListOptions>(
      "perdure-paper-skiplist", "Figures 6 to 10 of the atomic skiplists' paper, measured here.",
      argc, argv, declare, {{&list_figures, {"6", "7", "8", "9", "10"}}, {&openings, {"table2"}}});
}
