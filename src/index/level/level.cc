#include "index/level/level.h"

#include "index/level/factory.h"
#include "platform/real_platform.h"

namespace perdure::level {

template class Level<RealPlatform, IntegerCodec>;
template class Level<RealPlatform, BytesCodec>;

Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions& options) {
  LevelOptions own = options.level;
  if (own.buckets == 0 && options.capacity != 0) {
    own.buckets = Level<RealPlatform, IntegerCodec>::buckets_for(context.heap, options.capacity);
  }
  return kinds.key == KeyKind::bytes
             ? Level<RealPlatform, BytesCodec>::create(context, kinds, own)
             : Level<RealPlatform, IntegerCodec>::create(context, kinds, own);
}

Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root) {
  return kinds.key == KeyKind::bytes ? Level<RealPlatform, BytesCodec>::open(context, root)
                                     : Level<RealPlatform, IntegerCodec>::open(context, root);
}

}  // namespace perdure::level
