// YCSB with one thread (figures 9 and 10 of PhaST's paper, table 2), with YCSB's own distributions.
#include <fmt/core.h>

#include <chrono>
#include <vector>

#include "bench/harness/histogram.h"
#include "bench/workloads/distributions.h"
#include "bench/workloads/random.h"
#include "evaluation/ordered/figures.h"
#include "evaluation/ordered/measure.h"

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

  bool insert() { return insert_entry(*map_, records_++); }
  bool read(std::uint64_t record) { return read_entry(*map_, record); }
  bool update(std::uint64_t record) { return update_entry(*map_, record); }
  bool scan(std::uint64_t record, std::uint64_t limit) {
    const Word from = uniform_key(record);
    Word last = from;
    std::uint64_t seen = 0;
    bool right = true;
    map_->scan(from, limit, [&](Word key, Word value) {
      right &= (seen++ == 0 ? key == from : key > last) && is_of(value, key);
      last = key;
    });
    return right && seen > 0 && seen <= limit;
  }

  // Chooses a loaded record. YCSB's zipfian distribution prefers a few records.
  std::uint64_t zipfian() { return zipfian_.next(random_); }
  // Chooses among the first `records`; the last ones are chosen most often.
  std::uint64_t latest(std::uint64_t records) { return latest_.next(records, random_) - 1; }
  std::uint64_t below(std::uint64_t n) { return random_.below(n); }
  std::uint64_t items() const noexcept { return items_; }
  std::uint64_t records() const noexcept { return records_; }

 private:
  std::uint64_t items_;
  std::uint64_t records_ = 0;
  bench::MemoryHeap memory_;
  std::unique_ptr<OrderedMap> map_;
  Random random_{1};
  bench::ScrambledZipfian zipfian_{items_};
  bench::Latest latest_{items_};
};

enum class Action : std::uint8_t { insert, read, update, read_update, scan };
struct Step {
  Action action;
  std::uint64_t record = 0;
  std::uint64_t limit = 0;
};

bool act(Records& of, const Step& step) {
  switch (step.action) {
    case Action::insert:
      return of.insert();
    case Action::read:
      return of.read(step.record);
    case Action::update:
      return of.update(step.record);
    case Action::read_update:
      return of.read(step.record) && of.update(step.record);
    case Action::scan:
      return of.scan(step.record, step.limit);
  }
  return false;
}

// Draws the operations of a workload, before a clock starts: one in `rare_in` is of the first kind,
// the others are of the second.
std::vector<Step> draw(Records& of, std::uint64_t count, Action rare, std::uint64_t rare_in,
                       Action other, bool latest = false) {
  std::vector<Step> steps;
  std::uint64_t records = of.records();
  for (std::uint64_t i = 0; i < count; ++i) {
    const Action action = of.below(rare_in) == 0 ? rare : other;
    if (action == Action::insert) {
      steps.push_back({action});
      ++records;
    } else {
      steps.push_back({action, latest ? of.latest(records) : of.zipfian(),
                       action == Action::scan ? 1 + of.below(kLongestScan) : 0});
    }
  }
  return steps;
}

// As YCSB's documentation asks: the workloads that insert come last.
std::vector<Figure> run(const OrderedScheme& scheme, std::uint64_t items) {
  Records of(scheme, items);
  std::vector<Figure> figures;
  const auto phase = [&](const std::vector<Step>& steps) {
    figures.push_back(measure(steps.size(), [&](std::uint64_t i) { return act(of, steps[i]); }));
  };
  using enum Action;
  phase(std::vector<Step>(items, Step{insert}));
  phase(draw(of, items, update, 2, read));
  phase(draw(of, items, update, 20, read));
  phase(draw(of, items, read, 1, read));
  phase(draw(of, items, read_update, 2, read));
  phase(draw(of, items, insert, 20, read, true));
  phase(draw(of, items / 10, insert, 20, scan));
  return figures;
}

// Of each operation, with the time that the clock takes.
Histogram latencies(Records& of, const std::vector<Step>& steps) {
  using Clock = std::chrono::steady_clock;
  Histogram histogram;
  for (const Step& step : steps) {
    const auto before = Clock::now();
    const bool right = act(of, step);
    const auto after = Clock::now();
    require(right, "an operation returned a wrong result");
    histogram.record(static_cast<std::uint64_t>((after - before).count()));
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
  for (const bool load : {true, false}) {
    Quantiles found{.kind = "map",
                    .schemes = names_of(ordered_schemes()),
                    .quantiles = {0.5, 0.9, 0.975, 0.99, 0.999}};
    found.take(options.runs, [&](std::size_t s) {
      Records of(ordered_schemes()[s], options.items);
      Histogram loads = latencies(of, std::vector<Step>(of.items(), Step{Action::insert}));
      if (load) return loads;
      return latencies(of, draw(of, of.items(), Action::read, 1, Action::read));
    });
    found.print(fmt::format("Latency in ns that the part of the operations does not exceed, {} "
                            "(figure 10)",
                            load ? "load" : "workload C"),
                report);
  }
}

}  // namespace perdure::paper
