#include "index/phast/phast.h"

#include "testing/engines/costs.h"

namespace perdure::testing {

void costs_of::phast() {
  costs::print<
      costs::Real<Engine::phast, phast::Phast<SimPlatform, phast::IntegerCodec>, PhastOptions>>();
}

}  // namespace perdure::testing
