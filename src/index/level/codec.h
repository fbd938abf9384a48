// Codecs: what a key's two forms, integer and byte string, mean to level hashing.
//
// A Probe is a key on its way through the index: its word, which its slot holds (an integer is its
// own word, a byte string's is a 64-bit hash of it), and two hashes of that word, which place it.
// On media, by where a key lies: never change.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "index/level/layout.h"
#include "perdure/index.h"

namespace perdure::level {

struct Probe {
  std::uint64_t word = 0;
  std::string_view bytes = {};
  std::uint64_t hashes[2] = {0, 0};
  std::uint8_t print = 0;  // of a key: never 0
};

struct Seeds {
  std::uint64_t words[2] = {0, 0};
};

inline std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ULL;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ULL;
  return x ^ (x >> 32);
}

inline Probe place(std::uint64_t word, const Seeds& seeds) noexcept {
  Probe probe{.word = word, .hashes = {mix(word ^ seeds.words[0]), mix(word + seeds.words[1])}};
  const auto print = static_cast<std::uint8_t>(probe.hashes[0] >> 56);
  probe.print = print != 0 ? print : 1;
  return probe;
}

__extension__ using Wide = unsigned __int128;
// Seeded, of every byte and the length.
inline std::uint64_t hash_bytes(std::string_view bytes, const Seeds& seeds) noexcept {
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  const std::uint64_t odd = seeds.words[1] | 1;
  std::uint64_t state = seeds.words[0] ^ bytes.size();
  const char* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 16; left -= 16, p += 16) {
    std::uint64_t pair[2];
    std::memcpy(pair, p, sizeof(pair));
    state = fold(pair[0] ^ odd, pair[1] ^ state ^ 0xA0761D6478BD642FULL);
  }
  std::uint64_t rest[2] = {0, 0};
  if (left > 0) std::memcpy(rest, p, left);
  state = fold(rest[0] ^ odd, rest[1] ^ state ^ 0xE7037ED1A0B428DBULL);
  return mix(state ^ bytes.size());
}

struct IntegerCodec {
  static constexpr bool kBytes = false;
  static Probe probe(const detail::Key& key, const Seeds& seeds) noexcept {
    return place(key.word, seeds);
  }
};

struct BytesCodec {
  static constexpr bool kBytes = true;
  static Probe probe(const detail::Key& key, const Seeds& seeds) noexcept {
    Probe probe = place(hash_bytes(key.bytes, seeds), seeds);
    probe.bytes = key.bytes;
    return probe;
  }
};

}  // namespace perdure::level
