// The words of nodes and links. Engines change them through Platform only.
//
// state   bits 0..31 CRC32C of lengths, height, key and inline value; 32..47 the key's bytes, or,
//         of an integer key, a check of a word value; 48..57 the inline value's bytes, or, of a
//         byte-string key, the check of a word value; 58..62 height, 1 to 31; 63 erased, never
//         set on the medium in a node that can be reached
// link    bits 0..47 offset, 48..63 its check; 0: none
// Checks are folded by exclusive or: they detect every single flipped bit.
#pragma once

#include <cstdint>
#include <string_view>

#include "index/closed_sum.h"
#include "index/skiplist/layout.h"
#include "util/crc32c.h"

namespace perdure::skiplist {

using layout::Node;

inline constexpr std::uint64_t kErased = 1ULL << 63;
inline constexpr std::uint64_t kOffsetMask = (1ULL << 48) - 1;
inline constexpr std::size_t kInlineValue = 1000;  // a longer one begins in a blob

inline std::size_t padded(std::size_t n) { return (n + 7) / 8 * 8; }

inline std::uint64_t link_to(std::uint64_t offset) {
  return offset | ((offset ^ offset >> 16 ^ offset >> 32) & 0xFFFF) << 48;
}
inline bool link_intact(std::uint64_t link) { return link == link_to(link & kOffsetMask); }

inline std::uint32_t height_of(std::uint64_t state) { return state >> 58 & 31; }
inline std::uint64_t& link_at(Node* node, std::uint32_t level) {
  return reinterpret_cast<std::uint64_t*>(node + 1)[level];
}
inline const std::uint64_t& link_at(const Node* node, std::uint32_t level) {
  return reinterpret_cast<const std::uint64_t*>(node + 1)[level];
}

// The form of the nodes of a map.
template <bool kBytesKey>
struct Shape {
  bool bytes_values = false;

  std::size_t key_size(std::uint64_t state) const { return kBytesKey ? state >> 32 & 0xFFFF : 0; }
  std::size_t inline_size(std::uint64_t state) const {
    return bytes_values ? state >> 48 & 0x3FF : 0;
  }
  std::size_t node_bytes(std::uint64_t state) const {
    return sizeof(Node) + 8 * std::size_t{height_of(state)} + padded(key_size(state)) +
           inline_size(state);
  }
  // In such a block the first line holds as much as it can.
  static std::size_t block_bytes(std::size_t bytes) {
    return bytes <= 32 ? 32 : (bytes + 63) / 64 * 64;
  }
  static const char* key_bytes(const Node* node, std::uint64_t state) {
    return reinterpret_cast<const char*>(node + 1) + 8 * std::size_t{height_of(state)};
  }
  const char* value_bytes(const Node* node, std::uint64_t state) const {
    return key_bytes(node, state) + padded(key_size(state));
  }

  // The check of a word value, in its place; 0 in maps of bytes.
  std::uint64_t check_of(std::uint64_t value) const {
    if (bytes_values) return 0;
    constexpr unsigned kBits = kBytesKey ? 10 : 16;
    std::uint64_t folded = 0;
    for (; value != 0; value >>= kBits) folded ^= value & ((1ULL << kBits) - 1);
    return folded << (kBytesKey ? 48 : 32);
  }
  std::uint64_t check_mask() const {
    if (bytes_values) return 0;
    return kBytesKey ? 0x3FFULL << 48 : 0xFFFFULL << 32;
  }
  std::uint64_t with_value(std::uint64_t state, std::uint64_t value) const {
    return (state & ~check_mask()) | check_of(value);
  }

  // What a node adds to the sum of all nodes. It covers the bits of the state that never change.
  std::uint64_t closed_term(std::uint64_t offset, std::uint64_t state) const {
    return perdure::closed_term(offset, state & ~(kErased | check_mask()));
  }

  // The state without CRC and check.
  static std::uint64_t plain_state(std::uint32_t height, std::size_t key_size,
                                   std::size_t inline_size) {
    return std::uint64_t{height} << 58 | std::uint64_t{inline_size} << 48 |
           std::uint64_t{key_size} << 32;
  }
  std::uint32_t crc(std::uint64_t state, std::uint64_t key, std::string_view key_bytes,
                    std::string_view value_bytes) const {
    const std::uint64_t words[2] = {state & ~(kErased | 0xFFFFFFFFULL | check_mask()), key};
    std::uint32_t crc = crc32c(0, words, sizeof(words));
    crc = crc32c(crc, key_bytes.data(), key_bytes.size());
    return crc32c(crc, value_bytes.data(), value_bytes.size());
  }
  // The node must lie in its block as a whole.
  bool intact(const Node* node, std::uint64_t state, std::uint64_t key) const {
    return static_cast<std::uint32_t>(state) == crc(state, key,
                                                    {key_bytes(node, state), key_size(state)},
                                                    {value_bytes(node, state), inline_size(state)});
  }
};

}  // namespace perdure::skiplist
