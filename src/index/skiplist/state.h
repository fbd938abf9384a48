// State: the data of a map and the helpers that all parts use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

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
  using Base::context_, Base::absent, Base::root_, Base::tally_;
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
  // The result for a key that was not found.
  Expected<bool> missing() const {
    if (damaged()) [[unlikely]]
      return fail(known_damage());
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
};

}  // namespace perdure::skiplist
