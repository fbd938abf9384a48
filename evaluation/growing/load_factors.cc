// Figures 3 and 6: load factors of tables that grow.
#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "evaluation/growing/measure.h"
#include "evaluation/growing/variants.h"

namespace perdure::paper {
namespace {

constexpr std::size_t kResizes = 5;

// Returns the load factors at successive resizes. Each ends before 64 more insertions, so that only
// the table decides when the next one begins.
std::vector<double> at_resizes(const Variant& variant, std::uint64_t items) {
  bench::MemoryHeap memory;
  open_for(memory, 2 * items);
  const auto table = variant.make(memory, items >> kResizes);
  std::uint64_t count = 0;
  EngineStats stats;
  while (stats.resizes.size() < kResizes) {
    const std::uint64_t look = count + count / 16 + 64;  // clevel counts all items for its stats
    for (; count < look; ++count) {
      require(must(table->insert(key_of(count), count)), "a key was present before its insert");
      if (count % 64 == 0) table->settle();
    }
    stats = table->stats();
  }
  must_be_sound(*table);
  std::vector<double> loads;
  for (std::size_t i = 0; i < kResizes; ++i) {
    loads.push_back(static_cast<double>(stats.resizes[i].entries) /
                    static_cast<double>(stats.resizes[i].slots_before));
  }
  return loads;
}

void resizes_of(const GrowingOptions& options, Report& report) {
  std::vector<std::string> columns = {"table"};
  for (std::size_t i = 1; i <= kResizes; ++i) columns.push_back(fmt::format("{}", i));
  report.heading("Load factor at successive resizes, by slots (figure 3)", columns);
  for (const auto variants : {level_variants(), clevel_variants()}) {
    for (const Variant& variant : variants) {
      std::vector<std::string> row = {variant.scheme.name};
      for (const double load : at_resizes(variant, options.items)) {
        row.push_back(fmt::format("{:.3f}", load));
      }
      report.row(row);
    }
  }
}

// The load factors after every 1/100 of the insertions, once the table has grown.
std::vector<double> while_growing(const GrowingScheme& scheme, std::uint64_t items) {
  bench::MemoryHeap memory;
  open_for(memory, items);
  const std::unique_ptr<GrowingTable> table = scheme.make(memory);
  const std::uint64_t first = table->slots();
  if (first == 0) return {};
  const std::uint64_t step = std::max<std::uint64_t>(items / 100, 1);
  std::vector<double> loads;
  for (std::uint64_t count = 0; count < items;) {
    const std::uint64_t next = std::min(count + step, items);
    for (; count < next; ++count) {
      require(must(table->insert(key_of(count), count)), "a key was present before its insert");
    }
    const std::uint64_t slots = table->slots();
    if (slots != first) loads.push_back(static_cast<double>(count) / static_cast<double>(slots));
  }
  return loads;
}

void growing_of(const GrowingOptions& options, Report& report) {
  static constexpr const char* kPaper[kGrowingCount] = {"0.86", "-", "0.45", "0.45", "-", "0.84"};
  report.heading("Load factor during the insertions, 1 thread (figure 6)",
                 {"table", "least", "mean", "most", "the paper's most"});
  for (std::size_t s = 0; s < kGrowingCount; ++s) {
    const GrowingScheme& scheme = growing_schemes()[s];
    const std::vector<double> loads = while_growing(scheme, options.items);
    if (loads.empty()) continue;  // cmap has no slots; few items make no table grow
    const auto [least, most] = std::ranges::minmax(loads);
    double sum = 0;
    for (const double load : loads) sum += load;
    report.row({scheme.name, fmt::format("{:.3f}", least),
                fmt::format("{:.3f}", sum / static_cast<double>(loads.size())),
                fmt::format("{:.3f}", most), kPaper[s]});
  }
}

}  // namespace

void load_factors(const GrowingOptions& options, Report& report) {
  resizes_of(options, report);
  growing_of(options, report);
}

}  // namespace perdure::paper
