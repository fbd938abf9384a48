// The engines under test. Adding one is adding its line; every suite of tests/conformance,
// tests/model and tests/concurrent then runs on it.
#pragma once

#include <array>
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
    EngineRow<Engine::phast, /*ordered=*/true>>;
// clang-format on

struct EngineInfo {
  Engine engine;
  bool ordered;
};

// The same list as values, for suites with run-time parameters.
inline constexpr auto kEngines = []<class... Rows>(std::tuple<Rows...>*) {
  return std::array<EngineInfo, sizeof...(Rows)>{EngineInfo{Rows::engine, Rows::ordered}...};
}(static_cast<EngineRows*>(nullptr));

}  // namespace perdure::test
