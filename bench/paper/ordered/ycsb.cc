// YCSB with one thread (figures 9 and 10 of PhaST's paper, table 2), with YCSB's own distributions.
#include <fmt/core.h>

#include <chrono>
#include <vector>

#include "bench/harness/histogram.h"
#include "bench/paper/ordered/figures.h"
#include "bench/paper/ordered/measure.h"
#include "bench/workloads/distributions.h"
#include "bench/workloads/random.h"

namespace perdure::paper {
namespace {

using bench::Histogram;
using bench::Random;

constexpr std::uint64_t kLongestScan = 100;

// One map with the records of YCSB: all of [0, records()) are there.
class Records {
 public:
  Records(const OrderedScheme& scheme, std::uint64_t items) : items_(items) {
    open_for(memory_, 2 * items);
    map_ = scheme.make(memory_);
  }

  bool insert() {
    const Word key = uniform_key(records_++);
    return must(map_->insert(key, value_of(key, 0)));
  }
  bool read(std::uint64_t record) {
    const Word key = uniform_key(record);
    Word value = 0;
    return map_->find(key, value) && is_of(value, key);
  }
  bool update(std::uint64_t record) {
    const Word key = uniform_key(record);
    return must(map_->update(key, value_of(key, 1)));
  }
  bool scan(std::uint64_t record) {
    const Word from = uniform_key(record);
    const std::uint64_t limit = 1 + random_.below(kLongestScan);
    std::uint64_t seen = 0;
    bool right = true;
    map_->scan(from, limit, [&](Word key, Word value) {
      right &= (seen++ == 0 ? key == from : key > from) && is_of(value, key);
    });
    return right && seen > 0 && seen <= limit;
  }

  // Records that were loaded, a few of them often.
  std::uint64_t zipfian() { return zipfian_.next(random_); }
  // Records that were inserted last, most often.
  std::uint64_t latest() { return latest_.next(records_, random_) - 1; }
  bool one_in(std::uint64_t n) { return random_.below(n) == 0; }
  std::uint64_t items() const noexcept { return items_; }

 private:
  std::uint64_t items_;
  std::uint64_t records_ = 0;
  bench::MemoryHeap memory_;
  std::unique_ptr<OrderedMap> map_;
  Random random_{1};
  bench::ScrambledZipfian zipfian_{items_};
  bench::Latest latest_{items_};
};

// As YCSB's documentation asks: the workloads that insert come last.
std::vector<Figure> run(const OrderedScheme& scheme, std::uint64_t items) {
  Records of(scheme, items);
  std::vector<Figure> figures;
  const auto phase = [&](std::uint64_t count, auto operation) {
    figures.push_back(measure(count, [&](std::uint64_t) { return operation(); }));
  };
  phase(items, [&] { return of.insert(); });
  phase(items, [&] { return of.one_in(2) ? of.update(of.zipfian()) : of.read(of.zipfian()); });
  phase(items, [&] { return of.one_in(20) ? of.update(of.zipfian()) : of.read(of.zipfian()); });
  phase(items, [&] { return of.read(of.zipfian()); });
  phase(items, [&] {
    const std::uint64_t record = of.zipfian();
    return of.read(record) && (of.one_in(2) || of.update(record));
  });
  phase(items, [&] { return of.one_in(20) ? of.insert() : of.read(of.latest()); });
  phase(items / 10, [&] { return of.one_in(20) ? of.insert() : of.scan(of.zipfian()); });
  return figures;
}

template <class F>
Histogram latencies(std::uint64_t count, F operation) {
  using Clock = std::chrono::steady_clock;
  Histogram histogram;
  auto before = Clock::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    require(operation(), "an operation returned a wrong result");
    const auto after = Clock::now();
    histogram.record(static_cast<std::uint64_t>((after - before).count()));
    before = after;
  }
  return histogram;
}

}  // namespace

void ycsb_workloads(const OrderedOptions& options, Report& report) {
  Turns turns{.kind = "map",
              .schemes = names_of(ordered_schemes()),
              .phases = {"load", "A", "B", "C", "F", "D", "E"},
              .paper = {{}, {}, {1.38}, {3.27}}};
  turns.take(options.runs, [&](std::size_t s) { return run(ordered_schemes()[s], options.items); });
  turns.print_rates("YCSB, million operations a second, one thread (figure 9)", report);
  turns.print_ratios("`phast` by the others in YCSB, and PhaST by them in the paper", report);
}

void tail_latencies(const OrderedOptions& options, Report& report) {
  constexpr double kQuantiles[] = {0.5, 0.9, 0.975, 0.99, 0.999};
  // The median of the runs, for each map, workload and quantile.
  for (const bool load : {true, false}) {
    std::vector<std::vector<std::vector<double>>> found(kOrderedCount);
    for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
      for (std::size_t s = 0; s < kOrderedCount; ++s) {
        Records of(ordered_schemes()[s], options.items);
        Histogram histogram = latencies(of.items(), [&] { return of.insert(); });
        if (!load) histogram = latencies(of.items(), [&] { return of.read(of.zipfian()); });
        found[s].resize(std::size(kQuantiles));
        for (std::size_t q = 0; q < std::size(kQuantiles); ++q) {
          found[s][q].push_back(static_cast<double>(histogram.percentile(kQuantiles[q])));
        }
      }
    }
    std::vector<std::string> columns{"map"};
    for (const double quantile : kQuantiles) columns.push_back(fmt::format("{} %", quantile * 100));
    report.heading(fmt::format("Latency in ns that the part of the operations does not exceed, {} "
                               "(figure 10)",
                               load ? "load" : "workload C"),
                   columns);
    for (std::size_t s = 0; s < kOrderedCount; ++s) {
      std::vector<std::string> cells{ordered_schemes()[s].name};
      for (const auto& values : found[s]) cells.push_back(fmt::format("{:.0f}", median(values)));
      report.row(cells);
    }
  }
}

}  // namespace perdure::paper
