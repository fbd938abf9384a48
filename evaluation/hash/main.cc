// perdure-paper-hash: the figures of level hashing's paper (sections 3 and 5.2) with our engines,
// its baselines and the table as it prints it, in one run, as Markdown.
#include "evaluation/figures.h"
#include "evaluation/program.h"

int main(int argc, char** argv) {
  using namespace perdure::paper;
  const auto declare = [](CLI::App& app, Options& options) {
    app.add_option("--log-slots", options.log_slots, "tables of about 2^N slots")
        ->check(CLI::Range(14, 28))
        ->capture_default_str();
    declare_count(app, "--sample", options.sample, "operations behind each latency", 100);
    declare_runs(app, options.runs);
    app.add_option("--threads", options.threads,
                   "of figure 17; 2, and as many as there are processors, if not given")
        ->delimiter(',')
        ->check(CLI::Range(1, 64));
  };
  return print_figures<Options>("perdure-paper-hash",
                                "Figures of the level hashing paper, measured here.", argc, argv,
                                declare,
                                {{&max_load_factors, {"10"}},
                                 {&decisions, {"2", "4"}},
                                 {&searches, {"5"}},
                                 {&log_free_updates, {"8b"}},
                                 {&latencies, {"11", "12", "13", "14"}},
                                 {&slower_reads, {"13slow"}},
                                 {&resizes, {"15"}},
                                 {&mixes, {"16"}},
                                 {&concurrent, {"17"}}});
}
