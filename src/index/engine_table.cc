#include "index/engine_table.h"

#include "index/clevel/factory.h"
#include "index/level/factory.h"
#include "index/phast/factory.h"
#include "index/skiplist/factory.h"

namespace perdure {

namespace {

constexpr EngineRow kEngines[] = {
    {Engine::phast, 0, /*ordered=*/true, /*at_once=*/false, &phast::create, &phast::open},
    {Engine::level, 1, /*ordered=*/false, /*at_once=*/false, &level::create, &level::open,
     /*arrays=*/true},
    {Engine::clevel, 1, /*ordered=*/false, /*at_once=*/true, &clevel::create, &clevel::open},
    {Engine::as, 0, /*ordered=*/true, /*at_once=*/true, &skiplist::create<skiplist::As>,
     &skiplist::open<skiplist::As>},
    {Engine::ascs, 0, /*ordered=*/true, /*at_once=*/false, &skiplist::create<skiplist::Ascs>,
     &skiplist::open<skiplist::Ascs>},
};

}  // namespace

const EngineRow* find_engine(Engine engine) noexcept {
  for (const EngineRow& row : kEngines) {
    if (row.engine == engine) return &row;
  }
  return nullptr;
}

}  // namespace perdure
