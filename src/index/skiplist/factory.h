// The functions of the skiplists that the engine table names.
#pragma once

#include <cstdint>
#include <memory>

#include "index/engine.h"
#include "index/skiplist/kinds.h"
#include "perdure/options.h"
#include "platform/real_platform.h"

namespace perdure::skiplist {

template <class Kind>  // As or Ascs
Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions& options);
template <class Kind>
Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root);

}  // namespace perdure::skiplist
