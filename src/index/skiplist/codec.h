// Codecs: what a key's two forms, integer and byte string, mean to the skiplists.
//
// A Probe is a key on its way through the list. The word of a byte string is its first 8 bytes,
// big-endian, so that words order as strings do; equal words need the full bytes: "ab" and "ab\0"
// have equal words. A node's key word is that of its key: on media, never change.
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
  static Probe probe(const detail::Key& key) noexcept { return {.word = key.word}; }
  static std::uint64_t hash(const Probe& probe, std::uint64_t seed) noexcept {
    return mix(probe.word ^ seed);
  }
};

struct BytesCodec {
  static constexpr bool kBytes = true;
  static Probe probe(const detail::Key& key) noexcept {
    std::uint64_t word = 0;
    const std::string_view bytes = key.bytes;
    if (!bytes.empty()) std::memcpy(&word, bytes.data(), bytes.size() < 8 ? bytes.size() : 8);
    return {.word = __builtin_bswap64(word), .bytes = bytes};
  }
  // Of every byte and the length.
  static std::uint64_t hash(const Probe& probe, std::uint64_t seed) noexcept {
    std::uint64_t state = seed ^ probe.bytes.size();
    const char* p = probe.bytes.data();
    std::size_t left = probe.bytes.size();
    for (; left > 0;) {
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
