// perdure-paper-ordered: the evaluation of PhaST with one thread (paper, section 5.2, figure 7)
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
  return print_figures<OrderedOptions>("perdure-paper-ordered",
                                       "Figure 7 of the PhaST paper, measured here.", argc, argv,
                                       declare, {&ordered_figures});
}
