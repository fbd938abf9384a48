#include "util/log.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace perdure {

void Log::say(LogLevel level, const char* format, ...) const noexcept {
  if (function_ == nullptr) return;
  char text[1024];
  int size = std::snprintf(text, sizeof(text), "%s: ", path_);
  std::size_t kept = std::min(static_cast<std::size_t>(std::max(size, 0)), sizeof(text) - 1);
  std::va_list arguments;
  va_start(arguments, format);
  size = std::vsnprintf(text + kept, sizeof(text) - kept, format, arguments);
  va_end(arguments);
  kept = std::min(kept + static_cast<std::size_t>(std::max(size, 0)), sizeof(text) - 1);
  function_(context_, level, {text, kept});
}

std::string_view log_level_name(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "unknown";
}

}  // namespace perdure
