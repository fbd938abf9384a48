// wait_for_loads(), for benchmarks that measure one operation at a time.
#pragma once

#include "platform/machine.h"

namespace perdure {

// Returns when every earlier load has its value and every earlier branch is decided. No later
// instruction begins before that. Does not order stores: it is no fence of a Platform.
inline void wait_for_loads() noexcept { machine::wait_for_loads(); }

}  // namespace perdure
