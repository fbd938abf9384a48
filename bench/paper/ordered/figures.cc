#include "bench/paper/ordered/figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/workloads/random.h"
#include "perdure/pool.h"

namespace perdure::paper {
namespace {

constexpr std::uint64_t kScanned = 50;
constexpr std::array kPhases = {"insert", "search", "update", "scan of 50", "delete"};
enum Phase : std::size_t { kInsert, kSearch, kUpdate, kScan, kErase };

// Keys and values are uniform. A value differs from that of every other key, as pointers do.
Word key_of(std::uint64_t n) noexcept { return bench::mix64(n + 1); }
Word value_of(Word key, std::uint64_t generation) noexcept { return key * 2 + generation; }

struct Figure {
  double mops = 0;
  double flushes = 0;
  double fences = 0;
};
using Figures = std::array<Figure, kPhases.size()>;

template <class F>
Figure measure(std::uint64_t n, F operation) {
  bool all = true;
  const Counters before = thread_counters();
  const std::uint64_t begin = cpu_ns();
  for (std::uint64_t i = 0; i < n; ++i) all &= operation(i);
  const auto ns = static_cast<double>(cpu_ns() - begin);
  require(all, "an operation returned a wrong result");
  const auto count = static_cast<double>(n);
  return {count * 1e3 / ns, static_cast<double>(thread_counters().flushes - before.flushes) / count,
          static_cast<double>(thread_counters().fences - before.fences) / count};
}

// As in the paper: half of the entries are there before inserts are measured, all before the rest.
Figures run(const OrderedScheme& scheme, std::uint64_t items) {
  bench::MemoryHeap memory;
  constexpr std::uint64_t kBytesPerItem = 180;  // WORT takes the most
  must(memory.open(64_KiB, 2 * items * kBytesPerItem / 64_KiB + 1024));
  memory.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
  const std::unique_ptr<OrderedMap> map = scheme.make(memory);
  const std::uint64_t all = 2 * items;
  for (std::uint64_t n = 0; n < items; ++n) {
    const Word key = key_of(n);
    require(must(map->insert(key, value_of(key, 0))), "a key was present before its insert");
  }
  const auto chosen = [&](std::uint64_t i) { return key_of(scatter(i, all)); };
  Figures figures;
  figures[kInsert] = measure(items, [&](std::uint64_t i) {
    const Word key = key_of(items + i);
    return must(map->insert(key, value_of(key, 0)));
  });
  figures[kSearch] = measure(items, [&](std::uint64_t i) {
    Word value = 0;
    const Word key = chosen(i);
    return map->find(key, value) && value == value_of(key, 0);
  });
  figures[kUpdate] = measure(items, [&](std::uint64_t i) {
    const Word key = chosen(i);
    return must(map->update(key, value_of(key, 1)));
  });
  figures[kScan] = measure(items, [&](std::uint64_t i) {
    const Word from = chosen(i);
    Word next = from;
    bool right = true;
    std::uint64_t seen = 0;
    map->scan(from, kScanned, [&](Word key, Word value) {
      right &= seen++ == 0 ? key == from : key > next;
      right &= value / 2 == (value_of(key, 0) / 2);
      next = key;
    });
    return right && seen > 0 && seen <= kScanned;
  });
  figures[kErase] = measure(items, [&](std::uint64_t i) { return must(map->erase(chosen(i))); });
  // What is left is what was not deleted.
  std::uint64_t left = 0;
  map->scan(0, ~std::uint64_t{0}, [&](Word, Word) { ++left; });
  require(left == all - items, "the number of items is wrong");
  return figures;
}

}  // namespace

void ordered_figures(const OrderedOptions& options, Report& report) {
  std::array<std::vector<Figures>, kOrderedCount> runs;
  for (std::uint32_t turn = 0; turn < options.runs; ++turn) {
    for (std::size_t s = 0; s < kOrderedCount; ++s) {
      runs[s].push_back(run(ordered_schemes()[s], options.items));
    }
  }
  const auto rates = [&](std::size_t scheme, std::size_t phase) {
    std::vector<double> values;
    for (const Figures& figures : runs[scheme]) values.push_back(figures[phase].mops);
    return values;
  };
  const std::vector<std::string> columns(kPhases.begin(), kPhases.end());
  const auto head = [&](const char* title) {
    std::vector<std::string> all{"map"};
    all.insert(all.end(), columns.begin(), columns.end());
    report.heading(title, all);
  };
  head("Million operations a second, one thread (figure 7)");
  for (std::size_t s = 0; s < kOrderedCount; ++s) {
    std::vector<std::string> cells{ordered_schemes()[s].name};
    for (std::size_t phase = 0; phase < kPhases.size(); ++phase) {
      const std::vector<double> values = rates(s, phase);
      const auto [least, most] = std::ranges::minmax(values);
      cells.push_back(fmt::format("{:.2f} ({:.2f} to {:.2f})", median(values), least, most));
    }
    report.row(cells);
  }
  head("`phast` by the others, and PhaST by them in the paper");
  for (std::size_t s = 1; s < kOrderedCount; ++s) {
    const OrderedScheme& scheme = ordered_schemes()[s];
    std::vector<std::string> cells{scheme.name};
    for (std::size_t phase = 0; phase < kPhases.size(); ++phase) {
      const std::vector<double> ours = rates(0, phase);
      const std::vector<double> theirs = rates(s, phase);
      std::vector<double> ratios;
      for (std::size_t turn = 0; turn < ours.size(); ++turn) {
        ratios.push_back(ours[turn] / theirs[turn]);
      }
      const std::optional<double> paper = phase == kInsert   ? scheme.paper.insert
                                          : phase == kSearch ? scheme.paper.search
                                          : phase == kScan   ? scheme.paper.scan
                                                             : std::nullopt;
      const double ratio = median(ratios);
      const bool short_of = paper && ratio < *paper;
      cells.push_back(fmt::format("{0}{1:.2f}{0}{2}", short_of ? "**" : "", ratio,
                                  paper ? fmt::format(" ({:.2f})", *paper) : ""));
    }
    report.row(cells);
  }
  head("Write-backs and fences of an operation");
  for (std::size_t s = 0; s < kOrderedCount; ++s) {
    std::vector<std::string> cells{ordered_schemes()[s].name};
    for (const Figure& figure : runs[s].front()) {
      cells.push_back(fmt::format("{:.2f}, {:.2f}", figure.flushes, figure.fences));
    }
    report.row(cells);
  }
}

}  // namespace perdure::paper
