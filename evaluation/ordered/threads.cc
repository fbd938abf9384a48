// `phast` and FAST-FAIR with more threads (figures 11 a to c and 12 of PhaST's paper). Beyond the
// cores of the machine the threads take turns, so that the tables tell what waiting for a
// descheduled thread costs.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/workloads/distributions.h"
#include "evaluation/ordered/figures.h"
#include "evaluation/ordered/measure.h"
#include "evaluation/parallel.h"

namespace perdure::paper {
namespace {

// A map with the first `records` keys, all of value_of(key, 0).
class Shared {
 public:
  // `room`: how many entries there will be.
  Shared(const OrderedScheme& scheme, std::uint64_t room) {
    open_for(memory_, room);
    map_ = scheme.make(memory_);
  }

  bool insert(std::uint64_t n) { return insert_entry(*map_, n); }
  bool read(std::uint64_t n) { return read_entry(*map_, n); }
  bool update(std::uint64_t n) { return update_entry(*map_, n); }
  Figure load(std::uint64_t records, std::uint32_t threads) {
    return measure(records, threads, [this](std::uint64_t n) { return insert(n); });
  }
  void must_have(std::uint64_t records) {
    std::uint64_t found = 0;
    map_->scan(0, ~std::uint64_t{0}, [&](Word, Word) { ++found; });
    require(found == records, "the number of items is wrong");
    map_->must_be_sound();
  }

 private:
  bench::MemoryHeap memory_;
  std::unique_ptr<OrderedMap> map_;
};

// Inserts and searches as in figure 7. Then one insert for four searches, from the first half of
// the entries on, as in the paper, in as many operations.
std::vector<Figure> operations_by(const OrderedScheme& scheme, std::uint32_t threads,
                                  std::uint64_t items) {
  std::vector<Figure> figures;
  {
    Shared map(scheme, 2 * items);
    map.load(items, threads);
    figures.push_back(
        measure(items, threads, [&](std::uint64_t i) { return map.insert(items + i); }));
    figures.push_back(
        measure(items, threads, [&](std::uint64_t i) { return map.read(scatter(i, 2 * items)); }));
    map.must_have(2 * items);
  }
  Shared map(scheme, 2 * items);
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

std::vector<Figure> ycsb_by(const OrderedScheme& scheme, std::uint32_t threads,
                            const Draws& draws) {
  const std::uint64_t items = draws.a.size();
  Shared map(scheme, items);
  std::vector<Figure> figures{map.load(items, threads)};
  for (const auto* steps : {&draws.a, &draws.c}) {
    figures.push_back(
        measure(items, threads, [&](std::uint64_t i) { return act(map, (*steps)[i]); }));
  }
  map.must_have(items);
  return figures;
}

std::string on_cores() { return fmt::format("on {} processors", RealPlatform::cores()); }

// The two maps with as many threads, one right after the other.
class Beside {
 public:
  Beside(const OrderedOptions& options, std::vector<std::string> phases) : options_(options) {
    for (Turns* turns : {&ours_, &theirs_, &ratios_}) {
      turns->kind = "threads";
      turns->phases = phases;
      for (const std::uint32_t threads : options.threads) {
        turns->schemes.push_back(std::to_string(threads));
      }
      turns->runs.resize(options.threads.size());
    }
  }
  // `run` gets a scheme and a number of threads, and returns a figure for each phase.
  template <class F>
  void take(F run) {
    ours_.take(options_.runs, [&](std::size_t t) {
      theirs_.runs[t].push_back(run(shared_schemes()[1], options_.threads[t]));
      return run(shared_schemes()[0], options_.threads[t]);
    });
  }
  void print(const std::string& what, const std::string& figures, Report& report) {
    ours_.print_rates(fmt::format("{} of `phast` beside FAST-FAIR {}, by threads ({})", what,
                                  on_cores(), figures),
                      report);
    theirs_.print_rates(fmt::format("{} of FAST-FAIR beside `phast` {}, by threads ({})", what,
                                    on_cores(), figures),
                        report);
    for (std::size_t t = 0; t < ours_.runs.size(); ++t) {
      ratios_.runs[t] = ours_.runs[t];
      for (std::size_t turn = 0; turn < ours_.runs[t].size(); ++turn) {
        for (std::size_t phase = 0; phase < ours_.phases.size(); ++phase) {
          ratios_.runs[t][turn][phase].mops /= theirs_.runs[t][turn][phase].mops;
        }
      }
    }
    ratios_.print_rates(
        fmt::format("`phast` by FAST-FAIR with as many threads {} ({})", on_cores(), figures),
        report);
  }

 private:
  const OrderedOptions& options_;
  Turns ours_;
  Turns theirs_;
  Turns ratios_;  // rates of `phast` by those of FAST-FAIR
};

}  // namespace

void operations_by_threads(const OrderedOptions& options, Report& report) {
  Beside maps(options, {"insert", "search", "one insert, four searches"});
  maps.take([&](const OrderedScheme& scheme, std::uint32_t threads) {
    return operations_by(scheme, threads, options.items);
  });
  maps.print("Million operations a second", "figures 11 a to c", report);
}

void ycsb_by_threads(const OrderedOptions& options, Report& report) {
  const Draws draws(options.items);
  Beside maps(options, {"load", "A", "C"});
  maps.take([&](const OrderedScheme& scheme, std::uint32_t threads) {
    return ycsb_by(scheme, threads, draws);
  });
  maps.print("YCSB, million operations a second", "figures 12 a, c, e", report);
}

void latencies_by_threads(const OrderedOptions& options, Report& report) {
  const Draws draws(options.items);
  struct Pair {
    const OrderedScheme* scheme;
    std::uint32_t threads;
  };
  std::vector<Pair> pairs;
  std::vector<std::string> names;
  for (const std::uint32_t threads : options.threads) {
    if (threads != 2 && threads != 16) continue;  // the paper's
    for (const OrderedScheme& scheme : shared_schemes()) {
      pairs.push_back({&scheme, threads});
      names.push_back(fmt::format("{}, {}", scheme.name, threads));
    }
  }
  if (pairs.empty()) return;
  for (const char* workload : {"load", "A", "C"}) {
    Quantiles found{
        .kind = "map, threads", .schemes = names, .quantiles = {0.5, 0.9, 0.975, 0.99, 0.999}};
    found.take(options.runs, [&](std::size_t p) {
      const std::uint32_t threads = pairs[p].threads;
      Shared map(*pairs[p].scheme, options.items);
      if (*workload == 'l') {
        return latencies(options.items, threads, [&](std::uint64_t i) { return map.insert(i); });
      }
      map.load(options.items, threads);
      const auto& steps = *workload == 'A' ? draws.a : draws.c;
      return latencies(options.items, threads, [&](std::uint64_t i) { return act(map, steps[i]); });
    });
    found.print(fmt::format("Latency in ns that the part of the operations does not exceed, "
                            "{}, beside FAST-FAIR, {} (figures 12 b, d, f)",
                            workload, on_cores()),
                report);
  }
}

}  // namespace perdure::paper
