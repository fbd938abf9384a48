// In the place of table 2, which counts the links that a recovery makes anew: the time of an open
// after a kill and after a close, by items.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "evaluation/pool_of_processes.h"
#include "evaluation/skiplists/figures.h"
#include "perdure/perdure.h"

namespace perdure::paper {
namespace {

constexpr std::size_t kSizes = 3;
constexpr std::pair<perdure::Engine, const char*> kEngines[] = {{perdure::Engine::as, "as"},
                                                                {perdure::Engine::ascs, "ascs"}};
constexpr std::pair<End, const char*> kEnds[] = {{End::killed, "kill"}, {End::closed, "close"}};

using Key = std::array<char, 16>;
using Entries = OrderedMap<Key, std::uint64_t>;

// Random keys, as the other figures have them.
Key key_of(std::uint64_t n) {
  const ListKey halves = data_sets()[0].key(n);
  const std::uint64_t bytes[2] = {__builtin_bswap64(halves[0]), __builtin_bswap64(halves[1])};
  Key key;
  std::memcpy(key.data(), bytes, sizeof(bytes));
  return key;
}

// Opens the pool in a process that ends as `end` says. Returns milliseconds.
template <class F>
double open(const PoolOfProcesses& pool, perdure::Engine engine, End end, F use) {
  const double seconds = pool.open({.durability = Durability::emulated}, end, [&](Pool& opened) {
    Entries entries = must(opened.ordered_map<Key, std::uint64_t>("paper", {.engine = engine}));
    use(entries);
  });
  return seconds * 1e3;
}

void must_hold(Entries& entries, std::uint64_t items) {
  require(entries.stats().entries == items, "the number of items is wrong after an open");
  for (std::uint64_t n = 0; n < items; n += 7) {
    const auto found = must(entries.get(key_of(n)));
    require(found && *found == n, "an item is lost after an open");
  }
}

// By size, of an engine.
using Opens = std::array<std::vector<double>, kSizes>;
std::array<Opens, std::size(kEnds)> measure(const ListOptions& options, perdure::Engine engine) {
  std::array<Opens, std::size(kEnds)> opens;
  const PoolOfProcesses pool(options.folder, "perdure-paper-skiplist");
  std::uint64_t count = 0;
  for (std::size_t size = 0; size < kSizes; ++size) {
    const std::uint64_t items = options.items >> (kSizes - 1 - size);
    open(pool, engine, kEnds[0].first, [&](Entries& entries) {
      for (std::uint64_t n = count; n < items; ++n) {
        require(entries.insert(key_of(n), n).absent(), "a key was present before its insert");
      }
    });
    count = items;
    // An open is of what the process before it has left.
    for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
      for (std::size_t end = 0; end < std::size(kEnds); ++end) {
        const End next = kEnds[(end + 1) % std::size(kEnds)].first;
        opens[end][size].push_back(
            open(pool, engine, next, [&](Entries& entries) { must_hold(entries, items); }));
      }
    }
  }
  return opens;
}

}  // namespace

void openings(const ListOptions& options, Report& report) {
  std::vector<std::string> columns = {"list", "after a"};
  for (std::size_t size = 0; size < kSizes; ++size) {
    columns.push_back(fmt::format("{} items", options.items >> (kSizes - 1 - size)));
  }
  report.heading("Milliseconds of an open, random keys (beside table 2)", columns);
  for (const auto& [engine, name] : kEngines) {
    const auto opens = measure(options, engine);
    for (std::size_t end = 0; end < std::size(kEnds); ++end) {
      std::vector<std::string> row = {name, kEnds[end].second};
      for (const std::vector<double>& times : opens[end]) {
        const auto [least, most] = std::ranges::minmax(times);
        row.push_back(fmt::format("{:.1f} ({:.1f} to {:.1f})", median(times), least, most));
      }
      report.row(row);
    }
  }
}

}  // namespace perdure::paper
