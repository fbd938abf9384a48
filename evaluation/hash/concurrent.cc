// Figure 17: the throughput of threads on level and on libcuckoo, both in DRAM without write-backs.
#include <fmt/core.h>

#include <optional>
#include <thread>

#include "evaluation/cuckoo.h"
#include "evaluation/figures.h"
#include "evaluation/hash/mix.h"
#include "evaluation/parallel.h"

namespace perdure::paper {
namespace {

std::vector<Figure> run(const Options& options, bool level, std::uint32_t threads) {
  std::vector<Figure> figures;
  for (const std::uint32_t share : kInsertShares) {
    std::optional<Ground> ground;  // for level
    if (level) use(ground.emplace(options).memory, kMedia[0]);
    const auto table = level ? must(schemes()[0].make(ground->memory, options.log_slots))
                             : make_cuckoo(1ULL << options.log_slots);
    const std::uint64_t slots = table->slots();
    const Mix mix = Mix::of_slots(slots, share);
    for (std::uint64_t n = 0; n < mix.records(); ++n) {
      require(must(table->insert(bench::mix64(n), n)), "a key was there before");
    }
    figures.push_back(
        measure(mix.requests(), threads, [&](std::uint64_t i) { return mix.run(*table, i); }));
    table->settle();
    require(table->items() == mix.items_after(), "a mix lost items");
    require(table->slots() == slots, "a table grew");
    must_be_sound(*table);
  }
  return figures;
}

std::vector<std::uint32_t> threads_of(const Options& options) {
  if (!options.threads.empty()) return options.threads;
  std::vector<std::uint32_t> threads = {2};
  for (const std::uint32_t more : {4U, 8U, 16U}) {
    if (more <= std::thread::hardware_concurrency()) threads.push_back(more);
  }
  return threads;
}

}  // namespace

void concurrent(const Options& options, Report& report) {
  const bool cuckoo = make_cuckoo(1) != nullptr;
  for (const std::uint32_t threads : threads_of(options)) {
    Turns turns{.kind = "table",
                .schemes = {"level"},
                .phases = {std::begin(kMixNames), std::end(kMixNames)},
                .paper = {{}, std::vector<double>(std::size(kMixNames), 1.6)}};
    if (cuckoo) turns.schemes.emplace_back("libcuckoo");
    turns.take(options.runs, [&](std::size_t s) { return run(options, s == 0, threads); });
    turns.print_rates(
        fmt::format("Million requests a second in DRAM, by search/insertion, {} (figure 17)",
                    of_threads(threads)),
        report);
    if (!cuckoo) continue;
    turns.print_ratios(
        fmt::format("`level` by libcuckoo, and the paper's least, {}", of_threads(threads)),
        report);
  }
}

}  // namespace perdure::paper
