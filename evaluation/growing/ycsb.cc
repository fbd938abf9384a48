// Latencies of inserts (figure 9 of the paper of clevel hashing) and YCSB (figure 10). As in the
// programs of RECIPE, which the paper follows, a write of YCSB is the insert of a new key.
#include <fmt/core.h>

#include <memory>
#include <vector>

#include "bench/workloads/distributions.h"
#include "evaluation/growing/figures.h"
#include "evaluation/growing/measure.h"

namespace perdure::paper {
namespace {

bench::Histogram insert_latencies_of(const GrowingScheme& scheme, std::uint64_t items,
                                     std::uint32_t threads) {
  bench::MemoryHeap memory;
  open_for(memory, items);
  const std::unique_ptr<GrowingTable> table = scheme.make(memory);
  return latencies(items, threads,
                   [&](std::uint64_t i) { return must(table->insert(key_of(i), i + 1)); });
}

std::vector<Figure> run(const GrowingScheme& scheme, std::uint64_t items, std::uint32_t threads) {
  bench::MemoryHeap memory;
  open_for(memory, 2 * items);
  const std::unique_ptr<GrowingTable> table = scheme.make(memory);
  const bench::ScrambledZipfian zipfian(items);
  bench::Random random(1);
  std::vector<std::uint64_t> chosen;  // before the clock starts
  for (std::uint64_t i = 0; i < items; ++i) chosen.push_back(zipfian.next(random));
  const auto read = [&](std::uint64_t i) {
    Word value = 0;
    return table->find(key_of(chosen[i]), value) && value == chosen[i] + 1;
  };
  std::uint64_t records = 0;  // inserted by the phases before
  const auto insert = [&](std::uint64_t i) {
    return must(table->insert(key_of(records + i), records + i + 1));
  };
  std::vector<Figure> figures;
  const auto phase = [&](std::uint64_t one_write_in) {
    figures.push_back(measure(items, threads, [&](std::uint64_t i) {
      return one_write_in != 0 && i % one_write_in == 0 ? insert(i) : read(i);
    }));
    records += items;
  };
  phase(1);
  phase(2);
  phase(20);
  phase(0);
  return figures;
}

void latencies_of(const GrowingOptions& options, std::uint32_t threads, Report& report) {
  Quantiles found{.kind = "table",
                  .schemes = names_of(growing_schemes()),
                  .quantiles = {0.5, 0.9, 0.99, 0.999, 1}};
  found.take(options.runs, [&](std::size_t s) {
    return insert_latencies_of(growing_schemes()[s], options.items, threads);
  });
  found.print(fmt::format("Latency in ns that this part of the inserts does not exceed, {} "
                          "(figure 9)",
                          of_threads(threads)),
              report);
}

void ycsb_of(const GrowingOptions& options, std::uint32_t threads, Report& report) {
  Turns turns{.kind = "table",
              .schemes = names_of(growing_schemes()),
              .phases = {"load", "A", "B", "C"},
              .paper = {{}, {}, {}, {}, {1.4}}};
  turns.take(options.runs,
             [&](std::size_t s) { return run(growing_schemes()[s], options.items, threads); });
  turns.print_rates(
      fmt::format("YCSB, million operations a second, {} (figure 10)", of_threads(threads)),
      report);
  turns.print_ratios(
      fmt::format("`clevel` by the others in YCSB, and the paper's ratio, {}", of_threads(threads)),
      report);
}

}  // namespace

void insert_latencies(const GrowingOptions& options, Report& report) {
  latencies_of(options, 1, report);
  if (options.threads > 1) latencies_of(options, options.threads, report);
}

void ycsb_workloads(const GrowingOptions& options, Report& report) {
  ycsb_of(options, 1, report);
  if (options.threads > 1) ycsb_of(options, options.threads, report);
}

}  // namespace perdure::paper
