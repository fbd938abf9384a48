// with_path(): a status whose message begins with the path that it is about.
#pragma once

#include <string_view>

#include "perdure/status.h"

namespace perdure {

inline Status with_path(std::string_view path, const Status& s) noexcept {
  return Status::format(s.code(), "%.*s: %.*s", static_cast<int>(path.size()), path.data(),
                        static_cast<int>(s.message().size()), s.message().data());
}

}  // namespace perdure
