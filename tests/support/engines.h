// The engines under test: all of the build. The suites that use a pool as users do run on each.
// docs/design/overview.md lists what else a new engine needs.
#pragma once

#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>

#include "perdure/pool.h"

namespace perdure::test {

// tests/engines/crash_test.cc notices if an engine is missing from the testers' list.
inline const std::span<const EngineInfo> kEngines = engines();

// The engine of suites that run on one at a time: PERDURE_ENGINE, or the first.
inline EngineInfo chosen_engine() {
  const char* name = std::getenv("PERDURE_ENGINE");
  if (name == nullptr || *name == '\0') return kEngines.front();
  for (const EngineInfo& info : kEngines) {
    if (info.name == name) return info;
  }
  throw std::runtime_error(std::string("PERDURE_ENGINE: no engine ") + name);
}

}  // namespace perdure::test
