// perdure-paper-growing: the figures of clevel hashing's paper that need few threads, with our
// engines and its baselines, in one run, as Markdown.
#include "evaluation/growing/figures.h"
#include "evaluation/program.h"

int main(int argc, char** argv) {
  using namespace perdure::paper;
  const auto declare = [](CLI::App& app, GrowingOptions& options) {
    declare_count(app, "--items", options.items, "inserted into an empty table", 1'000);
    app.add_option("--threads", options.threads, "threads; one is measured, too")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    declare_runs(app, options.runs);
  };
  return print_figures<GrowingOptions>("perdure-paper-growing",
                                       "Tables that grow, as in the clevel paper, measured here.",
                                       argc, argv, declare,
                                       {{&load_factors, {"3", "6"}},
                                        {&slots, {"5"}},
                                        {&operations, {"7", "8", "11"}},
                                        {&with_pointers, {"pointers"}},
                                        {&rehash_threads, {"rehash"}},
                                        {&insert_latencies, {"9"}},
                                        {&ycsb_workloads, {"10"}}});
}
