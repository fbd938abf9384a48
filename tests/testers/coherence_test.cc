// test: explores
// The simulated machine of perdure-coherence: which accesses take a line over, and which wait.
#include <gtest/gtest.h>

#include "testing/coherence/machine.h"

namespace perdure::testing {
namespace {

constexpr std::uint64_t kHit = 1;
constexpr std::uint64_t kMemory = 10;
constexpr std::uint64_t kTakeover = 100;

MachineOptions small(std::uint32_t cores) {
  return {.cores = cores,
          .cache_lines = 4,
          .ways = 2,
          .hit_ps = kHit,
          .memory_ps = kMemory,
          .takeover_ps = kTakeover};
}

// A machine on which each access begins when the one before is done.
struct Calm {
  explicit Calm(std::uint32_t cores) : machine(small(cores)) {}
  // Returns what the access cost.
  std::uint64_t read(std::uint32_t core, std::uint64_t line) { return run(core, line, false); }
  std::uint64_t write(std::uint32_t core, std::uint64_t line) { return run(core, line, true); }
  std::uint64_t run(std::uint32_t core, std::uint64_t line, bool writes) {
    const auto result = machine.access(core, line, writes, now);
    EXPECT_EQ(result.taken_over, result.done_ps - now == kTakeover);
    EXPECT_EQ(result.queue, result.taken_over ? 1U : 0U);
    const std::uint64_t cost = result.done_ps - now;
    now = result.done_ps;
    return cost;
  }
  Machine machine;
  std::uint64_t now = 0;
};

TEST(Machine, ACoreKeepsItsLines) {
  Calm machine(2);
  EXPECT_EQ(machine.read(0, 8), kMemory);
  EXPECT_EQ(machine.read(0, 8), kHit);
  EXPECT_EQ(machine.write(0, 8), kHit) << "no other core has a copy";
  EXPECT_EQ(machine.write(0, 8), kHit);
}

TEST(Machine, ReadersShareALine) {
  Calm machine(3);
  for (std::uint32_t core = 0; core < 3; ++core) EXPECT_EQ(machine.read(core, 8), kMemory);
  for (std::uint32_t core = 0; core < 3; ++core) EXPECT_EQ(machine.read(core, 8), kHit);
}

TEST(Machine, AWriteTakesTheLineFromAllReaders) {
  Calm machine(3);
  for (std::uint32_t core = 0; core < 3; ++core) machine.read(core, 8);
  EXPECT_EQ(machine.write(0, 8), kTakeover);
  EXPECT_EQ(machine.read(1, 8), kTakeover);
  EXPECT_EQ(machine.read(2, 8), kTakeover) << "its copy was invalidated";
  EXPECT_EQ(machine.read(0, 8), kHit) << "it kept a shared copy";
  EXPECT_EQ(machine.write(0, 8), kTakeover);
}

TEST(Machine, AModifiedLineIsTakenOverByACoreThatNeverHadIt) {
  Calm machine(2);
  machine.write(0, 8);
  EXPECT_EQ(machine.read(1, 8), kTakeover);
  machine.write(0, 9);
  EXPECT_EQ(machine.write(1, 9), kTakeover);
}

// Two ways per set: the third line of a set replaces the one that was not used for longest.
TEST(Machine, AReplacedLineComesFromMemory) {
  Calm machine(2);
  machine.write(0, 8);
  machine.read(0, 10);
  machine.read(0, 8);
  EXPECT_EQ(machine.read(0, 12), kMemory);
  EXPECT_EQ(machine.read(0, 8), kHit);
  EXPECT_EQ(machine.read(0, 10), kMemory) << "12 has replaced it";
  machine.read(0, 12);
  machine.read(0, 10);
  EXPECT_EQ(machine.read(1, 8), kMemory) << "the modified copy was written back";
}

TEST(Machine, ACopyThatWasInvalidatedLongAgoIsForgotten) {
  Calm machine(2);
  machine.read(0, 8);
  machine.write(1, 8);
  machine.read(0, 10);
  machine.read(0, 12);  // replaces the invalidated copy
  machine.read(1, 10);
  machine.read(1, 12);  // writes the modified copy back
  EXPECT_EQ(machine.read(0, 8), kMemory);
}

TEST(Machine, AccessesQueueAtALineThatMoves) {
  Machine machine(small(4));
  machine.access(0, 8, true, 0);
  const auto first = machine.access(1, 8, true, 1000);
  EXPECT_EQ(first.done_ps, 1100U);
  EXPECT_EQ(first.queue, 1U);
  const auto second = machine.access(2, 8, true, 1010);
  EXPECT_EQ(second.done_ps, 1200U) << "it waits for the first";
  EXPECT_EQ(second.queue, 2U);
  const auto third = machine.access(3, 8, true, 1020);
  EXPECT_EQ(third.done_ps, 1300U);
  EXPECT_EQ(third.queue, 3U);
  const auto later = machine.access(1, 8, true, 1250);
  EXPECT_EQ(later.done_ps, 1400U);
  EXPECT_EQ(later.queue, 2U) << "the third has not finished";
}

TEST(Machine, ReadersOfAnInvalidatedLineDoNotWaitForEachOther) {
  Machine machine(small(4));
  for (std::uint32_t core = 0; core < 4; ++core) machine.access(core, 8, false, 0);
  machine.access(0, 8, true, 1000);
  const auto first = machine.access(1, 8, false, 2000);
  EXPECT_EQ(first.done_ps, 2100U);
  for (std::uint32_t core = 2; core < 4; ++core) {
    const auto result = machine.access(core, 8, false, 2050);
    EXPECT_EQ(result.done_ps, 2200U) << "both wait only for the core that fetches the line";
    EXPECT_EQ(result.queue, core);
  }
}

}  // namespace
}  // namespace perdure::testing
