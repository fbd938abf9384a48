#include "bench/paper/ordered/figures.h"

#include <utility>
#include <vector>

#include "bench/paper/ordered/measure.h"

namespace perdure::paper {
namespace {

constexpr std::uint64_t kScanned = 50;
using KeyOf = Word (*)(std::uint64_t n);

// The keys of one hundredth of the key space, so that one of the paper's partitions has them all.
Word crowded_key(std::uint64_t n) noexcept {
  constexpr Word kSpace = ~Word{0} / 100;
  return 37 * kSpace + uniform_key(n) % kSpace;
}

// As in the paper: half of the entries are there before inserts are measured, all before the rest.
std::vector<Figure> run(const OrderedScheme& scheme, std::uint64_t items, KeyOf key_of) {
  bench::MemoryHeap memory;
  const std::uint64_t all = 2 * items;
  open_for(memory, all);
  const std::unique_ptr<OrderedMap> map = scheme.make(memory);
  for (std::uint64_t n = 0; n < items; ++n) {
    const Word key = key_of(n);
    require(must(map->insert(key, value_of(key, 0))), "a key was present before its insert");
  }
  const auto chosen = [&](std::uint64_t i) { return key_of(scatter(i, all)); };
  std::vector<Figure> figures;
  figures.push_back(measure(items, [&](std::uint64_t i) {
    const Word key = key_of(items + i);
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

Turns turns_of(const OrderedOptions& options, KeyOf key_of,
               std::vector<std::vector<double>> paper) {
  Turns turns{.kind = "map",
              .schemes = names_of(ordered_schemes()),
              .phases = {"insert", "search", "update", "scan of 50", "delete"},
              .paper = std::move(paper)};
  turns.take(options.runs,
             [&](std::size_t s) { return run(ordered_schemes()[s], options.items, key_of); });
  return turns;
}

}  // namespace

void operations(const OrderedOptions& options, Report& report) {
  // The paper gives FAST-FAIR's scans as 1 / (1 - 0.33) of PhaST's, FPTree's as 0.71 / 0.67.
  const Turns turns = turns_of(options, uniform_key,
                               {{},
                                {1.61, 1.30, 0, 0.67, 0},
                                {1.33, 1.22, 0, 0.94, 0},
                                {2.56, 2.42, 0, 0, 0},
                                {3.76, 2.87, 0, 0, 0},
                                {4.05, 0, 0, 0, 0}});
  turns.print_rates("Million operations a second, one thread (figure 7)", report);
  turns.print_ratios("`phast` by the others, and PhaST by them in the paper", report);
  turns.print_costs("Write-backs and fences of an operation", report);
}

void one_partition(const OrderedOptions& options, Report& report) {
  const Turns turns = turns_of(options, crowded_key, {{}, {}, {1.18, 1.07, 1.07, 0, 0}});
  turns.print_rates("Million operations a second, keys in 1 % of the key space (figure 15 a)",
                    report);
  turns.print_ratios("`phast` by the others with these keys, and PhaST by them in the paper",
                     report);
}

}  // namespace perdure::paper
