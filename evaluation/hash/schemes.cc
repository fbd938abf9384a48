// The schemes, and figure 10: the largest load factor of each.
#include <fmt/core.h>

#include <algorithm>

#include "bench/workloads/random.h"
#include "evaluation/figures.h"
#include "evaluation/hash/array_table.h"
#include "evaluation/hash/bch.h"
#include "evaluation/hash/path.h"
#include "evaluation/hash/pfht.h"
#include "evaluation/hash/two_level.h"

namespace perdure::paper {
namespace {

using Made = Expected<std::unique_ptr<Table>>;

constexpr std::uint32_t log2_of(std::uint32_t slots) noexcept {
  return static_cast<std::uint32_t>(__builtin_ctz(slots));
}
template <std::uint32_t kSlots>
Made bch(bench::MemoryHeap& memory, std::uint32_t log_slots) {
  return Bch<RealPlatform, kSlots>::make(memory.platform(), memory.heap(),
                                         log_slots - log2_of(kSlots));
}
template <std::uint32_t kSlots>
Made pfht(bench::MemoryHeap& memory, std::uint32_t log_slots) {
  return Pfht<RealPlatform, kSlots>::make(memory.platform(), memory.heap(),
                                          log_slots - log2_of(kSlots));
}
Made path(bench::MemoryHeap& memory, std::uint32_t log_slots) {
  return Path<RealPlatform>::make(memory.platform(), memory.heap(), log_slots - 1);
}
// A table of nine eighths of 2^log_slots slots.
template <std::uint32_t Lines>
Made level(bench::MemoryHeap& memory, std::uint32_t log_slots) {
  auto made = LevelTable<Lines>::make(memory, Resizer::thread, log_slots - 1 - Lines);
  if (!made) return fail(std::move(made.error()));
  return std::move(*made);
}
// A table of three quarters of 2^log_slots slots.
Made arrays(bench::MemoryHeap& memory, std::uint32_t log_slots) {
  auto made = ArrayTable::make(memory, log_slots - 3);
  if (!made) return fail(std::move(made.error()));
  return std::move(*made);
}
// A table of three quarters of 2^log_slots slots.
Made clevel(bench::MemoryHeap& memory, std::uint32_t log_slots) {
  auto made = ClevelTable::make(memory, 1ULL << (log_slots - 1));
  if (!made) return fail(std::move(made.error()));
  return std::move(*made);
}

// A table of three quarters of 2^log_slots slots.
template <std::uint32_t kSlots, bool kOpportunistic = true>
Made printed(bench::MemoryHeap& memory, std::uint32_t log_slots) {
  auto made = TwoLevel<RealPlatform, kSlots>::make_with(memory.platform(), memory.heap(),
                                                        log_slots - 1 - log2_of(kSlots),
                                                        {.opportunistic = kOpportunistic});
  if (!made) return fail(std::move(made.error()));
  return std::move(*made);
}

constexpr Scheme kSchemes[kSchemeCount] = {{"level", &level<2>},
                                           {"clevel", &clevel},
                                           {"BCH", &bch<4>},
                                           {"PFHT", &pfht<4>},
                                           {"path", &path},
                                           {"level as printed", &printed<4>},
                                           {"level w/o Opp", &printed<4, false>},
                                           {"level, arrays", &arrays}};
constexpr Scheme kVariants[] = {{"level-3", &level<1>},
                                {"level-6", &level<2>},
                                {"clevel-8", &clevel},
                                {"BCH-2", &bch<2>},
                                {"BCH-4", &bch<4>},
                                {"BCH-8", &bch<8>},
                                {"PFHT-2", &pfht<2>},
                                {"PFHT-4", &pfht<4>},
                                {"PFHT-8", &pfht<8>},
                                {"path-1", &path},
                                {"level as printed-2", &printed<2>},
                                {"level as printed-4", &printed<4>},
                                {"level as printed-8", &printed<8>}};

// Inserts until an insertion fails, or until one of our tables grows.
double max_load(Table& table) {
  const auto slots = static_cast<double>(table.slots());
  // rarely, because clevel counts all its items for slots()
  const std::uint64_t look = table.slots() / 64;
  for (std::uint64_t n = 1;; ++n) {
    auto inserted = table.insert(bench::mix64(n), n);
    if (!inserted) {
      require(inserted.error() == StatusCode::pool_full, "an insertion failed");
      return static_cast<double>(n - 1) / slots;
    }
    if (n % look != 0) continue;
    if (const std::uint64_t items = table.grew_at(); items != 0) {
      return static_cast<double>(items) / slots;
    }
  }
}

}  // namespace

std::span<const Scheme, kSchemeCount> schemes() { return kSchemes; }

void max_load_factors(const Options& options, Report& report) {
  report.heading("Maximum load factor (figure 10)", {"table", "load factor"});
  for (const Scheme& scheme : kVariants) {
    Ground ground(options);
    use(ground.memory, kMedia[0]);
    const auto table = must(scheme.make(ground.memory, options.log_slots));
    const double load = max_load(*table);
    table->settle();
    must_be_sound(*table);
    report.row({scheme.name, fmt::format("{:.3f}", load)});
  }
}

}  // namespace perdure::paper
