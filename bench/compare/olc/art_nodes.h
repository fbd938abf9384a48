// The nodes of the adaptive radix tree: see art.h. Readers call slot(), child_of() and
// for_each_child() while a writer changes the node. What they return is true if the node's version
// is the same afterwards.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "bench/compare/olc/version_lock.h"

namespace perdure::bench::olc::art {

using Word = std::uint64_t;
using Link = std::uintptr_t;  // 0, a node, or a leaf and kLeaf
inline constexpr Link kLeaf = 1;
inline constexpr std::uint32_t kBytes = sizeof(Word);

struct Leaf {
  Word key;
  Word value;
};
enum class Kind : std::uint8_t { four, sixteen, many, all };

struct Node {
  Node(Kind of, std::uint32_t prefix_bytes, Word any_key) noexcept
      : kind(of), prefix(any_key), prefix_size(prefix_bytes) {}
  VersionLock lock;
  const Kind kind;
  std::uint16_t count = 0;
  Word prefix;                // a key with the shared bytes at their places
  std::uint32_t prefix_size;  // how many bytes, from the depth of the node on
};
template <Kind kKind, std::size_t kMost>
struct Small : Node {
  Small(std::uint32_t prefix_bytes, Word key) noexcept : Node(kKind, prefix_bytes, key) {}
  static constexpr std::size_t kRoom = kMost;
  alignas(Word) std::uint8_t bytes[kMost] = {};  // ascending
  Link children[kMost] = {};
};
using Node4 = Small<Kind::four, 4>;
using Node16 = Small<Kind::sixteen, 16>;
struct Node48 : Node {
  Node48(std::uint32_t prefix_bytes, Word key) noexcept : Node(Kind::many, prefix_bytes, key) {}
  static constexpr std::size_t kRoom = 48;
  std::uint8_t places[256] = {};  // 1 + the place of the child
  Link children[kRoom] = {};
};
struct Node256 : Node {
  Node256(std::uint32_t prefix_bytes, Word key) noexcept : Node(Kind::all, prefix_bytes, key) {}
  static constexpr std::size_t kRoom = 256;
  Link children[kRoom] = {};
};

inline bool is_leaf(Link link) noexcept { return (link & kLeaf) != 0; }
inline Leaf* leaf_of(Link link) noexcept { return reinterpret_cast<Leaf*>(link & ~kLeaf); }
inline Node* node_of(Link link) noexcept { return reinterpret_cast<Node*>(link); }
inline Link link_to(Leaf* leaf) noexcept { return reinterpret_cast<Link>(leaf) | kLeaf; }
inline std::uint32_t byte_of(Word key, std::uint32_t depth) noexcept {
  return static_cast<std::uint8_t>(key >> (8 * (kBytes - 1 - depth)));
}
// Calls f(node) with the node as what it is.
template <class AnyNode, class F>
decltype(auto) visit_node(AnyNode& node, F f) {
  constexpr bool kConst = std::is_const_v<AnyNode>;
  switch (node.kind) {
    case Kind::four:
      return f(static_cast<std::conditional_t<kConst, const Node4, Node4>&>(node));
    case Kind::sixteen:
      return f(static_cast<std::conditional_t<kConst, const Node16, Node16>&>(node));
    case Kind::many:
      return f(static_cast<std::conditional_t<kConst, const Node48, Node48>&>(node));
    case Kind::all:
      break;
  }
  return f(static_cast<std::conditional_t<kConst, const Node256, Node256>&>(node));
}

// The slot of a child; null if the node has none for the byte.
template <Kind kKind, std::size_t kMost>
const Link* slot(const Small<kKind, kMost>& node, std::uint32_t byte) noexcept {
  const std::uint32_t count = std::min<std::uint32_t>(get(node.count), kMost);
  if constexpr (kMost == 16) {
    Word halves[2];
    for (int i = 0; i < 2; ++i) halves[i] = get(reinterpret_cast<const Word*>(node.bytes)[i]);
    const __m128i bytes =
        _mm_set_epi64x(static_cast<long long>(halves[1]), static_cast<long long>(halves[0]));
    const __m128i same = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(static_cast<char>(byte)));
    const unsigned mask = static_cast<unsigned>(_mm_movemask_epi8(same)) & ((1U << count) - 1);
    return mask == 0 ? nullptr : &node.children[__builtin_ctz(mask)];
  } else {
    for (std::uint32_t i = 0; i < count; ++i) {
      if (get(node.bytes[i]) == byte) return &node.children[i];
    }
    return nullptr;
  }
}
inline const Link* slot(const Node48& node, std::uint32_t byte) noexcept {
  const std::uint8_t place = get(node.places[byte]);
  return place == 0 ? nullptr : &node.children[place - 1];
}
inline const Link* slot(const Node256& node, std::uint32_t byte) noexcept {
  return &node.children[byte];
}
inline Link child_of(const Node& node, std::uint32_t byte) noexcept {
  const Link* found = visit_node(node, [&](const auto& n) { return slot(n, byte); });
  return found == nullptr ? 0 : get(*found);
}

// The node is locked, and has such a child.
inline void replace(Node& node, std::uint32_t byte, Link child) noexcept {
  put(const_cast<Link&>(*visit_node(node, [&](auto& n) { return slot(n, byte); })), child);
}
// The node is locked or not reachable yet, has room, and has no such child.
template <Kind kKind, std::size_t kMost>
void add(Small<kKind, kMost>& node, std::uint32_t byte, Link child) noexcept {
  std::uint32_t at = node.count;
  for (; at > 0 && node.bytes[at - 1] > byte; --at) {
    put(node.bytes[at], node.bytes[at - 1]);
    put(node.children[at], node.children[at - 1]);
  }
  put(node.bytes[at], static_cast<std::uint8_t>(byte));
  put(node.children[at], child);
  put(node.count, static_cast<std::uint16_t>(node.count + 1));
}
inline void add(Node48& node, std::uint32_t byte, Link child) noexcept {
  const Link* free = std::ranges::find(node.children, Link{0});
  const auto place = static_cast<std::size_t>(free - node.children);
  put(node.children[place], child);
  put(node.places[byte], static_cast<std::uint8_t>(place + 1));
  put(node.count, static_cast<std::uint16_t>(node.count + 1));
}
inline void add(Node256& node, std::uint32_t byte, Link child) noexcept {
  put(node.children[byte], child);
  put(node.count, static_cast<std::uint16_t>(node.count + 1));
}
// The node is locked, and has such a child.
inline void remove(Node& any, std::uint32_t byte) noexcept {
  visit_node(any, [&](auto& node) {
    if constexpr (requires { node.bytes[0]; }) {
      std::uint32_t at = 0;
      while (node.bytes[at] != byte) ++at;
      for (; at + 1U < node.count; ++at) {
        put(node.bytes[at], node.bytes[at + 1]);
        put(node.children[at], node.children[at + 1]);
      }
    } else {
      put(const_cast<Link&>(*slot(node, byte)), Link{0});
      if constexpr (requires { node.places[0]; }) put(node.places[byte], std::uint8_t{0});
    }
    put(node.count, static_cast<std::uint16_t>(node.count - 1));
  });
}

// Calls visit(byte, child) in the order of the bytes, while it returns true.
template <class F>
bool for_each_child(const Node& any, F visit) {
  return visit_node(any, [&](const auto& node) {
    if constexpr (requires { node.bytes[0]; }) {
      const std::uint32_t count = std::min<std::uint32_t>(get(node.count), node.kRoom);
      for (std::uint32_t i = 0; i < count; ++i) {
        if (!visit(std::uint32_t{get(node.bytes[i])}, get(node.children[i]))) return false;
      }
    } else {
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        const Link* found = slot(node, byte);
        const Link child = found == nullptr ? 0 : get(*found);
        if (child != 0 && !visit(byte, child)) return false;
      }
    }
    return true;
  });
}

}  // namespace perdure::bench::olc::art
