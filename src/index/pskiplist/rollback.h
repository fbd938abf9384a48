// Rollback: takes away what was written after a version. Responsible for pskiplist.I7.
#pragma once

#include <cstdint>

#include "index/pskiplist/trim.h"

namespace perdure::pskiplist {

template <class T>
class Rollback : public Trim<T> {
 protected:
  using Base = Trim<T>;
  using Base::Base;
  using Base::begin_mutation, Base::capacity_of, Base::clock, Base::directory_, Base::entry_at;
  using Base::chain_, Base::clock_, Base::context_, Base::limit_, Base::load, Base::persist;
  using Base::extend_limit, Base::for_each_entry, Base::for_each_segment, Base::free_slot;
  using Base::nodes_, Base::pin_latch_, Base::pins_, Base::place_end, Base::probe_of;
  using Base::readable, Base::retire_value, Base::trim_latch_;
  using Base::root_, Base::slot_at;
  using typename Base::Chain, typename Base::P;

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
  Status may_roll_back(std::uint64_t version, std::uint64_t open) {
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

 public:
  Status rollback(std::uint64_t version) override {
    LatchGuard trimming(trim_latch_);
    this->count_.forget();
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
