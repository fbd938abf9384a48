#include "index/pskiplist/pskiplist.h"

#include "index/engine_table.h"
#include "platform/real_platform.h"

namespace perdure::pskiplist {

static_assert(sizeof(KeyNode<RealPlatform>) == 64);

template class PSkipListMap<Traits<RealPlatform, IntegerCodec, DefaultGeometry>>;
template class PSkipListMap<Traits<RealPlatform, BytesCodec, DefaultGeometry>>;

namespace {

Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions&) {
  return kinds.key == KeyKind::bytes
             ? PSkipList<RealPlatform, BytesCodec>::create(context, kinds)
             : PSkipList<RealPlatform, IntegerCodec>::create(context, kinds);
}

Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root) {
  return kinds.key == KeyKind::bytes ? PSkipList<RealPlatform, BytesCodec>::open(context, root)
                                     : PSkipList<RealPlatform, IntegerCodec>::open(context, root);
}

}  // namespace
}  // namespace perdure::pskiplist

namespace perdure {

constinit const EngineRow rows::pskiplist{.engine = Engine::pskiplist,
                                          .name = "pskiplist",
                                          .version = 0,
                                          .ordered = true,
                                          .versioned = true,
                                          .at_once = false,
                                          .create = &pskiplist::create,
                                          .open = &pskiplist::open};

}  // namespace perdure
