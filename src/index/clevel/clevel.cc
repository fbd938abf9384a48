#include "index/clevel/clevel.h"

#include "index/engine_table.h"
#include "platform/real_platform.h"

namespace perdure::clevel {

template class ClevelMap<Traits<RealPlatform, IntegerCodec, DefaultGeometry>>;
template class ClevelMap<Traits<RealPlatform, BytesCodec, DefaultGeometry>>;

namespace {

Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions& options) {
  return kinds.key == KeyKind::bytes
             ? Clevel<RealPlatform, BytesCodec>::create(context, kinds, options.capacity)
             : Clevel<RealPlatform, IntegerCodec>::create(context, kinds, options.capacity);
}

Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root) {
  return kinds.key == KeyKind::bytes ? Clevel<RealPlatform, BytesCodec>::open(context, root)
                                     : Clevel<RealPlatform, IntegerCodec>::open(context, root);
}

}  // namespace
}  // namespace perdure::clevel

namespace perdure {

constinit const EngineRow rows::clevel{.engine = Engine::clevel,
                                       .name = "clevel",
                                       .version = 1,
                                       .ordered = false,
                                       .versioned = false,
                                       .at_once = true,
                                       .create = &clevel::create,
                                       .open = &clevel::open};

}  // namespace perdure
