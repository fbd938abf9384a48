// State: the data of a map and the helpers that all parts use. Among these are the ways from a link
// to its node and from a node to its key and value, and whether they can be relied on. A damaged
// link, length or value leads to no other memory and into no circle.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "index/blob.h"
#include "index/engine_report.h"
#include "index/map_engine.h"
#include "index/skiplist/codec.h"
#include "index/skiplist/fingers.h"
#include "index/skiplist/kinds.h"
#include "index/skiplist/layout.h"
#include "index/skiplist/node.h"
#include "index/skiplist/stripes.h"

namespace perdure::skiplist {

template <class T>
class SkiplistMap;
struct Peek;

[[gnu::cold]] inline Status damaged_at(std::uint64_t offset) {
  return damaged_object("the node", offset);
}

template <class T>
class State : public MapEngine<T, layout::Root, SkiplistMap<T>, detail::OrderedIndex> {
  using Base = MapEngine<T, layout::Root, SkiplistMap<T>, detail::OrderedIndex>;

 public:
  State(const EngineContext<typename T::Platform>& context, std::uint64_t root,
        std::optional<ValueKind> values)
      : Base(context, root), values_(values), fingers_(context.epochs), cursor_(head()) {
    std::fill(walked_, walked_ + kMaxHeight, head());
  }

 protected:
  using typename Base::P, typename Base::Codec;
  using Kind = typename T::Kind;
  using G = typename T::Geometry;
  using Outgrown = typename Fingers<P>::Outgrown;
  using Base::context_, Base::absent, Base::offset_of, Base::root_, Base::tally_;
  enum class Order : std::uint8_t { before, equal, after, damaged };
  static constexpr bool kUpperDurable = Kind::kUpperDurable;
  static constexpr std::uint32_t kMaxHeight = G::kMaxHeight;
  static constexpr std::size_t kRootBytes =
      (offsetof(layout::Root, first_link) + 8 * std::size_t{kMaxHeight} + 63) / 64 * 64;

  // The numbers of tally_. A change adds the first three in one call.
  static constexpr unsigned kBlockBytes = 1;  // of nodes and blobs
  static constexpr unsigned kNodeTerms = 2;   // terms of index/closed_sum.h
  static constexpr unsigned kTurns = 3;

  Node* head() const { return &root_->head; }
  Node* node_at(std::uint64_t offset) const { return context_.heap.template at<Node>(offset); }
  std::uint64_t load_link(const Node* node, std::uint32_t level) const {
    return context_.platform.load(link_at(node, level));
  }
  std::uint32_t levels() const { return levels_.load(std::memory_order_acquire); }
  bool marked() const { return marked_.load(std::memory_order_acquire); }
  // Whether the walk behind an open of `as` has links to verify yet.
  bool walking() const { return kUpperDurable && !marked(); }
  // The head is never erased, and no checksum covers its state.
  bool erased(const Node* node) const {
    return node != head() && (context_.platform.load(node->state) & kErased) != 0;
  }
  // For assertions: whether this process has checked or made every link that it follows, and no
  // other process changes the map.
  bool verified() const { return !kUpperDurable && !context_.read_only; }
  bool damaged() const { return kUpperDurable && damaged_.load(std::memory_order_acquire); }
  // Of an operation.
  [[gnu::cold, gnu::noinline]] Status damaged_node(std::uint64_t offset) const {
    return this->of_this_map(damaged_at(offset));
  }
  // The result for a key that was not found.
  Expected<bool> missing() const {
    if (damaged()) [[unlikely]]
      return fail(this->of_this_map(known_damage()));
    return absent();
  }
  // Stores a word whose stripe is held, by a locked instruction: no later load of this thread comes
  // before the store (skiplist.h, ORDERING).
  [[gnu::always_inline]] void store_locked(std::uint64_t& word, std::uint64_t value) {
    std::uint64_t before = context_.platform.load(word);
    while (!context_.platform.compare_exchange(word, before, value)) {
    }
  }
  // Of what the walk has passed. The latch is held, or nothing else runs.
  void count(std::int64_t nodes, std::int64_t bytes, std::uint64_t term) {
    entries_.fetch_add(static_cast<std::uint64_t>(nodes), std::memory_order_relaxed);
    bytes_.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
    sum_ += term;
  }
  // Of what the walk has passed, and of the mutations of what it had passed.
  std::uint64_t entries() const {
    const std::int64_t gained = tally_.sum(Tally<P>::kEntries);
    const auto n = static_cast<std::int64_t>(entries_.load(std::memory_order_relaxed)) + gained;
    return n < 0 ? 0 : static_cast<std::uint64_t>(n);  // while a mutation is under way
  }
  std::uint64_t bytes() const {
    return bytes_.load(std::memory_order_relaxed) +
           static_cast<std::uint64_t>(tally_.sum(kBlockBytes));
  }
  // What the mutations since the open have added to the sum of the nodes.
  std::uint64_t changed() const { return static_cast<std::uint64_t>(tally_.sum(kNodeTerms)); }
  // Returns a number that rises by one with each call of the thread.
  std::uint64_t turn() { return tally_.next(kTurns) / Tally<P>::kTurn; }

  // --- the node of a link, its key and its value ---
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
    if (kUpperDurable && !marked()) [[unlikely]] {
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
    if (height == 0 || height > kMaxHeight || !context_.heap.is_block(offset) ||
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

  const std::optional<ValueKind> values_;  // as the directory states it
  Shape<Codec::kBytes> shape_;
  const std::uint64_t seed_ = P::random();                // of the heights
  bool trusted_ = false;                                  // the value checks of the nodes hold
  bool stale_ = false;                                    // ascs: complete() has links to store
  typename P::template Atomic<std::uint32_t> levels_{1};  // at least all that are not empty
  typename P::template Atomic<bool> marked_{false};       // every node was visited
  Stripes<P, G::kStripes> stripes_;
  Fingers<P> fingers_;
  typename P::template Atomic<bool> damaged_{false};  // skiplist.I9
  // Until marked_ is set, every change and every step of the walk holds latch_. Changed under it:
  // entries_, bytes_ and sum_ cover what mark_some() has passed, which are all nodes up to cursor_,
  // as they were at the open: the tally has every change since, so a change of a node behind
  // cursor_ is taken off them.
  WriterLatch<P> latch_;
  Node* cursor_ = nullptr;
  Node* walked_[kMaxHeight];  // as: the last node up to cursor_ in each level above 0
  std::uint64_t sum_ = 0;     // of the nodes
  typename P::template Atomic<std::uint64_t> entries_{0};
  typename P::template Atomic<std::uint64_t> bytes_{0};  // of nodes and blobs
  bool replays_ = false;                                 // recovery does the mutations of a batch

 private:
  // What a dead process has left visible becomes durable before an operation rests on it.
  [[gnu::always_inline]] void settle(std::uint64_t offset, std::size_t bytes) const {
    if constexpr (kUpperDurable) (void)context_.settle(offset, bytes);
  }
};

}  // namespace perdure::skiplist
