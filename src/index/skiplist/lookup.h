// Lookup: the reads of a map. No result rests on a word that is not durable (skiplist.I7).
//
// SEARCH  The way to a key, from the head or from a finger, and the upkeep of the fingers. Together
//   with the stripes (skiplist.I5, skiplist.I6) it keeps skiplist.F1.
// SCAN  Batches of entries of level 0. Forwards a scan continues behind the last node that it has
//   delivered. If that node was erased between two batches, the scan searches its place again: the
//   links of the node (skiplist.I8) lead to nodes that were erased behind it, however long ago.
//   Backwards a scan searches, for each batch, a node that lies some entries before the last one,
//   and goes forwards from there. A key that is there throughout lies on every such way. The batch
//   rests on the value and on the link of each node that it passes (skiplist.I7).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "index/skiplist/state.h"

namespace perdure::skiplist {

template <class T>
class Lookup : public State<T> {
  using Base = State<T>;

 protected:
  using Base::Base, Base::ascends, Base::context_, Base::deliver, Base::entries_, Base::erased,
      Base::fingers_, Base::follow, Base::follow_after, Base::head, Base::key_of, Base::kGroup,
      Base::levels, Base::load_link, Base::missing, Base::node_at, Base::offset_of, Base::order,
      Base::persist, Base::stripes_, Base::value_checks, Base::verified;
  using typename Base::P, typename Base::Codec, typename Base::G, typename Base::Keys,
      typename Base::Kind, typename Base::Order, typename Base::Outgrown, typename Base::Visit;

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

  // --- search ---
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
        return this->damaged_node(walk.link & kOffsetMask);
      if (kReach == Reach::node && where == Order::equal) break;
      if (kReach != Reach::whole && where == Order::before) limit(walk);
    }
    found = walk.hit;
    if (rest != nullptr) *rest = found != nullptr ? found : walk.at;
    return {};
  }

  // --- upkeep of the fingers ---
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

  // --- read and read_many ---
  [[gnu::always_inline]] Expected<bool> find(const detail::Key& key, Visit visit) {
    const Probe probe = Codec::probe(key);
    Node* node = nullptr;
    const Node* rest = nullptr;
    if (Status s = search<Reach::node>(probe, nullptr, node, &rest); !s.ok()) {
      return fail(std::move(s));
    }
    if (node != nullptr && fingers_.vacant(probe.word)) [[unlikely]]
      remember(node);
    return show(node, rest, visit);
  }

  struct Group {
    Probe probes[kGroup];
    Walk walks[kGroup];
  };
  // The walks take turns, one node each.
  [[gnu::always_inline]] Status fetch(Keys keys, Group& group) const {
    auto& [probes, walks] = group;
    Places places[kGroup];
    std::uint32_t under_way[kGroup];  // of the walks that are not over
    const std::size_t n = keys.size();
    std::uint32_t going = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      probes[i] = Codec::probe(keys[i]);
      fingers_.prefetch(probes[i].word);
    }
    for (std::uint32_t i = 0; i < n; ++i) near(probes[i], places[i]);
    for (std::uint32_t i = 0; i < n; ++i) {
      walks[i] = from_head();
      Order where = Order::before;
      Node* from = finger(probes[i], places[i], true, where);
      if (from != nullptr) walks[i] = from_finger(from);
      if (where == Order::equal && from != nullptr) {
        walks[i].hit = from;
      } else if (advance(walks[i], nullptr)) {
        under_way[going++] = i;
      }
    }
    while (going > 0) {
      std::uint32_t left = 0;
      for (std::uint32_t k = 0; k < going; ++k) {
        Walk& walk = walks[under_way[k]];
        const Order where = judge(walk, probes[under_way[k]]);
        if (where == Order::damaged) return this->damaged_node(walk.link & kOffsetMask);
        if (where == Order::before) limit(walk);
        if (where != Order::equal && advance(walk, nullptr)) under_way[left++] = under_way[k];
      }
      going = left;
    }
    return {};
  }
  [[gnu::always_inline]] Expected<bool> find_fetched(const Group& group, std::size_t i,
                                                     Visit visit) {
    const Walk& walk = group.walks[i];
    return show(walk.hit, walk.hit != nullptr ? walk.hit : walk.at, visit);
  }

  // As value_of(), for a result. In a pool that was closed cleanly it verifies the value's check
  // until the walk has visited every node. An update stores the two words one after the other. If
  // its thread has lost its core in between, or if the words are damaged, the node's stripe tells.
  [[gnu::always_inline]] bool checked_value(const Node* node, detail::Value& value) {
    if (Base::kUpperDurable && !this->marked() && this->trusted_ && !value_checks(node))
        [[unlikely]] {
      bool checks = false;
      for (unsigned i = 0; i < P::kPatience && !checks; ++i) {
        P::pause(i);
        checks = value_checks(node);
      }
      if (!checks) {
        const LatchGuard latch(stripes_.of(offset_of(node)).latch);
        if (!matches<P>(value_checks(node), kSite<Kind, "value.check">)) return false;
      }
    }
    return this->value_of(node, value);
  }

  // Makes what a result that rests on this node has seen durable (skiplist.I7). Returns false if
  // the pool is poisoned.
  [[gnu::always_inline]] bool help(const Node* rest) {
    const std::uint64_t* word = stripes_.in_flight(offset_of(rest));
    if (word == nullptr) [[likely]]
      return true;
    return write_back(word);
  }

 public:
  Expected<void> scan(const detail::ScanRange& range,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    Bounds bounds{.has_from = range.from.has_value(), .has_to = range.to.has_value()};
    if (bounds.has_from) bounds.from = Codec::probe(*range.from);
    if (bounds.has_to) bounds.to = Codec::probe(*range.to);
    EpochGuard<P> guard(context_.epochs);
    if (Status s = this->begin_read(guard); !s.ok()) return fail(std::move(s));
    Node* at = head();
    if (bounds.has_from && !range.reverse) {
      if (Status s = search_before(bounds.from, at); !s.ok()) return fail(std::move(s));
    }
    detail::Entry entries[kBatch];
    std::uint64_t left = range.limit;
    for (bool end = false; !end && left > 0;) {
      const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, kBatch));
      if (erased(at)) [[unlikely]] {
        if (Status s = refind(at, bounds); !s.ok()) return fail(std::move(s));
      }
      auto count = range.reverse ? collect_back(bounds, most, entries, end)
                                 : collect(at, bounds, most, entries, end);
      if (context_.platform.poisoned()) return fail(context_.platform.failure());
      if (!count) return fail(std::move(count.error()));
      if (*count == 0) break;
      left -= *count;
      if (range.reverse) {
        const detail::Key& last = entries[*count - 1].key;
        bounds.has_to = true;
        bounds.to = {.word = last.word, .bytes = last.bytes};
      }
      const bool more = visit(std::span<const detail::Entry>(entries, *count));
      // The bytes may have come from pages that were lost meanwhile.
      if (context_.platform.poisoned()) return fail(context_.platform.failure());
      if (!more) break;
    }
    if (this->damaged()) return fail(this->of_this_map(known_damage()));
    return {};
  }

 private:
  static constexpr std::uint32_t kFromFinger = 32;
  static constexpr std::uint64_t kLooks = 256;  // by each thread, for each doubling of the map
  static constexpr std::uint32_t kBatch = 64;
  // A level with about a quarter of a batch between two nodes.
  static constexpr std::uint32_t kBackLevel = 4 / G::kShift;

  struct Bounds {
    bool has_from = false;
    bool has_to = false;
    bool beyond = false;  // `from` itself was delivered
    Probe from;
    Probe to;
  };

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

  [[gnu::noinline]] bool write_back(const std::uint64_t* word) {
    return persist(word, sizeof(*word), kSite<Kind, "help.word">);
  }

  [[gnu::always_inline]] Expected<bool> show(const Node* node, const Node* rest, Visit visit) {
    detail::Value value;
    const bool readable = node == nullptr || checked_value(node, value);
    const bool durable = help(rest);
    if (!durable || context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    if (node == nullptr) return missing();
    if (!readable) return fail(this->damaged_node(offset_of(node)));
    return deliver(value, visit);
  }

  // --- scan ---
  [[gnu::always_inline]] bool entry_of(const Node* node, detail::Entry& entry) {
    entry.key = {.word = context_.platform.load(node->key)};
    if constexpr (Codec::kBytes) {
      if (!key_of(node, entry.key.bytes)) return false;
    }
    return checked_value(node, entry.value);
  }

  // Sets `at` to the last node before the key.
  [[gnu::always_inline]] Status search_before(const Probe& probe, Node*& at) const {
    Path path;
    Node* found = nullptr;
    Status s = search<Reach::lowest>(probe, &path, found);
    if (s.ok()) at = path.before[0];
    return s;
  }

  // The scan stands on an erased node. Sets `at` to the last node before its key that is in the
  // list now. The scan delivers greater keys from now on, and none before its own bound: `at` may
  // lie before that bound.
  [[gnu::noinline]] Status refind(Node*& at, Bounds& bounds) const {
    const Order where = bounds.has_from ? order(at, bounds.from) : Order::after;
    if (where == Order::damaged) return this->damaged_node(offset_of(at));
    if (where != Order::before) {
      bounds.has_from = bounds.beyond = true;
      bounds.from = {.word = context_.platform.load(at->key)};
      if constexpr (Codec::kBytes) {
        if (!key_of(at, bounds.from.bytes)) return this->damaged_node(offset_of(at));
      }
    }
    return search_before(bounds.from, at);
  }

  // Collects the entries behind `at`, which moves on to the last of them. Sets `end` if there are
  // no more. Keys before `from` may have come since the scan searched its place.
  [[gnu::noinline]] Expected<std::uint32_t> collect(Node*& at, const Bounds& bounds,
                                                    std::uint32_t most, detail::Entry* entries,
                                                    bool& end) {
    std::uint32_t count = 0;
    while (count < most) {
      const std::uint64_t link = load_link(at, 0);
      if (!help(at)) return fail(context_.platform.failure());  // of its value, too
      if (link == 0) break;
      Node* node = follow_after(at, link, 0);
      if (node == nullptr) return fail(this->damaged_node(link & kOffsetMask));
      __builtin_prefetch(node_at(load_link(node, 0) & kOffsetMask));
      const Order from = bounds.has_from ? order(node, bounds.from) : Order::after;
      const Order to = bounds.has_to ? order(node, bounds.to) : Order::before;
      if (from == Order::damaged || to == Order::damaged)
        return fail(this->damaged_node(offset_of(node)));
      if (to != Order::before) break;
      at = node;
      if (from == Order::before || (from == Order::equal && bounds.beyond)) continue;
      if (!entry_of(node, entries[count])) return fail(this->damaged_node(offset_of(node)));
      ++count;
    }
    end = count < most;
    if (!end && !help(at)) return fail(context_.platform.failure());
    return count;
  }

  // Collects the last entries before `to`, in descending order. Sets `end` if there are none before
  // them.
  [[gnu::noinline]] Expected<std::uint32_t> collect_back(const Bounds& bounds, std::uint32_t most,
                                                         detail::Entry* entries, bool& end) {
    Node* at = head();
    const auto beyond = [&](const Node* node) {
      return bounds.has_to ? order(node, bounds.to) : Order::before;
    };
    std::uint32_t level = levels() - 1;
    const std::uint32_t lowest = std::min(level, kBackLevel);
    Node* ring[kBatch];
    std::uint64_t passed = 0;
    const auto outside = [&](const Node* node) {
      return bounds.has_from && order(node, bounds.from) == Order::before;
    };
    const auto pass = [&](Node* node) {
      if (!outside(node)) ring[passed++ % most] = node;
    };
    for (bool low = false;;) {
      const std::uint64_t link = load_link(at, low ? 0 : level);
      if (low && !help(at)) return fail(context_.platform.failure());
      Order where = Order::after;
      Node* node = nullptr;
      if (link != 0) {
        node = follow(link, low ? 0 : level);
        where = node == nullptr ? Order::damaged : beyond(node);
        if (where == Order::damaged || !ascends(at, node)) {
          return fail(this->damaged_node(link & kOffsetMask));
        }
      }
      if (where == Order::before) {
        at = node;
        if (low) pass(node);
        continue;
      }
      if (low) break;
      if (level > lowest) {
        --level;
        continue;
      }
      low = true;
      end = at == head() || outside(at);
      if (!end) pass(at);
    }
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(passed, most));
    if (passed > most) end = false;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Node* node = ring[(passed - 1 - i) % most];
      if (!entry_of(node, entries[i])) return fail(this->damaged_node(offset_of(node)));
      if (!help(node)) return fail(context_.platform.failure());
    }
    return count;
  }
};

}  // namespace perdure::skiplist
