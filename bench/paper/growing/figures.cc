#include "bench/paper/growing/figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/workloads/random.h"
#include "perdure/pool.h"

namespace perdure::paper {
namespace {

constexpr std::array kPhases = {"insert", "find", "find missing", "update", "delete"};
enum Phase : std::size_t { kInsert, kFind, kMissing, kUpdate, kErase };

Word key_of(std::uint64_t n) noexcept { return bench::mix64(n + 1) | 1; }

struct Figure {
  double mops = 0;
  double flushes = 0;
  double fences = 0;
};
using Figures = std::array<Figure, kPhases.size()>;

// Calls operation(i) for i below n, by threads that have a block each. By the clock on the wall.
template <class F>
Figure measure(std::uint64_t n, std::uint32_t threads, F operation) {
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> all = true;
  std::atomic<std::uint64_t> flushes = 0;
  std::atomic<std::uint64_t> fences = 0;
  std::atomic<bool> go = false;
  std::vector<std::thread> workers;
  for (std::uint64_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      go.wait(false);
      const Counters before = thread_counters();
      bool right = true;
      for (std::uint64_t i = n * t / threads; i < n * (t + 1) / threads; ++i) {
        right &= operation(i);
      }
      if (!right) all = false;
      flushes += thread_counters().flushes - before.flushes;
      fences += thread_counters().fences - before.fences;
    });
  }
  const Clock::time_point begin = Clock::now();
  go = true;
  go.notify_all();
  for (std::thread& worker : workers) worker.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  require(all, "an operation returned a wrong result");
  const auto count = static_cast<double>(n);
  return {count / seconds / 1e6, static_cast<double>(flushes) / count,
          static_cast<double>(fences) / count};
}

Figures run(const GrowingScheme& scheme, std::uint64_t items, std::uint32_t threads) {
  bench::MemoryHeap memory;
  constexpr std::uint64_t kBytesPerItem = 400;  // with all tables that a growing one leaves behind
  must(memory.open(64_KiB, items * kBytesPerItem / 64_KiB + 4096));
  memory.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
  const std::unique_ptr<GrowingTable> table = scheme.make(memory);
  const auto chosen = [&](std::uint64_t i) { return key_of(scatter(i, items)); };
  Figures figures;
  figures[kInsert] = measure(
      items, threads, [&](std::uint64_t i) { return must(table->insert(key_of(i), i + 1)); });
  figures[kFind] = measure(items, threads, [&](std::uint64_t i) {
    Word value = 0;
    return table->find(chosen(i), value) && value == scatter(i, items) + 1;
  });
  figures[kMissing] = measure(items, threads, [&](std::uint64_t i) {
    Word value = 0;
    return !table->find(key_of(items + i), value);
  });
  figures[kUpdate] =
      measure(items, threads, [&](std::uint64_t i) { return must(table->update(chosen(i), ~i)); });
  figures[kErase] =
      measure(items, threads, [&](std::uint64_t i) { return must(table->erase(chosen(i))); });
  for (std::uint64_t i = 0; i < items; i += 7) {
    Word value = 0;
    require(!table->find(key_of(i), value), "a key was found after its delete");
  }
  return figures;
}

void figures_of(const GrowingOptions& options, std::uint32_t threads, Report& report) {
  std::array<std::vector<Figures>, kGrowingCount> runs;
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    for (std::size_t s = 0; s < kGrowingCount; ++s) {
      runs[s].push_back(run(growing_schemes()[s], options.items, threads));
    }
  }
  const auto head = [&](const std::string& title) {
    std::vector<std::string> columns{"table"};
    columns.insert(columns.end(), kPhases.begin(), kPhases.end());
    report.heading(title, columns);
  };
  const char* const plural = threads == 1 ? "" : "s";
  head(fmt::format("Million operations a second, {} thread{}", threads, plural));
  for (std::size_t s = 0; s < kGrowingCount; ++s) {
    std::vector<std::string> cells{growing_schemes()[s].name};
    for (std::size_t phase = 0; phase < kPhases.size(); ++phase) {
      std::vector<double> values;
      for (const Figures& figures : runs[s]) values.push_back(figures[phase].mops);
      const auto [least, most] = std::ranges::minmax(values);
      cells.push_back(fmt::format("{:.2f} ({:.2f} to {:.2f})", median(values), least, most));
    }
    report.row(cells);
  }
  head(fmt::format("`clevel` by the others, and the paper's ratio, {} thread{}", threads, plural));
  for (std::size_t s = 1; s < kGrowingCount; ++s) {
    const GrowingScheme& scheme = growing_schemes()[s];
    std::vector<std::string> cells{scheme.name};
    for (std::size_t phase = 0; phase < kPhases.size(); ++phase) {
      std::vector<double> ratios;
      for (std::size_t turn = 0; turn < runs[s].size(); ++turn) {
        ratios.push_back(runs[0][turn][phase].mops / runs[s][turn][phase].mops);
      }
      const double ratio = median(ratios);
      const std::optional<double> paper = phase == kInsert ? scheme.paper_insert : std::nullopt;
      const bool short_of = paper && ratio < *paper;
      cells.push_back(fmt::format("{0}{1:.2f}{0}{2}", short_of ? "**" : "", ratio,
                                  paper ? fmt::format(" ({:.1f})", *paper) : ""));
    }
    report.row(cells);
  }
  if (threads != 1) return;
  head("Write-backs and fences of an operation by its own thread");
  for (std::size_t s = 0; s < kGrowingCount; ++s) {
    std::vector<std::string> cells{growing_schemes()[s].name};
    for (const Figure& figure : runs[s].front()) {
      cells.push_back(fmt::format("{:.2f}, {:.2f}", figure.flushes, figure.fences));
    }
    report.row(cells);
  }
}

}  // namespace

void growing_figures(const GrowingOptions& options, Report& report) {
  figures_of(options, 1, report);
  if (options.threads > 1) figures_of(options, options.threads, report);
}

}  // namespace perdure::paper
