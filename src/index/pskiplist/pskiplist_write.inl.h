// PSkipList: insert, update, erase. Included by pskiplist.h only.
#pragma once

#include "index/pskiplist/pskiplist.h"

namespace perdure::pskiplist {

// Takes the node, unless it is dead.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool PSkipList<P, Codec, G>::hold(Node& node, State& held) noexcept {
  for (unsigned spins = 0;; P::pause(spins++)) {
    const State seen = node.load();
    if (seen.phase() == Phase::dead) return false;
    if (seen.phase() != Phase::idle) continue;
    held = State::of(Phase::held, seen.number());
    if (node.change(seen, held)) return true;
  }
}

template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::let_go(Node& node, State held, bool changed) noexcept {
  PERDURE_ASSERT(P, "pskiplist.N1", changed || node.load() == held);
  node.set(State::of(Phase::idle, held.number() + (changed ? 1 : 0)));
}

// LP of a write that succeeds: the compare-and-swap, here or in settle_state(). The exchange is a
// full fence: without it the clock could be loaded before others see that a write is coming
// (pskiplist.I3).
template <Platform P, class Codec, class G>
std::uint64_t PSkipList<P, Codec, G>::stamp(Node& node, State held) noexcept {
  PERDURE_ASSERT(P, "pskiplist.N1", node.load() == held);
  const State unstamped = State::of(Phase::unstamped, held.number());
  node.state.exchange(unstamped.word, std::memory_order_seq_cst);
  const std::uint64_t version = clock();
  if (node.change(unstamped, State::of(Phase::stamped, version))) return version;
  PERDURE_ASSERT(P, "pskiplist.I3",
                 node.load().phase() == Phase::stamped && node.load().number() <= clock());
  return node.load().number();
}

// Whether the next entry begins a segment. A rollback leaves empty ones linked.
template <Platform P, class Codec, class G>
bool PSkipList<P, Codec, G>::must_grow(Node& node) const noexcept {
  if (node.tail == 0) return true;
  if (used_in_tail(node) < capacity_of(node.tail)) return false;
  const std::uint64_t next = context_.platform.load(segment_at(node.tail).next);
  if (next == 0) return true;
  node.tail = next;
  return false;
}

// Entries of the tail: the last is one of them, or a rollback has left the tail empty.
template <Platform P, class Codec, class G>
std::uint32_t PSkipList<P, Codec, G>::used_in_tail(const Node& node) const noexcept {
  const std::uint64_t before =  // entries in front of the last, if it lies there
      (node.last.load(std::memory_order_relaxed) - entry_offset(node.tail, 0)) / sizeof(Entry);
  return before < capacity_of(node.tail) ? static_cast<std::uint32_t>(before + 1) : 0;
}

// For the node's next entry. The smallest one will do where nothing else is left.
template <Platform P, class Codec, class G>
Expected<std::uint64_t> PSkipList<P, Codec, G>::new_segment(const Node& node,
                                                            bool reserved) noexcept {
  const std::uint32_t entries = node.tail == 0 ? G::kFirstEntries : 2 * capacity_of(node.tail);
  auto block =
      context_.heap.allocate(sizeof(Segment) + entries * sizeof(Entry), BlockKind::zero_on_free);
  if (block) {
    reserve_.refill();
  } else if (reserved && block.error() == StatusCode::pool_full) {
    if (const std::uint64_t segment = reserve_.take(); segment != 0) return segment;
  }
  return block;
}

// The version, with a segment in `fresh` if the entry begins one. What fails is not stamped: nobody
// answers from a stamp before the stores have come. If a tag makes a segment necessary that was
// not, the stamp is taken back; the next one has another number (pskiplist.N1): who has met the
// first may still be about to stamp, with the version of then. `held` is what the node goes on
// from.
template <Platform P, class Codec, class G>
Expected<std::uint64_t> PSkipList<P, Codec, G>::stamp_with_room(Node& node, State& held,
                                                                bool reserved,
                                                                Fresh& fresh) noexcept {
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

// Durable records for the value, and for the key if it is new (pskiplist.I9).
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::make_records(const Probe& probe, const detail::Value& value,
                                            bool key, Fresh& fresh) noexcept {
  P& platform = context_.platform;
  bool made = false;
  if (record_values_ && fresh.value == 0) {
    auto block = records_.write({}, value, "pskiplist.record.write"_site);
    if (!block) return std::move(block.error());
    fresh.value = *block;
    made = true;
  }
  if (Codec::kBytes && key && fresh.key == 0) {
    auto block = records_.write(probe.bytes, {.word_size = 8}, "pskiplist.record.write"_site);
    if (!block) return std::move(block.error());
    fresh.key = *block;
    made = true;
  }
  if (made && !platform.fence("pskiplist.record.write"_site)) return StatusCode::poisoned;
  for ([[maybe_unused]] const std::uint64_t record : {fresh.key, fresh.value}) {
    PERDURE_ASSERT(P, "pskiplist.I9", record == 0 || persisted(record, sizeof(RecordPrefix)));
  }
  return {};
}

// In a poisoned pool the medium may name them.
template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::discard(const Fresh& fresh) noexcept {
  if (context_.platform.poisoned()) return;
  for (const std::uint64_t block : {fresh.key, fresh.value, fresh.segment}) {
    if (block != 0) context_.heap.discard(block);
  }
  if (fresh.replaced != 0 && P::runs("pskiplist.update.retire"_site)) {
    context_.heap.retire(fresh.replaced);
  }
}

// --- stores; the node is stamped ---

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::write_first(Node& node, State held, std::uint64_t version,
                                           const Probe& probe, std::uint64_t value,
                                           Fresh& fresh) noexcept {
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
  platform.flush(&slot, sizeof(slot), "pskiplist.insert.slot"_site);
  return platform.fence("pskiplist.insert.slot"_site) ? Status() : StatusCode::poisoned;  // PP
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::write_in_place(Node& node, State held, std::uint64_t version,
                                              std::uint64_t value, bool removed) noexcept {
  P& platform = context_.platform;
  const std::uint64_t offset = node.last.load(std::memory_order_relaxed);
  Entry& entry = entry_at(offset);
  const std::uint64_t stamp = stamp_of(version, removed);
  PERDURE_ASSERT(
      P, "pskiplist.I4",
      node.load() == State::of(Phase::stamped, version) && node.end().version() == version);
  // All of the entry before any of the node: who answers by the node has the whole line to write.
  if (!removed) platform.store(entry.value, value);
  if (platform.load(entry.stamp) != stamp) platform.store(entry.stamp, stamp);
  node.set_end({offset, value, stamp, node.end().entries});
  node.set(State::of(Phase::stored, held.number()));
  platform.flush(&entry, sizeof(entry), "pskiplist.update.entry"_site);
  return platform.fence("pskiplist.update.entry"_site) ? Status() : StatusCode::poisoned;  // PP
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::append(Node& node, State held, std::uint64_t version,
                                      std::uint64_t value, bool removed, Fresh& fresh) noexcept {
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
    // The state stays `stamped`: a reader could not write back the link.
    std::uint64_t& link = node.tail != 0 ? segment_at(node.tail).next
                                         : slot_at(node.slot.load(std::memory_order_relaxed)).more;
    platform.store(link, segment);
    platform.flush(&link, 8, "pskiplist.append.link"_site);
  }
  node.set_end({offset, value, stamp_of(version, removed), node.end().entries + 1});
  if (fresh.segment == 0) node.set(State::of(Phase::stored, held.number()));
  platform.flush(&entry, sizeof(entry), "pskiplist.append.entry"_site);
  if (!platform.fence("pskiplist.append.entry"_site)) return StatusCode::poisoned;  // PP
  node.tail = segment;
  fresh.segment = 0;
  return {};
}

template <Platform P, class Codec, class G>
template <class Site>
void PSkipList<P, Codec, G>::retire_value(std::uint64_t value, std::uint64_t stamp,
                                          Site site) noexcept {
  if (!record_values_ || (stamp & (layout::kRemoved | layout::kDropped)) != 0) return;
  if (P::runs(site)) context_.heap.retire(value);
}

template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::retire_segments(std::uint64_t first, std::uint64_t end) noexcept {
  for (std::uint64_t segment = first; segment != 0 && segment != end;) {
    const std::uint64_t next = context_.platform.load(segment_at(segment).next);
    if (P::runs("pskiplist.history.retire"_site)) context_.heap.retire(segment);
    segment = next;
  }
}

// No version that can be read sees the key: the slot goes, and all that it leads to. The node is
// held by a trim, or stamped by an erase.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::give_back(std::uint32_t number, const Probe& probe) noexcept {
  P& platform = context_.platform;
  Node& node = nodes_[number];
  const std::uint64_t offset = node.slot.load(std::memory_order_relaxed);
  Slot& slot = slot_at(offset);
  PERDURE_ASSERT(P, "pskiplist.I4",
                 node.load().phase() == Phase::held ||
                     node.load() == State::of(Phase::stamped, node.end().version()));
  const std::uint64_t first = platform.load(slot.first.stamp);
  platform.store(slot.first.stamp, 0);
  platform.flush(&slot.first.stamp, 8, "pskiplist.erase.slot"_site);
  if (!platform.fence("pskiplist.erase.slot"_site)) return StatusCode::poisoned;  // PP(erase)
  retire_value(platform.load(slot.first.value), first, "pskiplist.erase.retire"_site);
  for (std::uint64_t s = platform.load(slot.more); s != 0; s = platform.load(segment_at(s).next)) {
    for (std::uint32_t i = 0; i < capacity_of(s); ++i) {
      const Entry& entry = entry_at(entry_offset(s, i));
      const std::uint64_t stamp = platform.load(entry.stamp);
      if (stamp == 0) break;
      retire_value(platform.load(entry.value), stamp, "pskiplist.erase.retire"_site);
    }
  }
  retire_segments(platform.load(slot.more));
  if (Codec::kBytes && P::runs("pskiplist.erase.retire_key"_site)) context_.heap.retire(node.key);
  const typename Chain::Place place{offset, node.block};
  bury(number, probe);
  chain_.release(place);
  reserve_.room();
  return {};
}

// Whether the node's slot is durably free, or it never got one.
template <Platform P, class Codec, class G>
bool PSkipList<P, Codec, G>::has_no_slot(const Node& node) const noexcept {
  const std::uint64_t slot = node.slot.load(std::memory_order_relaxed);
  if (slot == 0) return true;
  const std::uint64_t& stamp = slot_at(slot).first.stamp;
  return context_.platform.load(stamp) == 0 && context_.platform.persisted(&stamp, sizeof(stamp));
}

// A node that is nobody's key any more.
template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::bury(std::uint32_t number, const Probe& probe) noexcept {
  PERDURE_ASSERT(P, "pskiplist.I5", has_no_slot(nodes_[number]));
  nodes_[number].set(State::of(Phase::dead, 0));
  directory_.remove(probe, number);
  context_.epochs.retire(kNodeReclaimer, this, number);
}

// --- operations ---

// When the pool is full, what this and other threads have freed but not yet given back may be
// enough; it can be had outside the guard only.
template <Platform P, class Codec, class G>
template <typename PSkipList<P, Codec, G>::Mode kMode>
Expected<bool> PSkipList<P, Codec, G>::write(const detail::Key& key, const detail::Value& value) {
  if (Status s = validate(key, value, !record_values_, record_values_); !s.ok())
    return fail(std::move(s));
  context_.background.help();
  const Probe probe = Codec::probe(key);
  return with_room([&] { return write_once<kMode>(probe, value); });
}

template <Platform P, class Codec, class G>
template <typename PSkipList<P, Codec, G>::Mode kMode>
Expected<bool> PSkipList<P, Codec, G>::write_once(const Probe& probe,
                                                  const detail::Value& value) noexcept {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
  Fresh fresh;
  std::uint32_t number = kMode == Mode::update   ? directory_.find(probe)
                         : kMode == Mode::insert ? directory_.find_likely_new(probe)
                                                 : directory_.find_maybe_new(probe);
  // A guess, so that records are made, and their fence is waited for, before the node is held.
  if (record_values_ && number != 0 && kMode != Mode::put) {
    if (latest(nodes_[number]).present() == (kMode == Mode::insert)) {
      if (kMode == Mode::update) return absent();
      if (!context_.platform.poisoned()) return false;
    }
  }
  Status s;
  if (record_values_ && (number != 0 || kMode != Mode::update)) {
    s = make_records(probe, value, number == 0, fresh);
  }
  Expected<bool> done = false;
  for (unsigned spins = 0; s.ok(); P::pause(spins++)) {
    State held = State::of(Phase::held, 0);
    if (number != 0) {
      if (hold(nodes_[number], held)) {
        done = write_held<kMode>(number, probe, held, value, fresh);
        break;
      }
      number = directory_.find(probe);  // dead: it is about to leave
      continue;
    }
    if (kMode == Mode::update) {
      done = absent();
      break;
    }
    if (s = make_records(probe, value, true, fresh); !s.ok()) break;
    const std::uint32_t mine = nodes_.take();
    if (mine == 0) {
      s = StatusCode::pool_full;  // those of dead keys may be in limbo
      break;
    }
    nodes_[mine].key = Codec::kBytes ? fresh.key : probe.word;
    auto there = directory_.put(probe, mine);
    if (!there || *there != 0) nodes_.give(mine);
    if (!there) {
      s = std::move(there.error());
    } else if (*there == 0) {
      done = write_held<kMode>(mine, probe, held, value, fresh);
      break;
    } else {
      number = *there;
    }
  }
  discard(fresh);
  if (!s.ok()) return fail(std::move(s));
  return done;
}

template <Platform P, class Codec, class G>
template <typename PSkipList<P, Codec, G>::Mode kMode>
Expected<bool> PSkipList<P, Codec, G>::write_held(std::uint32_t number, const Probe& probe,
                                                  State held, const detail::Value& value,
                                                  Fresh& fresh) noexcept {
  P& platform = context_.platform;
  Node& node = nodes_[number];
  const bool present = node.end().present();
  if (platform.poisoned() || (kMode == Mode::insert && present) ||
      (kMode == Mode::update && !present)) {
    let_go(node, held, false);
    if (platform.poisoned()) return fail(platform.failure());
    return false;
  }
  const bool is_new = node.slot.load(std::memory_order_relaxed) == 0;
  PERDURE_ASSERT(P, "pskiplist.I2", is_new == (node.end().entry == 0));
  Status s = make_records(probe, value, is_new, fresh);
  if (is_new && s.ok()) {
    auto place = chain_.claim();
    if (place) {
      node.block = place->block;
      nodes_.set_slot(number, place->slot);
    } else {
      s = std::move(place.error());
    }
  }
  std::uint64_t version = 0;
  if (s.ok()) {
    auto stamped = is_new ? Expected<std::uint64_t>(stamp(node, held))
                          : stamp_with_room(node, held, false, fresh);
    if (stamped) {
      version = *stamped;
    } else {
      s = std::move(stamped.error());
    }
  }
  if (!s.ok()) {
    if (is_new) {
      bury(number, probe);
      // It was in the directory: somebody may be comparing the key with it.
      if (fresh.key != 0 && !platform.poisoned()) context_.heap.retire(fresh.key);
      fresh.key = 0;
    } else {
      let_go(node, held, false);
    }
    return fail(std::move(s));
  }
  const std::uint64_t word = record_values_ ? fresh.value : value.word;
  if (is_new) {
    s = write_first(node, held, version, probe, word, fresh);
    fresh.key = 0;
  } else if (node.end().version() == version) {
    if (present && record_values_) fresh.replaced = node.value.load(std::memory_order_relaxed);
    s = write_in_place(node, held, version, word, false);
  } else {
    s = append(node, held, version, word, false, fresh);
  }
  fresh.value = 0;
  PERDURE_ASSERT(P, "pskiplist.N3", !s.ok() || persisted(node.end().entry, sizeof(Entry)));
  let_go(node, held, true);
  if (!s.ok()) return fail(std::move(s));
  return kMode == Mode::update ? present : !present;
}

template <Platform P, class Codec, class G>
Expected<bool> PSkipList<P, Codec, G>::erase(const detail::Key& key) {
  if (Status s = validate(key); !s.ok()) return fail(std::move(s));
  context_.background.help();
  const Probe probe = Codec::probe(key);
  bool full = false;  // then from what is kept for removals
  return with_room([&] { return erase_once(probe, std::exchange(full, true)); });
}

template <Platform P, class Codec, class G>
Expected<bool> PSkipList<P, Codec, G>::erase_once(const Probe& probe, bool full) noexcept {
  P& platform = context_.platform;
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
  const std::uint32_t number = find_with_slot(probe);
  if (number == 0) return absent();
  Node& node = nodes_[number];
  State held{};
  if (!hold(node, held)) return absent();
  if (platform.poisoned() || !node.end().present()) {
    let_go(node, held, false);
    return absent();
  }
  Fresh fresh;
  auto version = stamp_with_room(node, held, full, fresh);
  if (!version) {
    let_go(node, held, false);
    return fail(std::move(version.error()));
  }
  const std::uint64_t value = node.value.load(std::memory_order_relaxed);
  Status s;
  if (node.end().version() != *version) {
    s = append(node, held, *version, 0, true, fresh);
  } else if (node.end().entries == 1) {
    s = give_back(number, probe);
    if (s.ok()) {
      discard(fresh);
      return true;
    }
  } else {
    if (record_values_) fresh.replaced = value;
    s = write_in_place(node, held, *version, 0, true);
  }
  PERDURE_ASSERT(P, "pskiplist.N3", !s.ok() || persisted(node.end().entry, sizeof(Entry)));
  let_go(node, held, true);
  discard(fresh);
  if (!s.ok()) return fail(std::move(s));
  return true;
}

}  // namespace perdure::pskiplist
