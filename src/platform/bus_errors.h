// BusErrors: SIGBUS of pool mappings, answered by errors.
//
// A load or store behind the end of a file that became shorter, or on a medium that fails, raises
// SIGBUS. For mappings registered here a handler of the process puts zero pages of DRAM in place of
// what is lost, so that the access and all later ones go on, and marks the mapping, so that
// operations on it fail: what they read or stored since is nowhere. Every other SIGBUS goes to the
// handler that was there before.
//
// Thread safety: any thread. The handler itself is lock-free and calls nothing but mmap.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace perdure {

// Set by the handler.
struct MappingState {
  std::atomic<bool> poisoned{false};  // by whatever: nothing is acknowledged any more
  std::atomic<bool> lost{false};      // part of the mapping is no longer the file's
};
static_assert(std::atomic<bool>::is_always_lock_free);

// Registers [base, base + bytes), and on first use installs the handler. False: too many mappings
// (kMaxBusMappings), or the system refused.
inline constexpr std::size_t kMaxBusMappings = 256;
bool watch_bus_errors(const void* base, std::size_t bytes, MappingState& state) noexcept;
// Before the mapping goes, and after its last use. Idempotent.
void ignore_bus_errors(const MappingState& state) noexcept;

}  // namespace perdure
