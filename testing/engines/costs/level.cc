#include "index/level/level.h"

#include "testing/engines/costs.h"

namespace perdure::testing {

void costs_of::level() {
  costs::print<
      costs::Real<Engine::level, level::Level<SimPlatform, level::IntegerCodec>, LevelOptions>>();
}

}  // namespace perdure::testing
