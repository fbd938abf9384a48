// Nodes, links, blobs: what their words mean. Engines change them through Platform only.
//
// state   bits 0..31 CRC32C of lengths, height, key and inline value; 32..47 the key's bytes, or,
//         of an integer key, a check of a word value; 48..57 the inline value's bytes, or, of a
//         byte-string key, the check of a word value; 58..62 height, 1 to 31; 63 erased, which no
//         node that can be reached on the medium is
// link    bits 0..47 offset, 48..63 its check; 0: none
// Checks are folded by exclusive or, so that no single flipped bit passes.
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
inline constexpr std::size_t kInlineValue = 1000;  // longer ones lie in a blob from the start

inline std::size_t padded(std::size_t n) noexcept { return (n + 7) / 8 * 8; }

inline std::uint64_t link_to(std::uint64_t offset) noexcept {
  return offset | ((offset ^ offset >> 16 ^ offset >> 32) & 0xFFFF) << 48;
}
inline bool link_intact(std::uint64_t link) noexcept { return link == link_to(link & kOffsetMask); }

inline std::uint32_t height_of(std::uint64_t state) noexcept { return state >> 58 & 31; }
inline std::uint64_t& link_at(Node* node, std::uint32_t level) noexcept {
  return reinterpret_cast<std::uint64_t*>(node + 1)[level];
}
inline const std::uint64_t& link_at(const Node* node, std::uint32_t level) noexcept {
  return reinterpret_cast<const std::uint64_t*>(node + 1)[level];
}

// What a node of a kind of map is like.
template <bool kBytesKey>
struct Shape {
  bool bytes_values = false;

  std::size_t key_size(std::uint64_t state) const noexcept {
    return kBytesKey ? state >> 32 & 0xFFFF : 0;
  }
  std::size_t inline_size(std::uint64_t state) const noexcept {
    return bytes_values ? state >> 48 & 0x3FF : 0;
  }
  std::size_t node_bytes(std::uint64_t state) const noexcept {
    return sizeof(Node) + 8 * std::size_t{height_of(state)} + padded(key_size(state)) +
           inline_size(state);
  }
  // A block in which the first line holds as much as it can.
  static std::size_t block_bytes(std::size_t bytes) noexcept {
    return bytes <= 32 ? 32 : (bytes + 63) / 64 * 64;
  }
  static const char* key_bytes(const Node* node, std::uint64_t state) noexcept {
    return reinterpret_cast<const char*>(node + 1) + 8 * std::size_t{height_of(state)};
  }
  const char* value_bytes(const Node* node, std::uint64_t state) const noexcept {
    return key_bytes(node, state) + padded(key_size(state));
  }

  // The check of a word value, in its place; 0 in maps of bytes.
  std::uint64_t check_of(std::uint64_t value) const noexcept {
    if (bytes_values) return 0;
    constexpr unsigned kBits = kBytesKey ? 10 : 16;
    std::uint64_t folded = 0;
    for (; value != 0; value >>= kBits) folded ^= value & ((1ULL << kBits) - 1);
    return folded << (kBytesKey ? 48 : 32);
  }
  std::uint64_t check_mask() const noexcept {
    if (bytes_values) return 0;
    return kBytesKey ? 0x3FFULL << 48 : 0xFFFFULL << 32;
  }
  std::uint64_t with_value(std::uint64_t state, std::uint64_t value) const noexcept {
    return (state & ~check_mask()) | check_of(value);
  }

  // What a node adds to the sum of all: of its state what never changes.
  std::uint64_t closed_term(std::uint64_t offset, std::uint64_t state) const noexcept {
    return perdure::closed_term(offset, state & ~(kErased | check_mask()));
  }

  // The state without CRC and check.
  static std::uint64_t plain_state(std::uint32_t height, std::size_t key_size,
                                   std::size_t inline_size) noexcept {
    return std::uint64_t{height} << 58 | std::uint64_t{inline_size} << 48 |
           std::uint64_t{key_size} << 32;
  }
  std::uint32_t crc(std::uint64_t state, std::uint64_t key, std::string_view key_bytes,
                    std::string_view value_bytes) const noexcept {
    const std::uint64_t words[2] = {state & ~(kErased | 0xFFFFFFFFULL | check_mask()), key};
    std::uint32_t crc = crc32c(0, words, sizeof(words));
    crc = crc32c(crc, key_bytes.data(), key_bytes.size());
    return crc32c(crc, value_bytes.data(), value_bytes.size());
  }
  // Of a node all of which lies in its block.
  bool intact(const Node* node, std::uint64_t state, std::uint64_t key) const noexcept {
    return static_cast<std::uint32_t>(state) == crc(state, key,
                                                    {key_bytes(node, state), key_size(state)},
                                                    {value_bytes(node, state), inline_size(state)});
  }
};

inline std::uint64_t blob_crc(std::uint64_t offset, std::string_view value) noexcept {
  const std::uint64_t words[2] = {offset, value.size()};
  return crc32c(crc32c(0, words, sizeof(words)), value.data(), value.size());
}

}  // namespace perdure::skiplist
