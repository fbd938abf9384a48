#include "index/engine_table.h"

#include "index/clevel/factory.h"
#include "index/level/factory.h"
#include "index/phast/factory.h"

namespace perdure {

namespace {

constexpr EngineRow kEngines[] = {
    {Engine::phast, 0, /*ordered=*/true, /*at_once=*/false, &phast::create, &phast::open},
    {Engine::level, 1, /*ordered=*/false, /*at_once=*/false, &level::create, &level::open,
     /*arrays=*/true},
    {Engine::clevel, 1, /*ordered=*/false, /*at_once=*/true, &clevel::create, &clevel::open},
};

}  // namespace

const EngineRow* find_engine(Engine engine) noexcept {
  for (const EngineRow& row : kEngines) {
    if (row.engine == engine) return &row;
  }
  return nullptr;
}

}  // namespace perdure
