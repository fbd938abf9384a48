// A B+-tree with optimistic lock coupling, in DRAM, from 64-bit keys to 64-bit values (Leis,
// Haubenschild and Neumann, IEEE Data Eng. Bull. 42(1), 2019).
//
// INVARIANTS  Keys of a node ascend. The child i of an inner node has the keys up to and including
//             its key i, the last child all above. Nodes are only split, never merged or freed.
// OPERATIONS  A descent checks the version of a parent after it has noted that of the child. A full
//             inner node on the way of an insert is split at once, so a split has one parent.
// DEVIATIONS  The paper's trees merge no nodes either. scan() descends again for each leaf.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/olc/version_lock.h"

namespace perdure::bench::olc {

template <std::size_t NodeBytes = 4096>
class Btree {
  using Word = std::uint64_t;
  struct Node {
    explicit Node(bool is_leaf) noexcept : leaf(is_leaf) {}
    VersionLock lock;
    std::uint32_t count = 0;
    const bool leaf;
  };
  static constexpr std::size_t kEntries = (NodeBytes - sizeof(Node)) / (2 * sizeof(Word));

  struct Leaf : Node {
    Leaf() noexcept : Node(true) {}
    Word keys[kEntries];
    Word values[kEntries];
  };
  struct Inner : Node {
    Inner() noexcept : Node(false) {}
    Word keys[kEntries - 1];
    Node* children[kEntries];
  };

 public:
  static constexpr const char* kName = "btree_olc";
  static constexpr bool kMallocs = true;
  static std::string version() { return std::to_string(NodeBytes) + "-byte nodes"; }

  Btree(std::uint64_t /*capacity*/, std::uint32_t /*threads*/) {}
  ~Btree() { destroy(root_); }
  Btree(const Btree&) = delete;
  Btree& operator=(const Btree&) = delete;

  // False: the key is there.
  bool insert(Word key, Word value) {
    return until_done([&] { return try_insert(key, value); });
  }
  // False: the key is not there.
  bool update(Word key, Word value) {
    return change(key, [&](Leaf& leaf, std::uint32_t at) { put(leaf.values[at], value); });
  }
  bool erase(Word key) {
    return change(key, [](Leaf& leaf, std::uint32_t at) {
      for (std::uint32_t i = at + 1; i < leaf.count; ++i) move(leaf, i, i - 1);
      put(leaf.count, leaf.count - 1);
    });
  }
  template <class F>
  bool read(Word key, F&& visit) const {
    Word value = 0;
    const bool found = until_done([&]() -> std::optional<bool> {
      Place place;
      if (!descend(key, place)) return {};
      const auto [at, here] = find(*place.leaf, key);
      if (here) value = get(place.leaf->values[at]);
      if (!place.leaf->lock.check(place.version)) return {};
      return here;
    });
    if (found) visit(value);
    return found;
  }
  // Calls visit(key, value) for up to `limit` entries from `from` on, in order.
  template <class F>
  void scan(Word from, std::uint64_t limit, F&& visit) const {
    std::array<std::pair<Word, Word>, kEntries> entries;
    while (limit > 0) {
      std::uint64_t taken = 0;
      Place place;
      until_done([&]() -> std::optional<bool> {
        if (!descend(from, place)) return {};
        taken = 0;
        const std::uint32_t count = count_of(*place.leaf, kEntries);
        for (std::uint32_t i = find(*place.leaf, from).first; i < count && taken < limit; ++i) {
          entries[taken++] = {get(place.leaf->keys[i]), get(place.leaf->values[i])};
        }
        if (!place.leaf->lock.check(place.version)) return {};
        return true;
      });
      for (std::uint64_t i = 0; i < taken; ++i) visit(entries[i].first, entries[i].second);
      limit -= taken;
      if (place.last) return;
      from = place.bound + 1;
    }
  }
  // Not for use beside writers.
  std::uint64_t size() const { return entries_below(root_); }
  std::optional<double> load_factor() const { return {}; }

 private:
  // Where a descent ended. All keys of the leaf are <= bound, or it is the last one.
  struct Place {
    Inner* parent = nullptr;
    std::uint64_t parent_version = 0;
    Leaf* leaf = nullptr;
    std::uint64_t version = 0;
    bool last = true;
    Word bound = 0;
  };

  template <class F>
  static bool until_done(F attempt) {
    for (;;) {
      if (const std::optional<bool> result = attempt(); result) return *result;
      _mm_pause();
    }
  }

  // A count that a writer is just changing may be anything: it is cut to what the node has.
  static std::uint32_t count_of(const Node& node, std::size_t most) noexcept {
    return std::min(get(node.count), static_cast<std::uint32_t>(most));
  }
  // The first place whose key is not below `key`.
  static std::uint32_t lower_bound(const Word* keys, std::uint32_t count, Word key) noexcept {
    std::uint32_t first = 0;
    while (count > 0) {
      const std::uint32_t half = count / 2;
      const bool below = get(keys[first + half]) < key;
      first = below ? first + half + 1 : first;
      count = below ? count - half - 1 : half;
    }
    return first;
  }
  static std::pair<std::uint32_t, bool> find(const Leaf& leaf, Word key) noexcept {
    const std::uint32_t count = count_of(leaf, kEntries);
    const std::uint32_t at = lower_bound(leaf.keys, count, key);
    return {at, at < count && get(leaf.keys[at]) == key};
  }
  static void move(Leaf& leaf, std::uint32_t from, std::uint32_t to) noexcept {
    put(leaf.keys[to], leaf.keys[from]);
    put(leaf.values[to], leaf.values[from]);
  }

  // One step down, to the child of the key. False: start again.
  static bool step(Inner& inner, std::uint64_t version, Word key, Place& place, Node*& child,
                   std::uint64_t& child_version) noexcept {
    const std::uint32_t count = count_of(inner, kEntries - 1);
    const std::uint32_t at = lower_bound(inner.keys, count, key);
    child = get(inner.children[at]);
    const bool bounded = at < count;
    const Word bound = bounded ? get(inner.keys[at]) : 0;
    if (!inner.lock.check(version)) return false;  // before the child is read
    if (bounded) {
      place.bound = bound;
      place.last = false;
    }
    if (!child->lock.read(child_version)) return false;
    place.parent = &inner;
    place.parent_version = version;
    return inner.lock.check(version);
  }

  bool start(Node*& node, std::uint64_t& version) const noexcept {
    node = get(root_);
    return node->lock.read(version) && get(root_) == node;
  }

  bool descend(Word key, Place& place) const noexcept {
    place = {};
    Node* node = nullptr;
    std::uint64_t version = 0;
    if (!start(node, version)) return false;
    while (!node->leaf) {
      Node* child = nullptr;
      std::uint64_t child_version = 0;
      if (!step(*static_cast<Inner*>(node), version, key, place, child, child_version)) {
        return false;
      }
      node = child;
      version = child_version;
    }
    place.leaf = static_cast<Leaf*>(node);
    place.version = version;
    return true;
  }

  template <class F>
  bool change(Word key, F apply) {
    return until_done([&]() -> std::optional<bool> {
      Place place;
      if (!descend(key, place)) return {};
      const auto [at, here] = find(*place.leaf, key);
      if (!here) {
        if (!place.leaf->lock.check(place.version)) return {};
        return false;
      }
      if (!place.leaf->lock.upgrade(place.version)) return {};
      apply(*place.leaf, at);
      place.leaf->lock.unlock();
      return true;
    });
  }

  std::optional<bool> try_insert(Word key, Word value) {
    Place place;
    Node* node = nullptr;
    std::uint64_t version = 0;
    if (!start(node, version)) return {};
    while (!node->leaf) {
      auto& inner = *static_cast<Inner*>(node);
      if (get(inner.count) == kEntries - 1) {
        split(place, inner, version);
        return {};
      }
      Node* child = nullptr;
      std::uint64_t child_version = 0;
      if (!step(inner, version, key, place, child, child_version)) return {};
      node = child;
      version = child_version;
    }
    auto& leaf = *static_cast<Leaf*>(node);
    const auto [at, here] = find(leaf, key);
    if (here) {
      if (!leaf.lock.check(version)) return {};
      return false;
    }
    if (get(leaf.count) == kEntries) {
      split(place, leaf, version);
      return {};
    }
    if (!leaf.lock.upgrade(version)) return {};
    for (std::uint32_t i = leaf.count; i > at; --i) move(leaf, i - 1, i);
    put(leaf.keys[at], key);
    put(leaf.values[at], value);
    put(leaf.count, leaf.count + 1);
    leaf.lock.unlock();
    return true;
  }

  // Splits a full node, unless another thread was here since the descent.
  template <class Full>
  void split(const Place& place, Full& full, std::uint64_t version) {
    Inner* parent = place.parent;
    if (parent != nullptr && !parent->lock.upgrade(place.parent_version)) return;
    if (!full.lock.upgrade(version)) {
      if (parent != nullptr) parent->lock.unlock();
      return;
    }
    if (parent == nullptr && root_ != &full) {  // it was the root, and is not any more
      full.lock.unlock();
      return;
    }
    Word separator = 0;
    Node* right = halve(full, separator);
    if (parent != nullptr) {
      adopt(*parent, separator, right);
    } else {
      auto* root = new Inner;
      root->keys[0] = separator;
      root->children[0] = &full;
      root->children[1] = right;
      root->count = 1;
      put(root_, static_cast<Node*>(root));
    }
    full.lock.unlock();
    if (parent != nullptr) parent->lock.unlock();
  }
  static Node* halve(Leaf& leaf, Word& separator) {
    auto* right = new Leaf;
    const std::uint32_t kept = leaf.count / 2;
    right->count = leaf.count - kept;
    std::copy_n(leaf.keys + kept, right->count, right->keys);
    std::copy_n(leaf.values + kept, right->count, right->values);
    separator = leaf.keys[kept - 1];
    put(leaf.count, kept);
    return right;
  }
  static Node* halve(Inner& inner, Word& separator) {
    auto* right = new Inner;
    const std::uint32_t kept = inner.count / 2;  // keys; the next one goes up
    right->count = inner.count - kept - 1;
    std::copy_n(inner.keys + kept + 1, right->count, right->keys);
    std::copy_n(inner.children + kept + 1, right->count + 1, right->children);
    separator = inner.keys[kept];
    put(inner.count, kept);
    return right;
  }
  // The parent has room: inserts split full inner nodes on their way down.
  static void adopt(Inner& parent, Word separator, Node* right) noexcept {
    const std::uint32_t at = lower_bound(parent.keys, parent.count, separator);
    for (std::uint32_t i = parent.count; i > at; --i) {
      put(parent.keys[i], parent.keys[i - 1]);
      put(parent.children[i + 1], parent.children[i]);
    }
    put(parent.keys[at], separator);
    put(parent.children[at + 1], right);
    put(parent.count, parent.count + 1);
  }

  static std::uint64_t entries_below(const Node* node) {
    if (node->leaf) return node->count;
    const auto& inner = *static_cast<const Inner*>(node);
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i <= inner.count; ++i) sum += entries_below(inner.children[i]);
    return sum;
  }
  static void destroy(Node* node) {
    if (node->leaf) {
      delete static_cast<Leaf*>(node);
      return;
    }
    auto* inner = static_cast<Inner*>(node);
    for (std::uint32_t i = 0; i <= inner->count; ++i) destroy(inner->children[i]);
    delete inner;
  }

  Node* root_ = new Leaf;
};

}  // namespace perdure::bench::olc
