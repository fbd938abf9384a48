#include "index/skiplist/skiplist.h"

#include "index/engine_table.h"
#include "platform/real_platform.h"

namespace perdure::skiplist {

namespace {

template <class Kind>
using Integers = Skiplist<RealPlatform, IntegerCodec, Kind>;
template <class Kind>
using Strings = Skiplist<RealPlatform, BytesCodec, Kind>;

template <class Kind>
Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions&) {
  return kinds.key == KeyKind::bytes ? Strings<Kind>::create(context, kinds)
                                     : Integers<Kind>::create(context, kinds);
}

template <class Kind>
Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root) {
  return kinds.key == KeyKind::bytes ? Strings<Kind>::open(context, root, kinds.value)
                                     : Integers<Kind>::open(context, root, kinds.value);
}

}  // namespace
}  // namespace perdure::skiplist

namespace perdure {

constinit const EngineRow rows::as{.engine = Engine::as,
                                   .name = "as",
                                   .version = 0,
                                   .ordered = true,
                                   .versioned = false,
                                   .at_once = true,
                                   .create = &skiplist::create<skiplist::As>,
                                   .open = &skiplist::open<skiplist::As>};

constinit const EngineRow rows::ascs{.engine = Engine::ascs,
                                     .name = "ascs",
                                     .version = 0,
                                     .ordered = true,
                                     .versioned = false,
                                     .at_once = false,
                                     .create = &skiplist::create<skiplist::Ascs>,
                                     .open = &skiplist::open<skiplist::Ascs>};

}  // namespace perdure
