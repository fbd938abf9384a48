// PhaST as the crash explorer sees it; its nodes are tiny unless said.
#pragma once

#include "index/phast/phast.h"
#include "testing/map_subject.h"

namespace perdure::testing {

template <class Codec, class Geometry>
struct PhastTraits {
  using Map = phast::Phast<SimPlatform, Codec, Geometry>;
  static constexpr Engine kEngine = Engine::phast;
  static constexpr bool kBytes = Codec::kBytes;

  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup& setup) {
    return Map::create(context, kinds, {.partition_bits = setup.partition_bits});
  }
};

using PhastSetup = MapSetup;
template <class Codec, class Geometry = phast::TinyGeometry>
using PhastSubject = MapSubject<PhastTraits<Codec, Geometry>>;

}  // namespace perdure::testing
