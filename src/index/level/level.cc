#include "index/level/level.h"

#include "index/level/factory.h"
#include "platform/real_platform.h"

namespace perdure::level {

template class Level<RealPlatform, IntegerCodec>;
template class Level<RealPlatform, BytesCodec>;

Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions& options) {
  return kinds.key == KeyKind::bytes
             ? Level<RealPlatform, BytesCodec>::create(context, kinds, options.level)
             : Level<RealPlatform, IntegerCodec>::create(context, kinds, options.level);
}

Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root) {
  return kinds.key == KeyKind::bytes ? Level<RealPlatform, BytesCodec>::open(context, root)
                                     : Level<RealPlatform, IntegerCodec>::open(context, root);
}

}  // namespace perdure::level
