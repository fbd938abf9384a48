// Codecs: the two forms of a key, integer and byte string.
//
// A Probe is a key that a walk searches. The word of a byte string is its first 8 bytes,
// big-endian: words order as strings do. Equal words need the full bytes: "ab" and "ab\0" have
// equal words. The key word of a node is on media and must never change.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "perdure/index.h"
#include "util/hash.h"

namespace perdure::skiplist {

struct Probe {
  std::uint64_t word = 0;
  std::string_view bytes = {};
};

struct IntegerCodec {
  static constexpr bool kBytes = false;
  static Probe probe(const detail::Key& key) { return {.word = key.word}; }
  static std::uint64_t hash(const Probe& probe, std::uint64_t seed) {
    return mix(probe.word ^ seed);
  }
};

struct BytesCodec {
  static constexpr bool kBytes = true;
  static Probe probe(const detail::Key& key) {
    std::uint64_t word = 0;
    const std::string_view bytes = key.bytes;
    if (!bytes.empty()) std::memcpy(&word, bytes.data(), bytes.size() < 8 ? bytes.size() : 8);
    return {.word = __builtin_bswap64(word), .bytes = bytes};
  }
  // Covers every byte and the length.
  static std::uint64_t hash(const Probe& probe, std::uint64_t seed) {
    std::uint64_t state = seed ^ probe.bytes.size();
    const char* p = probe.bytes.data();
    std::size_t left = probe.bytes.size();
    while (left > 0) {
      std::uint64_t word = 0;
      const std::size_t n = left < 8 ? left : 8;
      std::memcpy(&word, p, n);
      state = mix(state ^ word) + seed;
      p += n;
      left -= n;
    }
    return mix(state);
  }
};

}  // namespace perdure::skiplist
