// `phast` with more threads (figures 11 a to c and 12 of PhaST's paper). The paper compares it with
// FAST-FAIR; the FAST-FAIR of this folder has no locks. Beyond the cores of the machine the threads
// take turns, so that the tables tell what waiting for a descheduled thread costs.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/workloads/distributions.h"
#include "evaluation/ordered/figures.h"
#include "evaluation/ordered/measure.h"
#include "evaluation/ordered/phast_map.h"
#include "evaluation/parallel.h"

namespace perdure::paper {
namespace {

constexpr std::uint32_t kThreads[] = {1, 2, 4, 8, 16, 32};

// `phast` with the first `records` keys, all of value_of(key, 0).
class Shared {
 public:
  // `room`: how many entries there will be.
  explicit Shared(std::uint64_t room) {
    open_for(memory_, room);
    map_ = PhastMap::make(memory_, rows::phast);
  }

  bool insert(std::uint64_t n) { return insert_entry(*map_, n); }
  bool read(std::uint64_t n) { return read_entry(*map_, n); }
  bool update(std::uint64_t n) { return update_entry(*map_, n); }
  Figure load(std::uint64_t records, std::uint32_t threads) {
    return measure(records, threads, [this](std::uint64_t n) { return insert(n); });
  }
  void must_have(std::uint64_t records) {
    require(map_->stats().entries == records, "the number of items is wrong");
    map_->must_be_sound();
  }

 private:
  bench::MemoryHeap memory_;
  std::unique_ptr<PhastMap> map_;
};

// Inserts and searches as in figure 7. Then one insert for four searches, from the first half of
// the entries on, as in the paper, in as many operations.
std::vector<Figure> operations_by(std::uint32_t threads, std::uint64_t items) {
  std::vector<Figure> figures;
  {
    Shared map(2 * items);
    map.load(items, threads);
    figures.push_back(
        measure(items, threads, [&](std::uint64_t i) { return map.insert(items + i); }));
    figures.push_back(
        measure(items, threads, [&](std::uint64_t i) { return map.read(scatter(i, 2 * items)); }));
    map.must_have(2 * items);
  }
  Shared map(2 * items);
  map.load(items, threads);
  figures.push_back(measure(items, threads, [&](std::uint64_t i) {
    return i % 5 == 0 ? map.insert(items + i / 5) : map.read(scatter(i, items));
  }));
  map.must_have(items + (items + 4) / 5);
  return figures;
}

// Workload A, one update in two, or C, reads only. Drawn before a clock starts.
struct Draws {
  struct Step {
    std::uint64_t record;
    bool update;
  };
  std::vector<Step> a;
  std::vector<Step> c;

  explicit Draws(std::uint64_t items) {
    const bench::ScrambledZipfian zipfian(items);
    bench::Random random(1);
    for (std::uint64_t i = 0; i < items; ++i) {
      a.push_back({zipfian.next(random), random.below(2) == 0});
      c.push_back({zipfian.next(random), false});
    }
  }
};
bool act(Shared& map, const Draws::Step& step) {
  return step.update ? map.update(step.record) : map.read(step.record);
}

std::vector<Figure> ycsb_by(std::uint32_t threads, const Draws& draws) {
  const std::uint64_t items = draws.a.size();
  Shared map(items);
  std::vector<Figure> figures{map.load(items, threads)};
  for (const auto* steps : {&draws.a, &draws.c}) {
    figures.push_back(
        measure(items, threads, [&](std::uint64_t i) { return act(map, (*steps)[i]); }));
  }
  map.must_have(items);
  return figures;
}

std::vector<std::string> names_of_threads() {
  std::vector<std::string> names;
  for (const std::uint32_t threads : kThreads) names.push_back(std::to_string(threads));
  return names;
}
std::string on_cores() { return fmt::format("on {} processors", RealPlatform::cores()); }

void print_latencies(const OrderedOptions& options, const Draws& draws, Report& report) {
  static constexpr std::uint32_t kFew[] = {2, 16};
  for (const char* workload : {"load", "A", "C"}) {
    Quantiles found{
        .kind = "threads", .schemes = {"2", "16"}, .quantiles = {0.5, 0.9, 0.975, 0.99, 0.999}};
    found.take(options.runs, [&](std::size_t t) {
      Shared map(options.items);
      if (*workload == 'l') {
        return latencies(options.items, kFew[t], [&](std::uint64_t i) { return map.insert(i); });
      }
      map.load(options.items, kFew[t]);
      const auto& steps = *workload == 'A' ? draws.a : draws.c;
      return latencies(options.items, kFew[t], [&](std::uint64_t i) { return act(map, steps[i]); });
    });
    found.print(fmt::format("Latency in ns that the part of the operations does not exceed, "
                            "{}, {} (figures 12 b, d, f)",
                            workload, on_cores()),
                report);
  }
}

}  // namespace

void operations_by_threads(const OrderedOptions& options, Report& report) {
  Turns turns{.kind = "threads",
              .schemes = names_of_threads(),
              .phases = {"insert", "search", "one insert, four searches"}};
  turns.take(options.runs,
             [&](std::size_t t) { return operations_by(kThreads[t], options.items); });
  turns.print_rates(
      fmt::format("Million operations a second of `phast` {}, by threads (figures 11 a to c)",
                  on_cores()),
      report);
}

void ycsb_by_threads(const OrderedOptions& options, Report& report) {
  const Draws draws(options.items);
  Turns turns{.kind = "threads", .schemes = names_of_threads(), .phases = {"load", "A", "C"}};
  turns.take(options.runs, [&](std::size_t t) { return ycsb_by(kThreads[t], draws); });
  turns.print_rates(fmt::format("YCSB, million operations a second of `phast` {}, by threads "
                                "(figures 12 a, c, e)",
                                on_cores()),
                    report);
  print_latencies(options, draws, report);
}

}  // namespace perdure::paper
