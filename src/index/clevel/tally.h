// Tally: how many entries a map has gained, counted by each thread in a line of its own. In DRAM.
//
// A thread has its slot alone, and the thread that gets it next comes after it, so it counts by
// plain stores: a locked instruction would cost an insert more. Threads of high slots share the
// last line.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure::clevel {

template <Platform P>
class Tally {
 public:
  [[gnu::always_inline]] void add(std::int64_t n) {
    (void)add_to(&Line::gained, static_cast<std::uint64_t>(n));
  }
  // Returns an odd number that no other call returns.
  std::uint64_t odd() {
    const std::uint64_t n = add_to(&Line::odds, 1);
    return (n * kLines + line()) * 2 + 1;
  }
  // Returns the sum. It is not of one moment while threads count.
  std::int64_t gained() const {
    std::uint64_t sum = 0;
    for (const Line& line : lines_) sum += line.gained.load(std::memory_order_relaxed);
    return static_cast<std::int64_t>(sum);
  }

 private:
  using Count = typename P::template Atomic<std::uint64_t>;
  struct alignas(kOwnLine) Line {
    Count gained{0};
    Count odds{0};
  };
  static constexpr std::uint32_t kLines = 64;

  static std::uint32_t line() {
    const std::uint32_t slot = P::thread_slot();
    return slot < kLines - 1 ? slot : kLines - 1;
  }
  // Returns what the count was. Relaxed order: no thread concludes anything from a count about
  // other memory.
  [[gnu::always_inline]] std::uint64_t add_to(Count Line::* which, std::uint64_t n) {
    const std::uint32_t i = line();
    Count& count = lines_[i].*which;
    if (i == kLines - 1) [[unlikely]]
      return count.fetch_add(n, std::memory_order_relaxed);
    const std::uint64_t before = count.load(std::memory_order_relaxed);
    count.store(before + n, std::memory_order_relaxed);
    return before;
  }

  Line lines_[kLines];
};

}  // namespace perdure::clevel
