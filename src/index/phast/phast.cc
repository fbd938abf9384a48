#include "index/phast/phast.h"

#include "index/engine_table.h"
#include "platform/real_platform.h"

namespace perdure::phast {

using Integers = Traits<RealPlatform, IntegerCodec, DefaultGeometry>;
using Strings = Traits<RealPlatform, BytesCodec, DefaultGeometry>;

// Not only the map: GCC bounds inlining by the size of the unit. Without the own copies of these
// layers it no longer inlines the fences of insert and put. A copy of Lookup, which is inlined into
// the others anyway, would change what it inlines into put, get and scan.
template class State<Integers>;
template class Structure<Integers>;
template class Write<Integers>;
template class Recovery<Integers>;
template class PhastMap<Integers>;
template class State<Strings>;
template class Structure<Strings>;
template class Write<Strings>;
template class Recovery<Strings>;
template class PhastMap<Strings>;

namespace {

Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions& options) {
  PhastOptions own = options.phast;
  if (own.partition_bits == PhastOptions::kAuto) {
    own.partition_bits = PhastMap<Integers>::partition_bits_for(options.capacity);
  }
  return kinds.key == KeyKind::bytes ? PhastMap<Strings>::create(context, kinds, own)
                                     : PhastMap<Integers>::create(context, kinds, own);
}

Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root) {
  return kinds.key == KeyKind::bytes ? PhastMap<Strings>::open(context, root)
                                     : PhastMap<Integers>::open(context, root);
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
