// What an insert spends its time with (figures 2 b and 8 a of PhaST's paper): to find the leaf, to
// write the entry, to make it durable. No clock runs inside an insert. Blocks of three kinds
// alternate on one map: lookups of absent keys, inserts whose write-backs and fences do nothing,
// and whole inserts.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "evaluation/ordered/figures.h"
#include "evaluation/ordered/measure.h"
#include "evaluation/ordered/skip_list.h"

namespace perdure::paper {
namespace {

constexpr std::uint64_t kBlock = 500;  // long for the clock, short for the caches
constexpr std::uint64_t kPart = 5;     // one insert is measured for so many before
enum Kind : std::uint8_t { lookup, unfenced, whole };
using Times = std::array<double, 3>;  // ns of an operation, by kind

void write_back(bench::MemoryHeap& memory, bool really) {
  memory.platform().configure(really ? FlushMode::cache_line : FlushMode::none,
                              best_flush_instruction(), 0);
}

Times run(const OrderedScheme& scheme, std::uint64_t items) {
  bench::MemoryHeap memory;
  open_for(memory, 2 * items);
  const std::unique_ptr<OrderedMap> map = scheme.make(memory);
  for (std::uint64_t n = 0; n < items; ++n) {
    require(insert_entry(*map, n), "a key was present before its insert");
  }
  Times ns{};
  const std::uint64_t blocks = std::max(items / kPart / (2 * kBlock), std::uint64_t{1});
  std::uint64_t fresh = items;
  const auto add = [&](Kind kind, auto&& operation) {
    const Figure figure = measure(kBlock, operation);
    ns[kind] += 1e3 / figure.mops / static_cast<double>(blocks);
    require(kind == whole ? figure.flushes > 0 : figure.flushes == 0, "a wrong write-back");
  };
  for (std::uint64_t block = 0; block < blocks; ++block) {
    add(lookup, [&](std::uint64_t i) {
      Word value = 0;
      return !map->find(uniform_key(2 * items + block * kBlock + i), value);
    });
    for (const Kind kind : {unfenced, whole}) {
      write_back(memory, kind == whole);
      add(kind, [&](std::uint64_t i) { return insert_entry(*map, fresh + i); });
      fresh += kBlock;
    }
  }
  for (std::uint64_t n = items; n < fresh; ++n) {
    require(read_entry(*map, n), "an entry is lost");
  }
  return ns;
}

std::unique_ptr<OrderedMap> make_skip_list(bench::MemoryHeap& memory) {
  auto list = std::make_unique<SkipList<RealPlatform>>(memory.platform(), memory.heap());
  must(list->open());
  return list;
}

}  // namespace

void skiplist_writes(const OrderedOptions& options, Report& report) {
  std::array<std::vector<double>, 3> found;
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    const Times ns = run({"skiplist", &make_skip_list}, options.items);
    found[0].push_back(ns[unfenced] - ns[lookup]);
    found[1].push_back(ns[whole] - ns[lookup]);
    found[2].push_back(found[1].back() / found[0].back());
  }
  report.heading("Write time of an insert into a skiplist in ns, one thread (figure 2 b)",
                 {"nothing written back", "nodes and links written back", "ratio", "the paper"});
  std::vector<std::string> cells;
  for (const std::vector<double>& values : found) {
    const auto [least, most] = std::ranges::minmax(values);
    cells.push_back(fmt::format("{:.1f} ({:.1f} to {:.1f})", median(values), least, most));
  }
  cells.emplace_back("27");
  report.row(cells);
}

void insert_parts(const OrderedOptions& options, Report& report) {
  std::array<std::array<std::vector<double>, 4>, kOrderedCount> parts;
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    for (std::size_t s = 0; s < kOrderedCount; ++s) {
      const Times ns = run(ordered_schemes()[s], options.items);
      parts[s][0].push_back(ns[lookup]);
      parts[s][1].push_back(ns[unfenced] - ns[lookup]);
      parts[s][2].push_back(ns[whole] - ns[unfenced]);
      parts[s][3].push_back(ns[whole]);
    }
  }
  report.heading("Parts of an insert in ns, one thread (figure 8 a)",
                 {"map", "leaf search", "entry write", "flush", "insert"});
  for (std::size_t s = 0; s < kOrderedCount; ++s) {
    std::vector<std::string> cells{ordered_schemes()[s].name};
    for (const std::vector<double>& values : parts[s]) {
      cells.push_back(fmt::format("{:.0f}", median(values)));
    }
    report.row(cells);
  }
}

}  // namespace perdure::paper
