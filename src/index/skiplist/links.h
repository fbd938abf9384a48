// Links: the node that a link leads to, its key and its value, and whether they can be relied on. A
// damaged link, length or value leads to no other memory and into no circle.
#pragma once

#include "index/blob.h"
#include "index/skiplist/state.h"

namespace perdure::skiplist {

template <class T>
class Links : public State<T> {
  using Base = State<T>;

 protected:
  using Base::Base, Base::context_, Base::head, Base::marked, Base::node_at, Base::offset_of,
      Base::shape_;
  using typename Base::P, typename Base::Codec, typename Base::Kind;
  enum class Order : std::uint8_t { before, equal, after, damaged };

  // Returns the node that a link of this level leads to. Returns null if no node can lie there, or
  // if the node is not so high. Operations may rely on what they read in the node later.
  [[gnu::always_inline]] Node* place(std::uint64_t link, std::uint32_t level) const {
    const std::uint64_t offset = link & kOffsetMask;
    if (!link_intact(link) || offset % 32 != 0 ||
        !context_.heap.contains(offset, sizeof(Node) + 8 * (std::size_t{level} + 1))) [[unlikely]] {
      return nullptr;
    }
    settle(offset, sizeof(Node));
    Node* node = node_at(offset);
    // The state is in the line of the key, which is loaded next.
    if (level > 0 && height_of(context_.platform.load(node->state)) <= level) [[unlikely]] {
      return nullptr;
    }
    return node;
  }
  // As place(), for operations. Until the walk behind the open of `as` has visited every node, an
  // operation checks each node itself.
  [[gnu::always_inline]] Node* follow(std::uint64_t link, std::uint32_t level) const {
    Node* node = place(link, level);
    if (Base::kUpperDurable && !marked()) [[unlikely]] {
      if (node != nullptr && !sound(node, context_.platform.load(node->state))) return nullptr;
    }
    return node;
  }
  // The same; null also if the node does not lie behind `at`.
  [[gnu::always_inline]] Node* place_after(const Node* at, std::uint64_t link,
                                           std::uint32_t level) const {
    Node* node = place(link, level);
    return node != nullptr && ascends(at, node) ? node : nullptr;
  }
  [[gnu::always_inline]] Node* follow_after(const Node* at, std::uint64_t link,
                                            std::uint32_t level) const {
    Node* node = follow(link, level);
    return node != nullptr && ascends(at, node) ? node : nullptr;
  }

  // Whether a lookup can rely on a node with this state, whatever its value word is. The caller
  // loads the state once: another process may change the file meanwhile.
  [[gnu::noinline]] bool sound(const Node* node, std::uint64_t state) const {
    const std::uint64_t offset = offset_of(node);
    const std::uint32_t height = height_of(state);
    if (height == 0 || height > Base::kMaxHeight || !context_.heap.is_block(offset) ||
        shape_.node_bytes(state) > context_.heap.block_bytes(offset)) {
      return false;
    }
    settle(offset, shape_.node_bytes(state));
    return matches<P>(shape_.intact(node, state, context_.platform.load(node->key)),
                      kSite<Kind, "node.crc">);
  }

  // Reads the key of a node of byte strings. Returns false if a damaged length leads beyond the
  // file.
  bool key_of(const Node* node, std::string_view& key) const {
    const std::uint64_t state = context_.platform.load(node->state);
    const std::size_t size = shape_.key_size(state);
    const std::size_t end = sizeof(Node) + 8 * std::size_t{height_of(state)} + size;
    if (!context_.heap.contains(offset_of(node), end)) return false;
    settle(offset_of(node), end);
    key = {shape_.key_bytes(node, state), size};
    return true;
  }
  [[gnu::always_inline]] Order order(const Node* node, const Probe& probe) const {
    const std::uint64_t word = context_.platform.load(node->key);
    if (word != probe.word) return word < probe.word ? Order::before : Order::after;
    if constexpr (Codec::kBytes) {
      std::string_view key;
      if (!key_of(node, key)) return Order::damaged;
      const int order = key.compare(probe.bytes);
      if (order != 0) return order < 0 ? Order::before : Order::after;
    }
    return Order::equal;
  }
  // A walk steps to greater keys only: a damaged link must not lead it in a circle.
  [[gnu::always_inline]] bool ascends(const Node* from, const Node* to) const {
    if (from == head()) return true;
    const std::uint64_t a = context_.platform.load(from->key);
    const std::uint64_t b = context_.platform.load(to->key);
    if (a != b || !Codec::kBytes) return a < b;
    std::string_view keys[2];
    return key_of(from, keys[0]) && key_of(to, keys[1]) && keys[0] < keys[1];
  }

  [[gnu::noinline]] bool names_blob(std::uint64_t value) const {
    return value == 0 || (link_intact(value) && context_.heap.is_block(value & kOffsetMask));
  }
  bool value_checks(const Node* node) const {
    const std::uint64_t state = context_.platform.load(node->state);
    return state == shape_.with_value(state, context_.platform.load(node->value));
  }
  // Returns false if the node's words cannot be the ones that were written.
  [[gnu::always_inline]] bool value_of(const Node* node, detail::Value& value) const {
    const P& platform = context_.platform;
    const std::uint64_t word = platform.load(node->value);
    if (!shape_.bytes_values) {
      value = {.word = word, .word_size = 8};
      return true;
    }
    const std::uint64_t state = platform.load(node->state);
    if (word == 0) {
      const std::size_t bytes = shape_.node_bytes(state);
      if (bytes > context_.heap.block_bytes(offset_of(node))) return false;
      settle(offset_of(node), bytes);
      value = {.bytes = {shape_.value_bytes(node, state), shape_.inline_size(state)}};
      return true;
    }
    if (!names_blob(word)) return false;
    const std::uint64_t offset = word & kOffsetMask;
    settle(offset, sizeof(Blob));
    std::string_view bytes;
    if (!Blob::read(platform, context_.heap, offset, bytes)) return false;
    settle(offset, sizeof(Blob) + bytes.size());
    value = {.bytes = bytes};
    return true;
  }

 private:
  // What a dead process has left visible becomes durable before an operation rests on it.
  [[gnu::always_inline]] void settle(std::uint64_t offset, std::size_t bytes) const {
    if constexpr (Base::kUpperDurable) (void)context_.settle(offset, bytes);
  }
};

}  // namespace perdure::skiplist
