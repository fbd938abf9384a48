// Identity: a file of a machine in one of its boots. On media, in the pool's header.
#pragma once

#include <algorithm>
#include <cstdint>

namespace perdure::layout {

// The last owner of the pool, and its machine: they decide whether an unclean pool can be trusted.
struct Identity {
  std::uint8_t boot_id[16];
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t filesystem_id;
  std::uint64_t pid;
  char host[64];
};
static_assert(sizeof(Identity) == 112);

// Whether the system has told the id of the boot.
inline bool is_known(const std::uint8_t (&boot_id)[16]) {
  return std::ranges::any_of(boot_id, [](std::uint8_t byte) { return byte != 0; });
}

}  // namespace perdure::layout
