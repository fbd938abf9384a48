// PathText: a path that needs no allocation, for code that must work when memory is short.
#pragma once

#include <climits>
#include <cstddef>
#include <string_view>

namespace perdure {

// Of the last name in the path.
inline std::string_view folder_of(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

class PathText {
 public:
  // Returns false if the path is too long for the system, or contains a NUL.
  bool assign(std::string_view path, std::string_view suffix = {}) noexcept {
    if (path.size() + suffix.size() >= sizeof(text_)) return false;
    if (path.find('\0') != std::string_view::npos) return false;
    path.copy(text_, path.size());
    suffix.copy(text_ + path.size(), suffix.size());
    text_[path.size() + suffix.size()] = '\0';
    return true;
  }
  const char* c_str() const noexcept { return text_; }

 private:
  char text_[PATH_MAX] = {};
};

}  // namespace perdure
