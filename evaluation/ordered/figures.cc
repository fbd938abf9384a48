#include "evaluation/ordered/figures.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "evaluation/ordered/measure.h"

namespace perdure::paper {
namespace {

constexpr std::uint64_t kScanned = 50;
using KeyOf = Word (*)(std::uint64_t n);

// The keys of one hundredth of the key space, so that one of the paper's partitions has them all.
Word crowded_key(std::uint64_t n) noexcept {
  constexpr Word kSpace = ~Word{0} / 100;
  return 37 * kSpace + uniform_key(n) % kSpace;
}

// As in the paper: `before` entries are there when inserts are measured, all when the rest is.
std::vector<Figure> run(const OrderedScheme& scheme, std::uint64_t before, std::uint64_t items,
                        KeyOf key_of) {
  bench::MemoryHeap memory;
  const std::uint64_t all = before + items;
  open_for(memory, all);
  const std::unique_ptr<OrderedMap> map = scheme.make(memory);
  for (std::uint64_t n = 0; n < before; ++n) {
    const Word key = key_of(n);
    require(must(map->insert(key, value_of(key, 0))), "a key was present before its insert");
  }
  const auto chosen = [&](std::uint64_t i) { return key_of(scatter(i, all)); };
  std::vector<Figure> figures;
  figures.push_back(measure(items, [&](std::uint64_t i) {
    const Word key = key_of(before + i);
    return must(map->insert(key, value_of(key, 0)));
  }));
  figures.push_back(measure(items, [&](std::uint64_t i) {
    Word value = 0;
    const Word key = chosen(i);
    return map->find(key, value) && value == value_of(key, 0);
  }));
  figures.push_back(measure(items, [&](std::uint64_t i) {
    const Word key = chosen(i);
    return must(map->update(key, value_of(key, 1)));
  }));
  figures.push_back(measure(items, [&](std::uint64_t i) {
    const Word from = chosen(i);
    Word next = from;
    bool right = true;
    std::uint64_t seen = 0;
    map->scan(from, kScanned, [&](Word key, Word value) {
      right &= (seen++ == 0 ? key == from : key > next) && is_of(value, key);
      next = key;
    });
    return right && seen > 0 && seen <= kScanned;
  }));
  figures.push_back(measure(items, [&](std::uint64_t i) { return must(map->erase(chosen(i))); }));
  // What is left is what was not deleted.
  std::uint64_t left = 0;
  map->scan(0, ~std::uint64_t{0}, [&](Word, Word) { ++left; });
  require(left == all - items, "the number of items is wrong");
  return figures;
}

Turns turns_without_runs(std::span<const OrderedScheme> schemes,
                         std::vector<std::vector<double>> paper) {
  return {.kind = "map",
          .schemes = names_of(schemes),
          .phases = {"insert", "search", "update", "scan of 50", "delete"},
          .paper = std::move(paper)};
}

Turns turns_of(const OrderedOptions& options, std::span<const OrderedScheme> schemes, KeyOf key_of,
               std::vector<std::vector<double>> paper) {
  Turns turns = turns_without_runs(schemes, std::move(paper));
  turns.take(options.runs,
             [&](std::size_t s) { return run(schemes[s], options.items, options.items, key_of); });
  return turns;
}

}  // namespace

void operations(const OrderedOptions& options, Report& report) {
  // The paper gives FAST-FAIR's scans as 1 / (1 - 0.33) of PhaST's, FPTree's as 0.71 / 0.67.
  Turns turns = turns_of(options, anchored_schemes(), uniform_key,
                         {{},
                          {1.61, 1.30, 0, 0.67, 0},
                          {1.33, 1.22, 0, 0.94, 0},
                          {2.56, 2.42, 0, 0, 0},
                          {3.76, 2.87, 0, 0, 0},
                          {4.05, 0, 0, 0, 0}});
  turns.anchors = 1;  // std::map
  turns.print_rates("Million operations a second, one thread (figure 7)", report);
  turns.print_ratios("`phast` by the others, and PhaST by them in the paper", report);
  turns.print_costs("Write-backs and fences of an operation", report);
}

void one_partition(const OrderedOptions& options, Report& report) {
  const Turns turns =
      turns_of(options, ordered_schemes(), crowded_key, {{}, {}, {1.18, 1.07, 1.07, 0, 0}});
  turns.print_rates("Million operations a second, keys in 1 % of the key space (figure 15 a)",
                    report);
  turns.print_ratios("`phast` by the others with these keys, and PhaST by them in the paper",
                     report);
}

// Ten times the entries of figure 7, as in the paper, of the maps that its text names. One run of
// fewer operations, because the entries before them take most of the time.
void large_data_set(const OrderedOptions& options, Report& report) {
  const std::uint64_t before = 10 * options.items;
  const std::span<const OrderedScheme> schemes = ordered_schemes().first(3);
  Turns turns =
      turns_without_runs(schemes, {{}, {1.56, 1.61, 1.41, 0, 0}, {1.15, 1.26, 1.16, 0, 0}});
  turns.take(
      1, [&](std::size_t s) { return run(schemes[s], before, options.items / 4, uniform_key); });
  turns.print_rates(
      fmt::format("Million operations a second, {} entries before (figure 15 b)", before), report);
  turns.print_ratios("`phast` by the others with so many, and PhaST by them in the paper", report);
}

}  // namespace perdure::paper
