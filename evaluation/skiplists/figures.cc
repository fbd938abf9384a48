#include "evaluation/skiplists/figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/workloads/distributions.h"
#include "bench/workloads/random.h"
#include "perdure/pool.h"

namespace perdure::paper {

std::span<const DataSet, kDataSetCount> data_sets() {
  constexpr std::uint64_t kWords = 90;  // words per document: 730 million in 8.2 million documents
  static constexpr DataSet kSets[] = {
      {"random", [](std::uint64_t n) { return ListKey{bench::mix64(n + 1), 0}; }, true},
      {"document words",
       [](std::uint64_t n) {
         const std::uint64_t place = n % kWords;  // one of 141,000 words, in ascending order
         return ListKey{n / kWords, place * 1567 + bench::mix64(n) % 1567};
       }},
      {"fingerprints",
       [](std::uint64_t n) { return ListKey{bench::mix64(n + 1), bench::mix64(~n)}; }},
      {"sequential", [](std::uint64_t n) { return ListKey{0, n}; }, true},
  };
  return kSets;
}

namespace {

constexpr std::size_t kSizes = 3;
constexpr std::size_t kLatencyCount = std::size(kWriteLatencies);
constexpr std::size_t kUsual = 1;  // 600 ns, of figures 7 and 8

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
      if (l != kUsual && !(set.all_latencies && size == kSizes / 2)) continue;  // no figure has it
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

// The keys of figure 10 by number, drawn before a clock starts.
struct Stream {
  const char* name;
  std::vector<ListKey> inserts;
  std::vector<ListKey> deletes;
  std::uint64_t distinct;
};

// As the paper says: each key is zipfian, and the deletes have the same keys in the same order. So
// many inserts find their key there, and many deletes find that it has gone.
Stream zipfian(std::uint64_t n) {
  Stream stream{"zipfian keys", {}, {}, 0};
  bench::Random random(1);
  const bench::ScrambledZipfian numbers(n);
  std::vector<bool> seen(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t number = numbers.next(random);
    stream.inserts.push_back(data_sets()[0].key(number));
    if (!seen[number]) ++stream.distinct;
    seen[number] = true;
  }
  stream.deletes = stream.inserts;
  return stream;
}

// As YCSB loads: each key once, in random order. So are the deletes.
Stream each_once(std::uint64_t n) {
  Stream stream{"each key once", {}, {}, n};
  for (std::uint64_t i = 0; i < n; ++i) {
    stream.inserts.push_back(data_sets()[0].key(i));
    stream.deletes.push_back(data_sets()[0].key(scatter(i, n)));
  }
  return stream;
}

// Thousands of operations a second: all inserts, from an empty list on, then all deletes.
std::array<double, 2> throughput(const ListScheme& scheme, const Stream& stream) {
  Place place(scheme, stream.distinct);
  wait_for(place.memory, 600);
  const auto rate = [&](const std::vector<ListKey>& keys, auto&& operation) {
    std::uint64_t changed = 0;
    const double ns = mean_ns(keys.size(), [&](std::uint64_t i) {
      changed += must(operation(keys[i], i)) ? 1 : 0;
      return true;
    });
    require(changed == stream.distinct, "the number of changes is wrong");
    return 1e6 / ns;
  };
  const double inserts = rate(stream.inserts, [&](const ListKey& key, std::uint64_t i) {
    return place.list->insert(key, i);
  });
  place.check(stream.distinct);
  const double deletes = rate(
      stream.deletes, [&](const ListKey& key, std::uint64_t) { return place.list->erase(key); });
  place.check(0);
  return {inserts, deletes};
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

std::vector<std::string> columns_of(std::vector<std::string> first) {
  for (const ListScheme& scheme : list_schemes()) first.emplace_back(scheme.name);
  return first;
}

// Adds a cell for each scheme: the value, and how much more or less it is than that of the first
// scheme, RLS with one record.
template <class F>
void add_values(std::vector<std::string>& cells, F&& value_of) {
  const double redo = value_of(0);
  for (std::size_t scheme = 0; scheme < kListSchemeCount; ++scheme) {
    const double value = value_of(scheme);
    cells.push_back(
        fmt::format("{:.{}f} ({:+.1f}%)", value, value < 100 ? 2 : 0, 100 * (value - redo) / redo));
  }
}

// A row per data set and size.
template <class F>
void by_size(const ListOptions& options, const Rows& rows, const std::string& title, F&& figure,
             Report& report) {
  report.heading(title, columns_of({"keys", "items"}));
  for (std::size_t s = 0; s < kDataSetCount; ++s) {
    for (std::size_t size = 0; size < kSizes; ++size) {
      std::vector<std::string> cells{data_sets()[s].name,
                                     fmt::format("{}", options.items >> (kSizes - 1 - size))};
      add_values(cells, [&](std::size_t scheme) { return figure(rows[s][scheme][size]); });
      report.row(cells);
    }
  }
}

void by_latency(const Rows& rows, std::size_t set, const char* title, bool erase, Report& report) {
  report.heading(title, columns_of({"write latency"}));
  for (std::size_t l = 0; l < kLatencyCount; ++l) {
    std::vector<std::string> cells{fmt::format("{} ns", kWriteLatencies[l])};
    add_values(cells, [&](std::size_t scheme) {
      const Cell& cell = rows[set][scheme][kSizes / 2];
      return erase ? cell.erase_ns[l] : cell.insert_ns[l];
    });
    report.row(cells);
  }
}

void list_throughput(const ListOptions& options, Report& report) {
  const std::array<Stream, 2> streams{zipfian(options.stream), each_once(options.stream / 2)};
  std::array<std::array<std::array<std::vector<double>, kListSchemeCount>, 2>, 2> rates;
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    for (std::size_t s = 0; s < kListSchemeCount; ++s) {
      for (std::size_t stream = 0; stream < 2; ++stream) {
        const auto rate = throughput(list_schemes()[s], streams[stream]);
        for (std::size_t i = 0; i < 2; ++i) rates[stream][i][s].push_back(rate[i]);
      }
    }
  }
  report.heading("Throughput in thousand operations a second, 600 ns (figure 10)",
                 columns_of({"keys", "operations"}));
  for (std::size_t stream = 0; stream < 2; ++stream) {
    for (std::size_t i = 0; i < 2; ++i) {
      std::vector<std::string> cells{
          fmt::format("{}, {} distinct", streams[stream].name, streams[stream].distinct),
          fmt::format("{} {}", streams[stream].inserts.size(), i == 0 ? "inserts" : "deletes")};
      add_values(cells, [&](std::size_t s) { return median(rates[stream][i][s]); });
      report.row(cells);
    }
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
      [](const Cell& cell) { return cell.insert_ns[kUsual]; }, report);
  by_size(
      options, rows, "Latency of delete in ns, write latency 600 ns (figure 8)",
      [](const Cell& cell) { return cell.erase_ns[kUsual]; }, report);
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
  list_throughput(options, report);
}

}  // namespace perdure::paper
