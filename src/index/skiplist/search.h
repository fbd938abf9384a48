// Search: the way to a key, from the head or from a finger, and the upkeep of the fingers. Together
// with the stripes (skiplist.I5, skiplist.I6) it keeps skiplist.F1.
#pragma once

#include <algorithm>
#include <bit>

#include "index/skiplist/links.h"

namespace perdure::skiplist {

template <class T>
class Search : public Links<T> {
  using Base = Links<T>;

 protected:
  using Base::Base, Base::ascends, Base::context_, Base::entries_, Base::erased, Base::fingers_,
      Base::follow, Base::follow_after, Base::head, Base::levels, Base::load_link, Base::node_at,
      Base::offset_of, Base::order, Base::stripes_, Base::verified;
  using typename Base::P, typename Base::G, typename Base::Order, typename Base::Outgrown;

  enum class Reach : std::uint8_t {
    node,    // the node with the key, as soon as it is seen
    lowest,  // it, and the last node before the key in level 0
    whole,   // it, and those in all levels
  };
  using Places = std::uint64_t[Fingers<P>::kNear];

  // The last node before a key in each level; the link that follows it, once locate() has seen it.
  struct Path {
    Node* before[Base::kMaxHeight];
    std::uint64_t next[Base::kMaxHeight];
  };
  // A lookup on its way: `at` lies before the key; `link` leads to the next node of `level`; `stop`
  // is the last link to a node that does not lie before the key.
  struct Walk {
    Node* at = nullptr;
    std::uint64_t link = 0;
    std::uint64_t stop = 0;
    Node* hit = nullptr;  // the node that `stop` leads to, if it has the key
    std::uint32_t level = 0;
    std::uint32_t left = 0;  // nodes that it may still pass; 0: any number
  };

  // Looks up the places of the nearest fingers, and prefetches their nodes.
  [[gnu::always_inline]] void near(const Probe& probe, Places& places) const {
    fingers_.near(probe.word, places);
    for (const std::uint64_t place : places) {
      if (place != 0) __builtin_prefetch(node_at(place));
    }
  }
  // Returns the nearest of these nodes that lies before the key or, with `hit`, has it; null if
  // there is none.
  [[gnu::always_inline]] Node* finger(const Probe& probe, const Places& places, bool hit,
                                      Order& where) const {
    for (const std::uint64_t place : places) {
      if (place == 0) continue;
      where = order(node_at(place), probe);
      if (where == Order::before || (hit && where == Order::equal)) return node_at(place);
    }
    return nullptr;
  }

  // Goes to the next node to compare, and prefetches it. Returns false if the walk is over. Where
  // the walk leaves a level, `path` gets the node.
  [[gnu::always_inline]] bool advance(Walk& walk, Path* path) const {
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
  [[gnu::always_inline]] Order judge(Walk& walk, const Probe& probe) const {
    Node* node = follow(walk.link, walk.level);
    if (node == nullptr) [[unlikely]]
      return Order::damaged;
    const Order where = order(node, probe);
    if (where == Order::before) {
      if (!ascends(walk.at, node)) [[unlikely]]
        return Order::damaged;
      walk.at = node;
    } else {
      walk.stop = walk.link;
      walk.hit = where == Order::equal ? node : nullptr;
    }
    return where;
  }
  // A walk that has passed kFromFinger nodes from a finger begins anew at the head: keys that share
  // an interval may lie anywhere behind its node.
  [[gnu::always_inline]] void limit(Walk& walk) const {
    if (walk.left != 0 && --walk.left == 0) [[unlikely]]
      walk = from_head();
  }
  Walk from_head() const { return {.at = head(), .level = levels() - 1}; }
  static Walk from_finger(Node* node) { return {.at = node, .left = kFromFinger}; }

  // The caller is pinned. LP(find): skiplist.I4, skiplist.I8. `rest` gets the node that the result
  // rests on: the one that was found, or the last one before the key.
  template <Reach kReach>
  [[gnu::always_inline]] Status search(const Probe& probe, Path* path, Node*& found,
                                       const Node** rest = nullptr) const {
    PERDURE_ASSERT(P, "skiplist.I3", !Base::stale_);
    Walk walk = from_head();
    if constexpr (kReach == Reach::whole) {
      std::fill(path->before, path->before + Base::kMaxHeight, head());
    } else {
      Places places;
      near(probe, places);
      Order where = Order::before;
      Node* from = finger(probe, places, kReach == Reach::node, where);
      if (from != nullptr) {
        if (where == Order::equal) {
          found = from;
          if (rest != nullptr) *rest = from;
          return {};
        }
        walk = from_finger(from);
      }
    }
    while (advance(walk, kReach == Reach::node ? nullptr : path)) {
      const Order where = judge(walk, probe);
      if (where == Order::damaged) [[unlikely]]
        return damaged_at(walk.link & kOffsetMask);
      if (kReach == Reach::node && where == Order::equal) break;
      if (kReach != Reach::whole && where == Order::before) limit(walk);
    }
    found = walk.hit;
    if (rest != nullptr) *rest = found != nullptr ? found : walk.at;
    return {};
  }

  // The node is in the list, and its stripe is held. If the map has fingers, the node has one from
  // now on.
  [[gnu::always_inline]] void name(const Node* node) {
    PERDURE_ASSERT(P, "skiplist.F1",
                   stripes_.mine(offset_of(node)) && (!verified() || !erased(node)));
    fingers_.name(context_.platform.load(node->key), offset_of(node));
  }
  // Does a part of the growth of the fingers, if it is due and no other thread does. The caller has
  // added a node, and holds no stripe.
  void tend() {
    const std::uint64_t from = std::max(G::kFingersFrom, fingers_.wanted_at());
    const std::uint64_t between = std::bit_floor(std::max<std::uint64_t>(1, from / kLooks));
    const bool look = (this->turn() & (between - 1)) == 0;
    if (fingers_.growing() || look) grow_fingers();
  }
  [[gnu::noinline]] void grow_fingers() {
    if (!fingers_.try_begin()) return;
    const P& platform = context_.platform;
    const std::uint64_t entries = this->entries();
    if (entries >= G::kFingersFrom && fingers_.outgrown(entries)) {
      const Node* first = this->place(load_link(head(), 0), 0);
      const Node* last = this->last();
      if (first != nullptr && last != nullptr) {
        fingers_.grow(entries, platform.load(first->key), platform.load(last->key));
      }
    }
    Outgrown outgrown = fingers_.copy_some(
        [&](std::uint64_t place) { return platform.load(node_at(place)->key); },
        [&](std::uint64_t place, auto&& copy) { with_stripe(place, copy); }, verified());
    fingers_.end();
    fingers_.retire(outgrown);
  }
  // Called by a lookup that came down from the head. It does not wait for a writer. The fingers of
  // a map that was opened with many entries begin here.
  [[gnu::noinline]] void remember(const Node* node) {
    if (!fingers_.any()) {
      const std::uint64_t entries = entries_.load(std::memory_order_relaxed);
      if (entries < std::max(G::kFingersFrom, fingers_.wanted_at())) return;
      grow_fingers();
    }
    with_stripe(offset_of(node), [&] {
      if (!erased(node) && !context_.platform.poisoned()) name(node);
    });
    if (fingers_.growing()) grow_fingers();
  }

 private:
  static constexpr std::uint32_t kFromFinger = 32;
  static constexpr std::uint64_t kLooks = 256;  // by each thread, for each doubling of the map

  // Calls `f` with the stripe of the node held, unless another thread holds it.
  template <class F>
  void with_stripe(std::uint64_t place, F&& f) {
    auto& latch = stripes_.of(place).latch;
    if (!latch.try_lock()) return;
    f();
    latch.unlock();
  }

  // Returns null if a link leads to no node.
  [[gnu::noinline]] Node* last() const {
    Node* at = head();
    for (std::uint32_t level = levels(); level-- > 0;) {
      for (std::uint64_t link = load_link(at, level); link != 0; link = load_link(at, level)) {
        at = follow_after(at, link, level);
        if (at == nullptr) return nullptr;
      }
    }
    return at;
  }
};

}  // namespace perdure::skiplist
