// State: the data of a map, and what every part of it uses: leaves, entries, records.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "index/engine.h"
#include "index/map_engine.h"
#include "index/ordered/inner.h"
#include "index/phast/codec.h"
#include "index/phast/layout.h"
#include "index/phast/leaf_table.h"
#include "index/phast/zero_latch.h"
#include "index/records.h"

namespace perdure::phast {

template <class T>
class PhastMap;

template <class T>
class State : public MapEngine<T, layout::Root, PhastMap<T>, detail::OrderedIndex> {
  using Base = MapEngine<T, layout::Root, PhastMap<T>, detail::OrderedIndex>;

 public:
  using typename Base::P, typename Base::Codec;
  using G = typename T::Geometry;
  using Leaf = layout::Leaf<G>;
  using Entry = layout::Entry;
  using Desc = Descriptor<T>;
  static constexpr bool kBytes = Codec::kBytes;
  static constexpr std::uint32_t kEntries = G::kLeafEntries;

  State(const EngineContext<P>& context, std::uint64_t root)
      : Base(context, root), inner_(table_, context_.epochs) {}

 protected:
  using Inner = ordered::InnerIndex<P, LeafTable<T>, G::kInnerLeaves, G::kStart>;
  using Located = typename Inner::Found;
  using Base::context_, Base::root_;
  static constexpr std::uint64_t kSlots = Desc::kSlots;

  // --- leaves ---
  static std::uint32_t place_of(std::uint64_t offset) {
    return static_cast<std::uint32_t>(offset / sizeof(Leaf));
  }
  static std::uint64_t leaf_offset(const Desc& desc) {
    return std::uint64_t{desc.leaf.load(std::memory_order_relaxed)} * sizeof(Leaf);
  }
  Leaf& leaf_of(const Desc& desc) const {
    return *context_.heap.template at<Leaf>(leaf_offset(desc));
  }
  // The place of a leaf, for prefetches only.
  [[gnu::always_inline]] const Leaf* leaf_at(std::uint32_t number) const {
    return context_.heap.template at<Leaf>(std::uint64_t{table_.place(number)} * sizeof(Leaf));
  }
  // Prefetches the line in which the key's entry lies if there was room. The descriptor's miss
  // overlaps with it.
  [[gnu::always_inline]] void prefetch_home(std::uint32_t number, const Probe& probe) const {
    __builtin_prefetch(&leaf_at(number)->entries[home_of<G>(probe.fingerprint) * kLineEntries]);
  }
  // Prefetches all that a scan reads of a leaf. The number gives every place, so no miss waits for
  // another one.
  [[gnu::always_inline]] void prefetch_leaf(std::uint32_t number) const {
    __builtin_prefetch(&table_[number]);
    __builtin_prefetch(&table_[number].search);
    table_.prefetch_order(number);
    const auto* bytes = reinterpret_cast<const char*>(leaf_at(number));
    for (std::size_t line = kLine; line < sizeof(Leaf); line += kLine) {
      __builtin_prefetch(bytes + line);
    }
  }
  template <class F>
  void for_each_leaf(std::uint32_t partition, F&& visit) const {
    for (std::uint32_t n = inner_.first_leaf(partition); n != kNoLeaf;
         n = table_[n].next.load(std::memory_order_acquire)) {
      visit(n);
    }
  }
  template <class F>
  void for_each_leaf(F&& visit) const {
    for (std::uint32_t p = 0; p < inner_.partitioning().count(); ++p) for_each_leaf(p, visit);
  }
  // Returns the latch stripe of a key.
  static unsigned stripe_of(const Probe& probe) {
    return probe.fingerprint % P::ByteLatches::kCount;
  }

  // --- records and entries ---
  bool records() const { return kBytes || record_values_; }
  const RecordPrefix* record_at(std::uint64_t word) const {
    return records_.at(word & kOffsetMask);
  }
  [[gnu::always_inline]] void prefetch_record(std::uint64_t word) const {
    __builtin_prefetch(record_at(word));
    __builtin_prefetch(reinterpret_cast<const char*>(record_at(word)) + kLine);
  }
  // Prefetches a value of bytes, up to some lines.
  [[gnu::always_inline]] static void prefetch_rest(const detail::Value& value) {
    const std::size_t bytes = std::min<std::size_t>(value.bytes.size(), 8 * kLine);
    for (std::size_t at = kLine; at < bytes; at += kLine)
      __builtin_prefetch(value.bytes.data() + at);
  }
  Status check_record(std::uint64_t word, bool deep) const {
    return records_.check(word & kOffsetMask, deep, "phast.record.crc"_site);
  }
  // Of an operation.
  [[gnu::cold, gnu::noinline]] Status damaged_record(std::uint64_t word) const {
    return this->of_this_map(Records<P>::damaged(word & kOffsetMask));
  }
  // Returns false if the word names no record whose lengths fit its block.
  [[gnu::always_inline]] bool value_of(std::uint64_t word, detail::Value& value) const {
    if (!records()) {
      value = {.word = word, .word_size = 8};
      return true;
    }
    return records_.read(word & kOffsetMask, value);
  }
  // Returns the key of the record that a commit word names; empty if it would end outside the file.
  [[gnu::noinline]] std::string_view key_of(std::uint64_t word) const {
    const std::uint64_t offset = word & kOffsetMask;
    if (!context_.heap.contains(offset, sizeof(RecordPrefix))) return {};
    const std::string_view key = RecordView::read(context_.platform, record_at(word)).key();
    const bool inside = context_.heap.contains(offset, sizeof(RecordPrefix) + key.size());
    return inside ? key : std::string_view();
  }
  Probe probe_of(const Entry& entry) const {
    if constexpr (kBytes) {
      const std::uint64_t word = context_.platform.load(entry.value);
      return {.word = context_.platform.load(entry.key),
              .bytes = key_of(word),
              .fingerprint = static_cast<std::uint8_t>(word >> 56)};
    } else {
      return Codec::probe({.word = context_.platform.load(entry.key)});
    }
  }

  Records<P> records_{context_};
  bool record_values_ = false;  // integer keys with values of any size
  bool word_records_ = false;   // byte-string keys with word values
  LeafTable<T> table_;
  Inner inner_;
  ZeroLatch<P> zero_latch_;
  struct alignas(kOwnLine) Counts {
    typename P::template Atomic<std::uint64_t> splits{0};
    typename P::template Atomic<std::uint64_t> unlinks{0};
  };
  Counts counts_;
};

}  // namespace perdure::phast
