// The memory limit of a group of processes (cgroup), for instance of a container. The kernel ends a
// process that reaches it, where it refuses what a file system in RAM has no room for.
#pragma once

#include <cstdint>

namespace perdure {

struct MemoryLimit {
  std::uint64_t bytes = 0;  // of the group that has the least room; 0: there is no limit
  // Below it and a reserve for the memory of the process: an eighth of the limit, 8 to 256 MiB.
  // What the kernel can drop, as its cache of files, counts as room.
  std::uint64_t room = ~std::uint64_t{0};
};

// Of the calling process. Reads files in /proc and /sys: tens of microseconds. `root`: where these
// are, in tests.
MemoryLimit memory_limit(const char* root = "") noexcept;

// Whether there is room for so many bytes. What it has read counts for some megabytes. `limit` gets
// the limit if not.
bool leaves_room(std::uint64_t bytes, std::uint64_t& limit) noexcept;

}  // namespace perdure
