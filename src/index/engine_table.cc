#include "index/engine_table.h"

#include <iterator>

#include "index/clevel/factory.h"
#include "index/level/factory.h"
#include "index/phast/factory.h"
#include "index/pskiplist/factory.h"
#include "index/skiplist/factory.h"

namespace perdure {

namespace {

constexpr EngineRow kEngines[] = {
    {.engine = Engine::phast,
     .name = "phast",
     .version = 0,
     .ordered = true,
     .versioned = false,
     .at_once = false,
     .create = &phast::create,
     .open = &phast::open},
    {.engine = Engine::level,
     .name = "level",
     .version = 1,
     .ordered = false,
     .versioned = false,
     .at_once = false,
     .create = &level::create,
     .open = &level::open,
     .arrays = true},
    {.engine = Engine::clevel,
     .name = "clevel",
     .version = 1,
     .ordered = false,
     .versioned = false,
     .at_once = true,
     .create = &clevel::create,
     .open = &clevel::open},
    {.engine = Engine::as,
     .name = "as",
     .version = 0,
     .ordered = true,
     .versioned = false,
     .at_once = true,
     .create = &skiplist::create<skiplist::As>,
     .open = &skiplist::open<skiplist::As>},
    {.engine = Engine::ascs,
     .name = "ascs",
     .version = 0,
     .ordered = true,
     .versioned = false,
     .at_once = false,
     .create = &skiplist::create<skiplist::Ascs>,
     .open = &skiplist::open<skiplist::Ascs>},
    {.engine = Engine::pskiplist,
     .name = "pskiplist",
     .version = 0,
     .ordered = true,
     .versioned = true,
     .at_once = false,
     .create = &pskiplist::create,
     .open = &pskiplist::open},
};

}  // namespace

static_assert(std::size(kEngines) <= kMostEngines);

std::span<const EngineRow> engine_rows() noexcept { return kEngines; }

}  // namespace perdure
