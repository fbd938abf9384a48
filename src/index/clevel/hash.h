// The seeded hash of clevel: it says where a key may lie. Never change it: slots on media hold its
// top bits.
//
// Multiply-and-fold as in wyhash. The seed is random for each table and never leaves the pool: a
// caller that chooses keys cannot choose their buckets.
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

inline std::uint64_t finish_hash(std::uint64_t x, const Seed& seed) {
  x = fold(x ^ seed.b, 0xA0761D6478BD642FULL ^ (seed.a | 1));
  return x ^ x >> 29;
}
inline std::uint64_t hash_word(std::uint64_t word, const Seed& seed) {
  return finish_hash(fold(word ^ seed.a, seed.b | 1) + word, seed);
}
inline std::uint64_t hash_bytes(std::string_view key, const Seed& seed) {
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

// A key and its hash.
struct Probe {
  std::uint64_t hash = 0;
  std::uint64_t word = 0;       // integer keys
  std::string_view bytes = {};  // byte strings

  std::uint16_t tag() const {  // never 0
    const auto top = static_cast<std::uint16_t>(hash >> 48);
    return top != 0 ? top : 1;
  }
  std::uint64_t first(std::uint64_t mask) const { return hash & mask; }
  std::uint64_t second(std::uint64_t mask) const {
    const std::uint64_t other = (hash * 0x9E3779B97F4A7C15ULL >> 23 ^ hash >> 41) & mask;
    return other != first(mask) ? other : other ^ 1;
  }
  std::uint64_t stripe() const { return hash >> 20; }
};

}  // namespace perdure::clevel
