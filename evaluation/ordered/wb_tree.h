// WbTree: the wB+-tree of Chen and Jin (VLDB 2015) as PhaST is compared with it: nodes of two lines
// with 7 unsorted entries, all in the heap, and one word that has the count and the order.
//
// INSERT  The entry, then the word: 2F 2S. An update stores in place, 1F 1S. An erase stores the
//   word, 1F 1S.
// SPLIT   The old node and its parent go to an undo log; the new node is written back whole; the
//   old node's word; the link between leaves; the parent's entry; the log is cleared.
// DEVIATIONS  One thread, as in the paper. A node that has become empty stays. A node at a line
//   boundary has its word, the link and three entries in its first line.
#pragma once

#include <vector>

#include "evaluation/in_heap.h"
#include "evaluation/ordered/ordered_map.h"

namespace perdure::paper {

template <Platform P>
class WbTree final : public InHeap<P, OrderedMap> {
  static constexpr std::uint32_t kEntries = 7;
  // Byte 0: the count. Byte 1 + i: the place of the i-th smallest key.
  struct Order {
    Word word;
    std::uint32_t count() const noexcept { return static_cast<std::uint8_t>(word); }
    std::uint32_t operator[](std::uint32_t i) const noexcept {
      return static_cast<std::uint8_t>(word >> (8 * (i + 1)));
    }
    static Order of(const std::uint8_t* places, std::uint32_t count) noexcept {
      Word word = count;
      for (std::uint32_t i = 0; i < count; ++i) word |= Word{places[i]} << (8 * (i + 1));
      return {word};
    }
  };
  struct alignas(kLine) Node {
    Word order;
    Node* next;  // a leaf's neighbour; of an inner node the child below its first key
    Entry entries[kEntries];
  };
  static_assert(sizeof(Node) == 2 * kLine);
  struct alignas(kLine) Log {
    Word length;
    alignas(kLine) Node copies[2];
  };

 public:
  WbTree(P& platform, Heap<P>& heap) noexcept : InHeap<P, OrderedMap>(platform, heap) {}
  Status open() {
    auto root = this->template make<Node>();
    if (!root) return std::move(root.error());
    auto log = this->template make<Log>();
    if (!log) return std::move(log.error());
    root_ = *root;
    log_ = *log;
    this->persist(root_, sizeof(Node));
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    Node& leaf = descend(key);
    if (lookup(leaf, key) != nullptr) return false;
    if (Status s = insert_into(leaf, path_.size(), key, value); !s.ok()) return fail(std::move(s));
    return true;
  }
  Expected<bool> update(Word key, Word value) override {
    Entry* entry = lookup(descend(key), key);
    if (entry == nullptr) return false;
    this->store(entry->value, value);
    this->persist(&entry->value, sizeof(Word));
    return true;
  }
  Expected<bool> erase(Word key) override {
    Node& leaf = descend(key);
    const Entry* entry = lookup(leaf, key);
    if (entry == nullptr) return false;
    const Order order{leaf.order};
    std::uint8_t places[kEntries];
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < order.count(); ++i) {
      if (&leaf.entries[order[i]] != entry) places[count++] = static_cast<std::uint8_t>(order[i]);
    }
    set_order(leaf, Order::of(places, count));
    return true;
  }
  bool find(Word key, Word& value) override {
    const Entry* entry = lookup(descend(key), key);
    if (entry != nullptr) value = entry->value;
    return entry != nullptr;
  }
  void scan(Word from, std::uint64_t limit, FunctionRef<void(Word, Word)> visit) override {
    for (const Node* leaf = &descend(from); leaf != nullptr && limit > 0; leaf = leaf->next) {
      const Order order{leaf->order};
      for (std::uint32_t i = place(*leaf, from); i < order.count() && limit > 0; ++i, --limit) {
        visit(leaf->entries[order[i]].key, leaf->entries[order[i]].value);
      }
    }
  }

 private:
  // The first in order whose key is not below. Binary, as in the paper.
  static std::uint32_t place(const Node& node, Word key) noexcept {
    const Order order{node.order};
    std::uint32_t first = 0;
    for (std::uint32_t count = order.count(); count > 0;) {
      const std::uint32_t half = count / 2;
      const bool below = node.entries[order[first + half]].key < key;
      first = below ? first + half + 1 : first;
      count = below ? count - half - 1 : half;
    }
    return first;
  }
  static Entry* lookup(Node& leaf, Word key) noexcept {
    const Order order{leaf.order};
    const std::uint32_t at = place(leaf, key);
    if (at == order.count() || leaf.entries[order[at]].key != key) return nullptr;
    return &leaf.entries[order[at]];
  }
  // The leaf of the key; path_ has the inner nodes above it.
  Node& descend(Word key) noexcept {
    path_.clear();
    Node* node = root_;
    for (std::uint32_t level = height_; level > 0; --level) {
      path_.push_back(node);
      const Order order{node->order};
      std::uint32_t at = place(*node, key);
      if (at < order.count() && node->entries[order[at]].key == key) ++at;
      node = at == 0 ? node->next : reinterpret_cast<Node*>(node->entries[order[at - 1]].value);
    }
    return *node;
  }
  void set_order(Node& node, Order order) noexcept {
    this->store(node.order, order.word);
    this->persist(&node.order, sizeof(Word));
  }
  void put(Node& node, Word key, Word value) noexcept {
    const Order order{node.order};
    std::uint32_t used = 0;
    for (std::uint32_t i = 0; i < order.count(); ++i) used |= 1U << order[i];
    const auto free = static_cast<std::uint32_t>(__builtin_ctz(~used));
    this->store(node.entries[free], key, value);
    this->persist(&node.entries[free], sizeof(Entry));
    std::uint8_t places[kEntries];
    const std::uint32_t at = place(node, key);
    for (std::uint32_t i = 0; i <= order.count(); ++i) {
      places[i] = static_cast<std::uint8_t>(i < at ? order[i] : i == at ? free : order[i - 1]);
    }
    set_order(node, Order::of(places, order.count() + 1));
  }

  // `depth`: how many nodes of path_ are above the node.
  Status insert_into(Node& node, std::size_t depth, Word key, Word value) {
    if (Order{node.order}.count() < kEntries) {
      put(node, key, value);
      return {};
    }
    auto made = this->template make<Node>();
    if (!made) return std::move(made.error());
    Node& right = **made;
    save(node, depth > 0 ? path_[depth - 1] : nullptr);
    const bool inner = depth < height_;
    const Order order{node.order};
    const std::uint32_t kept = kEntries / 2;
    const Entry middle = node.entries[order[kept]];
    const std::uint32_t first = inner ? kept + 1 : kept;  // an inner node's middle goes up
    std::uint8_t places[kEntries];
    std::uint32_t count = 0;
    for (std::uint32_t i = first; i < kEntries; ++i, ++count) {
      right.entries[count] = node.entries[order[i]];
      places[count] = static_cast<std::uint8_t>(count);
    }
    right.order = Order::of(places, count).word;
    right.next = inner ? reinterpret_cast<Node*>(middle.value) : node.next;
    this->persist(&right, sizeof(Node));
    for (std::uint32_t i = 0; i < kept; ++i) places[i] = static_cast<std::uint8_t>(order[i]);
    if (!inner) this->store(node.next, &right);
    set_order(node, Order::of(places, kept));  // the link lies in the same line
    put(key < middle.key ? node : right, key, value);
    const Status above = insert_above(node, depth, middle.key, right);
    this->store(log_->length, 0);
    this->persist(log_, sizeof(Word));
    return above;
  }
  Status insert_above(Node& left, std::size_t depth, Word separator, Node& right) {
    if (depth > 0) {
      return insert_into(*path_[depth - 1], depth - 1, separator, reinterpret_cast<Word>(&right));
    }
    auto made = this->template make<Node>();
    if (!made) return std::move(made.error());
    Node& root = **made;
    root.next = &left;
    root.entries[0] = {separator, reinterpret_cast<Word>(&right)};
    const std::uint8_t first = 0;
    root.order = Order::of(&first, 1).word;
    this->persist(&root, sizeof(Node));
    root_ = &root;
    ++height_;
    return {};
  }
  // Writes nodes to the undo log.
  void save(const Node& node, const Node* parent) noexcept {
    this->copy(&log_->copies[0], &node, sizeof(Node));
    if (parent != nullptr) this->copy(&log_->copies[1], parent, sizeof(Node));
    this->persist(log_->copies, (parent != nullptr ? 2 : 1) * sizeof(Node));
    this->store(log_->length, parent != nullptr ? 2 : 1);
    this->persist(log_, sizeof(Word));
  }

  Node* root_ = nullptr;
  Log* log_ = nullptr;
  std::uint32_t height_ = 0;  // levels of inner nodes
  std::vector<Node*> path_;
};

}  // namespace perdure::paper
