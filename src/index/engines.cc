// Queries of the engine table. They have a file of their own because a test links another table.
#include <algorithm>
#include <array>

#include "index/engine_table.h"
#include "perdure/pool.h"

namespace perdure {

const EngineRow* find_engine(Engine engine) noexcept {
  for (const EngineRow& row : engine_rows()) {
    if (row.engine == engine) return &row;
  }
  return nullptr;
}

std::string_view engine_name(Engine engine) noexcept {
  const EngineRow* row = find_engine(engine);
  return row == nullptr ? "unknown" : row->name;
}

std::optional<Engine> engine_named(std::string_view name) noexcept {
  for (const EngineRow& row : engine_rows()) {
    if (row.name == name) return row.engine;
  }
  return std::nullopt;
}

std::span<const EngineInfo> engines() noexcept {
  static const std::array<EngineInfo, kMostEngines> infos = [] {
    std::array<EngineInfo, kMostEngines> out;
    std::ranges::transform(engine_rows(), out.begin(), [](const EngineRow& row) {
      return EngineInfo{row.engine, row.name, row.ordered, row.versioned};
    });
    return out;
  }();
  return std::span(infos).first(engine_rows().size());
}

}  // namespace perdure
