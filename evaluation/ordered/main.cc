// perdure-paper-ordered: the evaluation of PhaST (paper, sections 2 and 5) with our engine and its
// baselines, in one run, as Markdown.
#include "evaluation/ordered/figures.h"
#include "evaluation/program.h"

int main(int argc, char** argv) {
  using namespace perdure::paper;
  const auto declare = [](CLI::App& app, OrderedOptions& options) {
    declare_count(app, "--items", options.items,
                  "inserted before the clock starts, and once more with it", 1'000);
    declare_runs(app, options.runs);
    app.add_option("--threads", options.threads, "of figures 11 a to c and 12; 12b has 2 and 16")
        ->delimiter(',')
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    app.add_option("--folder", options.folder, "where the pool of figure 15d is made")
        ->check(CLI::ExistingDirectory)
        ->capture_default_str();
  };
  return print_figures<OrderedOptions>("perdure-paper-ordered",
                                       "Figures 2 and 7 to 15 of the PhaST paper, measured here.",
                                       argc, argv, declare,
                                       {{&memory_costs, {"table1", "2a"}},
                                        {&skiplist_writes, {"2b"}},
                                        {&operations, {"7"}},
                                        {&insert_parts, {"8a"}},
                                        {&levels_above, {"8b"}},
                                        {&ycsb_workloads, {"9"}},
                                        {&tail_latencies, {"10"}},
                                        {&operations_by_threads, {"11"}},
                                        {&cache_misses, {"11d"}},
                                        {&ycsb_by_threads, {"12"}},
                                        {&latencies_by_threads, {"12b"}},
                                        {&inner_node_sizes, {"13"}},
                                        {&leaf_sizes, {"14"}},
                                        {&one_partition, {"15a"}},
                                        {&large_data_set, {"15b"}},
                                        {&values_of_any_size, {"15c"}},
                                        {&recovery_by_threads, {"15d"}},
                                        {&dram_bytes, {"table3"}}});
}
