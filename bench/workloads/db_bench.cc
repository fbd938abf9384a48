#include "bench/workloads/db_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace perdure::bench {
namespace {

enum class Needs : std::uint8_t { ascending_new, random_new, uniform, ascending };

struct Row {
  std::string_view name;
  Workload workload;
  Needs needs;
};

constexpr std::array kRows = {
    Row{"fillseq", Workload::load, Needs::ascending_new},
    Row{"filluniquerandom", Workload::load, Needs::random_new},
    Row{"overwrite", Workload::update, Needs::uniform},
    Row{"readrandom", Workload::read, Needs::uniform},
    Row{"readmissing", Workload::read_missing, Needs::uniform},
    Row{"deleteseq", Workload::erase, Needs::ascending},
};

const Row* find_row(std::string_view name) noexcept {
  const auto* row = std::ranges::find(kRows, name, &Row::name);
  return row == kRows.end() ? nullptr : row;
}

bool ascends(RealKind kind) noexcept { return kind == RealKind::ids || kind == RealKind::times; }

bool is_random(RealKind kind) noexcept {
  return kind == RealKind::urls || kind == RealKind::uuid || kind == RealKind::words;
}

// What the options lack, and the remedy; empty if they lack nothing.
std::string_view lacking(Needs needs, Distribution distribution,
                         const std::optional<RealKeys>& keys) noexcept {
  const bool sequential = distribution == Distribution::sequential;
  switch (needs) {
    case Needs::ascending_new:
      if (keys ? ascends(keys->kind()) : sequential) return {};
      return "needs new keys that ascend; use --distribution sequential, --keys ids, --keys times";
    case Needs::random_new:
      if (keys ? is_random(keys->kind()) : !sequential) return {};
      return "needs new keys in random order; use --distribution uniform without --keys, or --keys "
             "urls, uuid or words";
    case Needs::uniform:
      if (distribution == Distribution::uniform || distribution == Distribution::clustered) {
        return {};
      }
      return "chooses keys uniformly; use --distribution uniform";
    case Needs::ascending:
      break;
  }
  return sequential ? std::string_view{}
                    : "takes keys in ascending order; use --distribution sequential";
}

}  // namespace

std::optional<Workload> db_bench_workload(std::string_view name) noexcept {
  const Row* row = find_row(name);
  return row == nullptr ? std::nullopt : std::optional(row->workload);
}

std::string db_bench_names() {
  std::string names;
  for (const Row& row : kRows) names += (names.empty() ? "" : " ") + std::string(row.name);
  return names;
}

Result<void> check_db_bench(std::string_view list, Distribution distribution,
                            const std::optional<RealKeys>& keys) {
  for (bool first = true; !list.empty(); first = false) {
    const std::string_view name = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), name.size() + 1));
    const Row* row = find_row(name);
    if (row == nullptr) continue;
    if (row->workload == Workload::load && !first) {
      return failure(kExitUsage,
                     fmt::format("workload '{}' fills an empty database; put it first", name));
    }
    const std::string_view lack = lacking(row->needs, distribution, keys);
    if (lack.empty()) continue;
    return failure(kExitUsage, fmt::format("workload '{}' {}, or the workload '{}'", name, lack,
                                           workload_name(row->workload)));
  }
  return {};
}

}  // namespace perdure::bench
