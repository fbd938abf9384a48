// The engines that there are or will be: names, and which of them the table has.
#include <array>

#include "index/engine_table.h"
#include "perdure/pool.h"

namespace perdure {

namespace {

constexpr std::array kEngines = {
    EngineInfo{Engine::phast, "phast", /*ordered=*/true, /*built=*/false},
    EngineInfo{Engine::level, "level", false, false},
    EngineInfo{Engine::clevel, "clevel", false, false},
    EngineInfo{Engine::as, "as", true, false},
    EngineInfo{Engine::ascs, "ascs", true, false},
    EngineInfo{Engine::pskiplist, "pskiplist", true, false},
};

}  // namespace

std::string_view engine_name(Engine engine) noexcept {
  for (const EngineInfo& info : kEngines) {
    if (info.engine == engine) return info.name;
  }
  return "unknown";
}

std::span<const EngineInfo> engines() noexcept {
  static const auto list = [] {
    auto out = kEngines;
    for (EngineInfo& info : out) {
      const EngineRow* row = find_engine(info.engine);
      info.built = row != nullptr;
      if (row != nullptr) info.ordered = row->ordered;
    }
    return out;
  }();
  return list;
}

}  // namespace perdure
