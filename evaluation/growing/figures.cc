#include "evaluation/growing/figures.h"

#include <fmt/core.h>

#include <vector>

#include "evaluation/growing/measure.h"

namespace perdure::paper {

std::vector<Figure> operation_phases(const GrowingScheme& scheme, std::uint64_t items,
                                     std::uint32_t threads) {
  bench::MemoryHeap memory;
  open_for(memory, items);
  const std::unique_ptr<GrowingTable> table = scheme.make(memory);
  const auto chosen = [&](std::uint64_t i) { return key_of(scatter(i, items)); };
  std::vector<Figure> figures;
  figures.push_back(measure(
      items, threads, [&](std::uint64_t i) { return must(table->insert(key_of(i), i + 1)); }));
  figures.push_back(measure(items, threads, [&](std::uint64_t i) {
    Word value = 0;
    return table->find(chosen(i), value) && value == scatter(i, items) + 1;
  }));
  figures.push_back(measure(items, threads, [&](std::uint64_t i) {
    Word value = 0;
    return !table->find(key_of(items + i), value);
  }));
  figures.push_back(
      measure(items, threads, [&](std::uint64_t i) { return must(table->update(chosen(i), ~i)); }));
  figures.push_back(
      measure(items, threads, [&](std::uint64_t i) { return must(table->erase(chosen(i))); }));
  for (std::uint64_t i = 0; i < items; i += 7) {
    Word value = 0;
    require(!table->find(key_of(i), value), "a key was found after its delete");
  }
  return figures;
}

namespace {

// `kinds`: a part of the titles.
void figures_of(const GrowingOptions& options, const std::vector<GrowingScheme>& schemes,
                std::size_t anchors, const char* kinds, std::uint32_t threads, Report& report) {
  Turns turns{.kind = "table",
              .schemes = names_of(schemes),
              .phases = names_of_phases(),
              .anchors = anchors};
  turns.take(options.runs,
             [&](std::size_t s) { return operation_phases(schemes[s], options.items, threads); });
  turns.print_rates(fmt::format("Million operations a second{}, {}", kinds, of_threads(threads)),
                    report);
  turns.print_ratios(fmt::format("`clevel` by the others{}, and the paper's ratio, {}", kinds,
                                 of_threads(threads)),
                     report);
  if (threads == 1) {
    turns.print_costs(
        fmt::format("Write-backs and fences of an operation by its own thread{}", kinds), report);
  }
}

}  // namespace

void operations(const GrowingOptions& options, Report& report) {
  const std::vector<GrowingScheme> schemes = anchored_schemes();
  const std::size_t anchors = schemes.size() - kGrowingCount;
  figures_of(options, schemes, anchors, "", 1, report);
  if (options.threads > 1) figures_of(options, schemes, anchors, "", options.threads, report);
}

void with_pointers(const GrowingOptions& options, Report& report) {
  const std::vector<GrowingScheme> schemes = pointer_schemes();
  constexpr const char* kKinds = ", pointers to items";
  figures_of(options, schemes, 0, kKinds, 1, report);
  if (options.threads > 1) figures_of(options, schemes, 0, kKinds, options.threads, report);
}

}  // namespace perdure::paper
