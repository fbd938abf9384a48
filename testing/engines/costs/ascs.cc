#include "index/skiplist/skiplist.h"

#include "testing/engines/costs.h"

namespace perdure::testing {

void costs_of::ascs() {
  costs::print<costs::Real<
      Engine::ascs, skiplist::Skiplist<SimPlatform, skiplist::IntegerCodec, skiplist::Ascs>>>();
}

}  // namespace perdure::testing
