// SkipList: a skiplist with one entry in a node, all of it in the heap, which PhaST's paper counts
// the write-backs of (figure 2 b). An entry is in the next level with a probability of 1/2.
//
// INSERT  the node is written back, then its link in each level from below, each with a fence.
// COST    insert: 2 links on average, and the lines of the node; update 1F 1S; erase: the links.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "bench/workloads/random.h"
#include "evaluation/in_heap.h"
#include "evaluation/ordered/ordered_map.h"

namespace perdure::paper {

template <Platform P>
class SkipList final : public InHeap<P, OrderedMap> {
  static constexpr std::uint32_t kLevels = 24;
  struct Node {
    Word key;
    Word value;
    Node* next[kLevels];  // a block has as many as the node has levels
  };

 public:
  SkipList(P& platform, Heap<P>& heap) noexcept : InHeap<P, OrderedMap>(platform, heap) {}
  Status open() {
    auto head = this->template make<Node>();
    if (!head) return std::move(head.error());
    head_ = *head;
    this->persist(head_, sizeof(Node));
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    Path path;
    if (const Node* at = seek(key, path); at != nullptr && at->key == key) return false;
    const std::uint32_t levels =
        1 + static_cast<std::uint32_t>(std::countr_zero(random_.next() | Word{1} << (kLevels - 1)));
    const std::size_t bytes = offsetof(Node, next) + levels * sizeof(Node*);
    auto block = this->heap_.allocate(bytes, BlockKind::plain);
    if (!block) return fail(std::move(block.error()));
    Node* node = this->heap_.template at<Node>(*block);
    this->store(node->key, key);
    this->store(node->value, value);
    for (std::uint32_t l = 0; l < levels; ++l) this->store(node->next[l], path[l]->next[l]);
    this->persist(node, bytes);
    for (std::uint32_t l = 0; l < levels; ++l) link(path[l]->next[l], node);
    return true;
  }
  Expected<bool> update(Word key, Word value) override {
    Path path;
    Node* node = seek(key, path);
    if (node == nullptr || node->key != key) return false;
    this->store(node->value, value);
    this->persist(&node->value, sizeof(Word));
    return true;
  }
  Expected<bool> erase(Word key) override {
    Path path;
    const Node* node = seek(key, path);
    if (node == nullptr || node->key != key) return false;
    for (std::uint32_t l = kLevels; l-- > 0;) {
      if (path[l]->next[l] == node) link(path[l]->next[l], node->next[l]);
    }
    this->free(node);
    return true;
  }
  bool find(Word key, Word& value) override {
    Path path;
    const Node* node = seek(key, path);
    if (node == nullptr || node->key != key) return false;
    value = node->value;
    return true;
  }
  void scan(Word from, std::uint64_t limit, FunctionRef<void(Word, Word)> visit) override {
    Path path;
    for (const Node* node = seek(from, path); node != nullptr && limit > 0;
         node = node->next[0], --limit) {
      visit(node->key, node->value);
    }
  }

 private:
  using Path = std::array<Node*, kLevels>;  // the last node below a key, by level

  // The first node whose key is not below.
  Node* seek(Word key, Path& path) const noexcept {
    Node* node = head_;
    for (std::uint32_t l = kLevels; l-- > 0;) {
      while (node->next[l] != nullptr && node->next[l]->key < key) node = node->next[l];
      path[l] = node;
    }
    return node->next[0];
  }
  void link(Node*& from, Node* to) noexcept {
    this->store(from, to);
    this->persist(&from, sizeof(Node*));
  }

  Node* head_ = nullptr;
  bench::Random random_{1};
};

}  // namespace perdure::paper
