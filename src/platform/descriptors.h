// Descriptors that the library keeps. Those below 3 are the standard streams of the program, also
// if it has closed them: what it prints must not reach a pool.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace perdure {

// Takes a descriptor, or -1 with errno. Returns one above the standard streams, or -1.
inline int above_streams(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return copy;
}

}  // namespace perdure
