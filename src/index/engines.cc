// The public list of engines: what the table has, and what is planned.
#include <array>

#include "index/engine_table.h"
#include "perdure/pool.h"

namespace perdure {

std::span<const EngineInfo> engines() noexcept {
  static const auto list = [] {
    std::array out = {EngineInfo{Engine::phast, {}, true, false},
                      EngineInfo{Engine::level, {}, false, false},
                      EngineInfo{Engine::clevel, {}, false, false},
                      EngineInfo{Engine::as, {}, true, false},
                      EngineInfo{Engine::ascs, {}, true, false},
                      EngineInfo{Engine::pskiplist, {}, true, false}};
    for (EngineInfo& info : out) {
      const EngineRow* row = find_engine(info.engine);
      info.name = engine_name(info.engine);
      info.built = row != nullptr;
      if (row != nullptr) info.ordered = row->ordered;
    }
    return out;
  }();
  return list;
}

}  // namespace perdure
