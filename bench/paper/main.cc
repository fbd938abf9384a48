// perdure-paper-hash: the evaluation of level hashing's paper (section 5.2, figures 10 to 15) with
// our engines and its baselines, in one run, as Markdown.
#include "bench/paper/figures.h"
#include "bench/paper/program.h"

int main(int argc, char** argv) {
  using namespace perdure::paper;
  const auto declare = [](CLI::App& app, Options& options) {
    app.add_option("--log-slots", options.log_slots, "tables of about 2^N slots")
        ->check(CLI::Range(14, 28))
        ->capture_default_str();
    declare_count(app, "--sample", options.sample, "operations behind each latency", 100);
    app.add_option("--runs", options.runs, "resizes behind each time, of which the median counts")
        ->check(CLI::Range(1, 100))
        ->capture_default_str();
  };
  return print_figures<Options>("perdure-paper-hash",
                                "Figures 10 to 15 of the level hashing paper, measured here.", argc,
                                argv, declare, {&max_load_factors, &latencies, &resizes});
}
