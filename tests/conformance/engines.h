// The engines under test: the suites that use a pool as users do run on each. What else a new one
// needs: docs/design/overview.md.
#pragma once

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <tuple>

#include "perdure/options.h"

namespace perdure::test {

template <Engine E, bool Ordered>
struct EngineRow {
  static constexpr Engine engine = E;
  static constexpr bool ordered = Ordered;
};

// clang-format off
using EngineRows = std::tuple<
    EngineRow<Engine::phast, /*ordered=*/true>,
    EngineRow<Engine::level, /*ordered=*/false>,
    EngineRow<Engine::clevel, /*ordered=*/false>,
    EngineRow<Engine::as, /*ordered=*/true>,
    EngineRow<Engine::ascs, /*ordered=*/true>,
    EngineRow<Engine::pskiplist, /*ordered=*/true>>;
// clang-format on

struct EngineInfo {
  Engine engine;
  bool ordered;
};

// The same list as values, for suites with run-time parameters.
inline constexpr auto kEngines = []<class... Rows>(std::tuple<Rows...>*) {
  return std::array<EngineInfo, sizeof...(Rows)>{EngineInfo{Rows::engine, Rows::ordered}...};
}(static_cast<EngineRows*>(nullptr));

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
