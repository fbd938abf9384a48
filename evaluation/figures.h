// The measurements of level hashing's evaluation (paper, sections 3 and 5.2), and their tables.
#pragma once

#include <ctime>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/memory_heap.h"
#include "evaluation/table.h"

namespace perdure::paper {

struct Options {
  // approximate slots of each table; the paper's tables have 100 million
  std::uint32_t log_slots = 22;
  std::uint64_t sample = 50'000;  // operations per latency
  std::uint32_t runs = 3;         // runs per time of a resize, of mixes and of threads
  // Empty: 2, and of 4, 8 and 16 as many as there are processors.
  std::vector<std::uint32_t> threads = {};
};

// The cost of a write-back.
struct Medium {
  const char* name;
  FlushMode mode;
  std::uint32_t write_latency_ns;
};
inline constexpr Medium kMedia[] = {
    {"DRAM", FlushMode::none, 0},
    {"200 ns", FlushMode::cache_line, 200},
    {"600 ns", FlushMode::cache_line, 600},
    {"1,000 ns", FlushMode::cache_line, 1000},
};
inline constexpr std::size_t kMediumCount = std::size(kMedia);
inline void use(bench::MemoryHeap& memory, const Medium& medium) noexcept {
  memory.platform().configure(medium.mode, best_flush_instruction(), medium.write_latency_ns);
}

struct Scheme {
  const char* name;
  Expected<std::unique_ptr<Table>> (*make)(bench::MemoryHeap& memory, std::uint32_t log_slots);
};
// level, clevel, the baselines, level as printed, the same with every update logged, and level with
// the paper's items.
inline constexpr std::size_t kSchemeCount = 8;
inline constexpr std::size_t kBaselines = 2;
inline constexpr std::size_t kPrinted = 5;
inline constexpr std::size_t kLogged = 6;
inline constexpr std::size_t kArrays = 7;
std::span<const Scheme, kSchemeCount> schemes();
inline auto baselines() { return schemes().subspan(kBaselines, kPrinted - kBaselines); }

// Throws if a step fails.
inline void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}
template <class T>
T must(Expected<T> result) {
  if (!result) must(result.error());
  return std::move(*result);
}
inline void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}
inline void must_be_sound(Table& table) {
  Findings report;
  table.check(report);
  if (!report.ok()) throw std::runtime_error(std::string(report.first()));
}

// A heap of the same size for every scheme, with one table on it. A heap in proportion would be too
// small for the resizes of small tables, whose blocks are whole extents.
struct Ground {
  explicit Ground(const Options& options) {
    constexpr std::uint64_t kExtent = 64_KiB;
    const std::uint64_t bytes = std::max<std::uint64_t>(128ULL << options.log_slots, 16_MiB);
    must(memory.open(kExtent, bytes / kExtent));
  }
  bench::MemoryHeap memory;
};

// Processor time of this thread. Other load and waits for a core do not count; waits for
// write-backs do.
inline std::uint64_t cpu_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// Returns distinct numbers below n for i below n, in an order unrelated to theirs.
inline std::uint64_t scatter(std::uint64_t i, std::uint64_t n) noexcept {
  constexpr std::uint64_t kPrime = 2'654'435'761;  // larger than any table
  return i * kPrime % n;
}

inline double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

struct Report {
  std::string text;
  void heading(const std::string& title, const std::vector<std::string>& columns);
  void row(const std::vector<std::string>& cells);
};

void max_load_factors(const Options& options, Report& report);  // figure 10
void decisions(const Options& options, Report& report);         // figures 2 and 4
void searches(const Options& options, Report& report);          // figure 5
void log_free_updates(const Options& options, Report& report);  // figure 8 b
void latencies(const Options& options, Report& report);         // figures 11 to 14, and write-backs
void slower_reads(const Options& options, Report& report);      // figure 13, a model
void resizes(const Options& options, Report& report);           // figure 15
void mixes(const Options& options, Report& report);             // figure 16
void concurrent(const Options& options, Report& report);        // figure 17

}  // namespace perdure::paper
