// nap() sleeps for 50 microseconds, for a thread that waits for another process that cannot wake
// it. The simulator does not drive such code, so nap() is no member of Platform.
#pragma once

#include <unistd.h>

namespace perdure {

inline void nap() noexcept { usleep(50); }

}  // namespace perdure
