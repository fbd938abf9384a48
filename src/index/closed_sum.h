// The sum that a close writes over the words of a table: slots, or checksums of lines. A checksum
// per line cannot notice a line that has become zero, that is from another place, or that is old.
// On media: never change.
#pragma once

#include <cstdint>

namespace perdure {

// The term of the word at this offset of the pool. Terms are added modulo 2^64, in any order. The
// term of a word 0 is 0.
inline std::uint64_t closed_term(std::uint64_t offset, std::uint64_t word) noexcept {
  if (word == 0) return 0;
  std::uint64_t x = (word ^ offset * 0x9E3779B97F4A7C15ULL) * 0xD6E8FEB86659FD93ULL;
  x = (x ^ x >> 32) * 0xD6E8FEB86659FD93ULL;
  return x ^ x >> 32;
}

// A sum folded to 32 bits, for places that have no room for 64.
inline std::uint32_t short_sum(std::uint64_t sum) noexcept {
  return static_cast<std::uint32_t>(sum ^ sum >> 32);
}

}  // namespace perdure
