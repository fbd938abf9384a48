#include "bench/paper/skiplists/figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/workloads/random.h"
#include "perdure/pool.h"

namespace perdure::paper {

std::span<const DataSet, kDataSetCount> data_sets() {
  constexpr std::uint64_t kWords = 90;  // words per document: 730 million in 8.2 million documents
  static constexpr DataSet kSets[] = {
      {"random", [](std::uint64_t n) { return ListKey{bench::mix64(n + 1), 0}; }},
      {"document words",
       [](std::uint64_t n) {
         const std::uint64_t place = n % kWords;  // one of 141,000 words, in ascending order
         return ListKey{n / kWords, place * 1567 + bench::mix64(n) % 1567};
       }},
      {"fingerprints",
       [](std::uint64_t n) { return ListKey{bench::mix64(n + 1), bench::mix64(~n)}; }},
      {"sequential", [](std::uint64_t n) { return ListKey{0, n}; }},
  };
  return kSets;
}

namespace {

constexpr std::size_t kSizes = 3;
constexpr std::size_t kLatencyCount = std::size(kWriteLatencies);

struct Cell {
  double flushes = 0;                             // per insert, over all inserts so far
  std::array<double, kLatencyCount> insert_ns{};  // by write latency
  std::array<double, kLatencyCount> erase_ns{};
};
using Row = std::array<Cell, kSizes>;

void wait_for(bench::MemoryHeap& memory, std::uint32_t write_latency_ns) {
  memory.platform().configure(FlushMode::cache_line, best_flush_instruction(), write_latency_ns);
}

// Returns the mean processor time of `n` operations.
template <class F>
double mean_ns(std::uint64_t n, F&& operation) {
  bool all = true;
  const std::uint64_t begin = cpu_ns();
  for (std::uint64_t i = 0; i < n; ++i) all &= operation(i);
  require(all, "an operation returned a wrong result");
  return static_cast<double>(cpu_ns() - begin) / static_cast<double>(n);
}

struct Place {
  Place(const ListScheme& scheme, std::uint64_t items) {
    // Twice as many lines as nodes of two lines need.
    must(memory.open(64_KiB, items * 4 * kLine / 64_KiB + 256));
    list = scheme.make(memory);
  }
  void check(std::uint64_t items) const {
    Findings report;
    list->check(report);
    if (!report.ok()) throw std::runtime_error(std::string(report.first()));
    require(report.entries == items, "the number of items is wrong");
  }
  bench::MemoryHeap memory;
  std::unique_ptr<List> list;
};

// As in the paper: at each size, `sample` inserts are measured, then `sample` deletes.
Row measure(const ListScheme& scheme, const DataSet& set, const ListOptions& options) {
  Row row;
  Place place(scheme, options.items + options.sample);
  List& list = *place.list;
  std::uint64_t count = 0;
  std::uint64_t flushes = 0;
  for (std::size_t size = 0; size < kSizes; ++size) {
    const std::uint64_t items = options.items >> (kSizes - 1 - size);
    wait_for(place.memory, 0);
    const Counters before = thread_counters();
    for (; count < items; ++count) {
      require(must(list.insert(set.key(count), count)), "a key was present before its insert");
    }
    flushes += thread_counters().flushes - before.flushes;
    row[size].flushes = static_cast<double>(flushes) / static_cast<double>(items);
    for (std::size_t l = 0; l < kLatencyCount; ++l) {
      wait_for(place.memory, kWriteLatencies[l]);
      const auto key = [&](std::uint64_t i) { return set.key(items + i); };
      row[size].insert_ns[l] =
          mean_ns(options.sample, [&](std::uint64_t i) { return must(list.insert(key(i), i)); });
      row[size].erase_ns[l] =
          mean_ns(options.sample, [&](std::uint64_t i) { return must(list.erase(key(i))); });
    }
  }
  place.check(count);
  return row;
}

// Thousands of operations a second: inserts into an empty list, then deletes of all items.
std::array<double, 2> throughput(const ListScheme& scheme, const ListOptions& options) {
  Place place(scheme, options.stream);
  const DataSet& set = data_sets()[0];
  wait_for(place.memory, 600);
  const double insert_ns = mean_ns(
      options.stream, [&](std::uint64_t i) { return must(place.list->insert(set.key(i), i)); });
  place.check(options.stream);
  const double erase_ns = mean_ns(options.stream, [&](std::uint64_t i) {
    return must(place.list->erase(set.key(scatter(i, options.stream))));
  });
  place.check(0);
  return {1e6 / insert_ns, 1e6 / erase_ns};
}

// The median of each time. Write-backs are the same in every run.
Row median_of(const std::vector<Row>& runs) {
  Row row = runs.front();
  const auto over_runs = [&](auto field) {
    std::vector<double> values;
    for (const Row& run : runs) values.push_back(field(run));
    return median(values);
  };
  for (std::size_t size = 0; size < kSizes; ++size) {
    for (std::size_t l = 0; l < kLatencyCount; ++l) {
      row[size].insert_ns[l] = over_runs([&](const Row& run) { return run[size].insert_ns[l]; });
      row[size].erase_ns[l] = over_runs([&](const Row& run) { return run[size].erase_ns[l]; });
    }
  }
  return row;
}

using Rows = std::array<std::array<Row, kListSchemeCount>, kDataSetCount>;

// A row per data set and size. Each scheme has a column, followed by its reduction relative to RLS.
template <class F>
void by_size(const ListOptions& options, const Rows& rows, const std::string& title, F&& figure,
             Report& report) {
  std::vector<std::string> columns{"keys", "items"};
  for (const ListScheme& scheme : list_schemes()) columns.emplace_back(scheme.name);
  report.heading(title, columns);
  for (std::size_t s = 0; s < kDataSetCount; ++s) {
    for (std::size_t size = 0; size < kSizes; ++size) {
      std::vector<std::string> cells{data_sets()[s].name,
                                     fmt::format("{}", options.items >> (kSizes - 1 - size))};
      const double redo = figure(rows[s][0][size]);
      for (std::size_t scheme = 0; scheme < kListSchemeCount; ++scheme) {
        const double value = figure(rows[s][scheme][size]);
        cells.push_back(fmt::format("{:.2f} ({:+.1f}%)", value, 100 * (value - redo) / redo));
      }
      report.row(cells);
    }
  }
}

void by_latency(const Rows& rows, std::size_t set, const char* title, bool erase, Report& report) {
  std::vector<std::string> columns{"write latency"};
  for (const ListScheme& scheme : list_schemes()) columns.emplace_back(scheme.name);
  report.heading(title, columns);
  for (std::size_t l = 0; l < kLatencyCount; ++l) {
    std::vector<std::string> cells{fmt::format("{} ns", kWriteLatencies[l])};
    const auto ns = [&](std::size_t scheme) {
      const Cell& cell = rows[set][scheme][kSizes / 2];
      return erase ? cell.erase_ns[l] : cell.insert_ns[l];
    };
    for (std::size_t scheme = 0; scheme < kListSchemeCount; ++scheme) {
      cells.push_back(
          fmt::format("{:.0f} ({:+.1f}%)", ns(scheme), 100 * (ns(scheme) - ns(0)) / ns(0)));
    }
    report.row(cells);
  }
}

}  // namespace

void list_figures(const ListOptions& options, Report& report) {
  Rows rows;
  for (std::size_t s = 0; s < kDataSetCount; ++s) {
    std::array<std::vector<Row>, kListSchemeCount> runs;
    for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
      for (std::size_t scheme = 0; scheme < kListSchemeCount; ++scheme) {
        runs[scheme].push_back(measure(list_schemes()[scheme], data_sets()[s], options));
      }
    }
    for (std::size_t scheme = 0; scheme < kListSchemeCount; ++scheme) {
      rows[s][scheme] = median_of(runs[scheme]);
    }
  }
  by_size(
      options, rows, "Write-backs of an insert (figure 6)",
      [](const Cell& cell) { return cell.flushes; }, report);
  by_size(
      options, rows, "Latency of insert in ns, write latency 600 ns (figure 7)",
      [](const Cell& cell) { return cell.insert_ns[1]; }, report);
  by_size(
      options, rows, "Latency of delete in ns, write latency 600 ns (figure 8)",
      [](const Cell& cell) { return cell.erase_ns[1]; }, report);
  constexpr std::size_t kSequential = kDataSetCount - 1;
  by_latency(rows, 0, "Latency of insert in ns by write latency, random keys (figure 9 a)", false,
             report);
  by_latency(rows, 0, "Latency of delete in ns by write latency, random keys (figure 9 b)", true,
             report);
  by_latency(rows, kSequential,
             "Latency of insert in ns by write latency, sequential keys (figure 9 c)", false,
             report);
  by_latency(rows, kSequential,
             "Latency of delete in ns by write latency, sequential keys (figure 9 d)", true,
             report);
  report.heading("Throughput in thousand operations a second, 600 ns (figure 10)",
                 {"list", "insert", "delete"});
  std::array<std::array<std::vector<double>, 2>, kListSchemeCount> rates;
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    for (std::size_t s = 0; s < kListSchemeCount; ++s) {
      const auto rate = throughput(list_schemes()[s], options);
      for (std::size_t i = 0; i < 2; ++i) rates[s][i].push_back(rate[i]);
    }
  }
  std::array<double, 2> redo{};
  for (std::size_t s = 0; s < kListSchemeCount; ++s) {
    const ListScheme& scheme = list_schemes()[s];
    const std::array<double, 2> rate{median(rates[s][0]), median(rates[s][1])};
    if (redo[0] == 0) redo = rate;
    std::vector<std::string> cells{scheme.name};
    for (std::size_t i = 0; i < 2; ++i) {
      cells.push_back(
          fmt::format("{:.0f} ({:+.1f}%)", rate[i], 100 * (rate[i] - redo[i]) / redo[i]));
    }
    report.row(cells);
  }
}

}  // namespace perdure::paper
