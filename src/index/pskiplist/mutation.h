// Mutation: a node is held, its write gets a version and room for its entry, and the entry is
// stored. Responsible for pskiplist.I1, I4, I5, N1 and N2, and for the writers' side of I3.
#pragma once

#include <cstdint>

#include "index/pskiplist/versions.h"

namespace perdure::pskiplist {

template <class T>
class Mutation : public Versions<T> {
 protected:
  using Base = Versions<T>;
  using Base::Base;
  using Base::capacity_of, Base::clock, Base::directory_, Base::entry_at, Base::load, Base::persist;
  using Base::chain_, Base::context_, Base::nodes_, Base::reserve_;
  using Base::persisted, Base::record_values_, Base::segment_at, Base::slot_at, Base::store_durably;
  using typename Base::Chain, typename Base::Codec, typename Base::Node, typename Base::P;

  // Takes the node. Returns false if it is dead.
  [[gnu::always_inline]] bool hold(Node& node, State& held) {
    for (unsigned spins = 0;; P::pause(spins++)) {
      const State seen = node.load();
      if (seen.phase() == Phase::dead) return false;
      if (seen.phase() != Phase::idle) continue;
      held = State::of(Phase::held, seen.number());
      if (node.change(seen, held)) return true;
    }
  }
  static void let_go(Node& node, State held, bool changed) {
    PERDURE_ASSERT(P, "pskiplist.N1", changed || node.load() == held);
    node.set(State::of(Phase::idle, held.number() + (changed ? 1 : 0)));
  }

  // LP of a write that succeeds: the compare-and-swap, here or in settle_state(). The exchange is a
  // full fence. Without it the clock could be loaded before other threads see that a write is
  // coming (pskiplist.I3).
  std::uint64_t stamp(Node& node, State held) {
    PERDURE_ASSERT(P, "pskiplist.N1", node.load() == held);
    const State unstamped = State::of(Phase::unstamped, held.number());
    node.state.exchange(unstamped.word, std::memory_order_seq_cst);
    const std::uint64_t version = clock();
    if (node.change(unstamped, State::of(Phase::stamped, version))) return version;
    PERDURE_ASSERT(P, "pskiplist.I3",
                   node.load().phase() == Phase::stamped && node.load().number() <= clock());
    return node.load().number();
  }
  // Returns the version, and a segment in `fresh` if the entry begins one. If it fails, the node is
  // not stamped: no reader returns anything by a stamp before the stores have come. If a tag makes
  // a segment necessary, the stamp is taken back. The next stamp has another number (pskiplist.N1):
  // a thread that met the first one may still be about to stamp, with the older version. The caller
  // goes on from `held`.
  [[gnu::noinline]] Expected<std::uint64_t> stamp_with_room(Node& node, State& held, bool reserved,
                                                            Fresh& fresh) {
    const std::uint64_t before = node.end().version();
    const bool full = must_grow(node);
    for (std::uint64_t version = clock();;) {
      if (full && version != before && fresh.segment == 0) {
        auto block = new_segment(node, reserved);
        if (!block) return block;
        fresh.segment = *block;
      }
      version = stamp(node, held);
      if (!full || version == before || fresh.segment != 0) return version;
      held = State::of(Phase::held, held.number() + 1);
      node.set(held);
    }
  }

  // --- stores; the node is stamped ---

  [[gnu::noinline]] Status write_first(Node& node, State held, std::uint64_t version,
                                       const Probe& probe, std::uint64_t value, Fresh& fresh) {
    P& platform = context_.platform;
    const std::uint64_t offset = node.slot.load(std::memory_order_relaxed);
    Slot& slot = slot_at(offset);
    PERDURE_ASSERT(P, "pskiplist.N2", node.load() == State::of(Phase::stamped, version));
    platform.store(slot.key, Codec::kBytes ? fresh.key : probe.word);
    platform.store(slot.more, 0);
    platform.store(slot.first.value, value);
    platform.store(slot.first.stamp, stamp_of(version, false));
    node.set_end({offset + offsetof(Slot, first), value, stamp_of(version, false), 1});
    node.set(State::of(Phase::stored, held.number()));
    const bool durable = persist(&slot, sizeof(slot), "pskiplist.insert.slot"_site);  // PP
    return durable ? Status() : StatusCode::poisoned;
  }
  [[gnu::noinline]] Status write_in_place(Node& node, State held, std::uint64_t version,
                                          std::uint64_t value, bool removed) {
    P& platform = context_.platform;
    const std::uint64_t offset = node.last.load(std::memory_order_relaxed);
    Entry& entry = entry_at(offset);
    const std::uint64_t stamp = stamp_of(version, removed);
    PERDURE_ASSERT(
        P, "pskiplist.I4",
        node.load() == State::of(Phase::stamped, version) && node.end().version() == version);
    // All of the entry before any of the node: a reader that reads the node can write back the
    // whole line.
    if (!removed) platform.store(entry.value, value);
    if (load(entry.stamp) != stamp) platform.store(entry.stamp, stamp);
    node.set_end({offset, value, stamp, node.end().entries});
    node.set(State::of(Phase::stored, held.number()));
    const bool durable = persist(&entry, sizeof(entry), "pskiplist.update.entry"_site);  // PP
    return durable ? Status() : StatusCode::poisoned;
  }
  [[gnu::noinline]] Status append(Node& node, State held, std::uint64_t version,
                                  std::uint64_t value, bool removed, Fresh& fresh) {
    P& platform = context_.platform;
    const std::uint64_t segment = fresh.segment != 0 ? fresh.segment : node.tail;
    const std::uint32_t position = fresh.segment != 0 ? 0 : used_in_tail(node);
    const std::uint64_t offset = entry_offset(segment, position);
    Entry& entry = entry_at(offset);
    PERDURE_ASSERT(P, "pskiplist.N2", node.load() == State::of(Phase::stamped, version));
    PERDURE_ASSERT(P, "pskiplist.I1",
                   version > node.end().version() && position < capacity_of(segment));
    PERDURE_ASSERT(P, "pskiplist.I9",
                   fresh.segment == 0 || persisted(segment, context_.heap.block_bytes(segment)));
    platform.store(entry.value, value);
    platform.store(entry.stamp, stamp_of(version, removed));
    if (fresh.segment != 0) {
      // The state stays `stamped`, because a reader could not write back the link.
      std::uint64_t& link = node.tail != 0
                                ? segment_at(node.tail).next
                                : slot_at(node.slot.load(std::memory_order_relaxed)).more;
      platform.store(link, segment);
      platform.flush(&link, 8, "pskiplist.append.link"_site);
    }
    node.set_end({offset, value, stamp_of(version, removed), node.end().entries + 1});
    if (fresh.segment == 0) node.set(State::of(Phase::stored, held.number()));
    const bool durable = persist(&entry, sizeof(entry), "pskiplist.append.entry"_site);  // PP
    if (!durable) return StatusCode::poisoned;
    node.tail = segment;
    fresh.segment = 0;
    return {};
  }

  // Returns the number of entries of the segment that the next entry needs, or 0.
  [[gnu::noinline]] std::uint32_t next_segment(Node& node) const {
    return must_grow(node) ? first_or_next(node) : 0;
  }

  // --- what an unlink frees ---

  template <class Site>
  void retire_value(std::uint64_t value, std::uint64_t stamp, Site site) {
    if (!record_values_ || (stamp & (layout::kRemoved | layout::kDropped)) != 0) return;
    context_.heap.retire(value, site);
  }
  [[gnu::noinline]] void retire_segments(std::uint64_t first, std::uint64_t end = 0) {
    for (std::uint64_t segment = first; segment != 0 && segment != end;) {
      const std::uint64_t next = load(segment_at(segment).next);
      context_.heap.retire(segment, "pskiplist.history.retire"_site);
      segment = next;
    }
  }
  // No version that can be read sees the key: gives its slot back, and all that the slot names. A
  // trim holds the node, or an erase has stamped it.
  [[gnu::noinline]] Status give_back(std::uint32_t number, const Probe& probe) {
    const Node& node = nodes_[number];
    const std::uint64_t offset = node.slot.load(std::memory_order_relaxed);
    Slot& slot = slot_at(offset);
    PERDURE_ASSERT(P, "pskiplist.I4",
                   node.load().phase() == Phase::held ||
                       node.load() == State::of(Phase::stamped, node.end().version()));
    const std::uint64_t first = load(slot.first.stamp);
    Status done = store_durably(slot.first.stamp, 0, "pskiplist.erase.slot"_site);  // PP(erase)
    if (!done.ok()) return done;
    retire_value(load(slot.first.value), first, "pskiplist.erase.retire"_site);
    for (std::uint64_t s = load(slot.more); s != 0; s = load(segment_at(s).next)) {
      for (std::uint32_t i = 0; i < capacity_of(s); ++i) {
        const Entry& entry = entry_at(entry_offset(s, i));
        const std::uint64_t stamp = load(entry.stamp);
        if (stamp == 0) break;
        retire_value(load(entry.value), stamp, "pskiplist.erase.retire"_site);
      }
    }
    free_slot(offset, number, probe, "pskiplist.erase.retire_key"_site);
    reserve_.room();
    return {};
  }
  // The slot is durably free: frees its segments, its key and its node, then itself.
  template <class Site>
  void free_slot(std::uint64_t offset, std::uint32_t number, const Probe& probe, Site site) {
    retire_segments(load(slot_at(offset).more));
    if (Codec::kBytes) context_.heap.retire(nodes_[number].key, site);
    const typename Chain::Place place{offset, nodes_[number].block};
    bury(number, probe);
    chain_.release(place);
  }
  // The node has no slot: it leaves the directory, then is freed.
  [[gnu::noinline]] void bury(std::uint32_t number, const Probe& probe) {
    PERDURE_ASSERT(P, "pskiplist.I5", has_no_slot(nodes_[number]));
    nodes_[number].set(State::of(Phase::dead, 0));
    directory_.remove(probe, number);
    context_.epochs.retire(kNodeReclaimer, &nodes_, number);
  }

 private:
  // Whether the next entry begins a segment. A rollback leaves empty segments linked.
  [[gnu::noinline]] bool must_grow(Node& node) const {
    if (node.tail == 0) return true;
    if (used_in_tail(node) < capacity_of(node.tail)) return false;
    const std::uint64_t next = load(segment_at(node.tail).next);
    if (next == 0) return true;
    node.tail = next;
    return false;
  }
  // Returns the number of entries in the tail. The last entry lies there, or a rollback has left
  // the tail empty.
  std::uint32_t used_in_tail(const Node& node) const {
    const std::uint64_t before =  // entries in front of the last, if it lies there
        (node.last.load(std::memory_order_relaxed) - entry_offset(node.tail, 0)) / sizeof(Entry);
    return before < capacity_of(node.tail) ? static_cast<std::uint32_t>(before + 1) : 0;
  }
  std::uint32_t first_or_next(const Node& node) const {
    return node.tail == 0 ? T::Geometry::kFirstEntries : 2 * capacity_of(node.tail);
  }
  // Allocates a segment for the node's next entry. In a full pool one of the reserve, of the
  // smallest size, will do.
  [[gnu::noinline]] Expected<std::uint64_t> new_segment(const Node& node, bool reserved) {
    const std::uint32_t entries = first_or_next(node);
    auto block = context_.heap.allocate(entry_offset(0, entries), BlockKind::zero_on_free);
    if (block) {
      reserve_.refill();
    } else if (reserved && block.error() == StatusCode::pool_full) {
      if (const std::uint64_t segment = reserve_.take(); segment != 0) return segment;
    }
    return block;
  }
  // Whether the node's slot is durably free, or it never got one.
  bool has_no_slot(const Node& node) const {
    const std::uint64_t slot = node.slot.load(std::memory_order_relaxed);
    if (slot == 0) return true;
    const std::uint64_t& stamp = slot_at(slot).first.stamp;
    return load(stamp) == 0 && context_.platform.persisted(&stamp, sizeof(stamp));
  }
  static void free_node(void* nodes, std::uint64_t number) {
    static_cast<NodeTable<P>*>(nodes)->give(static_cast<std::uint32_t>(number));
  }
  static constexpr Reclaimer kNodeReclaimer{nullptr, &free_node};
};

}  // namespace perdure::pskiplist
