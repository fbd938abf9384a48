// Statuses whose messages begin with the path that they are about.
#pragma once

#include <string_view>

#include "perdure/status.h"

namespace perdure {

// Of a text for %.*s.
inline int length(std::string_view text) noexcept { return static_cast<int>(text.size()); }

inline Status with_path(std::string_view path, const Status& s) noexcept {
  const std::string_view message = s.message();
  // An engine's errors of damage have it.
  if (message.starts_with(path) && message.substr(path.size()).starts_with(": ")) return s;
  return Status::format(s.code(), "%.*s: %.*s", length(path), path.data(), length(message),
                        message.data());
}

}  // namespace perdure
