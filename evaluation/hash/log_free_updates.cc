// Figure 8 b: the share of updates that need no log, by load factor and slots of a bucket.
#include <fmt/core.h>

#include <algorithm>

#include "bench/workloads/random.h"
#include "evaluation/hash/array_table.h"
#include "evaluation/hash/two_level.h"
#include "evaluation/timed.h"

namespace perdure::paper {
namespace {

constexpr double kLoads[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};

template <std::uint32_t kSlots>
std::vector<double> printed(const Options& options) {
  Ground ground(options);
  use(ground.memory, kMedia[0]);
  constexpr auto kLogSlots = static_cast<std::uint32_t>(__builtin_ctz(kSlots));
  const auto table = must(TwoLevel<RealPlatform, kSlots>::make_with(
      ground.memory.platform(), ground.memory.heap(), options.log_slots - kLogSlots - 1, {}));
  std::vector<double> shares;
  for (const double load : kLoads) {
    const auto items = static_cast<std::uint64_t>(load * static_cast<double>(table->slots()));
    for (std::uint64_t n = table->items(); n < items; ++n) {
      auto inserted = table->insert(bench::mix64(n), n);
      if (!inserted) {  // few slots: full before this load
        require(inserted.error() == StatusCode::pool_full, "an insertion failed");
        return shares;
      }
      require(*inserted, "a key was there before");
    }
    shares.push_back(static_cast<double>(table->log_free_items()) /
                     static_cast<double>(table->items()));
  }
  must_be_sound(*table);
  return shares;
}

// An update has one or two write-backs without the log, and three with it.
std::vector<double> ours(const Options& options) {
  Ground ground(options);
  const auto table = must(ArrayTable::make(ground.memory, options.log_slots - 3));
  std::vector<double> shares;
  std::uint64_t count = 0;
  std::uint64_t salt = 0;
  const std::uint64_t slots = table->slots();
  for (const double load : kLoads) {
    use(ground.memory, kMedia[0]);
    const auto items = static_cast<std::uint64_t>(load * static_cast<double>(slots));
    for (; count < items; ++count) {
      require(must(table->insert(bench::mix64(count), count)), "a key was there before");
    }
    table->settle();
    if (table->grew_at() != 0) return shares;
    std::vector<std::uint64_t> keys;
    for (std::uint64_t i = 0; i < std::min(options.sample, count) / 5 * 5; ++i) {  // five blocks
      keys.push_back(bench::mix64(scatter(i, count)));
    }
    ++salt;
    ground.memory.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
    std::uint64_t free = 0;
    for (const std::uint64_t key : keys) {
      const std::uint64_t before = thread_counters().flushes;
      require(must(table->update(key, key + salt)), "a key is absent");
      if (thread_counters().flushes - before < 3) ++free;
    }
    shares.push_back(static_cast<double>(free) / static_cast<double>(keys.size()));
    for (const std::uint64_t key : keys) {
      std::uint64_t value = 0;
      require(must(table->find(key, value)) && value == key + salt, "an update is lost");
    }
  }
  must_be_sound(*table);
  return shares;
}

}  // namespace

void log_free_updates(const Options& options, Report& report) {
  std::vector<std::string> columns = {"table"};
  for (const double load : kLoads) columns.push_back(fmt::format("{:.1f}", load));
  report.heading("Share of updates without the log, by load factor (figure 8 b)", columns);
  const auto row = [&](const char* name, const std::vector<double>& shares) {
    std::vector<std::string> cells = {name};
    for (const double share : shares) cells.push_back(fmt::format("{:.3f}", share));
    cells.resize(columns.size(), "-");
    report.row(cells);
  };
  row("level as printed, 2 slots", printed<2>(options));
  row("level as printed, 4 slots", printed<4>(options));
  row("level as printed, 8 slots", printed<8>(options));
  row("level as printed, 16 slots", printed<16>(options));
  row("level, arrays, 4 slots", ours(options));
}

}  // namespace perdure::paper
