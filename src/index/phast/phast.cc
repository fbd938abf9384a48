#include "index/phast/phast.h"

#include "index/engine_table.h"
#include "platform/real_platform.h"

namespace perdure::phast {

template class Phast<RealPlatform, IntegerCodec>;
template class Phast<RealPlatform, BytesCodec>;

namespace {

Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions& options) {
  using Integers = Phast<RealPlatform, IntegerCodec>;
  PhastOptions own = options.phast;
  if (own.partition_bits == PhastOptions::kAuto) {
    own.partition_bits = Integers::partition_bits_for(options.capacity);
  }
  return kinds.key == KeyKind::bytes ? Phast<RealPlatform, BytesCodec>::create(context, kinds, own)
                                     : Integers::create(context, kinds, own);
}

Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root) {
  return kinds.key == KeyKind::bytes ? Phast<RealPlatform, BytesCodec>::open(context, root)
                                     : Phast<RealPlatform, IntegerCodec>::open(context, root);
}

}  // namespace
}  // namespace perdure::phast

namespace perdure {

constinit const EngineRow rows::phast{.engine = Engine::phast,
                                      .name = "phast",
                                      .version = 0,
                                      .ordered = true,
                                      .versioned = false,
                                      .at_once = false,
                                      .create = &phast::create,
                                      .open = &phast::open};

}  // namespace perdure
