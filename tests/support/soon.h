// What other threads do soon, and how many there are.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <thread>

namespace perdure::test {

// Whether it becomes true within five seconds.
template <class F>
bool soon(F&& what) {
  for (int i = 0; i < 5000; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// A sanitizer starts a thread of its own with the first: start one before.
inline std::size_t threads_of_this_process() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    ++n;
  }
  return n;
}

}  // namespace perdure::test
