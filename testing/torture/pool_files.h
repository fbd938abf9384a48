// The files of a pool that a torture has made.
#pragma once

#include <filesystem>
#include <string>

namespace perdure::testing {

// Also those of a process that was killed, in mode `buffered` or within the creation.
inline void remove_pool(const std::string& file) {
  std::error_code ignored;
  for (const char* part : {"", ".creating", "-live", "-live-dirty"})
    std::filesystem::remove(file + part, ignored);
  std::filesystem::remove_all(file + "-log", ignored);
}

}  // namespace perdure::testing
