// The only instantiation of clevel hashing over the simulator; all tests link it.
#include "testing/engines/clevel_subject.h"

#include "index/clevel/clevel.h"

namespace perdure::testing {

template <class Codec>
using Tiny = clevel::Clevel<SimPlatform, Codec, clevel::TinyGeometry>;

template <class Codec>
Expected<std::unique_ptr<EngineInstance>> ClevelTraits<Codec>::Map::open(
    const EngineContext<SimPlatform>& context, std::uint64_t root) {
  return Tiny<Codec>::open(context, root);
}
template <class Codec>
Expected<std::uint64_t> ClevelTraits<Codec>::create(const EngineContext<SimPlatform>& context,
                                                    const MapKinds& kinds, const MapSetup&) {
  return Tiny<Codec>::create(context, kinds, 0);
}

template struct ClevelTraits<clevel::IntegerCodec>;
template struct ClevelTraits<clevel::BytesCodec>;
template class MapSubject<ClevelTraits<clevel::IntegerCodec>>;
template class MapSubject<ClevelTraits<clevel::BytesCodec>>;

}  // namespace perdure::testing
