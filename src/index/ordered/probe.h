// Probe: a key that an ordered engine looks up. Separator: a bound between two leaves.
//
// For integers the word is the whole key. For byte strings the word is the first 8 bytes,
// big-endian, so that words order as strings do. Equal words need a comparison of the full bytes:
// "ab" and "ab\0" have equal words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "perdure/index.h"
#include "platform/platform.h"

namespace perdure::ordered {

inline constexpr std::uint32_t kNoLeaf = 0;  // leaf number 0 is never used

// Where the search for a leaf starts. Engines use all levels. The evaluation of PhaST's paper
// leaves upper ones out.
enum class Start : std::uint8_t {
  shortcut,     // at the shortcut, and where that names no leaf, at the index cache
  index_cache,  // there is no shortcut
  first_node,   // at the partition's first inner node
};

// A byte-string bound. Immutable and reference-counted: leaves, inner nodes and index caches share
// it.
template <Platform P>
struct Separator {
  typename P::template Atomic<std::uint32_t> references{1};
  std::uint32_t size = 0;
  std::uint64_t record = 0;  // the persistent copy, owned by the leaf whose bound this is; or 0
  char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
  std::string_view view() const noexcept { return {reinterpret_cast<const char*>(this + 1), size}; }
  void prefetch() const noexcept {
    __builtin_prefetch(this);
    __builtin_prefetch(reinterpret_cast<const char*>(this) + kLine);
  }
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

// The separators of a leaf's words `low` and `bound`, in DRAM. Null: the word alone decides.
template <Platform P, bool kBytes>
struct Separators {
  typename P::template Atomic<Separator<P>*> low{nullptr};
  typename P::template Atomic<Separator<P>*> bound{nullptr};
};
template <Platform P>
struct Separators<P, false> {};

// A leaf that a search has found. Byte strings: null, or the two separators between which the probe
// lies (ordered.N6).
template <Platform P, bool kBytes>
struct Located {
  std::uint32_t leaf = kNoLeaf;
  const Separator<P>* low = nullptr;
  const Separator<P>* bound = nullptr;

  // True if the range of a leaf ends at these: the probe lies in it. The caller is pinned.
  template <class Leaf>
  [[gnu::always_inline]] bool proves(const Leaf& of) const noexcept {
    return bound != nullptr && low != nullptr &&
           of.separators.low.load(std::memory_order_acquire) == low &&
           of.separators.bound.load(std::memory_order_acquire) == bound;
  }
};
template <Platform P>
struct Located<P, false> {
  std::uint32_t leaf = kNoLeaf;
  template <class Leaf>
  static bool proves(const Leaf& /*of*/) noexcept {
    return false;
  }
};

struct Probe {
  std::uint64_t word = 0;
  std::string_view bytes = {};
  std::uint8_t fingerprint = 0;  // of a key, in engines that have fingerprints: never 0
  // Byte strings, for positions that are no keys. `after`: just behind the key. `last`: behind
  // every key of this word.
  bool after = false;
  bool last = false;
};

// The order-preserving word of a byte string.
inline std::uint64_t head_word(std::string_view key) noexcept {
  std::uint64_t word = 0;
  if (!key.empty()) std::memcpy(&word, key.data(), key.size() < 8 ? key.size() : 8);
  return __builtin_bswap64(word);
}

// Returns < 0, 0 or > 0 if the probe lies before, at or behind the full key.
inline int compare(const Probe& probe, std::string_view key) noexcept {
  if (probe.last) return 1;
  const int order = probe.bytes.compare(key);
  return order != 0 ? order : (probe.after ? 1 : 0);
}

inline Probe probe_of(std::string_view key) noexcept {
  return {.word = head_word(key), .bytes = key};
}

// Returns the word of what follows `prefix` in the probe. The words of keys with that prefix order
// as the keys do: 0 if the probe lies before all of them, ~0 if behind.
inline std::uint64_t word_behind(std::string_view prefix, const Probe& probe) noexcept {
  const std::size_t size = prefix.size();
  if (size == 0) return probe.word;
  const std::uint64_t head = head_word(prefix);
  const std::uint64_t word = size < 8 ? probe.word >> 8 * (8 - size) << 8 * (8 - size) : probe.word;
  if (word != head) return word < head ? 0 : ~std::uint64_t{0};
  if (probe.last) return ~std::uint64_t{0};
  const std::string_view bytes = probe.bytes;  // may be shorter than the word, in positions
  if (size > 8 && bytes.size() > 8) {
    const int order =
        std::memcmp(bytes.data() + 8, prefix.data() + 8, std::min(bytes.size(), size) - 8);
    if (order != 0) return order < 0 ? 0 : ~std::uint64_t{0};
  }
  return bytes.size() > size ? head_word(bytes.substr(size)) : 0;
}

// Returns how many bytes both begin with.
inline std::size_t common_prefix(std::string_view a, std::string_view b) noexcept {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

// The codecs of integer and byte-string keys, for engines without fingerprints.
struct IntegerCodec {
  static constexpr bool kBytes = false;
  static Probe probe(const detail::Key& key) noexcept { return {.word = key.word}; }
};
struct BytesCodec {
  static constexpr bool kBytes = true;
  static Probe probe(const detail::Key& key) noexcept {
    return {.word = head_word(key.bytes), .bytes = key.bytes};
  }
};

// Byte strings: prefetches the separators that lies_below() and lies_above() will compare, so that
// their misses overlap.
template <class Leaf>
[[gnu::always_inline]] inline void fetch_separators(const Leaf& leaf, const Probe& probe) noexcept {
  const auto fetch = [&](const auto& word, const auto& separator) {
    if (word.load(std::memory_order_acquire) != probe.word) return;
    const auto* s = separator.load(std::memory_order_acquire);
    if (s != nullptr) s->prefetch();
  };
  fetch(leaf.low, leaf.separators.low);
  fetch(leaf.bound, leaf.separators.bound);
}
// True if the probe lies below, or above, the range of a leaf: low < key <= bound.
template <bool kBytes, class Leaf>
[[gnu::always_inline]] inline bool lies_below(const Leaf& leaf, const Probe& probe) noexcept {
  const std::uint64_t word = leaf.low.load(std::memory_order_acquire);
  if constexpr (kBytes) {
    if (probe.word == word) {
      const auto* s = leaf.separators.low.load(std::memory_order_acquire);
      return s != nullptr && compare(probe, s->view()) <= 0;
    }
  }
  return probe.word < word;
}

template <bool kBytes, class Leaf>
[[gnu::always_inline]] inline bool lies_above(const Leaf& leaf, const Probe& probe) noexcept {
  const std::uint64_t word = leaf.bound.load(std::memory_order_acquire);
  if constexpr (kBytes) {
    if (probe.word == word) {
      const auto* s = leaf.separators.bound.load(std::memory_order_acquire);
      return s != nullptr && compare(probe, s->view()) > 0;
    }
  }
  return probe.word > word;
}

}  // namespace perdure::ordered
