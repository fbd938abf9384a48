// MapState: the members of the multi-version map, and the helpers that all of its parts use. Among
// them are the histories: the entries of a key, from segment to segment, and their search.
// Responsible for the order of loads that two trims under one reader need (W15).
#pragma once

#include <cstdint>

#include "index/map_engine.h"
#include "index/pskiplist/directory.h"
#include "index/pskiplist/key_chain.h"
#include "index/pskiplist/key_node.h"
#include "index/pskiplist/layout.h"
#include "index/pskiplist/segment_reserve.h"
#include "index/records.h"
#include "index/traits.h"
#include "perdure/index.h"

namespace perdure::pskiplist {

template <class T>
class PSkipListMap;

inline constexpr std::uint64_t kLatest = ~std::uint64_t{0};  // in place of a version
// The highest limit. The clock may be one above it and must still be a version.
inline constexpr std::uint64_t kLastVersion = layout::kMaxVersion - 1;

// The blocks that a mutation brings to its node, durable and not linked yet, and the record that it
// replaces.
struct Fresh {
  std::uint64_t key = 0;       // record
  std::uint64_t value = 0;     // record
  std::uint64_t segment = 0;   // zero
  std::uint64_t replaced = 0;  // a record that nothing names any more
};

// The entry that counts for a reader, 0 if there is none. The key is present unless that entry is a
// removed one.
struct Found {
  std::uint64_t entry = 0;  // offset
  std::uint64_t word = 0;
  bool present = false;

  static Found of(const End& end) { return {end.entry, end.value, end.present()}; }
};

// The versions that a rollback takes away: (from, to].
struct Void {
  std::uint64_t from = 0, to = 0;
  bool has(std::uint64_t version) const { return version > from && version <= to; }
};

// The steps of a walk from segment to segment.
struct Steps {
  bool wary = false;              // links may be damaged, as they always may be in a read-only open
  std::uint32_t left = 1U << 20;  // then
};

template <class T>
class MapState : public MapEngine<T, layout::Root, PSkipListMap<T>, detail::VersionedIndex> {
 protected:
  using Base = MapEngine<T, layout::Root, PSkipListMap<T>, detail::VersionedIndex>;
  using Base::context_, Base::offset_of, Base::persist, Base::root_;
  using typename Base::P, typename Base::Codec;
  using Node = KeyNode<P>;
  using Chain = KeyChain<T>;
  static constexpr auto kRootCrc = "pskiplist.root.crc"_site;
  template <class V>
  using Atomic = typename P::template Atomic<V>;

  MapState(const EngineContext<P>& context, std::uint64_t root)
      : Base(context, root),
        directory_(context.platform, context.heap, nodes_, context.epochs),
        chain_(context.platform, context.heap),
        reserve_(context.heap) {}

  std::uint64_t load(const std::uint64_t& word) const { return context_.platform.load(word); }
  // For assertions: whether a power failure leaves these bytes.
  bool persisted(std::uint64_t offset, std::size_t bytes) const {
    return context_.platform.persisted(context_.heap.template at<void>(offset), bytes);
  }
  // Errors: poisoned.
  template <class Site>
  [[gnu::always_inline]] Status store_durably(std::uint64_t& word, std::uint64_t value, Site site) {
    context_.platform.store(word, value);
    return persist(&word, sizeof(word), site) ? Status() : StatusCode::poisoned;
  }
  Entry& entry_at(std::uint64_t offset) const { return *context_.heap.template at<Entry>(offset); }
  Slot& slot_at(std::uint64_t offset) const { return *context_.heap.template at<Slot>(offset); }
  Segment& segment_at(std::uint64_t offset) const {
    return *context_.heap.template at<Segment>(offset);
  }
  // Returns 0 if no block lies there.
  std::uint32_t capacity_of(std::uint64_t segment) const {
    const std::size_t bytes = context_.heap.block_bytes(segment);
    if (bytes < sizeof(Segment)) [[unlikely]]
      return 0;
    return static_cast<std::uint32_t>((bytes - sizeof(Segment)) / sizeof(Entry));
  }
  // Whether an entry with this stamp names a record.
  bool names_record(std::uint64_t stamp) const { return record_values_ && !is_removed(stamp); }
  Status check_record(std::uint64_t offset, bool deep) const {
    return records_.check(offset, deep, "pskiplist.record.crc"_site);
  }
  // Of an operation.
  [[gnu::cold, gnu::noinline]] Status damaged_record(std::uint64_t offset) const {
    return this->of_this_map(Records<P>::damaged(offset));
  }
  // Returns false if the word names no record whose lengths fit its block.
  [[gnu::always_inline]] bool value_of(std::uint64_t word, detail::Value& value) const {
    if (!record_values_) {
      value = {.word = word, .word_size = 8};
      return true;
    }
    return word % 16 == 0 && records_.read(word, value);
  }
  // The probe of the key that a slot names. If it is a record, it is sound.
  Probe probe_of(std::uint64_t key) const {
    if constexpr (Codec::kBytes) {
      return Codec::probe({.bytes = RecordView::read(context_.platform, records_.at(key)).key()});
    }
    return Codec::probe({.word = key});
  }
  std::uint64_t clock() const { return clock_.load(std::memory_order_seq_cst); }

  // --- histories ---

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
    return Status::format(StatusCode::corruption, "no segment of a history can lie at offset %lu",
                          segment);
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

  // --- members ---

  Records<P> records_{context_};
  bool record_values_ = false;
  NodeTable<P> nodes_;
  Directory<T> directory_;
  Chain chain_;
  SegmentReserve<T> reserve_;
  alignas(64) Atomic<std::uint64_t> clock_{1};
  // What is durable of it, also after a power failure if the pool makes cuts. Only recovery takes
  // over what may be in no cut yet; the clock begins above that.
  alignas(64) Atomic<std::uint64_t> limit_{0};
  Atomic<std::uint64_t> horizon_{1};
  typename P::Latch limit_latch_;  // of root_->limit, which is fenced, but perhaps in no cut yet
  typename P::Latch trim_latch_;   // one trim or rollback at a time
  typename P::Latch pin_latch_;    // of pins_, and of horizon_ where it rises
  detail::VersionPin* pins_ = nullptr;
  Void void_;  // the rollback that was cut short, as recovery finds it
};

}  // namespace perdure::pskiplist
