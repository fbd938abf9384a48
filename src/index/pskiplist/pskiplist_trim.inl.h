// PSkipList: trim and rollback. Included by pskiplist.h only.
#pragma once

#include <algorithm>

#include "index/pskiplist/pskiplist.h"

namespace perdure::pskiplist {

// --- trim ---

// Block after block of the chain; a guard for each, so that what is freed can be used meanwhile:
// also for the copies that trim makes itself.
template <Platform P, class Codec, class G>
Expected<std::uint64_t> PSkipList<P, Codec, G>::trim(std::uint64_t version) {
  P& platform = context_.platform;
  LatchGuard trimming(trim_latch_);
  std::uint64_t horizon = version;
  {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
    LatchGuard pins(pin_latch_);
    if (version > clock()) {
      return fail(StatusCode::invalid_argument, "version %llu is not there yet",
                  static_cast<unsigned long long>(version));
    }
    for (const detail::VersionPin* pin = pins_; pin != nullptr; pin = pin->next) {
      horizon = std::min(horizon, pin->version);
    }
    // pskiplist.I6: durable before a reader is refused, and known before the first entry goes.
    horizon = std::max(horizon, horizon_.load(std::memory_order_relaxed));
    platform.store(root_->horizon, horizon);
    platform.flush(&root_->horizon, 8, "pskiplist.trim.horizon"_site);
    if (!platform.fence("pskiplist.trim.horizon"_site)) return fail(StatusCode::poisoned);
    PERDURE_ASSERT(P, "pskiplist.I6", platform.persisted(&root_->horizon, sizeof(root_->horizon)));
    horizon_.store(horizon, std::memory_order_seq_cst);
  }
  for (std::uint32_t number = 1; number <= chain_.numbers(); ++number) {
    Trim trim{.horizon = horizon};
    {
      EpochGuard<P> guard(context_.epochs);
      if (!guard.ok()) return fail(StatusCode::out_of_memory);
      const std::uint64_t block = chain_.offset_of(number);
      for (std::uint32_t i = 0; block != 0 && i < Chain::kSlots; ++i) {
        Status s = trim_slot(Chain::slot_in(block, i), trim);
        if (!s.ok()) return fail(std::move(s));
      }
    }
    if (!trim.short_of_room) continue;
    context_.epochs.drain_all();
    context_.heap.reclaim();
  }
  reserve_.room();
  if (platform.poisoned()) return fail(platform.failure());  // slots in lost pages are passed over
  return horizon;
}

// The slot may be given to another key until its node is held.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::trim_slot(std::uint64_t offset, Trim& trim) noexcept {
  const P& platform = context_.platform;
  const Slot& slot = slot_at(offset);
  const std::uint64_t stamp = platform.load(slot.first.stamp);
  // Most keys have one entry, and it is there.
  if (stamp == 0 || (platform.load(slot.more) == 0 && (stamp & layout::kRemoved) == 0)) return {};
  Probe probe;
  if constexpr (Codec::kBytes) {
    const std::uint64_t record = platform.load(slot.key);
    if (!check_record(record, true).ok()) return {};  // under another name a hint would be left
    probe = Codec::probe({.bytes = RecordView::read(platform, records_.at(record)).key()});
  } else {
    probe = Codec::probe({.word = platform.load(slot.key)});
  }
  const std::uint32_t number = directory_.find(probe);
  if (number == 0) return {};
  Node& node = nodes_[number];
  State held{};
  if (!hold(node, held)) return {};
  if (node.slot.load(std::memory_order_relaxed) != offset) {
    let_go(node, held, false);
    return {};
  }
  bool gone = false;
  Status s = trim_key(number, probe, trim, gone);
  if (!gone) let_go(node, held, true);
  return s;
}

// Of the entries up to the horizon the last stays; if it is a removed one, only
// as long as the first is there, which would be read without it.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::trim_key(std::uint32_t number, const Probe& probe, Trim& trim,
                                        bool& gone) noexcept {
  P& platform = context_.platform;
  if (platform.poisoned()) return platform.failure();
  PERDURE_ASSERT(P, "pskiplist.I6", trim.horizon <= horizon_.load(std::memory_order_relaxed));
  Node& node = nodes_[number];
  PERDURE_ASSERT(P, "pskiplist.N2", node.load().phase() == Phase::held);
  Slot& slot = slot_at(node.slot.load(std::memory_order_relaxed));
  std::uint32_t drop = 0;
  bool removed = false;
  for_each_entry(slot, [&](std::uint64_t, std::uint64_t stamp) {
    if (version_of(stamp) > trim.horizon) return false;
    removed = (stamp & layout::kRemoved) != 0;
    ++drop;
    return true;
  });
  if (removed && drop == node.end().entries) {
    Status s = give_back(number, probe);
    gone = s.ok();
    return s;
  }
  const std::uint64_t first = platform.load(slot.first.stamp);
  const bool has_first = first != layout::kDropped;
  if (drop != 0 && (!removed || has_first)) --drop;
  if (drop == 0) return {};
  if (has_first) --drop;
  // pskiplist.I9, W12: what stays of the segments, then its link, then the first entry.
  const std::uint64_t before = platform.load(slot.more);
  if (drop != 0) {
    Status s = keep_entries(node, slot, drop);
    if (s == StatusCode::pool_full) {
      trim.short_of_room = true;
      s = skip_segments(slot, drop);
    }
    if (!s.ok()) return s;
  }
  if (has_first) {
    platform.store(slot.first.stamp, layout::kDropped);
    platform.flush(&slot.first.stamp, 8, "pskiplist.trim.first"_site);
    if (!platform.fence("pskiplist.trim.first"_site)) return StatusCode::poisoned;
    node.entries.store(node.end().entries - 1, std::memory_order_release);
    retire_value(platform.load(slot.first.value), first, "pskiplist.trim.retire"_site);
  }
  // Behind the fences.
  retire_dropped(before, platform.load(slot.more), drop);
  node.entries.store(node.end().entries - drop, std::memory_order_release);
  return {};
}

// What `drop` entries from the segment `first` on have held, and the segments up to `end`, if that
// is one of them.
template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::retire_dropped(std::uint64_t first, std::uint64_t end,
                                            std::uint32_t drop) noexcept {
  const P& platform = context_.platform;
  for (std::uint64_t s = first; drop != 0; s = platform.load(segment_at(s).next)) {
    for (std::uint32_t i = 0; i < capacity_of(s) && drop != 0; ++i, --drop) {
      const Entry& entry = entry_at(entry_offset(s, i));
      retire_value(platform.load(entry.value), platform.load(entry.stamp),
                   "pskiplist.trim.retire"_site);
    }
  }
  retire_segments(first, end);
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::relink(Slot& slot, std::uint64_t segment) noexcept {
  P& platform = context_.platform;
  platform.store(slot.more, segment);
  platform.flush(&slot.more, 8, "pskiplist.trim.link"_site);
  return platform.fence("pskiplist.trim.link"_site) ? Status() : StatusCode::poisoned;
}

// Copies the entries of the segments but the first `drop` to one segment, which takes the place of
// all.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::keep_entries(Node& node, Slot& slot, std::uint32_t drop) noexcept {
  P& platform = context_.platform;
  if (platform.load(slot.first.stamp) != layout::kDropped) ++drop;  // it is not copied either
  const std::uint32_t kept = node.end().entries - drop;
  const std::size_t bytes = sizeof(Segment) + kept * sizeof(Entry);
  auto block = context_.heap.allocate(bytes, BlockKind::zero_on_free);
  if (!block) return std::move(block.error());
  std::uint32_t seen = 0;
  std::uint32_t copied = 0;
  for_each_entry(slot, [&](std::uint64_t offset, std::uint64_t stamp) {
    if (seen++ < drop) return true;
    Entry& copy = entry_at(entry_offset(*block, copied++));
    platform.store(copy.value, platform.load(entry_at(offset).value));
    platform.store(copy.stamp, stamp);
    return true;
  });
  platform.flush(&segment_at(*block), bytes, "pskiplist.trim.segment"_site);
  if (!platform.fence("pskiplist.trim.segment"_site)) return StatusCode::poisoned;
  PERDURE_ASSERT(P, "pskiplist.I9", copied == kept && persisted(*block, bytes));
  if (Status s = relink(slot, *block); !s.ok()) return s;
  PERDURE_ASSERT(P, "pskiplist.N3", platform.persisted(&slot.more, sizeof(slot.more)));
  node.last.store(entry_offset(*block, kept - 1), std::memory_order_release);
  node.tail = *block;
  return {};
}

// Without room for a copy: what goes ends with a segment, and is at most `drop` entries. One that
// stays lies behind them, so the segments that go are full, and not the last.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::skip_segments(Slot& slot, std::uint32_t& drop) noexcept {
  const P& platform = context_.platform;
  std::uint64_t segment = platform.load(slot.more);
  std::uint32_t whole = 0;
  for (std::uint32_t n = capacity_of(segment); whole + n <= drop; n = capacity_of(segment)) {
    whole += n;
    segment = platform.load(segment_at(segment).next);
  }
  drop = whole;
  return whole != 0 ? relink(slot, segment) : Status();
}

// --- rollback ---

// Whether an entry stays. Those that do not are the last.
template <Platform P, class Codec, class G>
bool PSkipList<P, Codec, G>::outlives(const Slot& slot, const Void& gone) const noexcept {
  bool stays = false;
  for_each_entry(slot, [&](std::uint64_t, std::uint64_t stamp) {
    stays = !gone.has(version_of(stamp));
    return false;
  });
  return stays;
}

// Empties the entries of those versions; a key without entries has no slot, and what it led to is
// nobody's. True: the caller has to fence, before it leaves its guard if this is `freeing` what
// they lead to.
template <Platform P, class Codec, class G>
bool PSkipList<P, Codec, G>::void_entries(Slot& slot, const Void& gone, bool freeing) noexcept {
  P& platform = context_.platform;
  if (platform.load(slot.first.stamp) == 0) return false;
  const bool stays = outlives(slot, gone);
  bool wrote = false;
  const auto empty = [&](Entry& entry) {
    platform.store(entry.stamp, 0);
    platform.flush(&entry.stamp, 8, "pskiplist.rollback.entry"_site);
    wrote = true;
  };
  // From the first on: for_each_entry() would stop at what was emptied.
  Steps steps;
  for (std::uint64_t s = linked(slot.more, steps); s != 0; s = linked(segment_at(s).next, steps)) {
    const std::uint32_t capacity = capacity_of(s);
    for (std::uint32_t i = 0; i < capacity; ++i) {
      Entry& entry = entry_at(entry_offset(s, i));
      const std::uint64_t stamp = platform.load(entry.stamp);
      if (stamp == 0 || !gone.has(version_of(stamp))) continue;
      if (stays) empty(entry);
      if (!freeing) continue;
      retire_value(platform.load(entry.value), stamp, "pskiplist.rollback.retire"_site);
    }
  }
  if (stays) return wrote;
  const std::uint64_t first = platform.load(slot.first.stamp);
  empty(slot.first);
  if (freeing) {
    retire_value(platform.load(slot.first.value), first, "pskiplist.rollback.retire"_site);
  }
  return wrote;
}

// `to` counts only while it is not 0: it is stored after `from`, and cleared before it. Both are
// cleared, so that one flipped bit of `to` is a rollback that nobody has begun.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::set_rollback(std::uint64_t from, std::uint64_t to) noexcept {
  P& platform = context_.platform;
  if (to != 0) platform.store(root_->rollback_from, from);
  platform.store(root_->rollback_to, to);
  if (to == 0) platform.store(root_->rollback_from, 0);
  platform.flush(&root_->rollback_from, 16, "pskiplist.rollback.root"_site);
  return platform.fence("pskiplist.rollback.root"_site) ? Status() : StatusCode::poisoned;
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::may_roll_back(std::uint64_t version, std::uint64_t open) noexcept {
  if (Status s = readable(version); !s.ok()) return s;
  if (open >= kLastVersion) return Status::format(StatusCode::pool_full, "no version is left");
  LatchGuard pins(pin_latch_);
  for (const detail::VersionPin* pin = pins_; pin != nullptr; pin = pin->next) {
    if (pin->version <= version) continue;
    return Status::format(StatusCode::busy, "version %llu is pinned",
                          static_cast<unsigned long long>(pin->version));
  }
  return {};
}

// In guards, as every store: a seal waits for who is in one (pool.S1).
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::rollback(std::uint64_t version) {
  P& platform = context_.platform;
  LatchGuard trimming(trim_latch_);
  const std::uint64_t open = clock();
  {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, false); !s.ok()) return s;
    if (Status s = may_roll_back(version, open); !s.ok()) return s;
    // Later versions read as this one from now on, and none of them is written again.
    if (open > limit_.load(std::memory_order_acquire)) {
      if (Status s = extend_limit(open); !s.ok()) return s;
    }
    if (Status s = set_rollback(version, open); !s.ok()) return s;  // PP(rollback)
    PERDURE_ASSERT(P, "pskiplist.I7",
                   platform.persisted(&root_->rollback_from, 2 * sizeof(root_->rollback_to)));
    PERDURE_ASSERT(P, "pskiplist.I8", open <= limit_.load(std::memory_order_relaxed));
  }
  for (std::uint32_t number = 1; number <= chain_.numbers(); ++number) {
    EpochGuard<P> guard(context_.epochs);
    if (!guard.ok()) return StatusCode::out_of_memory;
    const std::uint64_t block = chain_.offset_of(number);
    for (std::uint32_t i = 0; block != 0 && i < Chain::kSlots; ++i) {
      const std::uint64_t slot = Chain::slot_in(block, i);
      if (!void_entries(slot_at(slot), {version, open}, true)) continue;
      if (!platform.fence("pskiplist.rollback.entry"_site)) return StatusCode::poisoned;
      roll_back_node(slot);
    }
  }
  clock_.store(open + 1, std::memory_order_seq_cst);
  EpochGuard<P> guard(context_.epochs);
  if (!guard.ok()) return StatusCode::out_of_memory;
  return set_rollback(0, 0);
}

// Makes the node what its history is now; without entries the key goes.
template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::roll_back_node(std::uint64_t offset) noexcept {
  const P& platform = context_.platform;
  const Slot& slot = slot_at(offset);
  Probe probe;
  if constexpr (Codec::kBytes) {
    probe = Codec::probe(
        {.bytes = RecordView::read(platform, records_.at(platform.load(slot.key))).key()});
  } else {
    probe = Codec::probe({.word = platform.load(slot.key)});
  }
  const std::uint32_t number = directory_.find(probe);
  if (number == 0) return;
  Node& node = nodes_[number];
  if (platform.load(slot.first.stamp) != 0) {
    place_end(node, slot);
    return;
  }
  retire_segments(platform.load(slot.more));
  if (Codec::kBytes && P::runs("pskiplist.rollback.retire_key"_site)) {
    context_.heap.retire(node.key);
  }
  const typename Chain::Place place{offset, node.block};
  bury(number, probe);
  chain_.release(place);
}

// Where the history ends, by looking at all of it.
template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::place_end(Node& node, const Slot& slot) noexcept {
  const P& platform = context_.platform;
  std::uint64_t last = 0;
  std::uint64_t stamp = 0;
  std::uint32_t entries = 0;
  for_each_entry(slot, [&](std::uint64_t offset, std::uint64_t its) {
    last = offset;
    stamp = its;
    ++entries;
    return true;
  });
  // The first segment that is not full is the tail, whatever empty ones follow.
  node.tail = 0;
  Steps steps;
  for (std::uint64_t s = linked(slot.more, steps); s != 0; s = linked(segment_at(s).next, steps)) {
    node.tail = s;
    const std::uint32_t capacity = capacity_of(s);
    if (capacity == 0 || platform.load(entry_at(entry_offset(s, capacity - 1)).stamp) == 0) break;
  }
  node.set_end({last, last != 0 ? platform.load(entry_at(last).value) : 0, stamp, entries});
}

}  // namespace perdure::pskiplist
