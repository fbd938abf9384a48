// The phases of the papers' evaluations that threads share: each operation runs once, whatever the
// number of threads, and its write-backs and its result count.
#include "evaluation/parallel.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <stdexcept>

#include "bench/harness/memory_heap.h"

namespace perdure::paper {
namespace {

constexpr std::uint64_t kOperations = 1000;
constexpr std::uint32_t kThreads[] = {1, 3, 16};

TEST(PaperParallel, EachOperationRunsOnce) {
  for (const std::uint32_t threads : kThreads) {
    std::array<std::atomic<int>, kOperations> measured{};
    std::array<std::atomic<int>, kOperations> timed{};
    const auto count = [](auto& runs) {
      return [&runs](std::uint64_t i) { return ++runs[i] == 1; };
    };
    EXPECT_GT(measure(kOperations, threads, count(measured)).mops, 0);
    EXPECT_EQ(latencies(kOperations, threads, count(timed)).count(), kOperations);
    for (std::uint64_t i = 0; i < kOperations; ++i) {
      EXPECT_EQ(measured[i], 1) << i;
      EXPECT_EQ(timed[i], 1) << i;
    }
  }
}

TEST(PaperParallel, OneWrongResultOfAnyThreadThrows) {
  for (const std::uint64_t wrong : {std::uint64_t{0}, kOperations / 2, kOperations - 1}) {
    const auto operation = [=](std::uint64_t i) { return i != wrong; };
    EXPECT_THROW((void)measure(kOperations, 3, operation), std::runtime_error);
    EXPECT_THROW((void)latencies(kOperations, 3, operation), std::runtime_error);
  }
}

TEST(PaperParallel, WriteBacksOfAllThreadsCount) {
  bench::MemoryHeap memory;
  ASSERT_TRUE(memory.open(64_KiB, 64).ok());
  memory.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
  const Figure figure = measure(kOperations, 3, [&](std::uint64_t i) {
    auto* line = memory.heap().at<std::byte>(64_KiB + i % 16 * 64);
    memory.platform().flush(line, 64, "test.line"_site);
    if (i % 2 == 0) return memory.platform().fence("test.line"_site);
    return true;
  });
  EXPECT_DOUBLE_EQ(figure.flushes, 1);
  EXPECT_DOUBLE_EQ(figure.fences, 0.5);
}

}  // namespace
}  // namespace perdure::paper
