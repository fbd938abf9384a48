// `phast` with other constants (figures 8 b, 13 and 14 of PhaST's paper).
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/paper/ordered/figures.h"
#include "bench/paper/ordered/measure.h"
#include "bench/paper/ordered/phast_map.h"
#include "bench/paper/ordered/variants.h"
#include "bench/paper/parallel.h"

namespace perdure::paper {
namespace {

// Inserts and searches as in figure 7. `phase` measures n operations.
template <class Phase>
std::vector<Figure> run(const EngineRow& row, std::uint64_t items, Phase phase) {
  bench::MemoryHeap memory;
  open_for(memory, 2 * items);
  const std::unique_ptr<PhastMap> map = PhastMap::make(memory, row);
  const auto insert = [&](std::uint64_t n) {
    const Word key = uniform_key(n);
    return must(map->insert(key, value_of(key, 0)));
  };
  for (std::uint64_t n = 0; n < items; ++n) {
    require(insert(n), "a key was present before its insert");
  }
  std::vector<Figure> figures;
  figures.push_back(phase(items, [&](std::uint64_t i) { return insert(items + i); }));
  figures.push_back(phase(items, [&](std::uint64_t i) {
    const Word key = uniform_key(scatter(i, 2 * items));
    Word value = 0;
    return map->find(key, value) && value == value_of(key, 0);
  }));
  require(map->stats().entries == 2 * items, "the number of items is wrong");
  map->must_be_sound();
  return figures;
}

Turns turns_of(const OrderedOptions& options, std::string kind, std::span<const Variant> variants,
               std::uint32_t threads) {
  Turns turns{
      .kind = std::move(kind), .schemes = names_of(variants), .phases = {"insert", "search"}};
  turns.take(options.runs, [&](std::size_t v) {
    return run(variants[v].row, options.items, [&](std::uint64_t n, auto&& operation) {
      return threads == 1 ? measure(n, operation) : measure(n, threads, operation);
    });
  });
  return turns;
}

}  // namespace

void levels_above(const OrderedOptions& options, Report& report) {
  const Turns turns = turns_of(options, "`phast`", variants_by_start(), 1);
  turns.print_rates("Million operations a second without levels, one thread (figure 8 b)", report);
  turns.print_ratios("All levels by fewer", report);
}

void inner_node_sizes(const OrderedOptions& options, Report& report) {
  constexpr std::uint32_t kThreads = 2;
  const Turns turns = turns_of(options, "leaves", variants_by_inner_leaves(), kThreads);
  turns.print_rates(
      fmt::format("Million operations a second by leaves of an inner node, {} (figure 13)",
                  of_threads(kThreads)),
      report);
}

void leaf_sizes(const OrderedOptions& options, Report& report) {
  const Turns turns = turns_of(options, "entries", variants_by_leaf_entries(), 1);
  turns.print_rates("Million operations a second by entries of a leaf, one thread (figure 14)",
                    report);
  turns.print_costs("Write-backs and fences of an operation by entries of a leaf", report);
}

}  // namespace perdure::paper
