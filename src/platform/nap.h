// Gives the core away for a while: for who waits for another process that cannot wake it. Not for
// what the simulator drives, and so no member of Platform.
#pragma once

#include <unistd.h>

namespace perdure {

inline void nap() noexcept { usleep(50); }

}  // namespace perdure
