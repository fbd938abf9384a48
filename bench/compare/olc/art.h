// An adaptive radix tree with optimistic lock coupling, in DRAM, from 64-bit keys to 64-bit values
// (Leis, Kemper and Neumann, ICDE 2013; Leis, Scheibner, Kemper and Neumann, DaMoN 2016).
//
// LAYOUT      A node has 4, 16, 48 or 256 children, and the bytes that all its keys share below its
//             parent. A child is a node, or a leaf with one key and its value (lowest bit 1). The
//             root has 256 children and is never replaced.
// OPERATIONS  A descent checks the version of a parent after it has noted that of the child. A node
//             that is full is replaced by the next larger kind, with its parent locked.
// DEVIATIONS  Nodes do not become smaller when entries are deleted, as in the authors' other trees
//             of this kind. Replaced nodes and deleted leaves are freed with the tree: a reader may
//             still read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/olc/art_nodes.h"

namespace perdure::bench::olc {

class Art {
  using Word = art::Word;
  using Link = art::Link;
  using Leaf = art::Leaf;
  using Node = art::Node;
  using Node4 = art::Node4;
  using Kind = art::Kind;

 public:
  static constexpr const char* kName = "art_olc";
  static constexpr bool kMallocs = true;
  static std::string version() { return "4, 16, 48, 256 children"; }

  Art(std::uint64_t /*capacity*/, std::uint32_t /*threads*/) {}
  ~Art() {
    art::for_each_child(root_, [](std::uint32_t, Link child) {
      destroy(child);
      return true;
    });
    for (const Link link : gone_)
      art::is_leaf(link) ? delete art::leaf_of(link) : free_node(art::node_of(link));
  }
  Art(const Art&) = delete;
  Art& operator=(const Art&) = delete;

  // False: the key is there.
  bool insert(Word key, Word value) {
    Leaf* leaf = nullptr;
    const bool done = until_done([&] { return try_insert(key, value, leaf); });
    if (!done) delete leaf;
    return done;
  }
  // False: the key is not there.
  bool update(Word key, Word value) {
    return change(key,
                  [&](Node&, std::uint32_t, Link link) { put(art::leaf_of(link)->value, value); });
  }
  bool erase(Word key) {
    return change(key, [&](Node& node, std::uint32_t byte, Link link) {
      art::remove(node, byte);
      retire(link);
    });
  }
  template <class F>
  bool read(Word key, F&& visit) const {
    Word value = 0;
    const bool found = until_done([&]() -> std::optional<bool> {
      Place place;
      if (!descend(key, place)) return {};
      const bool here = place.holds(key);
      if (here) value = get(art::leaf_of(place.link)->value);
      if (!place.node->lock.check(place.version)) return {};
      return here;
    });
    if (found) visit(value);
    return found;
  }
  // Calls visit(key, value) for up to `limit` entries from `from` on, in order.
  template <class F>
  void scan(Word from, std::uint64_t limit, F&& visit) const {
    std::vector<std::pair<Word, Word>> entries;
    entries.reserve(std::min<std::uint64_t>(limit, 256));
    while (entries.size() < limit) {
      std::uint64_t version = 0;
      (void)root_.lock.read(version);
      if (collect(root_, version, 0, from, true, limit, entries)) break;
      if (entries.empty()) continue;
      if (entries.back().first == ~Word{0}) break;
      from = entries.back().first + 1;  // what is collected is true: go on behind it
    }
    for (const auto& [key, value] : entries) visit(key, value);
  }
  // Not for use beside writers.
  std::uint64_t size() const { return entries_below(reinterpret_cast<Link>(&root_)); }
  std::optional<double> load_factor() const { return {}; }

 private:
  // Where a descent ended: at a child of `node` that is no node, or at a prefix that differs.
  struct Place {
    Node* parent = nullptr;  // of node, and the byte that leads to it
    std::uint64_t parent_version = 0;
    std::uint32_t parent_byte = 0;
    Node* node = nullptr;
    std::uint64_t version = 0;
    std::uint32_t depth = 0;  // of the byte that chooses the child
    std::uint32_t same = 0;   // bytes of the prefix that the key has
    bool differs = false;     // at byte `same` of the prefix
    Link link = 0;            // 0 or a leaf
    bool holds(Word key) const noexcept {
      return art::is_leaf(link) && art::leaf_of(link)->key == key;
    }
  };

  // How many bytes two keys share, from `depth` on.
  static std::uint32_t shared(Word a, Word b, std::uint32_t depth) noexcept {
    const Word rest = depth == 0 ? a ^ b : (a ^ b) << (8 * depth);
    return rest == 0 ? art::kBytes - depth : static_cast<std::uint32_t>(__builtin_clzll(rest)) / 8;
  }

  template <class F>
  static bool until_done(F attempt) {
    for (;;) {
      if (const std::optional<bool> result = attempt(); result) return *result;
      _mm_pause();
    }
  }

  bool descend(Word key, Place& place) const noexcept {
    place = {};
    place.node = const_cast<art::Node256*>(&root_);
    if (!place.node->lock.read(place.version)) return false;
    for (std::uint32_t depth = 0;; ++depth) {
      const std::uint32_t size = get(place.node->prefix_size);
      place.same = std::min(shared(key, get(place.node->prefix), depth), size);
      place.differs = place.same < size;
      place.depth = depth + place.same;
      if (place.differs || place.depth >= art::kBytes) return place.node->lock.check(place.version);
      depth = place.depth;
      place.link = art::child_of(*place.node, art::byte_of(key, depth));
      if (!place.node->lock.check(place.version)) return false;
      if (place.link == 0 || art::is_leaf(place.link)) return true;
      Node* child = art::node_of(place.link);
      std::uint64_t version = 0;
      if (!child->lock.read(version) || !place.node->lock.check(place.version)) return false;
      place.parent = place.node;
      place.parent_version = place.version;
      place.parent_byte = art::byte_of(key, depth);
      place.node = child;
      place.version = version;
      place.link = 0;
    }
  }

  template <class F>
  bool change(Word key, F apply) {
    return until_done([&]() -> std::optional<bool> {
      Place place;
      if (!descend(key, place)) return {};
      if (!place.holds(key)) {
        if (!place.node->lock.check(place.version)) return {};
        return false;
      }
      if (!place.node->lock.upgrade(place.version)) return {};
      apply(*place.node, art::byte_of(key, place.depth), place.link);
      place.node->lock.unlock();
      return true;
    });
  }

  // `leaf` is made by the first attempt that needs it.
  std::optional<bool> try_insert(Word key, Word value, Leaf*& leaf) {
    Place place;
    if (!descend(key, place)) return {};
    if (place.holds(key)) return false;
    if (leaf == nullptr) leaf = new Leaf{key, value};
    if (place.differs) return fork_prefix(place, key, art::link_to(leaf));
    const std::uint32_t byte = art::byte_of(key, place.depth);
    if (place.link == 0) return add_child(place, byte, art::link_to(leaf));
    // The child is another leaf: a new node takes both.
    if (!place.node->lock.upgrade(place.version)) return {};
    const Word other = art::leaf_of(place.link)->key;
    const std::uint32_t same = shared(key, other, place.depth + 1);
    auto* fork = new Node4(same, key);
    const std::uint32_t at = place.depth + 1 + same;
    art::add(*fork, art::byte_of(other, at), place.link);
    art::add(*fork, art::byte_of(key, at), art::link_to(leaf));
    art::replace(*place.node, byte, reinterpret_cast<Link>(fork));
    place.node->lock.unlock();
    return true;
  }

  // Locks the node of a place and its parent. False: one of them was changed.
  static bool lock_both(const Place& place) noexcept {
    if (!place.parent->lock.upgrade(place.parent_version)) return false;
    if (place.node->lock.upgrade(place.version)) return true;
    place.parent->lock.unlock();
    return false;
  }

  // A new node with the bytes that the key has, above the old one with the rest of its prefix.
  static std::optional<bool> fork_prefix(const Place& place, Word key, Link leaf) {
    if (!lock_both(place)) return {};
    Node& node = *place.node;
    auto* fork = new Node4(place.same, key);
    art::add(*fork, art::byte_of(node.prefix, place.depth), reinterpret_cast<Link>(&node));
    art::add(*fork, art::byte_of(key, place.depth), leaf);
    put(node.prefix_size, node.prefix_size - place.same - 1);
    art::replace(*place.parent, place.parent_byte, reinterpret_cast<Link>(fork));
    node.lock.unlock();
    place.parent->lock.unlock();
    return true;
  }

  std::optional<bool> add_child(const Place& place, std::uint32_t byte, Link child) {
    const std::size_t room =
        art::visit_node(*place.node, [](const auto& node) { return node.kRoom; });
    const bool has_room = get(place.node->count) < room;
    // Of a node that another thread has just filled, the count would not go with `place.link`.
    if (!place.node->lock.check(place.version)) return {};
    if (has_room) {
      if (!place.node->lock.upgrade(place.version)) return {};
      art::visit_node(*place.node, [&](auto& node) { art::add(node, byte, child); });
      place.node->lock.unlock();
      return true;
    }
    if (!lock_both(place)) return {};
    Node* larger = enlarged(*place.node);
    art::visit_node(*larger, [&](auto& node) { art::add(node, byte, child); });
    art::replace(*place.parent, place.parent_byte, reinterpret_cast<Link>(larger));
    place.node->lock.unlock_obsolete();
    place.parent->lock.unlock();
    retire(reinterpret_cast<Link>(place.node));
    return true;
  }
  static Node* enlarged(const Node& node) {
    switch (node.kind) {
      case Kind::four:
        return copied<art::Node16>(node);
      case Kind::sixteen:
        return copied<art::Node48>(node);
      default:
        return copied<art::Node256>(node);  // a node of 256 children is never full
    }
  }
  template <class Larger>
  static Node* copied(const Node& node) {
    auto* larger = new Larger(node.prefix_size, node.prefix);
    art::for_each_child(node, [&](std::uint32_t byte, Link child) {
      art::add(*larger, byte, child);
      return true;
    });
    return larger;
  }

  // Appends entries in order, from `from` on if `bounded`, up to `limit`. False: a node changed
  // before there were so many.
  static bool collect(const Node& node, std::uint64_t version, std::uint32_t depth, Word from,
                      bool bounded, std::uint64_t limit,
                      std::vector<std::pair<Word, Word>>& entries) {
    const Word prefix = get(node.prefix);
    const std::uint32_t size = get(node.prefix_size);
    if (!node.lock.check(version)) return false;
    if (bounded && size > 0) {
      const std::uint32_t same = std::min(shared(from, prefix, depth), size);
      if (same < size && art::byte_of(prefix, depth + same) < art::byte_of(from, depth + same))
        return true;
      bounded = same == size;
    }
    depth += size;
    const std::uint32_t first = bounded ? art::byte_of(from, depth) : 0;
    const bool whole = art::for_each_child(node, [&](std::uint32_t byte, Link child) {
      if (entries.size() == limit) return false;
      if (byte < first) return true;
      const bool on_bound = bounded && byte == first;
      if (art::is_leaf(child)) {
        const Leaf& leaf = *art::leaf_of(child);
        const Word value = node.lock.check(version) ? get(leaf.value) : 0;
        if (!node.lock.check(version)) return false;
        if (!on_bound || leaf.key >= from) entries.emplace_back(leaf.key, value);
        return true;
      }
      std::uint64_t below = 0;
      return node.lock.check(version) && art::node_of(child)->lock.read(below) &&
             node.lock.check(version) &&
             collect(*art::node_of(child), below, depth + 1, from, on_bound, limit, entries);
    });
    return whole || entries.size() == limit;
  }

  void retire(Link link) {
    const std::lock_guard guard(gone_mutex_);
    gone_.push_back(link);
  }
  static std::uint64_t entries_below(Link link) {
    if (art::is_leaf(link)) return 1;
    std::uint64_t sum = 0;
    art::for_each_child(*art::node_of(link), [&](std::uint32_t, Link child) {
      sum += entries_below(child);
      return true;
    });
    return sum;
  }
  static void free_node(Node* node) {
    art::visit_node(*node, [](auto& typed) { delete &typed; });
  }
  static void destroy(Link link) {
    if (art::is_leaf(link)) {
      delete art::leaf_of(link);
      return;
    }
    art::for_each_child(*art::node_of(link), [](std::uint32_t, Link child) {
      destroy(child);
      return true;
    });
    free_node(art::node_of(link));
  }

  art::Node256 root_{0, 0};
  std::mutex gone_mutex_;
  std::vector<Link> gone_;  // replaced nodes and deleted leaves
};

}  // namespace perdure::bench::olc
