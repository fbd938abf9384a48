#include "index/phast/phast.h"

#include "index/phast/factory.h"
#include "platform/real_platform.h"

namespace perdure::phast {

template class Phast<RealPlatform, IntegerCodec>;
template class Phast<RealPlatform, BytesCodec>;

Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions& options) {
  return kinds.key == KeyKind::bytes
             ? Phast<RealPlatform, BytesCodec>::create(context, kinds, options.phast)
             : Phast<RealPlatform, IntegerCodec>::create(context, kinds, options.phast);
}

Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root) {
  return kinds.key == KeyKind::bytes ? Phast<RealPlatform, BytesCodec>::open(context, root)
                                     : Phast<RealPlatform, IntegerCodec>::open(context, root);
}

}  // namespace perdure::phast
