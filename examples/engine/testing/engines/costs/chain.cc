#include "index/chain/chain.h"

#include "testing/engines/costs.h"

namespace perdure::testing {

void costs_of::chain() {
  costs::print<costs::Real<Engine::chain, chain::Chain<SimPlatform>, std::uint64_t>>();
}

}  // namespace perdure::testing
