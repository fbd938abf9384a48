// nap() sleeps, by default for 50 microseconds, for a thread that waits for another process that
// cannot wake it. The simulator does not drive such code, so nap() is no member of Platform.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace perdure {

// For less than a second.
inline void nap(std::uint64_t ns = 50'000) noexcept { usleep(static_cast<useconds_t>(ns / 1000)); }

}  // namespace perdure
