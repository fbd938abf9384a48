// Want of space for a file: on its disk, by a quota, or by the limit of the process (ulimit -f).
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <cstdint>

namespace perdure {

inline bool is_no_space(int error) noexcept {
  return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

// Whether the process must not make a file so long. A call that tries it raises SIGXFSZ, which ends
// the program.
inline bool beyond_limit(std::uint64_t bytes) noexcept {
  struct rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         bytes > limit.rlim_cur;
}

}  // namespace perdure
