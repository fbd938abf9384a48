// The seeded hash of clevel: where a key may lie. On media (slots hold its top bits): never change.
//
// Multiply-and-fold as in wyhash; the seed is random per table and never leaves the pool, so that
// whoever chooses keys cannot choose buckets.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "util/hash.h"

namespace perdure::clevel {

struct Seed {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
};

inline std::uint64_t finish_hash(std::uint64_t x, const Seed& seed) noexcept {
  x = fold(x ^ seed.b, 0xA0761D6478BD642FULL ^ (seed.a | 1));
  return x ^ x >> 29;
}
inline std::uint64_t hash_word(std::uint64_t word, const Seed& seed) noexcept {
  return finish_hash(fold(word ^ seed.a, seed.b | 1) + word, seed);
}
inline std::uint64_t hash_bytes(std::string_view key, const Seed& seed) noexcept {
  std::uint64_t state = seed.a ^ key.size() * 0x9E3779B97F4A7C15ULL;
  const char* p = key.data();
  std::size_t left = key.size();
  for (; left > 0;) {
    std::uint64_t words[2] = {0, 0};
    const std::size_t n = left < 16 ? left : 16;
    std::memcpy(words, p, n);
    state = fold(words[0] ^ seed.b, words[1] ^ state ^ 0xE7037ED1A0B428DBULL) + (state << 1 | 1);
    p += n;
    left -= n;
  }
  return finish_hash(state, seed);
}

// A key on its way through the table.
struct Probe {
  std::uint64_t hash = 0;
  std::uint64_t word = 0;       // integer keys
  std::string_view bytes = {};  // byte strings

  std::uint16_t tag() const noexcept {  // never 0
    const auto top = static_cast<std::uint16_t>(hash >> 48);
    return top != 0 ? top : 1;
  }
  std::uint64_t first(std::uint64_t mask) const noexcept { return hash & mask; }
  std::uint64_t second(std::uint64_t mask) const noexcept {
    const std::uint64_t other = (hash * 0x9E3779B97F4A7C15ULL >> 23 ^ hash >> 41) & mask;
    return other != first(mask) ? other : other ^ 1;
  }
  std::uint64_t stripe() const noexcept { return hash >> 20; }
};

}  // namespace perdure::clevel
