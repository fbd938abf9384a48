// perdure-buffered: what durability `buffered` costs beside `process`, as Markdown.
#include "evaluation/buffered/figures.h"
#include "evaluation/program.h"

int main(int argc, char** argv) {
  using namespace perdure::buffered;
  using perdure::paper::declare_count;
  const auto declare = [](CLI::App& app, Options& options) {
    app.add_option("--folder", options.folder, "of the pools, 10 GB")->capture_default_str();
    app.add_option("--pools", options.pools, "records of the pools that are opened")
        ->delimiter(',')
        ->capture_default_str();
    declare_count(app, "--records", options.records, "of the pool that is put to", 1'000);
    declare_count(app, "--log", options.log_mebibytes, "MiB of log that a restore reads", 8);
    app.add_option("--seconds", options.seconds, "of puts")
        ->check(CLI::Range(1, 3600))
        ->capture_default_str();
    app.add_option("--at-rest", options.at_rest, "pools at rest")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    perdure::paper::declare_runs(app, options.runs);
  };
  return perdure::paper::print_figures<Options>(
      "perdure-buffered", "What durability `buffered` costs beside `process`.", argc, argv, declare,
      {{&opens, {"opens"}},
       {&restores, {"restores"}},
       {&puts, {"puts"}},
       {&chunk_copies, {"chunks"}},
       {&pools_at_rest, {"rest"}}});
}
