// perdure-paper-ordered: the evaluation of PhaST (paper, section 5) with our engine and its
// baselines, in one run, as Markdown.
#include "bench/paper/ordered/figures.h"
#include "bench/paper/program.h"

int main(int argc, char** argv) {
  using namespace perdure::paper;
  const auto declare = [](CLI::App& app, OrderedOptions& options) {
    declare_count(app, "--items", options.items,
                  "inserted before the clock starts, and once more with it", 1'000);
    declare_runs(app, options.runs);
    app.add_option("--folder", options.folder, "where the pool of figure 15d is made")
        ->check(CLI::ExistingDirectory)
        ->capture_default_str();
  };
  return print_groups<OrderedOptions>("perdure-paper-ordered",
                                      "Figures 7 to 15 of the PhaST paper, measured here.", argc,
                                      argv, declare,
                                      {{"7", &operations},
                                       {"8a", &insert_parts},
                                       {"8b", &levels_above},
                                       {"9", &ycsb_workloads},
                                       {"10", &tail_latencies},
                                       {"11", &operations_by_threads},
                                       {"12", &ycsb_by_threads},
                                       {"13", &inner_node_sizes},
                                       {"14", &leaf_sizes},
                                       {"15a", &one_partition},
                                       {"15b", &large_data_set},
                                       {"15c", &values_of_any_size},
                                       {"15d", &recovery_by_threads},
                                       {"table3", &dram_bytes}});
}
