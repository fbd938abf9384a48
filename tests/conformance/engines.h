// The engines under test, all of the build: the suites that use a pool as users do run on each.
// What else a new one needs: docs/design/overview.md.
#pragma once

#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>

#include "perdure/pool.h"

namespace perdure::test {

// That a row does not fall out of the table unseen: tests/crash/engines_crash_test.cc.
inline const std::span<const EngineInfo> kEngines = engines();

// The engine of suites that run one at a time: the one that PERDURE_ENGINE names, or the first.
inline EngineInfo chosen_engine() {
  const char* name = std::getenv("PERDURE_ENGINE");
  if (name == nullptr || *name == '\0') return kEngines.front();
  for (const EngineInfo& info : kEngines) {
    if (info.name == name) return info;
  }
  throw std::runtime_error(std::string("PERDURE_ENGINE: no engine ") + name);
}

}  // namespace perdure::test
