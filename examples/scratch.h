// The pool's file of an example: the path on the command line, or a temporary file that is removed
// at the end.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

class Scratch {
 public:
  Scratch(int argc, char** argv, const char* name)
      : given_(argc > 1),
        path_(given_ ? argv[1]
                     : std::filesystem::temp_directory_path() /
                           (std::string(name) + "." + std::to_string(getpid()) + ".perdure")) {
    if (!given_) std::filesystem::remove(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    if (!given_) std::filesystem::remove(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  bool given_;
  std::string path_;
};
