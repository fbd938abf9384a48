// Codecs: what the two forms of a key, integer and byte string, mean to PhaST.
#pragma once

#include <cstdint>
#include <string_view>

#include "index/ordered/probe.h"
#include "index/phast/layout.h"
#include "perdure/index.h"
#include "platform/platform.h"
#include "util/crc32c.h"

namespace perdure::phast {

inline constexpr std::uint64_t kOffsetMask = (1ULL << 56) - 1;

using ordered::compare;
using ordered::head_word;
using ordered::kNoLeaf;
using ordered::Probe;
using ordered::Separator;

struct IntegerCodec {
  static constexpr bool kBytes = false;

  static Probe probe(const detail::Key& key) {
    return {.word = key.word, .fingerprint = fingerprint(key.word)};
  }
  static std::uint8_t fingerprint(std::uint64_t word) {
    const auto hash = static_cast<std::uint8_t>((word * 0x9E3779B97F4A7C15ULL) >> 56);
    return hash != 0 ? hash : 1;
  }
  // Returns the commit word, which is stored last and is 0 if the slot is empty.
  static std::uint64_t& commit(layout::Entry& entry) { return entry.key; }
};

struct BytesCodec {
  static constexpr bool kBytes = true;

  static Probe probe(const detail::Key& key) {
    return {
        .word = head_word(key.bytes), .bytes = key.bytes, .fingerprint = fingerprint(key.bytes)};
  }
  // Kept on media, in the top byte of an entry's value: must not change.
  static std::uint8_t fingerprint(std::string_view key) {
    const auto hash = static_cast<std::uint8_t>(crc32c(0, key.data(), key.size()) >> 24);
    return hash != 0 ? hash : 1;
  }
  static std::uint64_t& commit(layout::Entry& entry) { return entry.value; }
};

}  // namespace perdure::phast
