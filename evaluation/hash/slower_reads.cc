// Figure 13 with slower reads: the lines of the pool that a search reads, those of them that a
// simulated cache does not have, and the time that it would take if each of these cost more. A
// model: the paper's emulator delays a thread by its cache misses, which this program cannot count.
// Here no two misses overlap, and what our engines keep in DRAM is not slowed.
#include <fmt/core.h>

#include <functional>

#include "bench/workloads/random.h"
#include "evaluation/engine_table.h"
#include "evaluation/hash/bch.h"
#include "evaluation/hash/path.h"
#include "evaluation/hash/pfht.h"
#include "evaluation/hash/read_counter.h"
#include "evaluation/hash/two_level.h"
#include "evaluation/timed.h"
#include "index/clevel/clevel.h"

namespace perdure::paper {
namespace {

constexpr double kLoads[] = {0.6, 0.8};  // those of the paper's figure
// In ns. The paper's medium reads a line in 200, its DRAM in 136: 64 more.
constexpr std::uint32_t kAdded[] = {0, 64, 100, 200, 300};

// By load: of a search that finds, and of one that does not.
template <class Cell>
using ByLoad = std::array<std::array<Cell, 2>, std::size(kLoads)>;
using Search = std::function<bool(std::uint64_t)>;

struct Searched {
  std::function<bool(std::uint64_t key)> insert;
  Search find;
  std::uint64_t slots;
};

// Fills the table to each load. `of` gets keys that are all there, or all absent.
template <class Cell, class F>
ByLoad<Cell> at_loads(const Options& options, const Searched& table, F of) {
  ByLoad<Cell> cells;
  std::uint64_t count = 0;
  for (std::size_t load = 0; load < std::size(kLoads); ++load) {
    const auto items = static_cast<std::uint64_t>(kLoads[load] * static_cast<double>(table.slots));
    for (; count < items; ++count) {
      require(table.insert(bench::mix64(count)), "a key was there before");
    }
    for (const bool missing : {false, true}) {
      std::vector<std::uint64_t> keys;
      for (std::uint64_t i = 0; i < options.sample; ++i) {
        keys.push_back(bench::mix64(missing ? (1ULL << 40) + i : scatter(i, count)));
      }
      cells[load][missing ? 1 : 0] =
          of(keys, [&](std::uint64_t key) { return table.find(key) != missing; });
    }
  }
  return cells;
}

Searched searched(Table& table) {
  return {.insert = [&](std::uint64_t key) { return must(table.insert(key, key)); },
          .find =
              [&](std::uint64_t key) {
                std::uint64_t value = 0;
                return must(table.find(key, value));
              },
          .slots = table.slots()};
}

ByLoad<double> times(const Options& options, const Scheme& scheme) {
  Ground ground(options);
  const auto table = must(scheme.make(ground.memory, options.log_slots));
  const auto cells =
      at_loads<double>(options, searched(*table), [&](auto keys, const Search& search) {
        table->settle();
        require(table->grew_at() == 0, "a table grew");
        return timed(keys, search).ns;
      });
  must_be_sound(*table);
  return cells;
}

// Of a search.
struct Lines {
  double all = 0;
  double misses = 0;
};

Lines lines_of_searches(const Options& options, std::span<const std::uint64_t> keys,
                        const Search& search) {
  // The paper's cache, 15 MB, by its tables, 100 million slots; in lines.
  ReadCounter::begin(1ULL << (options.log_slots - 9));
  Lines before;
  for (int pass = 0; pass < 2; ++pass) {  // the cache is empty before the first one
    before = {static_cast<double>(ReadCounter::lines()),
              static_cast<double>(ReadCounter::misses())};
    for (const std::uint64_t key : keys) {
      ReadCounter::begin_search();
      require(search(key), "an operation returned a wrong result");
    }
  }
  const auto count = static_cast<double>(keys.size());
  const Lines lines{(static_cast<double>(ReadCounter::lines()) - before.all) / count,
                    (static_cast<double>(ReadCounter::misses()) - before.misses) / count};
  ReadCounter::begin(0);
  return lines;
}

ByLoad<Lines> lines_at_loads(const Options& options, const Searched& table) {
  return at_loads<Lines>(options, table, [&](auto keys, const Search& search) {
    return lines_of_searches(options, keys, search);
  });
}

using CountedHeap = bench::BasicMemoryHeap<ReadCounter>;
void open(CountedHeap& memory, const Options& options) {
  must(memory.open(64_KiB, std::max<std::uint64_t>(128ULL << options.log_slots, 16_MiB) / 64_KiB));
}

template <auto kMake, std::uint32_t kLogLess>
ByLoad<Lines> lines_of_table(const Options& options) {
  CountedHeap memory;
  open(memory, options);
  const auto table = must(kMake(memory.platform(), memory.heap(), options.log_slots - kLogLess));
  return lines_at_loads(options, searched(*table));
}

// Creates an engine by create(context, kinds, argument). No thread works in the background, so that
// nothing else reads.
template <class Engine, class Argument>
ByLoad<Lines> lines_of_engine(const Options& options, const Argument& argument) {
  CountedHeap memory;
  open(memory, options);
  Background<ReadCounter> background;
  background.set_threads(0);
  const EngineContext<ReadCounter> context{.platform = memory.platform(),
                                           .heap = memory.heap(),
                                           .epochs = memory.epochs(),
                                           .background = background};
  const std::uint64_t root =
      must(Engine::create(context, {KeyKind::integer, ValueKind::word}, argument));
  const auto instance = must(Engine::open(context, root));
  must(instance->recover(false));
  instance->start();
  detail::Index& index = instance->index();
  EngineStats stats;
  index.stats(stats);
  Searched table{.insert =
                     [&](std::uint64_t key) {
                       return must(index.insert({.word = key}, {.word = key, .word_size = 8}));
                     },
                 .find =
                     [&](std::uint64_t key) {
                       return must(index.read({.word = key}, [](const detail::Value&) {}));
                     },
                 .slots = 0};
  for (const LevelStats& level : stats.levels) table.slots += level.slots;
  return lines_at_loads(options, table);
}
ByLoad<Lines> lines_of_level(const Options& options) {
  return lines_of_engine<level::Level<ReadCounter, level::IntegerCodec>>(
      options, LevelOptions{.buckets = 1ULL << (options.log_slots - 3), .auto_shrink = false});
}
ByLoad<Lines> lines_of_clevel(const Options& options) {
  return lines_of_engine<clevel::Clevel<ReadCounter, clevel::IntegerCodec>>(
      options, std::uint64_t{1} << (options.log_slots - 1));
}

// By scheme, as schemes() has them. The last one searches as the one before it.
constexpr ByLoad<Lines> (*kLines[])(const Options&) = {
    &lines_of_level,
    &lines_of_clevel,
    &lines_of_table<&Bch<ReadCounter, 4>::make, 2>,
    &lines_of_table<&Pfht<ReadCounter, 4>::make, 2>,
    &lines_of_table<&Path<ReadCounter>::make, 1>,
    &lines_of_table<&TwoLevel<ReadCounter, 4>::make, 3>,
};
static_assert(std::size(kLines) == kLogged);

}  // namespace

void slower_reads(const Options& options, Report& report) {
  std::vector<std::string> columns = {"load", "table", "lines", "misses"};
  for (const std::uint32_t added : kAdded) columns.push_back(fmt::format("+{} ns", added));
  std::array<ByLoad<double>, kLogged> ns;
  std::array<ByLoad<Lines>, kLogged> lines;
  for (std::size_t s = 0; s < kLogged; ++s) {
    ns[s] = times(options, schemes()[s]);
    lines[s] = kLines[s](options);
  }
  for (const bool missing : {false, true}) {
    report.heading(fmt::format("Latency of {} in ns, if each miss costs more, a model "
                               "(figure 13)",
                               missing ? "missing find" : "find"),
                   columns);
    for (std::size_t load = 0; load < std::size(kLoads); ++load) {
      for (std::size_t s = 0; s < kLogged; ++s) {
        const std::size_t i = missing ? 1 : 0;
        std::vector<std::string> row = {s == 0 ? fmt::format("{:.1f}", kLoads[load]) : "",
                                        schemes()[s].name,
                                        fmt::format("{:.2f}", lines[s][load][i].all),
                                        fmt::format("{:.2f}", lines[s][load][i].misses)};
        for (const std::uint32_t added : kAdded) {
          row.push_back(fmt::format("{:.0f}", ns[s][load][i] + lines[s][load][i].misses * added));
        }
        report.row(row);
      }
    }
  }
}

}  // namespace perdure::paper
