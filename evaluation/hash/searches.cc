// Figure 5: searches that probe the top level first (static) or the fuller level first (dynamic),
// in a table that expands four times.
#include <fmt/core.h>

#include <algorithm>

#include "bench/workloads/random.h"
#include "evaluation/engine_table.h"
#include "evaluation/hash/two_level.h"
#include "evaluation/timed.h"
#include "evaluation/turns.h"

namespace perdure::paper {
namespace {

constexpr double kPaperLoad = 0.85;  // the load at which the paper expands
constexpr double kLoads[] = {0.43, 0.5, 0.6, 0.7, kPaperLoad};  // an expansion leaves 0.425
constexpr std::uint32_t kExpansions = 4;

// Returns the latency in ns of a search, by expansion and load.
template <class Searched>
std::vector<double> run(const Options& options, bench::MemoryHeap& memory, Searched& table) {
  use(memory, kMedia[0]);
  std::vector<double> found;
  std::uint64_t count = 0;
  bench::Random random(1);
  for (std::uint32_t expansion = 0; expansion <= kExpansions; ++expansion) {
    if (expansion > 0) must(table.expand());
    for (const double load : kLoads) {
      const auto items = static_cast<std::uint64_t>(load * static_cast<double>(table.slots()));
      for (; count < items; ++count) {
        require(must(table.insert(bench::mix64(count), count)), "a key was there before");
      }
      std::vector<std::uint64_t> keys;
      for (std::uint64_t i = 0; i < options.sample; ++i) {
        keys.push_back(bench::mix64(random.below(count)));
      }
      std::uint64_t value = 0;
      found.push_back(timed(keys, [&](std::uint64_t key) {
                        return must(table.find(key, value)) && bench::mix64(value) == key;
                      }).ns);
    }
  }
  must_be_sound(table);
  return found;
}

std::vector<double> printed(const Options& options, bool dynamic) {
  Ground ground(options);
  const auto table = must(TwoLevel<RealPlatform>::make_with(
      ground.memory.platform(), ground.memory.heap(), options.log_slots - 3 - kExpansions,
      {.dynamic_search = dynamic}));
  return run(options, ground.memory, *table);
}

std::vector<double> ours(const Options& options) {
  Ground ground(options);
  const auto table =
      must(LevelTable<>::make(ground.memory, Resizer::thread, options.log_slots - 3 - kExpansions));
  return run(options, ground.memory, *table);
}

}  // namespace

void searches(const Options& given, Report& report) {
  Options options = given;
  options.log_slots = std::min(options.log_slots, 22U);  // as printed, larger ones are full earlier
  std::vector<std::vector<double>> fixed;
  std::vector<std::vector<double>> dynamic;
  std::vector<std::vector<double>> level;
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    fixed.push_back(printed(options, false));
    dynamic.push_back(printed(options, true));
    level.push_back(ours(options));
  }
  const auto middle_of = [](const std::vector<std::vector<double>>& runs, std::size_t i) {
    std::vector<double> values;
    for (const std::vector<double>& run : runs) values.push_back(run[i]);
    return median(std::move(values));
  };
  report.heading("Latency of find in ns before and after expansions (figure 5)",
                 {"expansions", "load", "static", "dynamic", "static / dynamic", "level"});
  for (std::size_t i = 0; i < level[0].size(); ++i) {
    const std::size_t at = i % std::size(kLoads);
    report.row({at == 0 ? fmt::format("{}", i / std::size(kLoads)) : "",
                fmt::format("{:.2f}", kLoads[at]), fmt::format("{:.0f}", middle_of(fixed, i)),
                fmt::format("{:.0f}", middle_of(dynamic, i)),
                fmt::format("{:.2f}", middle_of(fixed, i) / middle_of(dynamic, i)),
                fmt::format("{:.0f}", middle_of(level, i))});
  }
}

}  // namespace perdure::paper
