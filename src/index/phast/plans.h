// Plans: what the mutations of a batch will allocate (pool/batch.h). A split needs nothing but
// blocks, so no leaf is split ahead.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

#include "index/phast/many.h"

namespace perdure::phast {

template <class T>
class Plans : public Many<T> {
  using Base = Many<T>;

 protected:
  using Base::begin_read, Base::context_, Base::enter, Base::inner_, Base::key_of, Base::kEntries,
      Base::leaf_of, Base::records, Base::table_;
  using typename Base::Codec, typename Base::Desc, typename Base::Leaf, typename Base::P;

 public:
  using Base::Base, Base::kBytes;

  Status plan_batch(const BatchPlan& plan) override {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return s;
    Inserts group;
    for (std::size_t i = 0; i < plan.mutations.size(); ++i) {
      const detail::Mutation& mutation = plan.mutations[i];
      if (mutation.kind == MutationKind::erase) continue;
      const Probe probe = Codec::probe(mutation.key);
      if (records() && !plan.needs.add(RecordView::bytes_needed(probe.bytes, mutation.value),
                                       BlockKind::plain)) {
        return StatusCode::out_of_memory;
      }
      if (plan.present[i] || (!kBytes && probe.word == 0)) continue;
      const std::uint32_t leaf = enter(probe, inner_.locate(probe)).number;
      if (leaf != group.leaf) {
        if (Status s = add_splits(group, plan.needs); !s.ok()) return s;
        group = {.leaf = leaf};
      }
      ++group.count;
      if (probe.bytes.size() > group.longest.size()) group.longest = probe.bytes;
    }
    return add_splits(group, plan.needs);
  }

 private:
  // The inserts of one leaf.
  struct Inserts {
    std::uint32_t leaf = kNoLeaf;
    std::uint64_t count = 0;
    std::string_view longest = {};  // key
  };

  // A leaf without a free slot is split once at its middle and, if its last key is followed by new
  // ones, once behind it. Either leaves a leaf with half its slots free: so many inserts later it
  // may be split again. Errors: corruption, of what a split reads; out_of_memory.
  Status add_splits(const Inserts& inserts, BlockNeeds& needs) const {
    if (inserts.count == 0) return {};
    const Desc& desc = table_[inserts.leaf];
    const auto visible = static_cast<std::uint64_t>(__builtin_popcountll(desc.visible()));
    if (visible + inserts.count <= kEntries) return {};
    const std::uint64_t splits = 2 + 4 * inserts.count / kEntries;
    bool added = needs.add(sizeof(Leaf), kStructureKind, splits, true);
    if constexpr (kBytes) {  // each with a record of its separator, the key of an entry
      std::string_view longest = inserts.longest;
      if (Status s = check_keys(desc, longest); !s.ok()) return s;
      // Of a power of two any smaller record can be made, whatever the alignment of its class.
      const std::size_t bytes = std::bit_ceil(RecordView::bytes_needed(longest, {}));
      for (std::uint64_t n = 0; n < splits; ++n) {
        added = added && needs.add(bytes, kStructureKind, 1, true);
      }
    }
    return added ? Status() : StatusCode::out_of_memory;
  }
  // Finds what a split would refuse. `longest`: gets the longest key.
  Status check_keys(const Desc& desc, std::string_view& longest) const
    requires(kBytes)
  {
    for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
      const auto& entry = leaf_of(desc).entries[__builtin_ctzll(v)];
      const std::uint64_t word = context_.platform.load(entry.value);
      detail::Value ignored;
      if (!this->value_of(word, ignored) || !this->check_record(word, true).ok()) {
        return this->damaged_record(word);
      }
      const std::string_view key = key_of(word);
      if (head_word(key) != context_.platform.load(entry.key)) return this->damaged_record(word);
      if (key.size() > longest.size()) longest = key;
    }
    return {};
  }
};

}  // namespace perdure::phast
