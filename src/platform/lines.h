// The lines of a small text file, as those of /proc and /sys.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace perdure {

// Calls seen(line) for each line, with its end, until it returns true. None if the file cannot be
// read.
template <class F>
void for_each_line(const char* path, F&& seen) noexcept {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return;
  char* line = nullptr;  // an overlay names all its layers
  std::size_t room = 0;
  while (::getline(&line, &room, file) > 0) {
    if (seen(static_cast<const char*>(line))) break;
  }
  std::free(line);
  std::fclose(file);
}

}  // namespace perdure
