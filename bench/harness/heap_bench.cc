#include "bench/harness/heap_bench.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "bench/harness/memory_heap.h"
#include "bench/workloads/random.h"
#include "perdure/pool.h"

namespace perdure::bench {
namespace {

constexpr std::uint64_t kExtent = 64_KiB;
constexpr std::uint64_t kExtents = 1024;
constexpr std::uint64_t kExtentsOfThread = 32;  // for each thread, beyond those
constexpr std::size_t kBatch = 1000;
constexpr std::size_t kRounds = 1000;
constexpr std::size_t kRuns = 5;

// What one thread does, with blocks of its own. Its last line is written for every block, so no
// other loop may begin there.
class alignas(128) Loop {
 public:
  Loop(Heap<RealPlatform>& heap, std::uint64_t seed) : heap_(heap) {
    Random random(seed);
    for (std::size_t i = 0; i < kBatch; ++i) {
      order_[i] = i;
      sizes_[i] = 16 + random.next() % 1008;
    }
    for (std::size_t i = kBatch - 1; i > 0; --i) {
      std::swap(order_[i], order_[random.next() % (i + 1)]);
    }
  }
  void run(std::size_t rounds) {
    for (std::size_t r = 0; r < rounds; ++r) {
      for (std::size_t i = 0; i < kBatch; ++i) {
        blocks_[i] = heap_.allocate(sizes_[i], BlockKind::plain).value_or(0);
        failed_ |= blocks_[i] == 0;
      }
      if (failed_) return;
      for (const std::size_t i : order_) heap_.free(blocks_[i]);
    }
  }
  bool failed() const noexcept { return failed_; }

 private:
  Heap<RealPlatform>& heap_;
  std::array<std::uint64_t, kBatch> blocks_ = {};
  std::array<std::size_t, kBatch> order_;
  std::array<std::size_t, kBatch> sizes_;
  bool failed_ = false;
};

// Returns the nanoseconds until the last of the threads has done its rounds. `counted`: gets what
// the threads have counted.
double run_all(std::vector<Loop>& loops, std::size_t threads, Counters& counted) {
  std::vector<std::uint64_t> ends(threads);
  std::vector<Counters> counts(threads);
  std::uint64_t begin = 0;
  std::barrier start(static_cast<std::ptrdiff_t>(threads),
                     [&begin]() noexcept { begin = RealPlatform::now_ns(); });
  const auto work = [&](std::size_t t) {
    loops[t].run(1);  // takes extents
    const Counters before = thread_counters();
    start.arrive_and_wait();
    loops[t].run(kRounds);
    ends[t] = RealPlatform::now_ns();
    const Counters after = thread_counters();
    counts[t] = {.flushes = after.flushes - before.flushes, .fences = after.fences - before.fences};
  };
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& thread : others) thread.join();
  for (const Counters& count : counts) {
    counted.flushes += count.flushes;
    counted.fences += count.fences;
  }
  return static_cast<double>(std::ranges::max(ends) - begin);
}

double median(std::array<double, kRuns> values) {
  std::ranges::sort(values);
  return values[kRuns / 2];
}

}  // namespace

Result<HeapCost> measure_heap(std::uint32_t threads) {
  MemoryHeap memory;
  memory.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
  if (!memory.open(kExtent, kExtents + kExtentsOfThread * threads).ok()) {
    return failure(kExitIo, "cannot set a heap up: out of memory");
  }
  std::vector<Loop> loops;
  loops.reserve(threads);
  for (std::uint32_t t = 0; t < threads; ++t) loops.emplace_back(memory.heap(), t + 1);
  Counters counted;
  Counters of_one;
  std::array<double, kRuns> runs, speedups;
  for (std::size_t run = 0; run < kRuns; ++run) {
    // In turns: the speed of the machine changes.
    const double alone = threads > 1 ? run_all(loops, 1, of_one) : 0;
    runs[run] = run_all(loops, threads, counted);
    speedups[run] = threads > 1 ? threads * alone / runs[run] : 1;
  }
  if (std::ranges::any_of(loops, &Loop::failed)) {
    return failure(kExitIo, "the heap is too small for so many threads");
  }
  const double pairs = static_cast<double>(threads) * kRounds * kBatch;
  return HeapCost{.pair_ns = median(runs) / (kRounds * kBatch),
                  .pairs_per_s = pairs * 1e9 / median(runs),
                  .speedup = median(speedups),
                  .flushes_per_pair = static_cast<double>(counted.flushes) / (kRuns * pairs),
                  .fences_per_pair = static_cast<double>(counted.fences) / (kRuns * pairs)};
}

}  // namespace perdure::bench
