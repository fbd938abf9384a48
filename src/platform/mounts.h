// Mounts, as the kernel numbers them in /proc/self/mountinfo. A process sees those of its own
// namespace.
#pragma once

#include <cstdint>

#include "util/path.h"

namespace perdure {

// The number of the mount through which an open file was reached; 0: it cannot be told.
std::uint64_t mount_of(int fd) noexcept;
// The same from /proc, for kernels before 5.8.
std::uint64_t mount_in_fdinfo(int fd) noexcept;
// Whether the open file, whose name is `path`, is a mount of its own in a folder of another one:
// names beside it lead to other file systems than its folder has elsewhere. False also if that
// cannot be told.
bool is_mounted_alone(int fd, const char* path) noexcept;
// The folder that holds what is changed in the overlayfs of an open file. False: it has none, or it
// cannot be told, as in a container.
bool upper_layer_of(int fd, PathText& folder) noexcept;

}  // namespace perdure
