// Towers: the places that a change stores to, and how a node enters the list there or leaves it.
//
// A change searches without a lock, takes the stripes of these nodes, and looks whether they are
// still what it has found (skiplist.I6). A node enters the list level by level from below and
// leaves it from above. Responsible for skiplist.I1, I2, I4, I6 and I8. The stripes of all nodes
// that change are held throughout (skiplist.I5).
#pragma once

#include <algorithm>

#include "index/skiplist/lookup.h"

namespace perdure::skiplist {

template <class T>
class Towers : public Lookup<T> {
  using Base = Lookup<T>;

 protected:
  using Base::Base, Base::ascends, Base::context_, Base::erased, Base::fingers_, Base::follow,
      Base::head, Base::kMaxHeight, Base::kUpperDurable, Base::latch_, Base::levels,
      Base::load_link, Base::node_at, Base::offset_of, Base::order, Base::persist, Base::sound,
      Base::stripes_, Base::walking;
  using typename Base::P, typename Base::Codec, typename Base::G, typename Base::Kind,
      typename Base::Order, typename Base::Path, typename Base::Reach;

  // The nodes of a path, the one that is linked or unlinked, and the next ones.
  using Hold = typename Stripes<P, G::kStripes>::template Hold<3 * kMaxHeight>;
  using HoldOne = typename Stripes<P, G::kStripes>::HoldOne;

  // What a mutation has made and not used yet, and what it has replaced.
  struct Fresh {
    std::uint64_t node = 0;
    std::size_t bytes = 0;
    std::uint64_t blob = 0;
    std::uint64_t retired = 0;
  };

  // The scope of a change. Until the walk behind an open of `as` is over, changes and steps of the
  // walk take turns.
  class Turn {
   public:
    explicit Turn(Towers& map) : map_(map), alone_(map.walking()) {
      if (alone_) [[unlikely]]
        map_.latch_.lock();
      if (alone_ && !map_.walking()) end();
    }
    ~Turn() {
      if (alone_) end();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    void end() {
      map_.latch_.unlock();
      alone_ = false;
    }
    Towers& map_;
    bool alone_;
  };

  // --- the path of a change, and its stripes ---
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
          return this->damaged_node(offset_of(node));
      }
    }
    return {};
  }

  // Brings the lowest `most` levels of a path that a lookup of this guard has found up to date, and
  // finds the node with the key. A node that is not erased is in its levels, and so is what it
  // leads to: both were in the list at one moment.
  [[gnu::noinline]] Status locate(const Probe& probe, std::uint32_t most, Path& path,
                                  Node*& found) const {
    const Node* gone = nullptr;
    found = nullptr;
    for (std::uint32_t level = most; level-- > 0;) {
      Node*& at = path.before[level];
      if (erased(at)) {
        // A search from the head does not come to a node that was erased before it began.
        if (at == gone) return this->damaged_node(offset_of(at));
        gone = at;
        Status s = this->template search<Reach::whole>(probe, &path, found);
        if (!s.ok()) return s;
        level = most;
        continue;
      }
      found = nullptr;
      std::uint64_t link = load_link(at, level);
      for (; link != 0; link = load_link(at, level)) {
        Node* node = follow(link, level);
        const Order where = node == nullptr ? Order::damaged : order(node, probe);
        if (where == Order::damaged || (where == Order::before && !ascends(at, node))) {
          return this->damaged_node(link & kOffsetMask);
        }
        if (where == Order::equal) found = node;
        if (where != Order::before) break;
        at = node;
      }
      path.next[level] = link;
    }
    return {};
  }

  // As locate() while the walk behind an open of `as` goes on, for all levels. A damaged link above
  // level 0 whose check fits may lead to a whole node of another map, or to one that was freed. So
  // each node of a level must be met in the level below, too. `found`: the node that a lookup of
  // this guard has found, or null.
  [[gnu::noinline]] Status confirm(const Probe& probe, Path& path, Node*& found) const {
    PERDURE_ASSERT(P, "skiplist.I6", latch_.mine());
    const Node* seen = found != nullptr && !erased(found) ? found : nullptr;
    const Node* hit = nullptr;
    std::fill(path.before, path.before + kMaxHeight, head());
    std::fill(path.next, path.next + kMaxHeight, 0);
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
          return this->damaged_node(link & kOffsetMask);
        }
        if (where == Order::equal) hit = found = node;
        if (where != Order::before) break;
        at = node;
        met = met || at == above;
      }
      if (!met) return this->damaged_node(offset_of(above));
      path.before[level] = at;
      path.next[level] = load_link(at, level);
      from = above;
      above = at;
    }
    for (const Node* node : {seen, hit}) {
      if (node != nullptr && node != found) return this->damaged_node(offset_of(node));
    }
    return {};
  }

  // Takes the stripes that an insert of the key needs: of the nodes before it in `height` levels,
  // and of the new node. If the key is there, sets `found` and takes none.
  [[gnu::noinline]] Status hold_place(const Probe& probe, std::uint32_t height, std::uint64_t fresh,
                                      Path& path, Node*& found, Hold& hold) const {
    for (;;) {
      Status s = walking() ? confirm(probe, path, found) : locate(probe, height, path, found);
      if (!s.ok() || found != nullptr) return s;
      if (P::runs(kSite<Kind, "hold.fresh">)) hold.add(fresh);
      if (take(path, height, hold)) return {};
    }
  }
  // Takes the stripe of the node with the key, which a lookup of this guard has found, or sets
  // `found` to null.
  [[gnu::always_inline]] Status hold_node(const Probe& probe, Path& path, Node*& found,
                                          HoldOne& hold) const {
    if (!walking()) [[likely]] {
      hold.take(offset_of(found));
      if (!erased(found)) [[likely]]
        return {};
      hold.release();
    }
    return hold_another(probe, path, found, hold);
  }
  // Takes the stripes that the erase of the key needs: of its node and of those before it in its
  // levels. If the key is absent, sets `found` to null and takes none. The path of a lookup that
  // has found the node has the lowest level.
  [[gnu::noinline]] Status hold_entry(const Probe& probe, Path& path, Node*& found,
                                      Hold& hold) const {
    bool whole = false;
    const Node* gone = nullptr;
    for (std::uint32_t height = 1;;) {
      Status s = walking() ? confirm(probe, path, found) : locate(probe, height, path, found);
      if (!s.ok() || found == nullptr) return s;
      if (found == gone) return this->damaged_node(offset_of(found));  // as in locate()
      const std::uint64_t state = context_.platform.load(found->state);
      if (!sound(found, state)) return this->damaged_node(offset_of(found));
      if (height_of(state) > height) {
        height = height_of(state);
        if (!whole && !walking()) s = this->template search<Reach::whole>(probe, &path, found);
        if (!s.ok()) return s;
        whole = true;
        continue;
      }
      hold.add(offset_of(found));
      Path own;
      for (std::uint32_t level = 0; level < height_of(state); ++level) {
        own.before[level] = found;
        own.next[level] = load_link(found, level);
      }
      add(own, height_of(state), hold);
      if (take(path, height_of(state), hold) && unchanged(own, height_of(state))) return {};
      if (erased(found)) gone = found;
      hold.release();
    }
  }

  // --- link and unlink ---
  // Every store to a link that lookups follow, except those of recovery. In level 0 results that
  // rest on the node at `rest` rest on this link.
  [[gnu::always_inline]] void redirect(Node* before, std::uint32_t level, std::uint64_t link,
                                       [[maybe_unused]] std::uint64_t rest = 0) {
    std::uint64_t& word = link_at(before, level);
    PERDURE_ASSERT(P, "skiplist.I5", stripes_.mine(offset_of(before)));
    PERDURE_ASSERT(P, "skiplist.I7", level > 0 || stripes_.in_flight(rest) == &word);
    PERDURE_ASSERT(P, "skiplist.I8", !erased(before));
    level == 0 ? this->store_locked(word, link) : context_.platform.store(word, link);
  }
  // Withdraws the word that is announced. `durable`: its fence has succeeded.
  [[gnu::always_inline]] bool withdraw(InFlight<P>& in_flight, bool durable) {
    PERDURE_ASSERT(P, "skiplist.I7",
                   !durable || context_.platform.persisted(in_flight.any(), sizeof(std::uint64_t)));
    in_flight.withdraw();
    return durable;
  }

  // The key is absent.
  [[gnu::noinline]] Status link(const Path& path, const Fresh& fresh, Hold& hold) {
    P& platform = context_.platform;
    Node* node = node_at(fresh.node);
    PERDURE_ASSERT(P, "skiplist.I5", stripes_.mine(fresh.node));
    const std::uint32_t height = height_of(platform.load(node->state));
    if (Status s = check_path(path, height); !s.ok()) return s;
    for (std::uint32_t level = 0; level < height; ++level) {
      platform.store(link_at(node, level), load_link(path.before[level], level));
    }
    write_back_owed(hold);
    if (!persist(node, fresh.bytes, kSite<Kind, "insert.node">)) return StatusCode::poisoned;
    PERDURE_ASSERT(P, "skiplist.I1", platform.persisted(node, fresh.bytes));
    PERDURE_ASSERT(P, "skiplist.I1", between(path.before[0], node, load_link(path.before[0], 0)));
    const std::uint64_t link = link_to(fresh.node);
    if (!redirect_lowest(path, link, fresh.node, kSite<Kind, "insert.link">)) {
      return StatusCode::poisoned;
    }
    return height > 1 ? link_upper(path, link, height) : Status();
  }

  [[gnu::noinline]] Status link_upper(const Path& path, std::uint64_t link, std::uint32_t height) {
    P& platform = context_.platform;
    std::uint32_t known = levels();
    while (height > known && !this->levels_.compare_exchange_weak(known, height)) {
    }
    for (std::uint32_t level = 1; level < height; ++level) {
      std::uint64_t& word = link_at(path.before[level], level);
      PERDURE_ASSERT(P, "skiplist.I4", load_link(path.before[level - 1], level - 1) == link);
      PERDURE_ASSERT(
          P, "skiplist.I2",
          !kUpperDurable || platform.persisted(&link_at(path.before[level - 1], level - 1), 8));
      redirect(path.before[level], level, link);
      if constexpr (kUpperDurable) {
        if (level + 1 == height) {
          stripes_.of(link & kOffsetMask).owed = &word;
          break;
        }
        if (!persist(&word, sizeof(word), kSite<Kind, "insert.upper">)) return StatusCode::poisoned;
      }
    }
    return {};
  }

  [[gnu::noinline]] Status unlink(const Probe& probe, const Path& path, Node* node, Hold& hold) {
    P& platform = context_.platform;
    const std::uint64_t link = link_to(offset_of(node));
    PERDURE_ASSERT(P, "skiplist.I5", stripes_.mine(offset_of(node)));
    write_back_owed(hold);
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
    const std::uint64_t rest = offset_of(path.before[0]);
    if (!redirect_lowest(path, load_link(node, 0), rest, kSite<Kind, "erase.link">)) {
      return StatusCode::poisoned;
    }
    platform.store(node->state, platform.load(node->state) | kErased);
    return {};
  }

 private:
  // What the lookup has found was erased since, or its path is to be confirmed.
  [[gnu::noinline]] Status hold_another(const Probe& probe, Path& path, Node*& found,
                                        HoldOne& hold) const {
    for (;;) {
      const Node* gone = found;
      Status s = walking() ? confirm(probe, path, found) : locate(probe, 1, path, found);
      if (!s.ok() || found == nullptr) return s;
      if (!walking() && found == gone)
        return this->damaged_node(offset_of(found));  // as in locate()
      hold.take(offset_of(found));
      if (!erased(found)) return {};
      hold.release();
    }
  }
  // Adds the nodes of a path. as: also those that its links above level 0 lead to, which may owe
  // these links (Stripe).
  void add(const Path& path, std::uint32_t height, Hold& hold) const {
    for (std::uint32_t level = 0; level < height; ++level) {
      hold.add(offset_of(path.before[level]));
      if (kUpperDurable && level > 0) hold.add(path.next[level] & kOffsetMask);
    }
  }
  bool unchanged(const Path& path, std::uint32_t height) const {
    for (std::uint32_t level = 0; level < height; ++level) {
      const Node* node = path.before[level];
      if (erased(node) || load_link(node, level) != path.next[level]) return false;
    }
    return true;
  }
  // Takes the stripes. Returns false, and takes none, if the path has changed.
  bool take(const Path& path, std::uint32_t height, Hold& hold) const {
    add(path, height, hold);
    hold.take();
    if (!P::runs(kSite<Kind, "hold.path">) || unchanged(path, height)) return true;
    hold.release();
    return false;
  }

  bool precedes(const Node* a, const Node* b) const {
    const std::uint64_t left = context_.platform.load(a->key);
    const std::uint64_t right = context_.platform.load(b->key);
    return a == head() || left < right || (Codec::kBytes && left == right);
  }
  bool between(const Node* before, const Node* node, std::uint64_t after) const {
    return precedes(before, node) && (after == 0 || precedes(node, node_at(after & kOffsetMask)));
  }

  // An insert leaves its last upper link to the next change that holds the stripe of its node
  // (skiplist.I2): no other one relies on that link, and this one not before its next fence.
  [[gnu::noinline]] void write_back_owed(Hold& hold) {
    if constexpr (kUpperDurable) {
      hold.take_owed([&](const std::uint64_t* link) {
        context_.platform.flush(link, sizeof(*link), kSite<Kind, "owed.link">);
      });
    }
  }

  // Stores to level 0 and makes the store durable. Returns false if the pool is poisoned.
  template <FixedString Name>
  [[gnu::always_inline]] bool redirect_lowest(const Path& path, std::uint64_t link,
                                              std::uint64_t rest, Site<Name> site) {
    std::uint64_t& lowest = link_at(path.before[0], 0);
    InFlight<P>& in_flight = stripes_.of(rest).in_flight;
    in_flight.announce(rest, &lowest);
    redirect(path.before[0], 0, link, rest);                             // LP(insert), LP(erase)
    return withdraw(in_flight, persist(&lowest, sizeof(lowest), site));  // PP(insert), PP(erase)
  }
};

}  // namespace perdure::skiplist
