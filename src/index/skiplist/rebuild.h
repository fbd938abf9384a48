// Rebuild: what a walk over level 0 does at each node, and how `ascs` walks at an open: by threads,
// in pieces, to make the towers anew.
//
// WHAT  Level 0 is one chain of cache misses, so it is walked from many nodes at once. The links of
//   one level above name them. Whatever these links say (skiplist.I3), a node that they name counts
//   only if level 0 leads to it.
//     cut     the head and the nodes of one level each begin a segment.
//     gather  each segment is walked to the beginning of the next one. Its nodes are checked and
//             listed. Nothing is stored or marked.
//     follow  finds the segments that level 0 leads to, from the head on.
//     adopt   marks the nodes of these segments, and links the towers within each of them.
//     join    links the towers of the segments, in order, up to the first damage.
//   A thread gathers kLanes segments in turns: while one waits for its next node, the others go on.
// COST  8 bytes of DRAM for each node and blob until the end of the open. If the links above lead
//   nowhere, the walk is one chain of cache misses.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "index/skiplist/write.h"
#include "util/containers.h"

namespace perdure::skiplist {

template <class T>
class Rebuild : public Write<T> {
  using Base = Write<T>;

 protected:
  using Base::Base, Base::context_, Base::head, Base::kMaxHeight, Base::levels_, Base::load_link,
      Base::marked, Base::node_at, Base::offset_of, Base::place_after, Base::shape_, Base::stale_,
      Base::trusted_, Base::value_of;
  using typename Base::P, typename Base::Codec, typename Base::Kind, typename Base::G;

  // What a walk has found, for count().
  struct Seen {
    std::int64_t nodes = 0;
    std::int64_t bytes = 0;
    std::uint64_t term = 0;
    bool wrote = false;  // and not fenced
  };

  // What adopt() or the walk of `as` has to do with a node.
  struct Look {
    std::uint32_t height = 0;
    bool unchecked = false;  // the value has another check
    std::uint64_t blob = 0;
  };

  // Whether this is a whole node that is not erased, by its own word, which the caller loads once.
  // Other bytes may lie where an old link leads to, and their height means nothing.
  bool believed(const Node* node, std::uint64_t state) const {
    return this->sound(node, state) && (state & kErased) == 0;
  }
  // Checks all of a node and counts it. Returns false if it is damaged.
  [[gnu::always_inline]] bool inspect(const Node* node, Look& look, Seen& seen) const {
    const P& platform = context_.platform;
    const Heap<P>& heap = context_.heap;
    const std::uint64_t state = platform.load(node->state);
    if (!believed(node, state)) return false;
    const std::uint64_t word = platform.load(node->value);
    look.unchecked = state != shape_.with_value(state, word);
    if (trusted_ && !matches<P>(!look.unchecked, kSite<Kind, "value.check">)) return false;
    std::size_t room = heap.block_bytes(offset_of(node));
    if (shape_.bytes_values && word != 0) {
      detail::Value value;
      if (!value_of(node, value)) return false;
      look.blob = word & kOffsetMask;
      room += heap.block_bytes(look.blob);
    }
    look.height = height_of(state);
    seen.nodes += 1;
    seen.bytes += static_cast<std::int64_t>(room);
    seen.term += shape_.closed_term(offset_of(node), state);
    return true;
  }
  // Makes the check of a value anew, if a crash has separated the two.
  void make_check(Node* node, bool& wrote) {
    P& platform = context_.platform;
    const std::uint64_t state = platform.load(node->state);
    const std::uint64_t right = shape_.with_value(state, platform.load(node->value));
    if (state == right) return;
    platform.store(node->state, right);
    platform.flush(&node->state, sizeof(node->state), kSite<Kind, "visit.check">);
    wrote = true;
  }

  // ascs, skiplist.I3: makes the towers anew. It does so for an empty map, too: the head's links
  // lie in several lines, and a crash keeps some of them.
  [[gnu::noinline]] Status rebuild() {
    Array<Node*> starts;
    if (!cut(starts)) return StatusCode::out_of_memory;
    const std::unique_ptr<Segment[]> segments(new (std::nothrow) Segment[starts.size()]);
    if (segments == nullptr) return StatusCode::out_of_memory;
    const Parts parts{.segments = segments.get(),
                      .count = static_cast<std::uint32_t>(starts.size())};
    for (std::uint32_t i = 0; i < parts.count; ++i) segments[i].first = starts[i];
    gather(parts);
    follow(parts);
    adopt(parts);
    return join(parts);
  }

 private:
  // A piece of level 0.
  struct Segment {
    Node* first = nullptr;
    // The segment that level 0 leads to behind this one; the number of segments: none. `missed`:
    // level 0 leads from `at` past the place of that segment, and not to its first node.
    std::uint32_t next = 0;
    bool missed = false;
    bool reached = false;  // from the head
    bool differs = false;  // a word of its nodes is to be stored
    bool stale = false;    // and has to wait for complete()
    Node* at = nullptr;
    Seen seen = {};
    Status status = {};
    Array<std::uint64_t> blocks = {};  // offset and height of each node; a blob has no height
    Node* lowest[kMaxHeight] = {};     // the first node of each level
    Node* highest[kMaxHeight] = {};    // the last one
  };
  struct Parts {
    Segment* segments;
    std::uint32_t count;

    const Node* first_of(std::uint32_t i) const { return i < count ? segments[i].first : nullptr; }
  };
  // A walk over a segment: `link`, of `at`, is the next one that it follows.
  struct Lane {
    Segment* segment = nullptr;
    Node* at = nullptr;
    std::uint64_t link = 0;
    const Node* until = nullptr;  // where the segment may end
  };

  // Finds where segments begin. Returns false if memory is short.
  [[gnu::noinline]] bool cut(Array<Node*>& starts) const {
    constexpr std::size_t kMost = 4 * std::size_t{G::kSegments};  // of links that make no skiplist
    if (!starts.push_back(head())) return false;
    for (std::uint32_t level = kMaxHeight; level-- > 1 && starts.size() <= G::kSegments;) {
      starts.clear();
      Node* at = head();
      while (at != nullptr && starts.size() < kMost) {
        if (!starts.push_back(at)) return false;
        const std::uint64_t link = load_link(at, level);
        // Free extents may have no space on the medium.
        const bool block = link != 0 && context_.heap.is_block(link & kOffsetMask);
        at = block ? place_after(at, link, level) : nullptr;
        if (at != nullptr && !believed(at, context_.platform.load(at->state))) at = nullptr;
      }
    }
    return true;
  }

  // Calls `task` for all segments, in several threads.
  template <class F>
  void share(const Parts& parts, F&& task) const {
    typename P::template Atomic<std::uint32_t> taken{0};
    const auto take = [&]() -> Segment* {
      const std::uint32_t i = taken.fetch_add(1, std::memory_order_relaxed);
      return i < parts.count ? &parts.segments[i] : nullptr;
    };
    P::parallel(std::clamp<std::uint32_t>(context_.threads, 1, parts.count),
                [&](std::size_t) { task(take); });
  }

  [[gnu::noinline]] void gather(const Parts& parts) const {
    constexpr std::uint32_t kLanes = 16;
    share(parts, [&](const auto& take) {
      Lane lanes[kLanes];
      std::uint32_t count = 0;
      const auto fill = [&](Lane& lane) {
        lane.segment = take();
        if (lane.segment == nullptr) return false;
        lane.segment->next = static_cast<std::uint32_t>(lane.segment - parts.segments) + 1;
        lane.until = parts.first_of(lane.segment->next);
        enter(lane, lane.segment->first);
        return true;
      };
      while (count < kLanes && fill(lanes[count])) ++count;
      while (count > 0) {
        for (std::uint32_t i = 0; i < count; ++i) visit(lanes[i]);
        // Few instructions per lane: a core then begins the misses of many lanes at once.
        for (std::uint32_t i = 0; i < count; ++i) {
          if (!step(parts, lanes[i]) && !fill(lanes[i])) lanes[i--] = lanes[--count];
        }
      }
    });
  }

  void enter(Lane& lane, Node* node) const {
    lane.at = node;
    lane.link = load_link(node, 0);
    __builtin_prefetch(node_at(lane.link & kOffsetMask));
  }
  // Returns false if the segment has come to its end.
  [[gnu::always_inline]] bool step(const Parts& parts, Lane& lane) const {
    Node* node = lane.link != 0 ? place_after(lane.at, lane.link, 0) : nullptr;
    const bool missed =
        node != nullptr && lane.until != nullptr && !this->ascends(node, lane.until);
    if (node != nullptr && !missed) {
      enter(lane, node);
      return true;
    }
    Segment& segment = *lane.segment;
    segment.missed = missed && node != lane.until;
    segment.at = lane.at;
    if (!missed) segment.next = parts.count;
    if (node == nullptr && lane.link != 0) segment.status = damaged_at(lane.link & kOffsetMask);
    return false;
  }

  void visit(Lane& lane) const {
    if (lane.at != head() && !list(*lane.segment, lane.at)) lane.link = 0;
  }
  // Returns false if the node is damaged.
  [[gnu::always_inline]] bool list(Segment& segment, Node* node) const {
    const std::uint64_t offset = offset_of(node);
    Look look;
    bool whole = false;
    if (marked()) {
      const std::uint64_t state = context_.platform.load(node->state);
      whole = believed(node, state);
      look.height = height_of(state);
    } else {
      whole = inspect(node, look, segment.seen);
    }
    if (!whole) {
      segment.status = damaged_at(offset);
      return false;
    }
    if (!segment.blocks.push_back(offset | std::uint64_t{look.height} << 48) ||
        (look.blob != 0 && !segment.blocks.push_back(look.blob))) {
      segment.status = StatusCode::out_of_memory;
      return false;
    }
    segment.differs = segment.differs || look.unchecked;
    for (std::uint32_t level = 1; level < look.height; ++level) {
      Node* before = std::exchange(segment.highest[level], node);
      if (before == nullptr) {
        segment.lowest[level] = node;
      } else if (load_link(before, level) != link_to(offset)) {
        segment.differs = true;
      }
    }
    return true;
  }

  // A segment that has missed the next one goes on until it meets a later one.
  [[gnu::noinline]] void follow(const Parts& parts) const {
    for (std::uint32_t i = 0; i < parts.count; i = parts.segments[i].next) {
      Segment& segment = parts.segments[i];
      segment.reached = true;
      while (segment.missed) {
        Lane lane{.segment = &segment, .until = parts.first_of(++segment.next)};
        enter(lane, segment.at);
        while (step(parts, lane)) visit(lane);
      }
    }
  }

  [[gnu::noinline]] void adopt(const Parts& parts) {
    share(parts, [&](const auto& take) {
      while (Segment* segment = take()) {
        if (segment->reached) adopt(*segment);
      }
    });
  }
  [[gnu::noinline]] void adopt(Segment& segment) {
    Node* last[kMaxHeight] = {};
    Heap<P>& heap = context_.heap;
    Status s;  // of the marks
    for (const std::uint64_t block : segment.blocks) {
      const std::uint64_t offset = block & kOffsetMask;
      const auto height = static_cast<std::uint32_t>(block >> 48);
      if (!marked() && s.ok()) {
        s = height != 0 ? heap.mark(offset, kSite<Kind, "visit.mark">) : heap.mark(offset);
      }
      if (height == 0 || !segment.differs) continue;
      Node* node = node_at(offset);
      if (!marked()) make_check(node, segment.seen.wrote);
      for (std::uint32_t level = 1; level < height; ++level) {
        if (last[level] != nullptr) set_link(last[level], level, link_to(offset), segment.stale);
        last[level] = node;
      }
    }
    if (!s.ok()) segment.status = std::move(s);  // it comes before what gather() has met
    P& platform = context_.platform;
    if (segment.seen.wrote && !platform.fence(kSite<Kind, "visit.check">)) {
      segment.status = platform.failure();
    }
  }

  [[gnu::noinline]] Status join(const Parts& parts) {
    Node* last[kMaxHeight];  // so far, in each level
    std::fill(last, last + kMaxHeight, head());
    Status s;
    for (std::uint32_t i = 0; i < parts.count && s.ok(); i = parts.segments[i].next) {
      Segment& segment = parts.segments[i];
      for (std::uint32_t level = 1; level < kMaxHeight; ++level) {
        const Node* first = segment.lowest[level];
        if (first == nullptr) continue;
        set_link(last[level], level, link_to(offset_of(first)), stale_);
        last[level] = segment.highest[level];
      }
      this->count(segment.seen.nodes, segment.seen.bytes, segment.seen.term);
      stale_ = stale_ || segment.stale;
      s = std::move(segment.status);
    }
    // Where a list that was closed is damaged, the links behind that are those of the close.
    for (std::uint32_t level = 1; level < kMaxHeight && (s.ok() || !trusted_); ++level) {
      set_link(last[level], level, 0, stale_);
    }
    std::uint32_t levels = kMaxHeight;
    while (levels > 1 && load_link(head(), levels - 1) == 0) --levels;
    levels_.store(levels, std::memory_order_release);
    return s;
  }

  // skiplist.I3. A pool that was closed may still be refused; until the open has decided, nothing
  // is stored to it.
  void set_link(Node* node, std::uint32_t level, std::uint64_t link, bool& stale) {
    std::uint64_t& word = link_at(node, level);
    if (context_.platform.load(word) == link) return;
    if (trusted_ && !marked()) {
      stale = true;
    } else {
      context_.platform.store(word, link);
    }
  }
};

}  // namespace perdure::skiplist
