// EngineStats and Findings: figures and violations of an engine, collected without exceptions. What
// does not fit in DRAM is left out, and `partial` or violation_count says so.
// src/pool/pool_report.cc converts them to the public structs.
#pragma once

#include <cstdio>
#include <string_view>

#include "perdure/function_ref.h"
#include "perdure/index.h"
#include "perdure/stats.h"
#include "util/containers.h"

namespace perdure {

// A MapStats without the name.
struct EngineStats : MapFigures {
  Array<LevelStats> levels;
  Array<ResizeStats> resizes;
};

// A CheckReport: the result of a check, or of a recovery that skips damage.
struct Findings : CheckFigures {
  Array<Text<255>> violations;  // the first ones; fewer if DRAM was short
  const char* map = "";         // the map that is being checked; add() puts its name in front
  // For a deep check of a damaged map that a reader has opened: gets the entries that are as they
  // were written. What an entry points to is valid during the call.
  const FunctionRef<void(const detail::Entry&)>* whole_entries = nullptr;

  void add(std::string_view violation) noexcept {
    ++violation_count;
    if (violations.size() >= CheckReport::kMaxViolations) return;
    if (*map == '\0') {
      (void)violations.push_back(violation);
      return;
    }
    char line[256];
    std::snprintf(line, sizeof(line), "map %s: %.*s", map, static_cast<int>(violation.size()),
                  violation.data());
    (void)violations.push_back(std::string_view(line));
  }
  std::string_view first() const noexcept {
    if (violations.empty()) return ok() ? "" : CheckReport::kNoMemory;
    return violations.front();
  }
};

}  // namespace perdure
