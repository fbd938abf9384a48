// FastFair: the B+-tree of Hwang, Kim, Won and Nam (FAST 2018) as PhaST is compared with it: nodes
// of 512 bytes with 30 sorted entries, in the heap.
//
// INSERT  FAST: entries shift to the right one word after the other, and a line is written back
//   when the shift leaves it. A crash leaves two neighbours with one pointer, which a reader
//   ignores; values must therefore differ between neighbours, as pointers do.
// SPLIT   FAIR: the new node is written back whole, then linked as sibling, then the old node is
//   cut. The parent gets its entry last.
// COST    insert: the lines that shift, 3 of 8 on average, each with a fence; update 1F 1S; erase
//   as insert.
// DEVIATIONS  One thread: no lock, no readers beside a shift; SharedFastFair has both. An existing
//   key is refused; the authors' code stores it twice. The count of a node is kept, as in their
//   code; recovery would count again. Nodes do not merge, as in their code.
#pragma once

#include <vector>

#include "evaluation/in_heap.h"
#include "evaluation/ordered/ordered_map.h"

namespace perdure::paper {

template <Platform P>
class FastFair final : public InHeap<P, OrderedMap> {
  static constexpr std::uint32_t kEntries = 30;
  struct alignas(kLine) Node {
    Node* leftmost;  // of an inner node: the child below its first key
    Node* sibling;
    std::uint64_t count;
    std::uint64_t level;  // 0: a leaf
    Entry entries[kEntries];
  };
  static_assert(sizeof(Node) == 512);

 public:
  FastFair(P& platform, Heap<P>& heap) noexcept : InHeap<P, OrderedMap>(platform, heap) {}
  Status open() {
    auto root = this->template make<Node>();
    if (!root) return std::move(root.error());
    root_ = *root;
    this->persist(root_, sizeof(Node));
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    Node& leaf = descend(key);
    if (const std::uint32_t at = place(leaf, key); at < leaf.count && leaf.entries[at].key == key) {
      return false;
    }
    if (Status s = insert_into(leaf, key, value); !s.ok()) return fail(std::move(s));
    return true;
  }
  Expected<bool> update(Word key, Word value) override {
    Entry* entry = lookup(key);
    if (entry == nullptr) return false;
    this->store(entry->value, value);
    this->persist(&entry->value, sizeof(Word));
    return true;
  }
  Expected<bool> erase(Word key) override {
    Node& leaf = descend(key);
    std::uint32_t at = place(leaf, key);
    if (at == leaf.count || leaf.entries[at].key != key) return false;
    this->store(leaf.count, leaf.count - 1);
    for (; at < leaf.count; ++at) {
      this->store(leaf.entries[at], leaf.entries[at + 1].key, leaf.entries[at + 1].value);
      if (begins_line(leaf.entries[at + 1])) this->persist(&leaf.entries[at], sizeof(Entry));
    }
    this->store(leaf.entries[at].value, 0);
    this->persist(&leaf.entries[at], sizeof(Entry));
    return true;
  }
  bool find(Word key, Word& value) override {
    const Entry* entry = lookup(key);
    if (entry != nullptr) value = entry->value;
    return entry != nullptr;
  }
  void scan(Word from, std::uint64_t limit, FunctionRef<void(Word, Word)> visit) override {
    path_.clear();
    const Node* leaf = &descend(from);
    std::uint32_t at = place(*leaf, from);
    for (; leaf != nullptr && limit > 0; leaf = leaf->sibling, at = 0) {
      for (; at < leaf->count && limit > 0; ++at, --limit) {
        visit(leaf->entries[at].key, leaf->entries[at].value);
      }
    }
  }

 private:
  static bool begins_line(const Entry& entry) noexcept {
    return reinterpret_cast<std::uintptr_t>(&entry) % kLine == 0;
  }
  // The first entry whose key is not below. Linear, as in the paper.
  static std::uint32_t place(const Node& node, Word key) noexcept {
    std::uint32_t at = 0;
    while (at < node.count && node.entries[at].key < key) ++at;
    return at;
  }
  // The leaf of the key; path_ has the inner nodes above it.
  Node& descend(Word key) noexcept {
    path_.clear();
    Node* node = root_;
    while (node->level > 0) {
      path_.push_back(node);
      std::uint32_t at = 0;
      while (at < node->count && node->entries[at].key <= key) ++at;
      node = at == 0 ? node->leftmost : reinterpret_cast<Node*>(node->entries[at - 1].value);
    }
    return *node;
  }
  Entry* lookup(Word key) noexcept {
    Node& leaf = descend(key);
    const std::uint32_t at = place(leaf, key);
    return at < leaf.count && leaf.entries[at].key == key ? &leaf.entries[at] : nullptr;
  }

  // FAST.
  void shift_in(Node& node, Word key, Word value) noexcept {
    std::uint32_t at = static_cast<std::uint32_t>(node.count);
    for (; at > 0 && node.entries[at - 1].key > key; --at) {
      this->store(node.entries[at], node.entries[at - 1].key, node.entries[at - 1].value);
      if (begins_line(node.entries[at])) this->persist(&node.entries[at], sizeof(Entry));
    }
    this->store(node.entries[at], key, value);
    this->persist(&node.entries[at], sizeof(Entry));
    this->store(node.count, node.count + 1);
  }

  Status insert_into(Node& node, Word key, Word value) {
    if (node.count < kEntries) {
      shift_in(node, key, value);
      return {};
    }
    // FAIR.
    auto made = this->template make<Node>();
    if (!made) return std::move(made.error());
    Node& right = **made;
    const std::uint64_t kept = kEntries / 2;
    const Word separator = node.entries[kept].key;
    const bool inner = node.level > 0;  // its middle entry goes up
    right.level = node.level;
    right.sibling = node.sibling;
    if (inner) right.leftmost = reinterpret_cast<Node*>(node.entries[kept].value);
    right.count = kEntries - kept - (inner ? 1 : 0);
    this->copy(right.entries, node.entries + kept + (inner ? 1 : 0), right.count * sizeof(Entry));
    this->persist(&right, sizeof(Node));
    this->store(node.sibling, &right);
    this->persist(&node.sibling, sizeof(Word));
    this->store(node.entries[kept].value, 0);
    this->persist(&node.entries[kept].value, sizeof(Word));
    this->store(node.count, kept);
    shift_in(key < separator ? node : right, key, value);
    return insert_above(node, separator, right);
  }
  Status insert_above(Node& left, Word separator, Node& right) {
    if (!path_.empty()) {
      Node* parent = path_.back();
      path_.pop_back();
      return insert_into(*parent, separator, reinterpret_cast<Word>(&right));
    }
    auto made = this->template make<Node>();
    if (!made) return std::move(made.error());
    Node& root = **made;
    root.level = left.level + 1;
    root.leftmost = &left;
    root.entries[0] = {separator, reinterpret_cast<Word>(&right)};
    root.count = 1;
    this->persist(&root, sizeof(Node));
    root_ = &root;
    return {};
  }

  Node* root_ = nullptr;
  std::vector<Node*> path_;
};

}  // namespace perdure::paper
