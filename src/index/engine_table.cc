#include "index/engine_table.h"

#include "index/phast/factory.h"

namespace perdure {

namespace {

constexpr EngineRow kEngines[] = {
    {Engine::phast, 0, /*ordered=*/true, /*at_once=*/false, &phast::create, &phast::open},
};

}  // namespace

const EngineRow* find_engine(Engine engine) noexcept {
  for (const EngineRow& row : kEngines) {
    if (row.engine == engine) return &row;
  }
  return nullptr;
}

}  // namespace perdure
