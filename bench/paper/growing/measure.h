// What the phases of clevel hashing's evaluation share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "bench/paper/growing/figures.h"
#include "bench/paper/turns.h"
#include "bench/workloads/random.h"
#include "perdure/pool.h"

namespace perdure::paper {

inline Word key_of(std::uint64_t n) noexcept { return bench::mix64(n + 1) | 1; }

// Opens a heap that a table of `items` fits in, with all that it leaves behind while it grows.
inline void open_for(bench::MemoryHeap& memory, std::uint64_t items) {
  constexpr std::uint64_t kBytesPerItem = 400;
  must(memory.open(64_KiB, items * kBytesPerItem / 64_KiB + 4096));
  memory.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
}

// Calls operation(i) for i below n, by threads that have a block each. By the clock on the wall.
template <class F>
Figure measure(std::uint64_t n, std::uint32_t threads, F operation) {
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> all = true;
  std::atomic<std::uint64_t> flushes = 0;
  std::atomic<std::uint64_t> fences = 0;
  std::atomic<bool> go = false;
  std::vector<std::thread> workers;
  for (std::uint64_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      go.wait(false);
      const Counters before = thread_counters();
      bool right = true;
      for (std::uint64_t i = n * t / threads; i < n * (t + 1) / threads; ++i) {
        right &= operation(i);
      }
      if (!right) all = false;
      flushes += thread_counters().flushes - before.flushes;
      fences += thread_counters().fences - before.fences;
    });
  }
  const Clock::time_point begin = Clock::now();
  go = true;
  go.notify_all();
  for (std::thread& worker : workers) worker.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  require(all, "an operation returned a wrong result");
  const auto count = static_cast<double>(n);
  return {count / seconds / 1e6, static_cast<double>(flushes) / count,
          static_cast<double>(fences) / count};
}

inline std::string of_threads(std::uint32_t threads) {
  return std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

}  // namespace perdure::paper
