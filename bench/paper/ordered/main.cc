// perdure-paper-ordered: the evaluation of PhaST with one thread (paper, figures 7, 9, 10 and 15 a)
// with our engine and its baselines, in one run, as Markdown.
#include "bench/paper/ordered/figures.h"
#include "bench/paper/program.h"

int main(int argc, char** argv) {
  using namespace perdure::paper;
  const auto declare = [](CLI::App& app, OrderedOptions& options) {
    declare_count(app, "--items", options.items,
                  "inserted before the clock starts, and once more with it", 1'000);
    declare_runs(app, options.runs);
  };
  return print_figures<OrderedOptions>(
      "perdure-paper-ordered", "Figures 7, 9, 10 and 15 a of the PhaST paper, measured here.", argc,
      argv, declare, {&operations, &ycsb_workloads, &tail_latencies, &one_partition});
}
