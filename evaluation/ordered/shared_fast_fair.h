// SharedFastFair: FastFair for any number of threads, as in its paper. Figures with one thread
// have FastFair, whose searches are faster.
//
// WRITERS  take the latch of the node that they change; a split, those of both halves.
// READERS  take none. They read from left to right, as entries shift, so they miss none. In the
//   middle of a shift two neighbours have one pointer, and the right one is ignored; so values must
//   differ between neighbours and from 0. The sibling has the keys from the bound on.
// COST     as FastFair.
// DEVIATIONS  Those of FastFair. The bound is in the node; the authors read the first key of the
//   sibling. The latch is a word of the node, theirs a mutex in DRAM. No reader may run beside an
//   erase, which shifts to the left, and no writer beside a scan: no figure with threads has them.
#pragma once

#include "evaluation/in_heap.h"
#include "evaluation/ordered/ordered_map.h"

namespace perdure::paper {

template <Platform P>
class SharedFastFair final : public InHeap<P, OrderedMap> {
  static constexpr std::uint32_t kEntries = 30;
  struct alignas(kLine) Node {
    Node* leftmost;  // of an inner node: the child below its first key
    Node* sibling;
    Word bound;  // keys from here on are in the sibling, if there is one
    typename P::Latch latch;
    std::uint16_t level;  // 0: a leaf
    typename P::template Atomic<std::uint32_t> count;
    Entry entries[kEntries];
  };
  static_assert(sizeof(Node) == 512);

 public:
  SharedFastFair(P& platform, Heap<P>& heap) noexcept : InHeap<P, OrderedMap>(platform, heap) {}
  Status open() {
    auto root = this->template make<Node>();
    if (!root) return std::move(root.error());
    (*root)->bound = kUnbounded;
    this->persist(*root, sizeof(Node));
    root_.store(*root, std::memory_order_release);
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    Node& leaf = latched(key, 0);
    if (entry_of(leaf, key) != nullptr) {
      leaf.latch.unlock();
      return false;
    }
    if (Status s = insert_into(leaf, key, value); !s.ok()) return fail(std::move(s));
    return true;
  }
  Expected<bool> update(Word key, Word value) override {
    Node& leaf = latched(key, 0);
    Entry* entry = entry_of(leaf, key);
    if (entry != nullptr) {
      this->store(entry->value, value);
      this->persist(&entry->value, sizeof(Word));
    }
    leaf.latch.unlock();
    return entry != nullptr;
  }
  Expected<bool> erase(Word key) override {
    Node& leaf = latched(key, 0);
    Entry* entry = entry_of(leaf, key);
    const bool found = entry != nullptr;
    if (found) {
      set_count(leaf, count_of(leaf) - 1);
      for (Entry* const last = leaf.entries + count_of(leaf); entry != last; ++entry) {
        this->store(*entry, entry[1].key, entry[1].value);
        if (begins_line(entry[1])) this->persist(entry, sizeof(Entry));
      }
      this->store(entry->value, 0);
      this->persist(entry, sizeof(Entry));
    }
    leaf.latch.unlock();
    return found;
  }
  bool find(Word key, Word& value) override {
    const Node* leaf = &node_of(key, 0);
    while (leaf != nullptr && !read(*leaf, key, value)) leaf = beyond(*leaf, key);
    return leaf != nullptr;
  }
  void scan(Word from, std::uint64_t limit, FunctionRef<void(Word, Word)> visit) override {
    const Node* leaf = &node_of(from, 0);
    std::uint32_t at = place(*leaf, from);
    for (; leaf != nullptr && limit > 0; leaf = leaf->sibling, at = 0) {
      for (; at < count_of(*leaf) && limit > 0; ++at, --limit) {
        visit(leaf->entries[at].key, leaf->entries[at].value);
      }
    }
  }

 private:
  static bool begins_line(const Entry& entry) noexcept {
    return reinterpret_cast<std::uintptr_t>(&entry) % kLine == 0;
  }
  static std::uint32_t count_of(const Node& node) noexcept {
    return node.count.load(std::memory_order_acquire);
  }
  static void set_count(Node& node, std::uint32_t count) noexcept {
    node.count.store(count, std::memory_order_release);
  }
  // The first entry whose key is not below. Linear, as in the paper. No writer is there.
  static std::uint32_t place(const Node& node, Word key) noexcept {
    const std::uint32_t count = count_of(node);
    std::uint32_t at = 0;
    while (at < count && node.entries[at].key < key) ++at;
    return at;
  }
  // The entry of the key in a latched leaf.
  static Entry* entry_of(Node& leaf, Word key) noexcept {
    const std::uint32_t at = place(leaf, key);
    return at < count_of(leaf) && leaf.entries[at].key == key ? &leaf.entries[at] : nullptr;
  }
  // The pointer left of an entry.
  Word before(const Node& node, std::uint32_t at) const noexcept {
    return at > 0 ? this->load(node.entries[at - 1].value)
                  : reinterpret_cast<Word>(this->load(node.leftmost));
  }
  // The sibling if the key is there: a split was faster. A split stores the link first.
  Node* beyond(const Node& node, Word key) const noexcept {
    return key < this->load(node.bound) ? nullptr : this->load(node.sibling);
  }

  // Without a latch. The count rises before an entry shifts past it, so the end loads it again.
  bool read(const Node& leaf, Word key, Word& value) const noexcept {
    std::uint32_t count = 0;
    for (std::uint32_t at = 0;; ++at) {
      if (at >= count && at >= (count = count_of(leaf))) return false;
      const Word found = this->load(leaf.entries[at].key);
      if (found < key) continue;
      if (found > key) return false;
      value = this->load(leaf.entries[at].value);
      if (value != 0 && value != before(leaf, at) && this->load(leaf.entries[at].key) == key) {
        return true;
      }
    }
  }
  // Likewise. The child may lie too far to the left beside a shift, but never to the right.
  Node* child_of(const Node& node, Word key) const noexcept {
    const std::uint32_t count = count_of(node);
    std::uint32_t at = 0;
    for (; at < count; ++at) {
      if (key >= this->load(node.entries[at].key)) continue;
      const Word left = before(node, at);
      if (left != this->load(node.entries[at].value)) return reinterpret_cast<Node*>(left);
    }
    // The last entry may have been empty, with another key, when the loop passed it.
    for (; at > 0; --at) {
      const Word last = this->load(node.entries[at - 1].value);
      if (last != 0 && key >= this->load(node.entries[at - 1].key)) {
        return reinterpret_cast<Node*>(last);
      }
    }
    return this->load(node.leftmost);
  }
  // The node of the level that has the key, or a node to the left of it.
  Node& node_of(Word key, std::uint32_t level) const noexcept {
    Node* node = root_.load(std::memory_order_acquire);
    while (node->level > level) {
      Node* const child = child_of(*node, key);
      Node* const next = beyond(*node, key);
      node = next != nullptr ? next : child;
    }
    return *node;
  }
  // The node of the level that has the key.
  Node& latched(Word key, std::uint32_t level) const noexcept {
    Node* node = &node_of(key, level);
    node->latch.lock();
    while (Node* const next = beyond(*node, key)) {
      node->latch.unlock();
      next->latch.lock();
      node = next;
    }
    return *node;
  }

  // FAST.
  void shift_in(Node& node, Word key, Word value) noexcept {
    std::uint32_t at = count_of(node);
    this->store(node.entries[at].value, 0);
    set_count(node, at + 1);
    for (; at > 0 && node.entries[at - 1].key > key; --at) {
      this->store(node.entries[at], node.entries[at - 1].key, node.entries[at - 1].value);
      if (begins_line(node.entries[at])) this->persist(&node.entries[at], sizeof(Entry));
    }
    this->store(node.entries[at], key, before(node, at));
    this->store(node.entries[at].value, value);
    this->persist(&node.entries[at], sizeof(Entry));
  }

  // Into a latched node. Opens the latch.
  Status insert_into(Node& node, Word key, Word value) {
    if (count_of(node) < kEntries) {
      shift_in(node, key, value);
      node.latch.unlock();
      return {};
    }
    // FAIR.
    auto made = this->template make<Node>();
    if (!made) {
      node.latch.unlock();
      return std::move(made.error());
    }
    Node& right = **made;
    right.latch.lock();
    const std::uint32_t kept = kEntries / 2;
    const Word separator = node.entries[kept].key;
    const bool inner = node.level > 0;  // its middle entry goes up
    right.level = node.level;
    right.sibling = node.sibling;
    right.bound = node.bound;
    if (inner) right.leftmost = reinterpret_cast<Node*>(node.entries[kept].value);
    set_count(right, kEntries - kept - (inner ? 1 : 0));
    this->copy(right.entries, node.entries + kept + (inner ? 1 : 0),
               count_of(right) * sizeof(Entry));
    this->persist(&right, sizeof(Node));
    this->store(node.sibling, &right);
    this->store(node.bound, separator);
    this->persist(&node.sibling, sizeof(node.sibling) + sizeof(node.bound));
    this->store(node.entries[kept].value, 0);
    this->persist(&node.entries[kept].value, sizeof(Word));
    set_count(node, kept);
    shift_in(key < separator ? node : right, key, value);
    return insert_above(node, separator, right);
  }
  // Opens the latches of both. They are closed until the root is there, so no other thread looks
  // for a level that is not.
  Status insert_above(Node& left, Word separator, Node& right) {
    const bool above = root_.load(std::memory_order_acquire) != &left;
    Status made = above ? Status{} : make_root(left, separator, right);
    left.latch.unlock();
    right.latch.unlock();
    if (!above) return made;
    return insert_into(latched(separator, left.level + 1U), separator,
                       reinterpret_cast<Word>(&right));
  }
  Status make_root(Node& left, Word separator, Node& right) {
    auto made = this->template make<Node>();
    if (!made) return std::move(made.error());
    Node& root = **made;
    root.level = static_cast<std::uint16_t>(left.level + 1);
    root.bound = kUnbounded;
    root.leftmost = &left;
    root.entries[0] = {separator, reinterpret_cast<Word>(&right)};
    set_count(root, 1);
    this->persist(&root, sizeof(Node));
    root_.store(&root, std::memory_order_release);
    return {};
  }

  static constexpr Word kUnbounded = ~Word{0};
  typename P::template Atomic<Node*> root_{nullptr};
};

}  // namespace perdure::paper
