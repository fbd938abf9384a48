// same_bytes: equality of short byte strings, without a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace perdure {

[[gnu::always_inline]] inline bool same_bytes(const char* a, const char* b,
                                              std::size_t n) noexcept {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (n == 0) return true;
  if (n < kWord || n > 4 * kWord) return std::memcmp(a, b, n) == 0;
  const auto same = [&](std::size_t at) {
    std::uint64_t words[2];
    std::memcpy(&words[0], a + at, kWord);
    std::memcpy(&words[1], b + at, kWord);
    return words[0] == words[1];
  };
  for (std::size_t at = 0; at < n - kWord; at += kWord) {
    if (!same(at)) return false;
  }
  return same(n - kWord);
}

}  // namespace perdure
