// Tally: what changes have added to a map, counted in lines of which each thread writes one. In
// DRAM.
//
// A thread with one of the first slots has a line of its own and adds by plain stores: a locked
// instruction would wait for the fence before it (decision 0006). All others share the last line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "platform/platform.h"

namespace perdure::skiplist {

template <Platform P, std::uint32_t kLines>
class Tally {
 public:
  struct Sums {
    std::uint64_t entries = 0, bytes = 0, nodes = 0;
  };

  void add(std::int64_t entries, std::int64_t bytes, std::uint64_t nodes) {
    Line& line = own();
    const bool shared = &line == &lines_[kLines - 1];
    const auto add_to = [shared](auto& count, std::uint64_t delta) {
      if (delta == 0) return;
      if (shared) [[unlikely]] {
        count.fetch_add(delta, std::memory_order_relaxed);
      } else {
        count.store(count.load(std::memory_order_relaxed) + delta, std::memory_order_relaxed);
      }
    };
    add_to(line.entries, static_cast<std::uint64_t>(entries));
    add_to(line.bytes, static_cast<std::uint64_t>(bytes));
    add_to(line.nodes, nodes);
  }
  // Returns about how often threads with the caller's line have called this.
  std::uint64_t turn() {
    auto& turns = own().turns;
    const std::uint64_t turn = turns.load(std::memory_order_relaxed);
    turns.store(turn + 1, std::memory_order_relaxed);
    return turn;
  }
  // Exact if no change is in flight. O(kLines).
  Sums sums() const {
    Sums all;
    for (const Line& line : lines_) {
      all.entries += line.entries.load(std::memory_order_relaxed);
      all.bytes += line.bytes.load(std::memory_order_relaxed);
      all.nodes += line.nodes.load(std::memory_order_relaxed);
    }
    return all;
  }
  std::uint64_t entries() const {
    std::uint64_t all = 0;
    for (const Line& line : lines_) all += line.entries.load(std::memory_order_relaxed);
    return all;
  }

 private:
  struct alignas(kOwnLine) Line {
    typename P::template Atomic<std::uint64_t> entries{0}, bytes{0}, nodes{0}, turns{0};
  };
  // Slots are those of living threads. One that begins has its predecessor's line, and sees what
  // that has stored.
  Line& own() { return lines_[std::min(P::thread_slot(), kLines - 1)]; }

  Line lines_[kLines];
  static_assert(kLines > 1);
};

}  // namespace perdure::skiplist
