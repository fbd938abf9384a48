// What a machine that is short of memory does to the mappings of a file.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace perdure {

// The kernel forgets the pages that this process has mapped of all files whose path contains
// `path`, if it takes them for clean. Returns how many mappings that was done to.
inline std::uint64_t page_out(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  std::uint64_t done = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(path) == std::string::npos) continue;
    char* end = nullptr;
    const std::uint64_t from = std::strtoull(line.c_str(), &end, 16);
    const std::uint64_t to = std::strtoull(end + 1, nullptr, 16);
    void* const at = reinterpret_cast<void*>(from);  // NOLINT: an address of this process
    if (::madvise(at, to - from, MADV_PAGEOUT) == 0) ++done;
  }
  return done;
}

}  // namespace perdure
