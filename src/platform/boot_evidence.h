// What shows, without a look at its content, whether a live image is as its last process had it.
//
// The kernel has what was stored to a file in memory until it has written it. That memory is gone
// after a restart of the machine, and after the file system was unmounted: then the image may be
// older than it should be. A container can have an id of the boot of its own, and a mount of its
// own, in the same boot.
#pragma once

#include <cstdint>
#include <string_view>

#include "platform/file_system.h"

namespace perdure {

// Seconds since the boot, in the upper half, and those from the epoch of Unix to the boot. Both
// of one moment.
std::uint64_t boot_clocks() noexcept;

enum class Boot : std::uint8_t {
  same,     // as far as the clocks tell
  another,  // the machine was restarted since `clocks`
  unknown,  // it may have been, or its clock was set
};
Boot compare_boots(std::uint64_t clocks, std::uint64_t now, bool in_time_namespace) noexcept;
bool in_time_namespace() noexcept;

// The id of the mount of a folder, which no other mount of this boot gets; 0: the system has none.
std::uint64_t mount_of_folder(std::string_view folder) noexcept;
// Whether the kernel has the first page of the file in memory. Asks before anything is read.
bool is_in_memory(const RealFileSystem::Place& file) noexcept;

}  // namespace perdure
