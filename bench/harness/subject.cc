#include "bench/harness/subject.h"

namespace perdure::bench {

Outcome Session::read_batch(std::span<const KeyRef> keys,
                            FunctionRef<void(std::size_t, const ValueRef&)> visit) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Outcome outcome = read(keys[i], [&](const ValueRef& value) { visit(i, value); });
    if (outcome == Outcome::failed) return outcome;
  }
  return Outcome::yes;
}

}  // namespace perdure::bench
