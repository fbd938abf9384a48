#include "index/engine_table.h"

#include "index/clevel/factory.h"
#include "index/level/factory.h"
#include "index/phast/factory.h"
#include "index/pskiplist/factory.h"
#include "index/skiplist/factory.h"

namespace perdure {

namespace {

constexpr EngineRow kEngines[] = {
    {.engine = Engine::phast,
     .version = 0,
     .ordered = true,
     .versioned = false,
     .at_once = false,
     .create = &phast::create,
     .open = &phast::open},
    {.engine = Engine::level,
     .version = 1,
     .ordered = false,
     .versioned = false,
     .at_once = false,
     .create = &level::create,
     .open = &level::open,
     .arrays = true},
    {.engine = Engine::clevel,
     .version = 1,
     .ordered = false,
     .versioned = false,
     .at_once = true,
     .create = &clevel::create,
     .open = &clevel::open},
    {.engine = Engine::as,
     .version = 0,
     .ordered = true,
     .versioned = false,
     .at_once = true,
     .create = &skiplist::create<skiplist::As>,
     .open = &skiplist::open<skiplist::As>},
    {.engine = Engine::ascs,
     .version = 0,
     .ordered = true,
     .versioned = false,
     .at_once = false,
     .create = &skiplist::create<skiplist::Ascs>,
     .open = &skiplist::open<skiplist::Ascs>},
    {.engine = Engine::pskiplist,
     .version = 0,
     .ordered = true,
     .versioned = true,
     .at_once = false,
     .create = &pskiplist::create,
     .open = &pskiplist::open},
};

}  // namespace

const EngineRow* find_engine(Engine engine) noexcept {
  for (const EngineRow& row : kEngines) {
    if (row.engine == engine) return &row;
  }
  return nullptr;
}

}  // namespace perdure
