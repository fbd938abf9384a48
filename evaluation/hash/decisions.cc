// Figures 2 and 4: the load factors that the parts of level hashing's design give, of the table as
// printed and of ours.
#include <fmt/core.h>

#include <array>
#include <bit>
#include <utility>

#include "bench/workloads/random.h"
#include "evaluation/engine_table.h"
#include "evaluation/figures.h"
#include "evaluation/hash/two_level.h"

namespace perdure::paper {
namespace {

constexpr std::size_t kExpansions = 6;
using Loads = std::array<double, kExpansions>;

double load_of(std::uint64_t items, std::uint64_t slots) {
  return static_cast<double>(items) / static_cast<double>(slots);
}

// Inserts keys from `next` until the table is full.
template <class Printed>
void fill(Printed& table, std::uint64_t& next) {
  for (;; ++next) {
    auto inserted = table.insert(bench::mix64(next), next);
    if (inserted) {
      require(*inserted, "a key was there before");
      continue;
    }
    require(inserted.error() == StatusCode::pool_full, "an insertion failed");
    return;
  }
}

// Returns the load factor at which a table is full.
template <std::uint32_t kSlots>
std::string full_at(const Options& options, const Decisions& decisions) {
  Ground ground(options);
  use(ground.memory, kMedia[0]);
  constexpr auto kLogSlots = static_cast<std::uint32_t>(std::bit_width(kSlots - 1));
  const std::uint32_t log_top = options.log_slots - kLogSlots - (decisions.two_levels ? 1 : 0);
  const auto table = must(TwoLevel<RealPlatform, kSlots>::make_with(
      ground.memory.platform(), ground.memory.heap(), log_top, decisions));
  std::uint64_t next = 0;
  fill(*table, next);
  must_be_sound(*table);
  return fmt::format("{:.3f}", load_of(table->items(), table->slots()));
}

void design(const Options& options, Report& report) {
  report.heading("Maximum load factor by design decision, level as printed (figure 2)",
                 {"decisions", "4 slots", "6 slots"});
  constexpr Decisions kD1{.two_hashes = false, .two_levels = false, .movement = false};
  constexpr Decisions kD2{.two_levels = false, .movement = false};
  constexpr Decisions kD3{.movement = false};
  constexpr std::pair<const char*, Decisions> kRows[] = {
      {"D1", kD1}, {"D1+D2", kD2}, {"D1+D2+D3", kD3}, {"D1+D2+D3+D4", {.upwards = false}}};
  for (const auto& [name, decisions] : kRows) {
    report.row({name, full_at<4>(options, decisions), full_at<6>(options, decisions)});
  }
}

// The load factors at successive expansions, the last of which makes a table of about 2^log_slots
// slots.
Loads printed(const Options& options, bool upwards) {
  Ground ground(options);
  use(ground.memory, kMedia[0]);
  const auto table = must(
      TwoLevel<RealPlatform>::make_with(ground.memory.platform(), ground.memory.heap(),
                                        options.log_slots - 3 - kExpansions, {.upwards = upwards}));
  Loads loads;
  std::uint64_t next = 0;
  for (double& load : loads) {
    fill(*table, next);
    load = load_of(table->items(), table->slots());
    must(table->expand());
  }
  must_be_sound(*table);
  return loads;
}

template <std::uint32_t kLines>
Loads ours(const Options& options) {
  Ground ground(options);
  use(ground.memory, kMedia[0]);
  const auto table = must(LevelTable<kLines>::make(ground.memory, Resizer::thread,
                                                   options.log_slots - 1 - kLines - kExpansions));
  std::uint64_t next = 0;
  std::uint64_t look = table->slots();
  EngineStats stats;
  while (stats.resizes.size() < kExpansions) {
    for (; next < look; ++next) {
      require(must(table->insert(bench::mix64(next), next)), "a key was there before");
    }
    look += next / 64;  // rarely enough, and soon enough after a growth
    stats = table->stats();
    table->settle();
  }
  must_be_sound(*table);
  Loads loads;
  for (std::size_t i = 0; i < kExpansions; ++i) {
    loads[i] = load_of(stats.resizes[i].entries, stats.resizes[i].slots_before);
  }
  return loads;
}

void expansions(const Options& options, Report& report) {
  std::vector<std::string> columns = {"table"};
  for (std::size_t i = 1; i <= kExpansions; ++i) columns.push_back(fmt::format("{}", i));
  report.heading("Load factor at successive expansions (figure 4)", columns);
  const auto row = [&](const char* name, const Loads& loads) {
    std::vector<std::string> cells = {name};
    for (const double load : loads) cells.push_back(fmt::format("{:.3f}", load));
    report.row(cells);
  };
  row("level as printed, without B2T", printed(options, false));
  row("level as printed", printed(options, true));
  row("level, 3 slots", ours<1>(options));
  row("level, 6 slots", ours<2>(options));
}

}  // namespace

void decisions(const Options& options, Report& report) {
  design(options, report);
  expansions(options, report);
}

}  // namespace perdure::paper
