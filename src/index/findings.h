// EngineStats and Findings: figures and violations of an engine, collected without exceptions. What
// does not fit in DRAM is left out, and `partial` or violation_count says so.
// src/pool/pool_report.cc converts them to the public structs.
#pragma once

#include <cstdint>
#include <string_view>

#include "perdure/stats.h"
#include "util/containers.h"

namespace perdure {

// A MapStats without the name.
struct EngineStats {
  Engine engine = Engine::phast;
  std::uint64_t entries = 0;
  double load_factor = 0;
  std::uint64_t height = 0;
  std::uint64_t leaves = 0;
  std::uint64_t inner_nodes = 0;
  std::uint64_t pm_bytes = 0;
  std::uint64_t dram_bytes = 0;
  std::uint64_t scan_order_bytes = 0;
  std::uint64_t splits = 0;
  std::uint64_t merges = 0;
  Array<LevelStats> levels;
  Array<ResizeStats> resizes;
  bool partial = false;  // also set if DRAM was short
};

// A CheckReport: the result of a check, or of a recovery that skips damage.
struct Findings {
  std::uint64_t objects = 0;
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t leaked_blocks = 0;
  std::uint64_t violation_count = 0;
  Array<Text<255>> violations;  // the first ones; fewer if DRAM was short

  bool ok() const noexcept { return violation_count == 0; }
  void add(std::string_view violation) noexcept {
    ++violation_count;
    if (violations.size() < CheckReport::kMaxViolations) (void)violations.push_back(violation);
  }
  std::string_view first() const noexcept {
    if (violations.empty()) return ok() ? "" : CheckReport::kNoMemory;
    return violations.front();
  }
};

}  // namespace perdure
