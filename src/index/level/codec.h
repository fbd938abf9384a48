// Codecs: how level hashing places the three kinds of key: integers, byte strings and arrays.
//
// A Probe is a key prepared for a lookup. It has the words that the key's slot holds, and two
// hashes of these words, which name the key's buckets. An integer is its own word, a byte string
// has a 64-bit hash of itself, an array has two words. The hashes decide where a key lies on media:
// they must never change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "index/level/line.h"
#include "perdure/index.h"
#include "util/hash.h"

namespace perdure::level {

struct Probe {
  std::uint64_t word = 0;
  std::uint64_t second = 0;  // arrays only
  std::string_view bytes = {};
  std::uint64_t hashes[2] = {0, 0};
  std::uint8_t print = 0;  // the fingerprint: not 0 for a key
};

struct Seeds {
  std::uint64_t words[2] = {0, 0};
};

[[gnu::always_inline]] inline Probe place(std::uint64_t word, const Seeds& seeds) {
  Probe probe{.word = word, .hashes = {mix(word ^ seeds.words[0]), mix(word + seeds.words[1])}};
  const auto print = static_cast<std::uint8_t>(probe.hashes[0] >> 56);
  probe.print = print != 0 ? print : 1;
  return probe;
}

// A seeded hash of every byte and of the length.
inline std::uint64_t hash_bytes(std::string_view bytes, const Seeds& seeds) {
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

// kBytes: a slot holds the offset of a record, and the record holds the key.
struct IntegerCodec {
  using Form = WordForm;
  static constexpr bool kBytes = false;
  static Probe probe(const detail::Key& key, const Seeds& seeds) { return place(key.word, seeds); }
  static Probe probe_of(const Form::Item& item, const Seeds& seeds) {
    return place(item.key[0], seeds);
  }
};

struct BytesCodec : IntegerCodec {
  static constexpr bool kBytes = true;
  static Probe probe(const detail::Key& key, const Seeds& seeds) {
    Probe probe = place(hash_bytes(key.bytes, seeds), seeds);
    probe.bytes = key.bytes;
    return probe;
  }
};

// Keys of up to 16 bytes, which include integers, and values of up to 15 bytes. Both lie in the
// slot.
struct ArrayCodec {
  using Form = ArrayForm;
  static constexpr bool kBytes = false;
  static Probe probe(const detail::Key& key, const Seeds& seeds) {
    Form::Item item{.key = {key.word, 0}};
    if (!key.bytes.empty()) {
      std::memcpy(item.key, key.bytes.data(), std::min(key.bytes.size(), sizeof(item.key)));
    }
    return probe_of(item, seeds);
  }
  // Two keys of one word each have different hashes, as two integers have.
  static Probe probe_of(const Form::Item& item, const Seeds& seeds) {
    const std::uint64_t a = item.key[0];
    const std::uint64_t b = item.key[1];
    const std::uint64_t both = fold(b ^ seeds.words[0] ^ 0xA0761D6478BD642FULL, a ^ seeds.words[1]);
    Probe probe = place(b == 0 ? a : mix(both ^ b), seeds);
    probe.word = a;
    probe.second = b;
    return probe;
  }
};

}  // namespace perdure::level
