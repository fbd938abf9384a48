// The sum by which a close binds the words of a table together: slots, or the checksums of lines.
// On its own a line that has become zero is as good as one that was never used, and one of another
// place, or of the past, as good as any. On media: never change.
#pragma once

#include <cstdint>

namespace perdure {

// What the word at an offset of the pool adds, modulo 2^64, in any order; a word of 0 nothing.
inline std::uint64_t closed_term(std::uint64_t offset, std::uint64_t word) noexcept {
  if (word == 0) return 0;
  std::uint64_t x = (word ^ offset * 0x9E3779B97F4A7C15ULL) * 0xD6E8FEB86659FD93ULL;
  x = (x ^ x >> 32) * 0xD6E8FEB86659FD93ULL;
  return x ^ x >> 32;
}

// Where there is room for half of a sum.
inline std::uint32_t short_sum(std::uint64_t sum) noexcept {
  return static_cast<std::uint32_t>(sum ^ sum >> 32);
}

}  // namespace perdure
