// Paths: the places that a change stores to, and its turn: it searches without a lock, takes the
// stripes of these nodes, and looks whether they are still what it has found. Responsible for
// skiplist.I6.
#pragma once

#include <algorithm>

#include "index/skiplist/scan.h"

namespace perdure::skiplist {

template <class T>
class Paths : public Scan<T> {
  using Base = Scan<T>;

 protected:
  using Base::Base, Base::ascends, Base::context_, Base::erased, Base::follow, Base::head,
      Base::kUpperDurable, Base::latch_, Base::levels, Base::load_link, Base::offset_of,
      Base::order, Base::sound, Base::stripes_, Base::walking;
  using typename Base::P, typename Base::G, typename Base::Kind, typename Base::Order,
      typename Base::Path, typename Base::Reach;

  // The nodes of a path, the one that is linked or unlinked, and the next ones.
  using Hold = typename Stripes<P, G::kStripes>::template Hold<3 * Base::kMaxHeight>;
  using HoldOne = typename Stripes<P, G::kStripes>::HoldOne;

  // The scope of a change. Until the walk behind an open of `as` is over, changes and steps of the
  // walk take turns.
  class Turn {
   public:
    explicit Turn(Paths& map) : map_(map), alone_(map.walking()) {
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
    Paths& map_;
    bool alone_;
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
        if (at == gone) return damaged_at(offset_of(at));
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
          return damaged_at(link & kOffsetMask);
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
    std::fill(path.before, path.before + Base::kMaxHeight, head());
    std::fill(path.next, path.next + Base::kMaxHeight, 0);
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
      path.next[level] = load_link(at, level);
      from = above;
      above = at;
    }
    for (const Node* node : {seen, hit}) {
      if (node != nullptr && node != found) return damaged_at(offset_of(node));
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
      if (found == gone) return damaged_at(offset_of(found));  // as in locate()
      const std::uint64_t state = context_.platform.load(found->state);
      if (!sound(found, state)) return damaged_at(offset_of(found));
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

 private:
  // What the lookup has found was erased since, or its path is to be confirmed.
  [[gnu::noinline]] Status hold_another(const Probe& probe, Path& path, Node*& found,
                                        HoldOne& hold) const {
    for (;;) {
      const Node* gone = found;
      Status s = walking() ? confirm(probe, path, found) : locate(probe, 1, path, found);
      if (!s.ok() || found == nullptr) return s;
      if (!walking() && found == gone) return damaged_at(offset_of(found));  // as in locate()
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
};

}  // namespace perdure::skiplist
