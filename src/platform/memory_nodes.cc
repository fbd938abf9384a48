#include "platform/memory_nodes.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>

#include "util/arena.h"

namespace perdure {

namespace {

// The system has at most 1024 nodes. It takes one bit less than `kMost` says.
struct NodeMask {
  static constexpr unsigned long kMost = 1025;
  std::uint64_t words[16] = {};
};

bool allowed(NodeMask& mask) noexcept {
  return ::syscall(SYS_get_mempolicy, nullptr, mask.words, NodeMask::kMost, nullptr,
                   MPOL_F_MEMS_ALLOWED) == 0;
}

std::atomic<std::uint32_t> interleavers{0};

}  // namespace

std::uint32_t memory_nodes() noexcept {
  NodeMask mask;
  if (!allowed(mask)) return 0;
  int count = 0;
  for (const std::uint64_t word : mask.words) count += std::popcount(word);
  return static_cast<std::uint32_t>(count);
}

int interleave(void* p, std::size_t bytes) noexcept {
  NodeMask mask;
  if (!allowed(mask)) return errno;
  return ::syscall(SYS_mbind, p, bytes, MPOL_INTERLEAVE, mask.words, NodeMask::kMost, 0) == 0
             ? 0
             : errno;
}

bool interleaved(const void* p) noexcept {
  int mode = MPOL_DEFAULT;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, p, MPOL_F_ADDR) == 0 &&
         mode == MPOL_INTERLEAVE;
}

void InterleavedDram::begin() noexcept {
  if (!on_) interleavers.fetch_add(1, std::memory_order_relaxed);
  on_ = true;
}

void InterleavedDram::end() noexcept {
  if (on_) interleavers.fetch_sub(1, std::memory_order_relaxed);
  on_ = false;
}

void place_dram(void* p, std::size_t bytes) noexcept {
  // Best effort: the open of the pool has logged what the system refuses.
  if (interleavers.load(std::memory_order_relaxed) != 0) (void)interleave(p, bytes);
}

}  // namespace perdure
