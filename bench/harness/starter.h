// Starter: releases the threads of a phase together, and takes the time until the last one is done.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "bench/harness/progress.h"

namespace perdure::bench {

// Starts task(t) for every t once all threads exist.
class Starter {
 public:
  template <class Prepare, class Task>
  void start(std::size_t threads, Prepare prepare, Task task) {
    for (std::size_t t = 0; t < threads; ++t) {
      threads_.emplace_back([this, t, prepare, task] {
        auto prepared = prepare(t);
        ready_.fetch_add(1, std::memory_order_acq_rel);
        ready_.notify_one();
        go_.wait(false, std::memory_order_acquire);
        task(t, *prepared);
        note_end();
        finished_.fetch_add(1, std::memory_order_release);
      });
    }
    for (std::size_t seen = ready_.load(); seen < threads; seen = ready_.load()) ready_.wait(seen);
    released_ = Clock::now();
    go_.store(true, std::memory_order_release);
    go_.notify_all();
  }
  // Waits for all threads. Meanwhile it shows how many operations are done, which done() returns.
  template <class Done>
  void join(Progress& progress, Done done) {
    while (progress.enabled() && finished_.load(std::memory_order_acquire) < threads_.size()) {
      progress.show(done());
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    progress.clear();
  }
  // From the release of the threads to the end of the last one; after join().
  double wall_seconds() const noexcept {
    return std::chrono::duration<double>(Clock::duration(last_end_.load()) -
                                         released_.time_since_epoch())
        .count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void note_end() noexcept {
    const Clock::rep end = Clock::now().time_since_epoch().count();
    Clock::rep last = last_end_.load();
    while (last < end && !last_end_.compare_exchange_weak(last, end)) {
    }
  }

  std::vector<std::thread> threads_;
  std::atomic<std::size_t> ready_{0};
  std::atomic<std::size_t> finished_{0};
  std::atomic<bool> go_{false};
  Clock::time_point released_;
  std::atomic<Clock::rep> last_end_{0};
};

}  // namespace perdure::bench
