#include "bench/harness/heap_bench.h"

#include <algorithm>
#include <array>

#include "bench/harness/memory_heap.h"
#include "bench/workloads/random.h"
#include "perdure/pool.h"

namespace perdure::bench {
namespace {

constexpr std::uint64_t kExtent = 64_KiB;
constexpr std::uint64_t kExtents = 1024;
constexpr std::size_t kBatch = 1000;
constexpr std::size_t kRounds = 1000;
constexpr std::size_t kRuns = 5;

}  // namespace

Result<HeapCost> measure_heap() {
  MemoryHeap memory;
  memory.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
  if (!memory.open(kExtent, kExtents).ok()) {
    return failure(kExitIo, "cannot set a heap up: out of memory");
  }
  Heap<RealPlatform>& heap = memory.heap();
  static std::array<std::uint64_t, kBatch> blocks;
  std::array<std::size_t, kBatch> order;
  std::array<std::size_t, kBatch> sizes;
  Random random(1);
  for (std::size_t i = 0; i < kBatch; ++i) {
    order[i] = i;
    sizes[i] = 16 + random.next() % 1008;
  }
  for (std::size_t i = kBatch - 1; i > 0; --i) std::swap(order[i], order[random.next() % (i + 1)]);
  const auto round = [&] {
    for (std::size_t i = 0; i < kBatch; ++i) {
      blocks[i] = heap.allocate(sizes[i], BlockKind::plain).value_or(0);
    }
    for (const std::size_t i : order) heap.free(blocks[i]);
  };
  round();  // acquires the extents
  const Counters before = thread_counters();
  std::array<double, kRuns> runs;
  for (double& run : runs) {
    const std::uint64_t begin = RealPlatform::now_ns();
    for (std::size_t r = 0; r < kRounds; ++r) round();
    run = static_cast<double>(RealPlatform::now_ns() - begin) / (kRounds * kBatch);
  }
  std::ranges::sort(runs);
  const Counters after = thread_counters();
  constexpr double kPairs = kRuns * kRounds * kBatch;
  return HeapCost{.pair_ns = runs[kRuns / 2],
                  .flushes_per_pair = static_cast<double>(after.flushes - before.flushes) / kPairs,
                  .fences_per_pair = static_cast<double>(after.fences - before.fences) / kPairs};
}

}  // namespace perdure::bench
