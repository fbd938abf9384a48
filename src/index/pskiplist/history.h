// History: the entries of a key, from segment to segment, and their search. Responsible for the
// order of loads that two trims under one reader need (W15).
#pragma once

#include <cstdint>

#include "index/pskiplist/state.h"

namespace perdure::pskiplist {

// The steps of a walk from segment to segment.
struct Steps {
  bool wary = false;              // links may be damaged, as they always may be in a read-only open
  std::uint32_t left = 1U << 20;  // then
};

template <class T>
class History : public MapState<T> {
 protected:
  using Base = MapState<T>;
  using Base::Base;
  using Base::capacity_of, Base::context_, Base::entry_at, Base::load, Base::offset_of;
  using Base::segment_at, Base::slot_at;
  using typename Base::Node;
  using typename Base::P;

  // Blocks of another kind belong to another engine, or are records.
  [[gnu::noinline]] bool is_segment(std::uint64_t offset) const {
    const Heap<P>& heap = context_.heap;
    return offset % 16 == 0 && heap.is_block(offset) && !heap.is_plain(offset) &&
           heap.block_bytes(offset) >= sizeof(Segment) + sizeof(Entry) &&
           heap.contains(offset, heap.block_bytes(offset));
  }
  // Returns the segment that the link names, or 0. A read-only open of a pool in use may find links
  // to anywhere, and circles, because its owner stores meanwhile. So may a check of a damaged map.
  // The history ends there.
  [[gnu::always_inline]] std::uint64_t linked(const std::uint64_t& link, Steps& steps) const {
    const std::uint64_t segment = load(link);
    if (!context_.read_only && !steps.wary) [[likely]]
      return segment;
    return segment != 0 && steps.left-- != 0 && is_segment(segment) ? segment : 0;
  }
  // Sets `segment` to the one that the link names, or 0. Errors: corruption. It loads the link
  // once, and checks it before a caller follows it: a read-only open may find another link at any
  // time, because the owner stores.
  [[gnu::noinline]] Status follow(const std::uint64_t& link, Steps& steps,
                                  std::uint64_t& segment) const {
    segment = load(link);
    if (segment == 0 || (steps.left-- != 0 && is_segment(segment))) return {};
    return Status::format(StatusCode::corruption, "no segment of a history can lie at offset %llu",
                          static_cast<unsigned long long>(segment));
  }

  // Calls visit(segment) for every segment of the history until it returns false.
  template <class F>
  [[gnu::always_inline]] void for_each_segment(const Slot& slot, F&& visit,
                                               Steps steps = {}) const {
    for (auto s = linked(slot.more, steps); s != 0; s = linked(segment_at(s).next, steps)) {
      if (!visit(s)) return;
    }
  }
  // Calls visit(offset, stamp) for every entry of the history that counts, until it returns false.
  // search() says why `more` is loaded first.
  template <class F>
  void for_each_entry(const Slot& slot, F&& visit, Steps steps = {}) const {
    std::uint64_t s = linked(slot.more, steps);
    const std::uint64_t first = load(slot.first.stamp);
    if (first == 0) return;
    if (first != layout::kDropped && !visit(offset_of(&slot.first), first)) return;
    for (; s != 0; s = linked(segment_at(s).next, steps)) {
      const std::uint32_t capacity = capacity_of(s);
      for (std::uint32_t i = 0; i < capacity; ++i) {
        const std::uint64_t entry = entry_offset(s, i);
        const std::uint64_t stamp = load(entry_at(entry).stamp);
        if (stamp == 0 || !visit(entry, stamp)) return;
      }
    }
  }

  // Returns the entry that counts at the version: among `most` entries, as far as the caller knows,
  // and those that have come since. `more` is loaded before the first entry (W15). Two trims may
  // drop the first entry and then removed ones; a reader between them still finds the removed ones.
  [[gnu::noinline]] Found search(std::uint64_t offset, std::uint64_t version,
                                 std::uint32_t most) const {
    const auto counts = [&](std::uint64_t stamp) {
      return stamp != 0 && version_of(stamp) <= version;
    };
    const auto found = [&](std::uint64_t entry, std::uint64_t stamp) -> Found {
      if (entry == 0) return {};
      return {entry, load(entry_at(entry).value), !is_removed(stamp)};
    };
    const Slot& slot = slot_at(offset);
    Steps steps;
    std::uint64_t next = linked(slot.more, steps);
    std::uint64_t stamp = load(slot.first.stamp);
    if (!counts(stamp)) return {};
    std::uint64_t entry = stamp == layout::kDropped ? 0 : offset + offsetof(Slot, first);
    if (most == 1 && entry != 0) return found(entry, stamp);
    // The version lies in the last segment whose first entry counts.
    std::uint64_t segment = 0;
    while (next != 0 && counts(load(entry_at(entry_offset(next, 0)).stamp))) {
      segment = next;
      next = linked(segment_at(segment).next, steps);
    }
    if (segment == 0) return found(entry, stamp);
    std::uint32_t low = 0;
    std::uint32_t high = capacity_of(segment);
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      if (counts(load(entry_at(entry_offset(segment, middle)).stamp))) {
        low = middle;
      } else {
        high = middle;
      }
    }
    entry = entry_offset(segment, low);
    stamp = load(entry_at(entry).stamp);
    return found(entry, stamp);
  }

  // Sets the node's copy of the last entry, and its tail, from the whole history.
  [[gnu::noinline]] void place_end(Node& node, const Slot& slot) {
    End end;
    for_each_entry(slot, [&](std::uint64_t offset, std::uint64_t stamp) {
      end = {offset, 0, stamp, end.entries + 1};
      return true;
    });
    // The tail is the first segment that is not full, even if empty ones follow.
    node.tail = 0;
    for_each_segment(slot, [&](std::uint64_t s) {
      node.tail = s;
      const std::uint32_t capacity = capacity_of(s);
      return capacity != 0 && load(entry_at(entry_offset(s, capacity - 1)).stamp) != 0;
    });
    if (end.entry != 0) end.value = load(entry_at(end.entry).value);
    node.set_end(end);
  }
};

}  // namespace perdure::pskiplist
