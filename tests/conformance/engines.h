// The engines under test: the suites that use a pool as users do run on each. What else a new one
// needs: docs/design/overview.md.
#pragma once

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "perdure/options.h"

namespace perdure::test {

struct EngineInfo {
  Engine engine;
  bool ordered;
};

inline constexpr std::array kEngines{
    EngineInfo{Engine::phast, /*ordered=*/true},   EngineInfo{Engine::level, /*ordered=*/false},
    EngineInfo{Engine::clevel, /*ordered=*/false}, EngineInfo{Engine::as, /*ordered=*/true},
    EngineInfo{Engine::ascs, /*ordered=*/true},    EngineInfo{Engine::pskiplist, /*ordered=*/true},
};

// The engine of suites that run one at a time: the one that PERDURE_ENGINE names, or the first.
inline EngineInfo chosen_engine() {
  const char* name = std::getenv("PERDURE_ENGINE");
  if (name == nullptr || *name == '\0') return kEngines.front();
  for (const EngineInfo& info : kEngines) {
    if (engine_name(info.engine) == name) return info;
  }
  throw std::runtime_error(std::string("PERDURE_ENGINE: no engine ") + name);
}

}  // namespace perdure::test
