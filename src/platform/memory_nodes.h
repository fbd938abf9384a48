// Memory nodes: interleaving over those of a machine with several sockets (NUMA).
//
// WHAT  By default the system takes a page from the node of the thread that touches it first. One
//   thread touches most of a pool: the one that grows it. Interleaved pages come from all nodes
//   that the process may use, in turn. A page that exists stays where it is.
// WHERE  A pool that is opened with PoolOptions::interleave
//     the file     FileStorage::map(), before anything is touched, for the whole capacity. On tmpfs
//                  the policy belongs to the file and not to the mapping: it stays until the file
//                  is deleted, and counts for every process. Linux ignores it for files on disks;
//                  on DAX each page has its place.
//     its tables   reserve_dram() (arena.h), while such a pool is open in the process
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure {

// The number of nodes that the process may use; 0 if the system does not say.
std::uint32_t memory_nodes() noexcept;

// Interleaves the pages of a mapping that do not exist yet. Returns 0, or the errno of the system.
int interleave(void* p, std::size_t bytes) noexcept;

// Whether the page at `p` has such a policy: of its mapping, of its file or of its mount.
bool interleaved(const void* p) noexcept;

// Of the huge page `number` of a file on tmpfs: the small page that decides on which node the huge
// page lies. To collapse a huge page the system takes the node of the small pages that are there.
// It places small page i on node (i + a constant of the file) modulo the number of nodes. If the
// first small page decided, all huge pages would lie on one node, where 512 is a multiple of that
// number. 0 with one node.
constexpr std::uint64_t deciding_page(std::uint64_t number, std::uint32_t nodes) noexcept {
  constexpr std::uint64_t kSmall = 512;  // small pages in a huge page
  if (nodes < 2 || nodes > kSmall) return 0;
  const std::uint64_t skew = (nodes - kSmall % nodes + 1) % nodes;  // 1 - 512
  return number % nodes * skew % nodes;
}

// While one is on, reserve_dram() interleaves what it maps, for all pools of the process.
class InterleavedDram {
 public:
  InterleavedDram() = default;
  InterleavedDram(const InterleavedDram&) = delete;
  InterleavedDram& operator=(const InterleavedDram&) = delete;
  ~InterleavedDram() { end(); }

  void begin() noexcept;
  void end() noexcept;

 private:
  bool on_ = false;
};

}  // namespace perdure
