#include "index/skiplist/skiplist.h"

#include "testing/engines/costs.h"

namespace perdure::testing {

void costs_of::as() {
  costs::print<costs::Real<
      Engine::as, skiplist::Skiplist<SimPlatform, skiplist::IntegerCodec, skiplist::As>>>();
}

}  // namespace perdure::testing
