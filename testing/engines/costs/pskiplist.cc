#include "index/pskiplist/pskiplist.h"

#include "testing/engines/costs.h"

namespace perdure::testing {

void costs_of::pskiplist() {
  costs::print<
      costs::Real<Engine::pskiplist, pskiplist::PSkipList<SimPlatform, pskiplist::IntegerCodec>>>();
}

}  // namespace perdure::testing
