// BusErrors: SIGBUS of pool mappings, answered by errors.
//
// A load or store behind the end of a file that became shorter, or on a medium that fails, raises
// SIGBUS. For mappings registered here a handler of the process puts zero pages of DRAM in place of
// what is lost, so that the access and all later ones go on, and tells the mapping's owner, whose
// operations then fail: what they read or stored since is nowhere. Every other SIGBUS goes to the
// handler that was there before.
//
// Thread safety: any thread. The handler itself is lock-free and calls nothing but mmap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure {

class BusErrorOwner {
 public:
  // In a signal handler: may do no more than store lock-free atomics.
  virtual void mapping_lost() noexcept = 0;

 protected:
  ~BusErrorOwner() = default;
};

// Registers [base, base + bytes), and on first use installs the handler. False: too many mappings
// (kMaxBusMappings), or the system refused.
inline constexpr std::size_t kMaxBusMappings = 256;
bool watch_bus_errors(const void* base, std::size_t bytes, BusErrorOwner& owner) noexcept;
// Before the mapping goes, and after its last use. Idempotent.
void ignore_bus_errors(const BusErrorOwner& owner) noexcept;

}  // namespace perdure
