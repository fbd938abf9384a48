// Phases of the evaluations whose operations several threads share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/harness/histogram.h"
#include "evaluation/turns.h"
#include "perdure/pool.h"

namespace perdure::paper {

// Calls operation(i) for i below n, by threads that have a block each. By the clock on the wall.
// Throws if it returns false.
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

// The same. Returns the latency of each operation in ns, with the time that the clock takes.
template <class F>
bench::Histogram latencies(std::uint64_t n, std::uint32_t threads, F operation) {
  using Clock = std::chrono::steady_clock;
  std::mutex latch;
  std::atomic<bool> all = true;
  bench::Histogram histogram;
  std::vector<std::jthread> workers;
  for (std::uint64_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      bench::Histogram own;
      bool right = true;
      for (std::uint64_t i = n * t / threads; i < n * (t + 1) / threads; ++i) {
        const auto before = Clock::now();
        right &= operation(i);
        const auto after = Clock::now();
        own.record(static_cast<std::uint64_t>((after - before).count()));
      }
      if (!right) all = false;
      const std::lock_guard guard(latch);
      histogram.merge(own);
    });
  }
  workers.clear();  // joins them
  require(all, "an operation returned a wrong result");
  return histogram;
}

inline std::string of_threads(std::uint32_t threads) {
  return std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

}  // namespace perdure::paper
