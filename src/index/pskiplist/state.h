// MapState: the members of the multi-version map, and the helpers that all of its parts use.
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

template <class T>
class MapState : public MapEngine<T, layout::Root, PSkipListMap<T>, detail::VersionedIndex> {
 protected:
  using Base = MapEngine<T, layout::Root, PSkipListMap<T>, detail::VersionedIndex>;
  using Base::context_, Base::persist, Base::root_;
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
  // Snapshots and iterators may outlive the pool. Then they find that they hold nothing.
  ~MapState() override {
    for (detail::VersionPin* pin = pins_; pin != nullptr; pin = pin->next) pin->pinned = false;
  }

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
