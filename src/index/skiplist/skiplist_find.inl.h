// Skiplist: lookups. Included by skiplist.h only.
#pragma once

#include <algorithm>

#include "index/skiplist/skiplist.h"

namespace perdure::skiplist {

// The node that a link of this level leads to; null if none can lie there, or not so high. What is
// read in it later may be relied on.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline Node* Skiplist<P, Codec, Kind, G>::place(
    std::uint64_t link, std::uint32_t level) const noexcept {
  const std::uint64_t offset = link & kOffsetMask;
  if (!link_intact(link) || offset % 32 != 0 ||
      !context_.heap.contains(offset, sizeof(Node) + 8 * (std::size_t{level} + 1))) [[unlikely]] {
    return nullptr;
  }
  if constexpr (Kind::kUpperDurable) (void)context_.settle(offset, sizeof(Node));
  Node* node = node_at(offset);
  // Its state is in the line of its key, which is loaded next.
  if (level > 0 && height_of(context_.platform.load(node->state)) <= level) [[unlikely]] {
    return nullptr;
  }
  return node;
}

// All that a lookup takes for granted of a node with this state; whatever the value word is. The
// state is loaded once: in a file that another process changes it may be another one afterwards.
template <Platform P, class Codec, class Kind, class G>
bool Skiplist<P, Codec, Kind, G>::sound(const Node* node, std::uint64_t state) const noexcept {
  const std::uint64_t offset = offset_of(node);
  const std::uint32_t height = height_of(state);
  if (height == 0 || height > kMaxHeight || !context_.heap.is_block(offset) ||
      shape_.node_bytes(state) > context_.heap.block_bytes(offset)) {
    return false;
  }
  if constexpr (Kind::kUpperDurable) {
    (void)context_.settle(offset_of(node), shape_.node_bytes(state));
  }
  return shape_.intact(node, state, context_.platform.load(node->key)) ||
         !P::verifies(Kind::template site<"node.crc">());
}

// Whether what an operation on `height` levels is about to store to are links of
// nodes that are in the list: the walk has followed level 0 only, and a link above it with two
// flipped bits may have led anywhere.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::check_path(const Path& path,
                                               std::uint32_t height) const noexcept {
  if constexpr (Kind::kUpperDurable) {
    for (std::uint32_t level = 0; level < height; ++level) {
      const Node* node = path.before[level];
      if (node == head()) continue;
      const std::uint64_t state = context_.platform.load(node->state);
      const bool there = level > 0 ? sound(node, state) : context_.heap.is_block(offset_of(node));
      if (!there || (state & kErased) != 0) [[unlikely]]
        return damaged(offset_of(node));
    }
  }
  return {};
}

// place(), for operations. Until the walk behind the open of as has seen every node, they look
// themselves.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline Node* Skiplist<P, Codec, Kind, G>::follow(
    std::uint64_t link, std::uint32_t level) const noexcept {
  Node* node = place(link, level);
  if (Kind::kUpperDurable && !marked_.load(std::memory_order_relaxed)) [[unlikely]] {
    if (node != nullptr && !sound(node, context_.platform.load(node->state))) return nullptr;
  }
  return node;
}

// Of a node of byte strings. False if a damaged length leads beyond the file.
template <Platform P, class Codec, class Kind, class G>
inline bool Skiplist<P, Codec, Kind, G>::key_of(const Node* node,
                                                std::string_view& key) const noexcept {
  const std::uint64_t state = context_.platform.load(node->state);
  const std::size_t size = shape_.key_size(state);
  const std::size_t end = sizeof(Node) + 8 * std::size_t{height_of(state)} + size;
  if (!context_.heap.contains(offset_of(node), end)) return false;
  if constexpr (Kind::kUpperDurable) (void)context_.settle(offset_of(node), end);
  key = {shape_.key_bytes(node, state), size};
  return true;
}

template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline auto Skiplist<P, Codec, Kind, G>::order(
    const Node* node, const Probe& probe) const noexcept -> Order {
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

// So that a damaged link does not lead in a circle.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline bool Skiplist<P, Codec, Kind, G>::ascends(
    const Node* from, const Node* to) const noexcept {
  if (from == head()) return true;
  const std::uint64_t a = context_.platform.load(from->key);
  const std::uint64_t b = context_.platform.load(to->key);
  if (a != b || !Codec::kBytes) return a < b;
  std::string_view keys[2];
  return key_of(from, keys[0]) && key_of(to, keys[1]) && keys[0] < keys[1];
}

// Prefetches what it answers.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline void Skiplist<P, Codec, Kind, G>::near(
    const Probe& probe, Places& places) const noexcept {
  fingers_.near(probe.word, places);
  for (const std::uint64_t place : places) {
    if (place != 0) __builtin_prefetch(node_at(place));
  }
}

// The nearest of these nodes that lies before the key, or, with `hit`, has it; null if none does.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline Node* Skiplist<P, Codec, Kind, G>::finger(
    const Probe& probe, const Places& places, bool hit, Order& where) const noexcept {
  for (const std::uint64_t place : places) {
    if (place == 0) continue;
    where = order(node_at(place), probe);
    if (where == Order::before || (hit && where == Order::equal)) return node_at(place);
  }
  return nullptr;
}

// To the next node that is to be looked at, which is prefetched; false if the walk is over. Where
// the walk leaves a level `path` gets the node.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline bool Skiplist<P, Codec, Kind, G>::advance(Walk& walk,
                                                                        Path* path) const noexcept {
  for (;; --walk.level) {
    walk.link = load_link(walk.at, walk.level);
    if (walk.link != 0 && walk.link != walk.stop) {
      __builtin_prefetch(node_at(walk.link & kOffsetMask));
      // The next one if this one lies behind the key.
      if (walk.level > 0) {
        __builtin_prefetch(node_at(load_link(walk.at, walk.level - 1) & kOffsetMask));
      }
      return true;
    }
    if (path != nullptr) path->before[walk.level] = walk.at;
    if (walk.level == 0) return false;
  }
}

template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline auto Skiplist<P, Codec, Kind, G>::judge(
    Walk& walk, const Probe& probe) const noexcept -> Order {
  Node* node = follow(walk.link, walk.level);
  if (node == nullptr) [[unlikely]]
    return Order::damaged;
  const Order order = this->order(node, probe);
  if (order == Order::before) {
    if (!ascends(walk.at, node)) [[unlikely]]
      return Order::damaged;
    walk.at = node;
  } else {
    walk.stop = walk.link;
    walk.hit = order == Order::equal ? node : nullptr;
  }
  return order;
}

// A walk that has come some way from a finger without an end begins anew at the head: keys that
// share an interval may lie anywhere behind its node.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline void Skiplist<P, Codec, Kind, G>::limit(Walk& walk) const noexcept {
  if (walk.left != 0 && --walk.left == 0) [[unlikely]]
    walk = {.at = head(), .level = levels() - 1};
}

// The caller is pinned. LP(find): skiplist.I4, skiplist.I8.
template <Platform P, class Codec, class Kind, class G>
template <typename Skiplist<P, Codec, Kind, G>::Reach kReach>
[[gnu::always_inline]] inline Status Skiplist<P, Codec, Kind, G>::search(
    const Probe& probe, Path* path, Node*& found) const noexcept {
  PERDURE_ASSERT(P, "skiplist.I3", !stale_);
  Walk walk{.at = head(), .level = levels() - 1};
  if constexpr (kReach == Reach::whole) {
    std::fill(path->before, path->before + kMaxHeight, head());
  } else {
    Places places;
    near(probe, places);
    Order where = Order::before;
    Node* from = finger(probe, places, kReach == Reach::node, where);
    if (from != nullptr) {
      if (where == Order::equal) {
        found = from;
        return {};
      }
      walk = {.at = from, .left = kFromFinger};
    }
  }
  while (advance(walk, kReach == Reach::node ? nullptr : path)) {
    const Order order = judge(walk, probe);
    if (order == Order::damaged) [[unlikely]]
      return damaged(walk.link & kOffsetMask);
    if (kReach == Reach::node && order == Order::equal) break;
    if (kReach != Reach::whole && order == Order::before) limit(walk);
  }
  found = walk.hit;
  return {};
}

template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::damaged(std::uint64_t offset) noexcept {
  return Status::format(StatusCode::corruption,
                        "the node at offset %llu is damaged; run `perdure check`, and restore a "
                        "copy",
                        static_cast<unsigned long long>(offset));
}

// skiplist.I9.
template <Platform P, class Codec, class Kind, class G>
Status Skiplist<P, Codec, Kind, G>::known_damage() noexcept {
  return Status::format(StatusCode::corruption,
                        "the map is damaged: what is not found may be lost; run `perdure check`, "
                        "and restore a copy");
}

// False if the node's words cannot be what was written.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline bool Skiplist<P, Codec, Kind, G>::value_of(
    const Node* node, detail::Value& value) const noexcept {
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
    if constexpr (Kind::kUpperDurable) (void)context_.settle(offset_of(node), bytes);
    value = {.bytes = {shape_.value_bytes(node, state), shape_.inline_size(state)}};
    return true;
  }
  if (!names_blob(word)) return false;
  const std::uint64_t offset = word & kOffsetMask;
  if constexpr (Kind::kUpperDurable) (void)context_.settle(offset, sizeof(layout::Blob));
  const auto* blob = context_.heap.template at<layout::Blob>(offset);
  const std::uint64_t size = platform.load(blob->size);
  const std::size_t room = context_.heap.block_bytes(offset);
  if (room < sizeof(*blob) || size > room - sizeof(*blob)) return false;
  if constexpr (Kind::kUpperDurable) (void)context_.settle(offset, sizeof(*blob) + size);
  value = {.bytes = {reinterpret_cast<const char*>(blob + 1), size}};
  return true;
}

// The same for an answer: until the walk has seen every value, of a pool that was closed cleanly,
// its check as well. An update changes the two words in turn, one store after the other; if its
// thread has lost its core in between, or they are damaged, the latch tells.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline bool Skiplist<P, Codec, Kind, G>::answer_of(
    const Node* node, detail::Value& value) noexcept {
  if (Kind::kUpperDurable && !marked_.load(std::memory_order_relaxed) && trusted_ &&
      !value_checks(node)) [[unlikely]] {
    bool checks = false;
    for (unsigned i = 0; i < P::kPatience && !checks; ++i) {
      P::pause(i);
      checks = value_checks(node);
    }
    if (!checks) {
      const LatchGuard latch(latch_);
      if (!value_checks(node) && P::verifies(Kind::template site<"value.check">())) return false;
    }
  }
  return value_of(node, value);
}

// skiplist.I7, with the word that is in flight. False if the pool is poisoned.
template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline bool Skiplist<P, Codec, Kind, G>::help(
    const std::uint64_t* word) noexcept {
  if (word == nullptr) [[likely]]
    return true;
  context_.platform.flush(word, sizeof(*word), Kind::template site<"help.word">());
  return context_.platform.fence(Kind::template site<"help.word">());
}

template <Platform P, class Codec, class Kind, class G>
[[gnu::always_inline]] inline Expected<bool> Skiplist<P, Codec, Kind, G>::deliver(
    const Probe& probe, const Node* node, FunctionRef<void(const detail::Value&)> visit) noexcept {
  detail::Value value;
  const bool readable = node == nullptr || answer_of(node, value);
  const bool durable = help(in_flight_.about(probe.word));
  if (!durable || context_.platform.poisoned()) [[unlikely]]
    return fail(context_.platform.failure());
  if (node == nullptr) return missing();
  if (!readable) return fail(damaged(offset_of(node)));
  visit(value);
  // What was shown may have come from pages that were lost meanwhile.
  if (context_.platform.poisoned()) [[unlikely]]
    return fail(context_.platform.failure());
  return true;
}

template <Platform P, class Codec, class Kind, class G>
Expected<bool> Skiplist<P, Codec, Kind, G>::read(const detail::Key& key,
                                                 FunctionRef<void(const detail::Value&)> visit) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  const Probe probe = Codec::probe(key);
  Node* node = nullptr;
  if (Status s = search<Reach::node>(probe, nullptr, node); !s.ok()) return fail(std::move(s));
  if (node != nullptr && fingers_.vacant(probe.word)) [[unlikely]]
    remember(node);
  return deliver(probe, node, visit);
}

// The walks of a group take turns, a node each, so that their cache misses overlap.
template <Platform P, class Codec, class Kind, class G>
Expected<std::uint64_t> Skiplist<P, Codec, Kind, G>::read_many(
    std::span<const detail::Key> keys, FunctionRef<void(std::size_t, const detail::Value&)> visit) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  std::uint64_t present = 0;
  Probe probes[kGroup];
  Walk walks[kGroup];
  Places places[kGroup];
  std::uint32_t order[kGroup];  // of the walks that are not over
  for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
    const std::size_t n = std::min<std::size_t>(kGroup, keys.size() - begin);
    std::uint32_t going = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      probes[i] = Codec::probe(keys[begin + i]);
      fingers_.prefetch(probes[i].word);
    }
    for (std::uint32_t i = 0; i < n; ++i) near(probes[i], places[i]);
    for (std::uint32_t i = 0; i < n; ++i) {
      walks[i] = {.at = head(), .level = levels() - 1};
      Order where = Order::before;
      Node* from = finger(probes[i], places[i], true, where);
      if (from != nullptr) walks[i] = {.at = from, .left = kFromFinger};
      if (where == Order::equal && from != nullptr) {
        walks[i].hit = from;
      } else if (advance(walks[i], nullptr)) {
        order[going++] = i;
      }
    }
    while (going > 0) {
      std::uint32_t left = 0;
      for (std::uint32_t k = 0; k < going; ++k) {
        Walk& walk = walks[order[k]];
        const Order where = judge(walk, probes[order[k]]);
        if (where == Order::damaged) return fail(damaged(walk.link & kOffsetMask));
        if (where == Order::before) limit(walk);
        if (where != Order::equal && advance(walk, nullptr)) order[left++] = order[k];
      }
      going = left;
    }
    for (std::size_t i = 0; i < n; ++i) {
      auto found = deliver(probes[i], walks[i].hit,
                           [&](const detail::Value& value) { visit(begin + i, value); });
      if (!found) return fail(std::move(found.error()));
      present += *found ? 1 : 0;
    }
  }
  return present;
}

// The node is in the list. It has a finger from now on, if the map has any. Returns what
// Fingers::retire() takes when the latch is free.
template <Platform P, class Codec, class Kind, class G>
auto Skiplist<P, Codec, Kind, G>::tend(const Node* node) noexcept -> Outgrown {
  PERDURE_ASSERT(P, "skiplist.F1", latch_.mine() && (!verified() || !erased(node)));
  const P& platform = context_.platform;
  const std::uint64_t entries = entries_.load(std::memory_order_relaxed);
  if (entries >= G::kFingersFrom && fingers_.outgrown(entries)) {
    const Node* first = place(load_link(head(), 0), 0);
    const Node* last = this->last();
    if (first != nullptr && last != nullptr) {
      fingers_.grow(entries, platform.load(first->key), platform.load(last->key));
    }
  }
  fingers_.name(platform.load(node->key), offset_of(node));
  return fingers_.copy_some([&](std::uint64_t place) { return platform.load(node_at(place)->key); },
                            verified());
}

// By a lookup that had to come down from the head. It does not wait for a writer.
template <Platform P, class Codec, class Kind, class G>
[[gnu::noinline]] void Skiplist<P, Codec, Kind, G>::remember(const Node* node) noexcept {
  const std::uint64_t entries = entries_.load(std::memory_order_relaxed);
  if (entries < G::kFingersFrom || !fingers_.wanted(entries) || !latch_.try_lock()) return;
  Outgrown outgrown = nullptr;
  if (!erased(node) && !context_.platform.poisoned()) outgrown = tend(node);
  latch_.unlock();
  fingers_.retire(outgrown);
}

// Null if a link leads to no node.
template <Platform P, class Codec, class Kind, class G>
Node* Skiplist<P, Codec, Kind, G>::last() const noexcept {
  Node* at = head();
  for (std::uint32_t level = levels(); level-- > 0;) {
    for (std::uint64_t link = load_link(at, level); link != 0; link = load_link(at, level)) {
      Node* node = follow(link, level);
      if (node == nullptr || !ascends(at, node)) return nullptr;
      at = node;
    }
  }
  return at;
}

}  // namespace perdure::skiplist
