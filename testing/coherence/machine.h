// Machine: simulated cores with private caches, and what their accesses cost. It does not know the
// library: it is fed with the lines that operations read and write.
//
// MODEL
//   A core has a private cache, and the copy of a line in it is shared or modified, as in MSI. A
//   modified copy is the only one. A line that no cache has comes from memory.
//   An access takes a line over if the copy of another core is the reason that it misses:
//     - another core has a modified copy, or
//     - the access writes and other cores have copies, or
//     - a write of another core has invalidated the copy of this core, and the cache has not
//       replaced it since. So a line that lies still for long is no line taken over.
//   A line is busy while it moves from one core to another. Accesses that need it meanwhile wait.
//   The queue of an access is the number of accesses that wait for the line or move it, itself
//   included. Reads that only share a line do not keep it busy for others.
// NOT IN THE MODEL  prefetches, store buffers, write-backs, the ring or mesh between the cores, and
//   how long a latch is held.
#pragma once

#include <bitset>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace perdure::testing {

struct MachineOptions {
  std::uint32_t cores = 1;
  std::uint32_t cache_lines = 16384;  // of a core: 1 MiB
  std::uint32_t ways = 16;
  std::uint64_t hit_ps = 500;        // picoseconds
  std::uint64_t memory_ps = 60'000;  // several misses of an operation overlap
  std::uint64_t takeover_ps = 80'000;
};

class Machine {
 public:
  static constexpr std::uint32_t kMaxCores = 128;
  struct Result {
    bool taken_over = false;
    std::uint32_t queue = 0;  // 0: the access was not taken over
    std::uint64_t done_ps = 0;
  };

  explicit Machine(const MachineOptions& options);
  // `core` reads or writes the line at this time. Times of different calls must not decrease.
  Result access(std::uint32_t core, std::uint64_t line, bool writes, std::uint64_t now_ps);

 private:
  enum class Copy : std::uint8_t { none, shared, modified, invalidated };
  struct Way {
    std::uint64_t line = 0;
    std::uint64_t used = 0;
    Copy copy = Copy::none;
  };
  struct Line {
    std::bitset<kMaxCores> holders;
    bool modified = false;  // then there is one holder
    std::uint64_t busy_until_ps = 0;
    std::vector<std::uint64_t> done_ps;  // of accesses that took it over
  };

  Way* find(std::uint32_t core, std::uint64_t line);
  Way& make_room(std::uint32_t core, std::uint64_t line);
  void invalidate_others(std::uint32_t core, std::uint64_t line, Line& state);
  static Result move(Line& state, bool exclusive, std::uint64_t now_ps, std::uint64_t takeover_ps);

  MachineOptions options_;
  std::uint32_t sets_;
  std::uint64_t clock_ = 0;  // of uses, for replacement
  std::vector<Way> ways_;    // by core, then by set
  std::unordered_map<std::uint64_t, Line> lines_;
};

}  // namespace perdure::testing
