// Wort: the radix tree of Lee, Lim, Song, Nam and Noh (FAST 2017): 16 children, a header of one
// word with depth and prefix, all in the heap; a leaf has one entry.
//
// INSERT  The leaf is written back, then the word that names it: 2F 2S. A new node above a leaf or
//   above the rest of a prefix is written back whole before one store links it. An update stores in
//   place, 1F 1S. An erase clears the link, 1F 1S.
// DEVIATIONS  One thread, as in the paper. Nodes do not shrink; an erased leaf's block is freed.
//   After a split of a prefix the old node's header is stored after the link; recovery in the paper
//   corrects it by the depth. The prefix is kept as a key and a length.
#pragma once

#include <algorithm>

#include "evaluation/in_heap.h"
#include "evaluation/ordered/ordered_map.h"

namespace perdure::paper {

template <Platform P>
class Wort final : public InHeap<P, OrderedMap> {
  using Leaf = Entry;
  static constexpr std::uint32_t kNibbles = 16;
  using Link = Word;  // 0, a node, or a leaf and 1
  struct alignas(kLine) Node {
    std::uint32_t depth;   // of the nibble that chooses the child
    std::uint32_t length;  // of the prefix before it
    Word key;              // a key with this prefix
    Link children[16];
  };

 public:
  Wort(P& platform, Heap<P>& heap) noexcept : InHeap<P, OrderedMap>(platform, heap) {}
  Status open() { return {}; }

  Expected<bool> insert(Word key, Word value) override {
    Link* link = &root_;
    for (;;) {
      if (*link == 0) break;
      if (is_leaf(*link)) {
        const Word other = leaf_of(*link)->key;
        if (other == key) return false;
        return fork(*link, key, value, other, depth_below(link), *link);
      }
      Node& node = *node_of(*link);
      const std::uint32_t start = node.depth - node.length;
      const std::uint32_t same = shared(key, node.key, start);
      if (same < node.length) {
        auto forked = fork(*link, key, value, node.key, start, *link);
        if (!forked) return forked;
        node.length -= same + 1;
        this->persist(&node, sizeof(Word));
        return true;
      }
      parent_ = &node;
      link = &node.children[nibble(key, node.depth)];
    }
    auto leaf = make_leaf(key, value);
    if (!leaf) return fail(std::move(leaf.error()));
    set(*link, *leaf);
    return true;
  }
  Expected<bool> update(Word key, Word value) override {
    Link* link = lookup(key);
    if (link == nullptr) return false;
    this->store(leaf_of(*link)->value, value);
    this->persist(&leaf_of(*link)->value, sizeof(Word));
    return true;
  }
  Expected<bool> erase(Word key) override {
    Link* link = lookup(key);
    if (link == nullptr) return false;
    Leaf* leaf = leaf_of(*link);
    set(*link, 0);
    this->free(leaf);
    return true;
  }
  bool find(Word key, Word& value) override {
    const Link* link = lookup(key);
    if (link != nullptr) value = leaf_of(*link)->value;
    return link != nullptr;
  }
  void scan(Word from, std::uint64_t limit, FunctionRef<void(Word, Word)> visit) override {
    walk(root_, from, limit, visit);
  }

 private:
  static bool is_leaf(Link link) noexcept { return (link & 1) != 0; }
  static Leaf* leaf_of(Link link) noexcept { return reinterpret_cast<Leaf*>(link - 1); }
  static Node* node_of(Link link) noexcept { return reinterpret_cast<Node*>(link); }
  static std::uint32_t nibble(Word key, std::uint32_t depth) noexcept {
    return static_cast<std::uint32_t>(key >> (4 * (kNibbles - 1 - depth))) & 15;
  }
  // How many nibbles two keys share, from `depth` on.
  static std::uint32_t shared(Word a, Word b, std::uint32_t depth) noexcept {
    const Word rest = (a ^ b) << (4 * depth);
    return rest == 0 ? kNibbles - depth : static_cast<std::uint32_t>(__builtin_clzll(rest)) / 4;
  }
  // The depth of what the link names.
  std::uint32_t depth_below(const Link* link) const noexcept {
    return link == &root_ ? 0 : parent_->depth + 1;
  }
  void set(Link& link, Link to) noexcept {
    this->store(link, to);
    this->persist(&link, sizeof(Link));
  }
  Expected<Link> make_leaf(Word key, Word value) noexcept {
    auto leaf = this->template make<Leaf>();
    if (!leaf) return fail(std::move(leaf.error()));
    this->store(**leaf, key, value);
    this->persist(*leaf, sizeof(Leaf));
    return reinterpret_cast<Link>(*leaf) + 1;
  }
  // A new node in the place of `below`, whose keys share fewer nibbles with the new key.
  Expected<bool> fork(Link& link, Word key, Word value, Word other, std::uint32_t start,
                      Link below) noexcept {
    auto leaf = make_leaf(key, value);
    if (!leaf) return fail(std::move(leaf.error()));
    auto made = this->template make<Node>();
    if (!made) return fail(std::move(made.error()));
    Node& node = **made;
    node.length = shared(key, other, start);
    node.depth = start + node.length;
    node.key = key;
    node.children[nibble(other, node.depth)] = below;
    node.children[nibble(key, node.depth)] = *leaf;
    this->persist(&node, sizeof(Node));
    set(link, reinterpret_cast<Link>(&node));
    return true;
  }
  Link* lookup(Word key) noexcept {
    Link* link = &root_;
    while (*link != 0 && !is_leaf(*link)) {
      Node& node = *node_of(*link);
      link = &node.children[nibble(key, node.depth)];
    }
    return *link != 0 && leaf_of(*link)->key == key ? link : nullptr;
  }
  static void walk(Link link, Word from, std::uint64_t& limit,
                   FunctionRef<void(Word, Word)> visit) {
    if (link == 0 || limit == 0) return;
    if (is_leaf(link)) {
      if (leaf_of(link)->key < from) return;
      --limit;
      visit(leaf_of(link)->key, leaf_of(link)->value);
      return;
    }
    const Node& node = *node_of(link);
    // Below the bound: the largest key with this prefix.
    const std::uint32_t below = 4 * (kNibbles - node.depth);
    const Word most = below == 64 ? ~Word{0} : node.key | ((Word{1} << below) - 1);
    if (most < from) return;
    for (const Link child : node.children) walk(child, from, limit, visit);
  }

  Link root_ = 0;
  const Node* parent_ = nullptr;  // of the last link that insert() followed
};

}  // namespace perdure::paper
