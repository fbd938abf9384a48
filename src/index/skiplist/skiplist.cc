#include "index/skiplist/skiplist.h"

#include "index/skiplist/factory.h"
#include "platform/real_platform.h"

namespace perdure::skiplist {

template class Skiplist<RealPlatform, IntegerCodec, As>;
template class Skiplist<RealPlatform, BytesCodec, As>;
template class Skiplist<RealPlatform, IntegerCodec, Ascs>;
template class Skiplist<RealPlatform, BytesCodec, Ascs>;

template <class Kind>
Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions&) {
  return kinds.key == KeyKind::bytes
             ? Skiplist<RealPlatform, BytesCodec, Kind>::create(context, kinds)
             : Skiplist<RealPlatform, IntegerCodec, Kind>::create(context, kinds);
}

template <class Kind>
Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root) {
  return kinds.key == KeyKind::bytes
             ? Skiplist<RealPlatform, BytesCodec, Kind>::open(context, root, kinds.value)
             : Skiplist<RealPlatform, IntegerCodec, Kind>::open(context, root, kinds.value);
}

template Expected<std::uint64_t> create<As>(const EngineContext<RealPlatform>&, const MapKinds&,
                                            const MapOptions&);
template Expected<std::uint64_t> create<Ascs>(const EngineContext<RealPlatform>&, const MapKinds&,
                                              const MapOptions&);
template Expected<std::unique_ptr<EngineInstance>> open<As>(const EngineContext<RealPlatform>&,
                                                            const MapKinds&, std::uint64_t);
template Expected<std::unique_ptr<EngineInstance>> open<Ascs>(const EngineContext<RealPlatform>&,
                                                              const MapKinds&, std::uint64_t);

}  // namespace perdure::skiplist
