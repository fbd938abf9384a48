// Trim: drops the entries that no readable version needs, and takes away by a rollback what was
// written after a version. Responsible for pskiplist.I6 and pskiplist.I7, and for the order of a
// trim's stores (W12).
#pragma once

#include <algorithm>
#include <cstdint>

#include "index/pskiplist/write.h"

namespace perdure::pskiplist {

template <class T>
class Trim : public Write<T> {
 protected:
  using Base = Write<T>;
  using Base::Base;
  using Base::begin_mutation, Base::capacity_of, Base::chain_, Base::check_record, Base::clock;
  using Base::clock_, Base::context_, Base::count_, Base::directory_, Base::entry_at;
  using Base::extend_limit, Base::for_each_entry, Base::for_each_segment, Base::free_slot;
  using Base::give_back, Base::hold, Base::horizon_, Base::let_go, Base::limit_, Base::load;
  using Base::nodes_, Base::persist, Base::persisted, Base::pin_latch_, Base::pins_;
  using Base::place_end, Base::probe_of, Base::readable, Base::reserve_, Base::retire_segments;
  using Base::retire_value, Base::root_, Base::segment_at, Base::slot_at, Base::store_durably;
  using Base::trim_latch_;
  using typename Base::Chain, typename Base::Codec, typename Base::Node, typename Base::P;

  // --- trim ---

  struct Progress {
    std::uint64_t horizon = 0;
    bool short_of_room = false;  // some keys have kept entries that could go
  };
  // Of the entries up to the horizon the last one stays. If it is a removed one, it stays only
  // while the first is there, which would be read without it. `gone`: the key has left the map.
  [[gnu::noinline]] Status trim_key(std::uint32_t number, const Probe& probe, Progress& progress,
                                    bool& gone) {
    P& platform = context_.platform;
    if (platform.poisoned()) return platform.failure();
    PERDURE_ASSERT(P, "pskiplist.I6", progress.horizon <= horizon_.load(std::memory_order_relaxed));
    Node& node = nodes_[number];
    PERDURE_ASSERT(P, "pskiplist.N2", node.load().phase() == Phase::held);
    Slot& slot = slot_at(node.slot.load(std::memory_order_relaxed));
    std::uint32_t drop = 0;
    bool removed = false;
    for_each_entry(slot, [&](std::uint64_t, std::uint64_t stamp) {
      if (version_of(stamp) > progress.horizon) return false;
      removed = is_removed(stamp);
      ++drop;
      return true;
    });
    if (removed && drop == node.end().entries) {
      Status s = give_back(number, probe);
      gone = s.ok();
      return s;
    }
    const std::uint64_t first = load(slot.first.stamp);
    const bool has_first = first != layout::kDropped;
    if (drop != 0 && (!removed || has_first)) --drop;
    if (drop == 0) return {};
    if (has_first) --drop;
    // pskiplist.I9, W12: the segment with what stays, then its link, then the first entry.
    const std::uint64_t before = load(slot.more);
    if (drop != 0) {
      Status s = keep_entries(node, slot, drop);
      if (s == StatusCode::pool_full) {
        progress.short_of_room = true;
        s = skip_segments(slot, drop);
      }
      if (!s.ok()) return s;
    }
    if (has_first) {
      Status s = store_durably(slot.first.stamp, layout::kDropped, "pskiplist.trim.first"_site);
      if (!s.ok()) return s;
      node.entries.store(node.end().entries - 1, std::memory_order_release);
      retire_value(load(slot.first.value), first, "pskiplist.trim.retire"_site);
    }
    // After the fences.
    retire_dropped(before, load(slot.more), drop);
    node.entries.store(node.end().entries - drop, std::memory_order_release);
    return {};
  }

  // --- rollback ---

  // Whether an entry stays. The entries that do not stay are the last.
  [[gnu::noinline]] bool outlives(const Slot& slot, const Void& gone) const {
    bool stays = false;
    for_each_entry(slot, [&](std::uint64_t, std::uint64_t stamp) {
      stays = !gone.has(version_of(stamp));
      return false;
    });
    return stays;
  }
  // Empties the entries of those versions. A key without entries loses its slot, and its segments
  // belong to no key. Returns true if the caller has to fence. With `freeing`, it retires what the
  // entries name, and the caller has to fence before it leaves its guard.
  [[gnu::noinline]] bool void_entries(Slot& slot, const Void& gone, bool freeing) {
    if (load(slot.first.stamp) == 0) return false;
    const bool stays = outlives(slot, gone);
    bool wrote = false;
    const auto empty = [&](Entry& entry) {
      context_.platform.store(entry.stamp, 0);
      context_.platform.flush(&entry.stamp, 8, "pskiplist.rollback.entry"_site);
      wrote = true;
    };
    // All entries, from the first on: for_each_entry() would stop at an emptied one.
    for_each_segment(slot, [&](std::uint64_t s) {
      const std::uint32_t capacity = capacity_of(s);
      for (std::uint32_t i = 0; i < capacity; ++i) {
        Entry& entry = entry_at(entry_offset(s, i));
        const std::uint64_t stamp = load(entry.stamp);
        if (stamp == 0 || !gone.has(version_of(stamp))) continue;
        if (stays) empty(entry);
        if (freeing) retire_value(load(entry.value), stamp, "pskiplist.rollback.retire"_site);
      }
      return true;
    });
    if (stays) return wrote;
    const std::uint64_t first = load(slot.first.stamp);
    empty(slot.first);
    if (freeing) retire_value(load(slot.first.value), first, "pskiplist.rollback.retire"_site);
    return wrote;
  }
  // `to` counts only while it is not 0: it is stored after `from`, and cleared before it. Both are
  // cleared. Otherwise one flipped bit of `to` would be a rollback that no caller has begun.
  [[gnu::noinline]] Status set_rollback(std::uint64_t from, std::uint64_t to) {
    P& platform = context_.platform;
    if (to != 0) platform.store(root_->rollback_from, from);
    platform.store(root_->rollback_to, to);
    if (to == 0) platform.store(root_->rollback_from, 0);
    const bool durable = persist(&root_->rollback_from, 16, "pskiplist.rollback.root"_site);
    return durable ? Status() : StatusCode::poisoned;
  }

 private:
  // --- trim ---

  // The slot may be given to another key until its node is held.
  [[gnu::noinline]] Status trim_slot(std::uint64_t offset, Progress& progress) {
    const Slot& slot = slot_at(offset);
    const std::uint64_t stamp = load(slot.first.stamp);
    // Most keys have one entry, and it is not a removed one.
    if (stamp == 0 || (load(slot.more) == 0 && !is_removed(stamp))) return {};
    const std::uint64_t key = load(slot.key);
    // Skips a damaged name: give_back() would leave the hint under the right one.
    if (Codec::kBytes && !check_record(key, true).ok()) return {};
    const Probe probe = probe_of(key);
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
    Status s = trim_key(number, probe, progress, gone);
    if (!gone) let_go(node, held, true);
    return s;
  }
  // Retires the records of `drop` entries from the segment `first` on, and the segments up to
  // `end`, if that is one of them.
  [[gnu::noinline]] void retire_dropped(std::uint64_t first, std::uint64_t end,
                                        std::uint32_t drop) {
    for (std::uint64_t s = first; drop != 0; s = load(segment_at(s).next)) {
      for (std::uint32_t i = 0; i < capacity_of(s) && drop != 0; ++i, --drop) {
        const Entry& entry = entry_at(entry_offset(s, i));
        retire_value(load(entry.value), load(entry.stamp), "pskiplist.trim.retire"_site);
      }
    }
    retire_segments(first, end);
  }
  [[gnu::noinline]] Status relink(Slot& slot, std::uint64_t segment) {
    return store_durably(slot.more, segment, "pskiplist.trim.link"_site);
  }
  // Copies the entries of the segments, without the first `drop`, to one segment, which takes the
  // place of all.
  [[gnu::noinline]] Status keep_entries(Node& node, Slot& slot, std::uint32_t drop) {
    P& platform = context_.platform;
    if (load(slot.first.stamp) != layout::kDropped) ++drop;  // it is not copied either
    const std::uint32_t kept = node.end().entries - drop;
    const std::size_t bytes = entry_offset(0, kept);
    auto block = context_.heap.allocate(bytes, BlockKind::zero_on_free);
    if (!block) return std::move(block.error());
    std::uint32_t seen = 0;
    std::uint32_t copied = 0;
    for_each_entry(slot, [&](std::uint64_t offset, std::uint64_t stamp) {
      if (seen++ < drop) return true;
      Entry& copy = entry_at(entry_offset(*block, copied++));
      platform.store(copy.value, load(entry_at(offset).value));
      platform.store(copy.stamp, stamp);
      return true;
    });
    if (!persist(&segment_at(*block), bytes, "pskiplist.trim.segment"_site)) {
      return StatusCode::poisoned;
    }
    PERDURE_ASSERT(P, "pskiplist.I9", copied == kept && persisted(*block, bytes));
    if (Status s = relink(slot, *block); !s.ok()) return s;
    PERDURE_ASSERT(P, "pskiplist.N3", platform.persisted(&slot.more, sizeof(slot.more)));
    node.last.store(entry_offset(*block, kept - 1), std::memory_order_release);
    node.tail = *block;
    return {};
  }
  // Without room for a copy: drops whole segments, with at most `drop` entries. An entry that stays
  // lies behind them, so the dropped segments are full, and not the last.
  [[gnu::noinline]] Status skip_segments(Slot& slot, std::uint32_t& drop) {
    std::uint64_t segment = load(slot.more);
    std::uint32_t whole = 0;
    for (std::uint32_t n = capacity_of(segment); whole + n <= drop; n = capacity_of(segment)) {
      whole += n;
      segment = load(segment_at(segment).next);
    }
    drop = whole;
    return whole != 0 ? relink(slot, segment) : Status();
  }
  // `horizon`: gets the first version that remains.
  [[gnu::noinline]] Status raise_horizon(std::uint64_t version, std::uint64_t& horizon) {
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, false); !s.ok()) return s;
    LatchGuard pins(pin_latch_);
    if (version > clock()) {
      return Status::format(StatusCode::invalid_argument,
                            "version %lu does not exist yet; versions that exist: %lu to %lu",
                            version, horizon_.load(std::memory_order_relaxed), clock());
    }
    horizon = version;
    for (const detail::VersionPin* pin = pins_; pin != nullptr; pin = pin->next) {
      horizon = std::min(horizon, pin->version);
    }
    // pskiplist.I6: durable before a reader is refused, and known before the first entry goes.
    horizon = std::max(horizon, horizon_.load(std::memory_order_relaxed));
    Status s = store_durably(root_->horizon, horizon, "pskiplist.trim.horizon"_site);
    if (!s.ok()) return s;
    PERDURE_ASSERT(P, "pskiplist.I6",
                   context_.platform.persisted(&root_->horizon, sizeof(root_->horizon)));
    horizon_.store(horizon, std::memory_order_seq_cst);
    return {};
  }
  [[gnu::noinline]] Status trim_block(std::uint32_t number, Progress& progress) {
    MutationGuard<P> guard(context_.epochs);
    if (!guard.ok()) return StatusCode::out_of_memory;
    if (!guard.pass_gate()) return Base::not_passed();
    const std::uint64_t block = chain_.offset_of(number);
    for (std::uint32_t i = 0; block != 0 && i < Chain::kSlots; ++i) {
      if (Status s = trim_slot(Chain::slot_in(block, i), progress); !s.ok()) return s;
    }
    return {};
  }

  // --- rollback ---

  Status may_roll_back(std::uint64_t version, std::uint64_t open) {
    if (Status s = readable(version); !s.ok()) return s;
    if (open >= kLastVersion) return Status::format(StatusCode::pool_full, "no version is left");
    LatchGuard pins(pin_latch_);
    for (const detail::VersionPin* pin = pins_; pin != nullptr; pin = pin->next) {
      if (pin->version <= version) continue;
      return Status::format(StatusCode::busy, "version %lu is pinned", pin->version);
    }
    return {};
  }
  // All stores are made in guards: a seal waits for threads that are in one (pool.S1).
  // `begun` stays false if the limit has to reach `open` before.
  [[gnu::noinline]] Status begin_rollback(std::uint64_t version, std::uint64_t open, bool& begun) {
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, false); !s.ok()) return s;
    if (Status s = may_roll_back(version, open); !s.ok()) return s;
    // Later versions read as this one from now on, and none of them is written again.
    if (open > limit_.load(std::memory_order_acquire)) return {};
    if (Status s = set_rollback(version, open); !s.ok()) return s;  // PP(rollback)
    PERDURE_ASSERT(
        P, "pskiplist.I7",
        context_.platform.persisted(&root_->rollback_from, 2 * sizeof(root_->rollback_to)));
    PERDURE_ASSERT(P, "pskiplist.I8", open <= limit_.load(std::memory_order_relaxed));
    begun = true;
    return {};
  }
  // Makes the node agree with its history. A key without entries leaves the map.
  [[gnu::noinline]] void roll_back_node(std::uint64_t offset) {
    const Slot& slot = slot_at(offset);
    const Probe probe = probe_of(load(slot.key));
    const std::uint32_t number = directory_.find(probe);
    if (number == 0) return;
    if (load(slot.first.stamp) != 0) {
      place_end(nodes_[number], slot);
    } else {
      free_slot(offset, number, probe, "pskiplist.rollback.retire_key"_site);
    }
  }

  // Before the latch: a thread in a callback must not wait for one that waits for its read_batch().
  Status may_change() noexcept {
    MutationGuard<P> guard(context_.epochs);
    return begin_mutation(guard, false);
  }

 public:
  // Block after block of the chain, with a guard for each. So freed memory can be used meanwhile,
  // also for the copies that trim itself makes.
  Expected<std::uint64_t> trim(std::uint64_t version) override {
    if (Status s = may_change(); !s.ok()) return fail(std::move(s));
    LatchGuard trimming(trim_latch_);
    std::uint64_t horizon = version;
    Status s = raise_horizon(version, horizon);
    if (!s.ok()) return fail(std::move(s));
    for (std::uint32_t number = 1; number <= chain_.numbers(); ++number) {
      Progress progress{.horizon = horizon};
      s = trim_block(number, progress);
      if (!s.ok()) return fail(std::move(s));
      if (!progress.short_of_room) continue;
      context_.epochs.drain_all();
      context_.heap.reclaim();
    }
    reserve_.room();
    {
      MutationGuard<P> guard(context_.epochs);
      if (guard.ok() && guard.pass_gate()) chain_.give_back_all();
    }
    // Slots in lost pages were skipped.
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    return horizon;
  }
  Status rollback(std::uint64_t version) override {
    if (Status s = may_change(); !s.ok()) return s;
    LatchGuard trimming(trim_latch_);
    count_.forget();
    const std::uint64_t open = clock();
    for (bool begun = false; !begun;) {
      Status s = begin_rollback(version, open, begun);
      if (s.ok() && !begun) s = extend_limit(open);
      if (!s.ok()) return s;
    }
    for (std::uint32_t number = 1; number <= chain_.numbers(); ++number) {
      EpochGuard<P> guard(context_.epochs);
      if (!guard.ok()) return StatusCode::out_of_memory;
      const std::uint64_t block = chain_.offset_of(number);
      for (std::uint32_t i = 0; block != 0 && i < Chain::kSlots; ++i) {
        const std::uint64_t slot = Chain::slot_in(block, i);
        if (!void_entries(slot_at(slot), {version, open}, true)) continue;
        if (!context_.platform.fence("pskiplist.rollback.entry"_site)) return StatusCode::poisoned;
        roll_back_node(slot);
      }
    }
    clock_.store(open + 1, std::memory_order_seq_cst);
    EpochGuard<P> guard(context_.epochs);
    if (!guard.ok()) return StatusCode::out_of_memory;
    chain_.give_back_all();
    return set_rollback(0, 0);
  }
};

}  // namespace perdure::pskiplist
