// perdure-paper-growing: the evaluation of clevel hashing with few threads (paper, section 4) with
// our engines and its baselines, in one run, as Markdown.
#include "bench/paper/growing/figures.h"
#include "bench/paper/program.h"

int main(int argc, char** argv) {
  using namespace perdure::paper;
  const auto declare = [](CLI::App& app, GrowingOptions& options) {
    declare_count(app, "--items", options.items, "inserted into an empty table", 1'000);
    app.add_option("--threads", options.threads, "threads; one is measured, too")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    declare_runs(app, options.runs);
  };
  return print_figures<GrowingOptions>(
      "perdure-paper-growing", "Tables that grow, as in the clevel paper, measured here.", argc,
      argv, declare, {&operations, &insert_latencies, &ycsb_workloads});
}
