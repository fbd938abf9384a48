// Turns SIGBUS in the mapping of a pool into errors.
//
// A load or store behind the end of a file that became shorter, or on a medium that fails, raises
// SIGBUS. For registered mappings, a handler of the process maps zero pages of DRAM over the lost
// ones, so that the access and later ones succeed. It also marks the mapping, so that operations on
// it fail: what they have read since is wrong, and what they have stored is lost. Every other
// SIGBUS goes to the previous handler.
//
// Thread safety: any thread. The handler is lock-free and calls only mmap and `on_lost`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace perdure {

// The handler sets both.
struct MappingState {
  std::atomic<bool> poisoned{false};  // for any cause: nothing is acknowledged any more
  std::atomic<bool> lost{false};      // a part of the mapping is no longer backed by the file
  // Called then, if it is not null, with `argument`, by a signal handler. Set it before the mapping
  // is registered.
  std::atomic<void (*)(void*)> on_lost{nullptr};
  void* argument = nullptr;
};
static_assert(std::atomic<bool>::is_always_lock_free);

// Registers [base, base + bytes). The first call installs the handler. Returns false if there are
// too many mappings (kMaxBusMappings), or if the system refuses.
inline constexpr std::size_t kMaxBusMappings = 256;
bool watch_bus_errors(const void* base, std::size_t bytes, MappingState& state) noexcept;
// Unregisters the mapping that begins at `base`, or all that have the state. Call it after the last
// use and before munmap. Idempotent.
void ignore_bus_errors(const void* base) noexcept;
void ignore_bus_errors_of(const MappingState& state) noexcept;

}  // namespace perdure
