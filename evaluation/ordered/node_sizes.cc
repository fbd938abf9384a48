// `phast` with other constants (figures 8 b, 13 and 14 of PhaST's paper).
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "evaluation/ordered/figures.h"
#include "evaluation/ordered/measure.h"
#include "evaluation/ordered/phast_map.h"
#include "evaluation/ordered/variants.h"
#include "evaluation/parallel.h"

namespace perdure::paper {
namespace {

// With as many partitions as in the paper, a partition of two million entries has 4 inner nodes,
// too few to search for. With 4 partitions each has more than a hundred, as in the paper.
constexpr PhastOptions kFewPartitions{.partition_bits = 2};

// Inserts and searches as in figure 7. `phase` measures n operations.
template <class Phase>
std::vector<Figure> run(const EngineRow& row, std::uint64_t items, Phase phase,
                        const PhastOptions& options = {}) {
  bench::MemoryHeap memory;
  open_for(memory, 2 * items);
  const std::unique_ptr<PhastMap> map = PhastMap::make(memory, row, options);
  for (std::uint64_t n = 0; n < items; ++n) {
    require(insert_entry(*map, n), "a key was present before its insert");
  }
  std::vector<Figure> figures;
  figures.push_back(phase(items, [&](std::uint64_t i) { return insert_entry(*map, items + i); }));
  figures.push_back(
      phase(items, [&](std::uint64_t i) { return read_entry(*map, scatter(i, 2 * items)); }));
  require(map->stats().entries == 2 * items, "the number of items is wrong");
  map->must_be_sound();
  return figures;
}

Turns turns_of(const OrderedOptions& options, std::string kind, std::span<const Variant> variants,
               std::uint32_t threads, const PhastOptions& partitions = {}) {
  Turns turns{
      .kind = std::move(kind), .schemes = names_of(variants), .phases = {"insert", "search"}};
  turns.take(options.runs, [&](std::size_t v) {
    const auto phase = [&](std::uint64_t n, auto&& operation) {
      return threads == 1 ? measure(n, operation) : measure(n, threads, operation);
    };
    return run(variants[v].row, options.items, phase, partitions);
  });
  return turns;
}

}  // namespace

void levels_above(const OrderedOptions& options, Report& report) {
  Turns turns{.kind = "`phast`",
              .schemes = names_of(variants_by_start()),
              .phases = {"insert", "search", "insert, 4 partitions", "search, 4 partitions"}};
  turns.take(options.runs, [&](std::size_t v) {
    std::vector<Figure> figures;
    for (const PhastOptions& partitions : {PhastOptions{}, kFewPartitions}) {
      const auto phase = [](std::uint64_t n, auto&& operation) { return measure(n, operation); };
      const std::vector<Figure> some =
          run(variants_by_start()[v].row, options.items, phase, partitions);
      figures.insert(figures.end(), some.begin(), some.end());
    }
    return figures;
  });
  turns.print_rates("Million operations a second without levels, one thread (figure 8 b)", report);
  turns.print_ratios("All levels by fewer", report);
}

void inner_node_sizes(const OrderedOptions& options, Report& report) {
  constexpr std::uint32_t kThreads = 2;
  const Turns turns =
      turns_of(options, "leaves", variants_by_inner_leaves(), kThreads, kFewPartitions);
  turns.print_rates(
      fmt::format("Million operations a second by leaves of an inner node, 4 partitions, {} "
                  "(figure 13)",
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
