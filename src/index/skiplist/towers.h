// Towers: a node enters the list level by level from below and leaves it from above. Responsible
// for skiplist.I1, I2, I4 and I8. The latch is held throughout (skiplist.I5).
#pragma once

#include <algorithm>

#include "index/skiplist/scan.h"

namespace perdure::skiplist {

template <class T>
class Towers : public Scan<T> {
  using Base = Scan<T>;

 protected:
  using Base::Base, Base::ascends, Base::context_, Base::erased, Base::fingers_, Base::follow,
      Base::head, Base::in_flight_, Base::kUpperDurable, Base::latch_, Base::levels,
      Base::load_link, Base::node_at, Base::offset_of, Base::order, Base::owed_, Base::persist,
      Base::sound;
  using typename Base::P, typename Base::Codec, typename Base::Kind, typename Base::Order,
      typename Base::Outgrown, typename Base::Path, typename Base::Reach;

  // What a mutation has made and not used yet, and what it has replaced.
  struct Fresh {
    std::uint64_t node = 0;
    std::size_t bytes = 0;
    std::uint64_t blob = 0;
    std::uint64_t retired = 0;
    Outgrown outgrown = nullptr;
  };

  // Whether an operation on `height` levels may store to the links of the path's nodes: whether
  // they are in the list. The walk has followed level 0 only, and a link above it with two flipped
  // bits may have led anywhere.
  [[gnu::noinline]] Status check_path(const Path& path, std::uint32_t height) const {
    if constexpr (kUpperDurable) {
      for (std::uint32_t level = 0; level < height; ++level) {
        const Node* node = path.before[level];
        if (node == head()) continue;
        const std::uint64_t state = context_.platform.load(node->state);
        const bool there = level > 0 ? sound(node, state) : context_.heap.is_block(offset_of(node));
        if (!there || (state & kErased) != 0) [[unlikely]]
          return damaged_at(offset_of(node));
      }
    }
    return {};
  }

  // Brings the lowest `most` levels of a path that a lookup of this guard has found up to date, and
  // finds the node with the key. By skiplist.I6 a node of the path that is not erased is still in
  // its levels.
  [[gnu::noinline]] Status locate(const Probe& probe, std::uint32_t most, Path& path,
                                  Node*& found) const {
    PERDURE_ASSERT(P, "skiplist.I6", latch_.mine());
    for (std::uint32_t level = most; level-- > 0;) {
      Node*& at = path.before[level];
      if (erased(at)) return this->template search<Reach::whole>(probe, &path, found);
      found = nullptr;
      for (std::uint64_t link = load_link(at, level); link != 0; link = load_link(at, level)) {
        Node* node = follow(link, level);
        const Order where = node == nullptr ? Order::damaged : order(node, probe);
        if (where == Order::damaged || (where == Order::before && !ascends(at, node))) {
          return damaged_at(link & kOffsetMask);
        }
        if (where == Order::equal) found = node;
        if (where != Order::before) break;
        at = node;
      }
    }
    return {};
  }

  // The same while the walk behind an open of `as` goes on, for all levels. A damaged link above
  // level 0 whose check fits may lead to a whole node of another map, or to one that was freed. So
  // each node of a level must be met in the level below, too. `found`: the node that a lookup of
  // this guard has found, or null.
  [[gnu::noinline]] Status confirm(const Probe& probe, Path& path, Node*& found) const {
    PERDURE_ASSERT(P, "skiplist.I6", latch_.mine());
    const Node* seen = found != nullptr && !erased(found) ? found : nullptr;
    const Node* hit = nullptr;
    std::fill(path.before, path.before + Base::kMaxHeight, head());
    Node* from = head();   // where the level above began
    Node* above = head();  // where it ended
    found = nullptr;
    for (std::uint32_t level = levels(); level-- > 0;) {
      Node* at = from;
      bool met = at == above;
      found = nullptr;
      for (std::uint64_t link = load_link(at, level); link != 0; link = load_link(at, level)) {
        Node* node = follow(link, level);
        const Order where = node == nullptr ? Order::damaged : order(node, probe);
        if (where == Order::damaged || (where == Order::before && !ascends(at, node)) ||
            erased(node)) {
          return damaged_at(link & kOffsetMask);
        }
        if (where == Order::equal) hit = found = node;
        if (where != Order::before) break;
        at = node;
        met = met || at == above;
      }
      if (!met) return damaged_at(offset_of(above));
      path.before[level] = at;
      from = above;
      above = at;
    }
    for (const Node* node : {seen, hit}) {
      if (node != nullptr && node != found) return damaged_at(offset_of(node));
    }
    return {};
  }

  // Every store to a link that lookups follow, except those of recovery.
  [[gnu::always_inline]] void redirect(Node* before, std::uint32_t level, std::uint64_t link) {
    std::uint64_t& word = link_at(before, level);
    PERDURE_ASSERT(P, "skiplist.I5", latch_.mine());
    PERDURE_ASSERT(P, "skiplist.I7", level > 0 || in_flight_.any() == &word);
    PERDURE_ASSERT(P, "skiplist.I8", !erased(before));
    context_.platform.store(word, link);
  }
  // Withdraws the word that is announced. `durable`: its fence has succeeded.
  [[gnu::always_inline]] bool withdraw(bool durable) {
    PERDURE_ASSERT(
        P, "skiplist.I7",
        !durable || context_.platform.persisted(in_flight_.any(), sizeof(std::uint64_t)));
    in_flight_.withdraw();
    return durable;
  }

  // The key is absent.
  [[gnu::noinline]] Status link(const Probe& probe, const Path& path, const Fresh& fresh) {
    P& platform = context_.platform;
    Node* node = node_at(fresh.node);
    const std::uint32_t height = height_of(platform.load(node->state));
    if (Status s = check_path(path, height); !s.ok()) return s;
    for (std::uint32_t level = 0; level < height; ++level) {
      platform.store(link_at(node, level), load_link(path.before[level], level));
    }
    write_back_owed();
    if (!persist(node, fresh.bytes, kSite<Kind, "insert.node">)) return StatusCode::poisoned;
    PERDURE_ASSERT(P, "skiplist.I1", platform.persisted(node, fresh.bytes));
    PERDURE_ASSERT(P, "skiplist.I1", between(path.before[0], node, load_link(path.before[0], 0)));
    if (!redirect_lowest(probe, path, link_to(fresh.node), kSite<Kind, "insert.link">)) {
      return StatusCode::poisoned;
    }
    return height > 1 ? link_upper(path, link_to(fresh.node), height) : Status();
  }

  [[gnu::noinline]] Status link_upper(const Path& path, std::uint64_t link, std::uint32_t height) {
    P& platform = context_.platform;
    if (height > levels()) this->levels_.store(height, std::memory_order_release);
    for (std::uint32_t level = 1; level < height; ++level) {
      std::uint64_t& word = link_at(path.before[level], level);
      PERDURE_ASSERT(P, "skiplist.I4", load_link(path.before[level - 1], level - 1) == link);
      PERDURE_ASSERT(
          P, "skiplist.I2",
          !kUpperDurable || platform.persisted(&link_at(path.before[level - 1], level - 1), 8));
      redirect(path.before[level], level, link);
      if constexpr (kUpperDurable) {
        if (level + 1 == height) {
          owed_ = &word;
          break;
        }
        if (!persist(&word, sizeof(word), kSite<Kind, "insert.upper">)) return StatusCode::poisoned;
      }
    }
    return {};
  }

  [[gnu::noinline]] Status unlink(const Probe& probe, const Path& path, Node* node) {
    P& platform = context_.platform;
    const std::uint64_t link = link_to(offset_of(node));
    write_back_owed();
    for (std::uint32_t level = height_of(platform.load(node->state)); level-- > 1;) {
      std::uint64_t& word = link_at(path.before[level], level);
      if (const std::uint64_t next = platform.load(word); next != link) {
        // The node is missing in this level (skiplist.I2); it is not behind another one.
        PERDURE_ASSERT(P, "skiplist.I4",
                       next == 0 || platform.load(node_at(next & kOffsetMask)->key) >= probe.word);
        continue;
      }
      redirect(path.before[level], level, load_link(node, level));
      if constexpr (kUpperDurable) {
        if (!persist(&word, sizeof(word), kSite<Kind, "erase.upper">)) return StatusCode::poisoned;
        PERDURE_ASSERT(P, "skiplist.I2", platform.persisted(&word, sizeof(word)));
      }
    }
    fingers_.unname(probe.word, offset_of(node));
    PERDURE_ASSERT(P, "skiplist.F1", !fingers_.names(platform.load(node->key), offset_of(node)));
    if (!redirect_lowest(probe, path, load_link(node, 0), kSite<Kind, "erase.link">)) {
      return StatusCode::poisoned;
    }
    platform.store(node->state, platform.load(node->state) | kErased);
    return {};
  }

 private:
  bool precedes(const Node* a, const Node* b) const {
    const std::uint64_t left = context_.platform.load(a->key);
    const std::uint64_t right = context_.platform.load(b->key);
    return a == head() || left < right || (Codec::kBytes && left == right);
  }
  bool between(const Node* before, const Node* node, std::uint64_t after) const {
    return precedes(before, node) && (after == 0 || precedes(node, node_at(after & kOffsetMask)));
  }

  // An insert leaves its last upper link to the next mutation (skiplist.I2): no later store relies
  // on that link before the caller's next fence.
  [[gnu::noinline]] void write_back_owed() {
    if constexpr (kUpperDurable) {
      if (owed_ == nullptr) return;
      context_.platform.flush(owed_, sizeof(*owed_), kSite<Kind, "owed.link">);
      owed_ = nullptr;
    }
  }

  // Stores to level 0 and makes the store durable. Returns false if the pool is poisoned.
  template <FixedString Name>
  [[gnu::always_inline]] bool redirect_lowest(const Probe& probe, const Path& path,
                                              std::uint64_t link, Site<Name> site) {
    std::uint64_t& lowest = link_at(path.before[0], 0);
    in_flight_.announce(probe.word, &lowest);
    redirect(path.before[0], 0, link);                        // LP(insert), LP(erase)
    return withdraw(persist(&lowest, sizeof(lowest), site));  // PP(insert), PP(erase)
  }
};

}  // namespace perdure::skiplist
