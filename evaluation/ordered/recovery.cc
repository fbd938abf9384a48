// Recovery by threads (figure 15 d of PhaST's paper), and the memory beside the leaves (table 3).
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "evaluation/ordered/figures.h"
#include "evaluation/ordered/measure.h"
#include "evaluation/ordered/phast_map.h"
#include "evaluation/pool_of_processes.h"
#include "index/phast/leaf_table.h"
#include "perdure/perdure.h"

namespace perdure::paper {
namespace {

constexpr std::uint32_t kThreads[] = {1, 2, 4};
using Entries = perdure::OrderedMap<std::uint64_t, std::uint64_t>;

// Opens the pool in a process that is killed. Returns the seconds of the open.
template <class F>
double open(const PoolOfProcesses& pool, std::uint32_t threads, F use) {
  return pool.open({.durability = Durability::emulated, .recovery_threads = threads}, End::killed,
                   [&](Pool& opened) {
                     Entries entries =
                         must(opened.ordered_map<std::uint64_t, std::uint64_t>("paper"));
                     use(entries);
                   });
}

void must_hold(Entries& entries, std::uint64_t items) {
  require(entries.stats().entries == items, "the number of items is wrong after the recovery");
  for (std::uint64_t n = 0; n < items; n += 7) {
    const Word key = uniform_key(n);
    std::uint64_t value = 0;
    require(entries.read(key, [&](std::uint64_t found) { value = found; }).present() &&
                value == value_of(key, 0),
            "an entry is lost after the recovery");
  }
}

}  // namespace

void recovery_by_threads(const OrderedOptions& options, Report& report) {
  const std::uint64_t items = 2 * options.items;
  const PoolOfProcesses pool(options.folder, "perdure-paper-ordered");
  open(pool, 1, [&](Entries& entries) {
    for (std::uint64_t n = 0; n < items; ++n) {
      const Word key = uniform_key(n);
      require(entries.insert(key, value_of(key, 0)).absent(), "an insert did not insert");
    }
  });
  std::array<std::vector<double>, std::size(kThreads)> milliseconds;
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    for (std::size_t t = 0; t < std::size(kThreads); ++t) {
      const double seconds =
          open(pool, kThreads[t], [&](Entries& entries) { must_hold(entries, items); });
      milliseconds[t].push_back(seconds * 1e3);
    }
  }
  report.heading(fmt::format("Milliseconds of an open after a kill, {} entries, on {} processors "
                             "(figure 15 d)",
                             items, RealPlatform::cores()),
                 {"threads", "median", "range"});
  for (std::size_t t = 0; t < std::size(kThreads); ++t) {
    const auto [least, most] = std::ranges::minmax(milliseconds[t]);
    report.row({std::to_string(kThreads[t]), fmt::format("{:.1f}", median(milliseconds[t])),
                fmt::format("{:.1f} to {:.1f}", least, most)});
  }
}

void dram_bytes(const OrderedOptions& options, Report& report) {
  const std::uint64_t items = 2 * options.items;
  bench::MemoryHeap memory;
  open_for(memory, items);
  const std::unique_ptr<PhastMap> map = PhastMap::make(memory, rows::phast);
  for (std::uint64_t n = 0; n < items; ++n) {
    require(insert_entry(*map, n), "a key was present before its insert");
  }
  const EngineStats stats = map->stats();
  require(stats.entries == items, "the number of items is wrong");
  using Descriptor =
      phast::Descriptor<Traits<RealPlatform, phast::IntegerCodec, phast::DefaultGeometry>>;
  const std::uint64_t descriptors = stats.leaves * sizeof(Descriptor);
  require(stats.dram_bytes > descriptors, "the bytes in DRAM are wrong");

  report.heading(fmt::format("DRAM beside the leaves, {} entries (table 3)", items),
                 {"structure", "nodes", "bytes per entry"});
  const auto count = static_cast<double>(items);
  const auto row = [&](const char* name, double nodes, double bytes) {
    report.row({name, fmt::format("{:.0f}", nodes), fmt::format("{:.2f}", bytes / count)});
  };
  // The paper's formulas.
  const auto computed = [&](const char* name, double per_node, double bytes) {
    const double nodes = std::ceil(count / per_node);
    row(name, nodes, nodes * (bytes + 8 * std::ceil(std::log2(nodes))));
  };
  computed("a skiplist, computed", 2, 16);
  computed("NV-Skiplist, computed", 0.75 * 64, 16);
  computed("PhaST, computed", 0.75 * 56 * 0.75 * 128, 3096);
  row("`phast`: inner nodes, index caches, shortcuts", static_cast<double>(stats.inner_nodes),
      static_cast<double>(stats.dram_bytes - descriptors));
  row("`phast`: descriptors of the leaves", static_cast<double>(stats.leaves),
      static_cast<double>(descriptors));
}

}  // namespace perdure::paper
