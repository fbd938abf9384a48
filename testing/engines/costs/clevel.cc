#include "index/clevel/clevel.h"

#include "testing/engines/costs.h"

namespace perdure::testing {

void costs_of::clevel() {
  costs::print<costs::Real<Engine::clevel, clevel::Clevel<SimPlatform, clevel::IntegerCodec>,
                           std::uint64_t>>();
}

}  // namespace perdure::testing
