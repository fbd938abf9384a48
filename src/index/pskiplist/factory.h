// The two functions of the multi-version store that the engine table names.
#pragma once

#include <cstdint>
#include <memory>

#include "index/engine.h"
#include "perdure/options.h"
#include "platform/real_platform.h"

namespace perdure::pskiplist {

Expected<std::uint64_t> create(const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                               const MapOptions& options);
Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<RealPlatform>& context,
                                               const MapKinds& kinds, std::uint64_t root);

}  // namespace perdure::pskiplist
