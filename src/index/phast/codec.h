// Codecs: what a key's two forms, integer and byte string, mean to PhaST.
//
// A Probe is a key on its way through the index; a Separator is a leaf's upper bound in DRAM. For
// integers the word says everything. For byte strings the word is the first 8 bytes (big-endian,
// so that words order as strings do) and equal words need the full bytes: "ab" and "ab\0" have
// equal words.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "index/phast/layout.h"
#include "index/record.h"
#include "perdure/index.h"
#include "platform/platform.h"
#include "util/crc32c.h"

namespace perdure::phast {

inline constexpr std::uint64_t kOffsetMask = (1ULL << 56) - 1;

// A byte-string bound, immutable, counted: leaves, inner nodes and index caches share it.
template <Platform P>
struct Separator {
  typename P::template Atomic<std::uint32_t> references{1};
  std::uint32_t size = 0;
  std::uint64_t record = 0;  // the persistent copy, owned by the leaf whose bound this is
  char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
  std::string_view view() const noexcept { return {reinterpret_cast<const char*>(this + 1), size}; }
  static Separator* make(std::string_view key, std::uint64_t record) noexcept {
    void* memory = std::malloc(sizeof(Separator) + key.size());
    if (memory == nullptr) return nullptr;
    auto* separator = new (memory) Separator;
    separator->size = static_cast<std::uint32_t>(key.size());
    separator->record = record;
    if (!key.empty()) std::memcpy(separator->bytes(), key.data(), key.size());
    return separator;
  }
};

struct Probe {
  std::uint64_t word = 0;
  std::string_view bytes = {};
  std::uint8_t fingerprint = 0;  // of a key: never 0
  // Byte strings, for positions that are no keys: just past the key; past every key of this word.
  bool after = false;
  bool last = false;
};

// The order-preserving word of a byte string.
inline std::uint64_t head_word(std::string_view key) noexcept {
  std::uint64_t word = 0;
  if (!key.empty()) std::memcpy(&word, key.data(), key.size() < 8 ? key.size() : 8);
  return __builtin_bswap64(word);
}

struct IntegerCodec {
  static constexpr bool kBytes = false;

  static Probe probe(const detail::Key& key) noexcept {
    return {.word = key.word, .fingerprint = fingerprint(key.word)};
  }
  static std::uint8_t fingerprint(std::uint64_t word) noexcept {
    const auto hash = static_cast<std::uint8_t>((word * 0x9E3779B97F4A7C15ULL) >> 56);
    return hash != 0 ? hash : 1;
  }
  // The commit word, stored last, 0 when the slot is empty.
  static std::uint64_t& commit(layout::Entry& entry) noexcept { return entry.key; }
  static std::uint8_t fingerprint_of(const Probe& probe) noexcept {
    return fingerprint(probe.word);
  }
};

struct BytesCodec {
  static constexpr bool kBytes = true;

  static Probe probe(const detail::Key& key) noexcept {
    return {
        .word = head_word(key.bytes), .bytes = key.bytes, .fingerprint = fingerprint(key.bytes)};
  }
  // On media, in the top byte of an entry's value: never change.
  static std::uint8_t fingerprint(std::string_view key) noexcept {
    const auto hash = static_cast<std::uint8_t>(crc32c(0, key.data(), key.size()) >> 24);
    return hash != 0 ? hash : 1;
  }
  static std::uint64_t& commit(layout::Entry& entry) noexcept { return entry.value; }
  static std::uint8_t fingerprint_of(const Probe& probe) noexcept {
    return fingerprint(probe.bytes);
  }
};

// < 0, 0, > 0 as the probe lies before, at or behind the full key.
inline int compare(const Probe& probe, std::string_view key) noexcept {
  if (probe.last) return 1;
  const int order = probe.bytes.compare(key);
  return order != 0 ? order : (probe.after ? 1 : 0);
}

}  // namespace perdure::phast
