// DramIndex: the inner nodes of a B+-tree in DRAM, from separators to leaves, with FPTree's fanout
// of 256. The child i has the keys from separator i - 1 up to, not including, separator i.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "evaluation/ordered/ordered_map.h"

namespace perdure::paper {

template <class Leaf>
class DramIndex {
  static constexpr std::uint32_t kFanout = 256;
  struct Node {
    std::uint32_t count = 0;  // of separators
    bool above_leaves = true;
    Word keys[kFanout - 1];
    void* children[kFanout];
  };

 public:
  explicit DramIndex(Leaf* first) : root_(new Node) { root_->children[0] = first; }
  ~DramIndex() { destroy(root_); }
  DramIndex(const DramIndex&) = delete;
  DramIndex& operator=(const DramIndex&) = delete;

  Leaf* find(Word key) const noexcept {
    const Node* node = root_;
    while (!node->above_leaves) node = static_cast<const Node*>(node->children[place(*node, key)]);
    return static_cast<Leaf*>(node->children[place(*node, key)]);
  }
  // The leaf with keys from the separator on, which a split has made.
  void insert(Word separator, Leaf* leaf) {
    Node* right = insert_below(*root_, separator, leaf);
    if (right == nullptr) return;
    auto* root = new Node;
    root->above_leaves = false;
    root->count = 1;
    root->keys[0] = up_;
    root->children[0] = root_;
    root->children[1] = right;
    root_ = root;
  }

 private:
  static std::uint32_t place(const Node& node, Word key) noexcept {
    return static_cast<std::uint32_t>(std::upper_bound(node.keys, node.keys + node.count, key) -
                                      node.keys);
  }
  // Returns the new right half of the node if it was split; up_ then is the separator between them.
  Node* insert_below(Node& node, Word separator, Leaf* leaf) {
    void* child = leaf;
    const std::uint32_t at = place(node, separator);
    if (!node.above_leaves) {
      child = insert_below(*static_cast<Node*>(node.children[at]), separator, leaf);
      if (child == nullptr) return nullptr;
      separator = up_;
    }
    std::memmove(node.keys + at + 1, node.keys + at, (node.count - at) * sizeof(Word));
    std::memmove(node.children + at + 2, node.children + at + 1, (node.count - at) * sizeof(void*));
    node.keys[at] = separator;
    node.children[at + 1] = child;
    if (++node.count < kFanout - 1) return nullptr;
    auto* right = new Node;
    const std::uint32_t kept = node.count / 2;
    right->above_leaves = node.above_leaves;
    right->count = node.count - kept - 1;
    std::memcpy(right->keys, node.keys + kept + 1, right->count * sizeof(Word));
    std::memcpy(right->children, node.children + kept + 1, (right->count + 1) * sizeof(void*));
    up_ = node.keys[kept];
    node.count = kept;
    return right;
  }
  static void destroy(Node* node) {
    if (!node->above_leaves) {
      for (std::uint32_t i = 0; i <= node->count; ++i)
        destroy(static_cast<Node*>(node->children[i]));
    }
    delete node;
  }

  Node* root_;
  Word up_ = 0;
};

}  // namespace perdure::paper
