// Files that were written once and are kept as text in tests/pool/golden: `size N`, then the lines
// of 64 bytes that are not zero, each behind its offset. What is zero becomes a hole.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/support.h"

namespace perdure::test {

inline std::string golden_folder() {
  const char* root = std::getenv("PERDURE_SOURCE_DIR");
  return std::string(root != nullptr ? root : ".") + "/tests/pool/golden/";
}

// Writes the file `name` to `path`, for its owner only. A file that is there keeps its inode.
inline void write_from_golden(const std::string& name, const std::string& path) {
  const std::string source = golden_folder() + name + ".hex";
  std::ifstream in(source);
  require(in.good(), "cannot read " + source);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  require(fd >= 0, "cannot write " + path);
  bool written = true;
  for (std::string text; std::getline(in, text);) {
    if (text.starts_with('#')) continue;
    std::istringstream words(text);
    std::string first, second;
    words >> first >> second;
    if (first == "size") {
      written = written && ::ftruncate(fd, std::stoll(second)) == 0;
      continue;
    }
    std::string bytes;
    for (std::size_t i = 0; i < second.size(); i += 2) {
      bytes += static_cast<char>(std::stoi(second.substr(i, 2), nullptr, 16));
    }
    const auto size = static_cast<ssize_t>(bytes.size());
    const off_t offset = std::stoll(first, nullptr, 16);
    written = written && ::pwrite(fd, bytes.data(), bytes.size(), offset) == size;
  }
  require(::close(fd) == 0 && written, "cannot write " + path);
}

// `note`: what it is; it becomes a comment.
inline void write_golden(const std::string& name, const std::string& bytes,
                         const std::string& note) {
  const std::string path = golden_folder() + name + ".hex";
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path);
  out << "# " << note << "\n# The lines of 64 bytes that are not zero, each behind its offset.\n"
      << "size " << bytes.size() << "\n";
  for (std::size_t at = 0; at < bytes.size(); at += 64) {
    const std::string line = bytes.substr(at, 64);
    if (line.find_first_not_of('\0') == std::string::npos) continue;
    char text[32];
    std::snprintf(text, sizeof(text), "%zx ", at);
    out << text;
    for (const char c : line) {
      std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned char>(c));
      out << text;
    }
    out << "\n";
  }
  require(out.good(), "cannot write " + path);
}

}  // namespace perdure::test
