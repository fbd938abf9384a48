// What other threads do soon, and how many threads and descriptors there are.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
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

inline std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator first(folder);
  return static_cast<std::size_t>(std::distance(first, std::filesystem::directory_iterator{}));
}
// A sanitizer starts a thread of its own with the first: start one before.
inline std::size_t threads_of_this_process() { return entries_of("/proc/self/task"); }
inline std::size_t open_descriptors() { return entries_of("/proc/self/fd"); }

}  // namespace perdure::test
