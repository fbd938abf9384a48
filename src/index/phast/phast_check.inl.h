// Phast: invariants, audit and statistics. Included by phast.h only. No mutation is in flight.
#pragma once

#include "index/engine_report.h"
#include "index/phast/phast.h"

namespace perdure::phast {

// Names every block the map can reach.
template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::enumerate(Status (Heap<P>::*mark)(std::uint64_t) noexcept) noexcept {
  Status s;
  const auto reach = [&](std::uint64_t offset) {
    if (s.ok()) s = (context_.heap.*mark)(offset);
  };
  if (!Codec::kBytes && record_values_ && context_.platform.load(root_->zero_present) != 0) {
    reach(context_.platform.load(root_->zero_value));
  }
  for_each_leaf([&](std::uint32_t number) {
    const Desc& desc = table_[number];
    const Leaf& leaf = leaf_of(desc);
    const std::uint64_t bound = context_.platform.load(leaf.bound);
    if (Codec::kBytes && bound != 0) reach(bound);
    if (records()) {
      for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
        reach(context_.platform.load(leaf.entries[__builtin_ctzll(v)].value) & kOffsetMask);
      }
    }
    reach(leaf_offset(desc));  // after what it names: freeing it gives its memory away
  });
  reach(root_offset_);
  return s;
}

// A leaf against its descriptor; no key is looked at.
template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::check_leaf(std::uint32_t number, Findings& report) {
  const P& platform = context_.platform;
  const Desc& desc = table_[number];
  const Leaf& leaf = leaf_of(desc);
  const std::uint64_t visible = desc.visible();
  const auto bad = [&](const char* id, const char* what) {
    add_violation(report, id, "phast block", leaf_offset(desc), what);
  };
  ++report.objects;
  report.entries += static_cast<std::uint64_t>(__builtin_popcountll(visible));
  report.bytes += sizeof(Leaf);
  if ((desc.version.load(std::memory_order_acquire) & 1) != 0)
    bad("phast.D4", "is linked but dead");
  if (desc.search.stripes.load() != 0) bad("phast.D2", "is latched");
  const std::uint32_t next = desc.next.load(std::memory_order_acquire);
  if (platform.load(leaf.next) != (next == kNoLeaf ? 0 : leaf_offset(table_[next]))) {
    bad("phast.I1", "next differs from its descriptor's");
  }
  const std::uint64_t bound = platform.load(leaf.bound);
  if constexpr (Codec::kBytes) {
    const Separator<P>* s = desc.separators.bound.load(std::memory_order_acquire);
    if (bound != (s == nullptr ? 0 : s->record))
      bad("phast.I1", "bound differs from its descriptor's");
    if (bound != 0) {
      ++report.objects;
      if (s == nullptr || !check_record(bound, true).ok() ||
          RecordView::read(platform, record_at(bound)).key() != s->view()) {
        add_violation(report, "phast block", leaf_offset(desc), "has a damaged bound");
      }
    }
  } else if (bound != desc.bound.load(std::memory_order_acquire)) {
    bad("phast.I1", "bound differs from its descriptor's");
  }
  for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
    const bool empty = platform.load(Codec::commit(const_cast<Entry&>(leaf.entries[slot]))) == 0;
    const bool shown = (visible >> slot & 1) != 0;
    if (empty && shown) bad("phast.D1", "shows an empty slot");
    if (Codec::kBytes && !empty && !shown) bad("phast.I2", "hides an entry");
  }
}

// Every entry of a leaf: record, range, fingerprint, uniqueness, and that a lookup gets there. A
// key in two leaves would be outside the range of one of them.
template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::check_entries(std::uint32_t number, Findings& report) {
  const P& platform = context_.platform;
  const Desc& desc = table_[number];
  const Leaf& leaf = leaf_of(desc);
  const std::uint64_t visible = desc.visible();
  const auto bad = [&](const char* id, const char* what) {
    add_violation(report, id, "phast block", leaf_offset(desc), what);
  };
  bool readable = true;
  for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
    const Entry& entry = leaf.entries[slot];
    const bool shown = (visible >> slot & 1) != 0;
    if (platform.load(Codec::commit(const_cast<Entry&>(entry))) == 0) continue;
    const std::uint64_t word = platform.load(entry.value);
    if (records() && shown) {
      ++report.objects;
      report.bytes += context_.heap.block_bytes(word & kOffsetMask);
    }
    if (records() && (shown || Codec::kBytes) && !check_record(word, true).ok()) {
      add_violation(report, "phast block", leaf_offset(desc), "names a damaged record");
      readable = false;
      continue;
    }
    const Probe probe = probe_of(entry);
    const bool inside = !desc.below(probe) && !desc.above(probe);
    if (shown && !inside) bad("phast.I2", "shows a key outside its range");
    if (!shown && (inside || desc.below(probe))) bad("phast.I2", "hides an entry");
    if (!shown) continue;
    if ((desc.matches(probe.fingerprint) >> slot & 1) == 0)
      bad("phast.D1", "has a wrong fingerprint");
    if (Codec::kBytes && Codec::fingerprint_of(probe) != probe.fingerprint)
      bad("phast.D1", "has a wrong hash");
    if (Codec::kBytes && head_word(probe.bytes) != probe.word)
      add_violation(report, "phast block", leaf_offset(desc), "has a wrong head");
    if (inside && enter(probe, inner_.locate(probe)).number != number)
      bad("ordered.N1", "hides from lookups");
  }
  if (readable) check_order(number, report);
}

// The keys of a leaf are distinct, and the cached scan order, if it is valid, is theirs.
template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::check_order(std::uint32_t number, Findings& report) {
  const Desc& desc = table_[number];
  const Leaf& leaf = leaf_of(desc);
  const auto bad = [&](const char* id, const char* what) {
    add_violation(report, id, "phast block", leaf_offset(desc), what);
  };
  const std::uint64_t visible = desc.visible();
  std::uint8_t order[64];
  const std::uint32_t count = sort_slots(leaf, visible, order);
  for (std::uint32_t i = 1; i < count; ++i) {
    const Probe a = probe_of(leaf.entries[order[i - 1]]);
    const Probe b = probe_of(leaf.entries[order[i]]);
    if (a.word == b.word && a.bytes == b.bytes) bad("phast.I2", "holds a key twice");
  }
  // Valid as ordered_slots() has it: for this version and number of entries.
  const std::uint64_t cached = desc.order.load(std::memory_order_acquire);
  const std::uint64_t stamp =
      desc.version.load(std::memory_order_acquire) << 6 << 26 | std::uint64_t{count} << 26;
  if (cached == 0 || (cached & ~kOrderNumber) != stamp) return;
  const auto* slots = table_.order(static_cast<std::uint32_t>(cached & kOrderNumber)).slots;
  if (std::memcmp(slots, order, count) != 0) bad("phast.D3", "has a wrong scan order");
}

template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::check(const CheckOptions& options, Findings& report) {
  EpochGuard<P> guard(context_.epochs);
  const ordered::Partitioning& partitioning = inner_.partitioning();
  ++report.objects;
  if (!root_intact(*root_, partitioning.count()))
    add_violation(report, "phast block", root_offset_, "damaged root block");
  if (!Codec::kBytes && root_->zero_present != 0) {
    ++report.entries;
    if (options.deep && record_values_ && !check_record(root_->zero_value, true).ok()) {
      add_violation(report, "phast block", root_offset_, "key 0 names a damaged record");
    }
  }
  for (std::uint32_t p = 0; p < partitioning.count(); ++p) {
    const Desc* left = nullptr;
    for (std::uint32_t n = inner_.first_leaf(p); n != kNoLeaf;
         n = table_[n].next.load(std::memory_order_acquire)) {
      check_place(n, left, p, report);
      check_leaf(n, report);
      if (options.deep) check_entries(n, report);
      tell_progress(options, report, n, 64);
      left = &table_[n];
    }
    if (left == nullptr || left->bound.load(std::memory_order_acquire) != partitioning.bound(p)) {
      add_violation(report, "phast.I1", "phast block", 0,
                    "a partition's chain does not end at its bound");
    }
  }
}

// A leaf's range begins where its left neighbour's ends, is not empty, and the inner levels lead to
// it.
template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::check_place(std::uint32_t number, const Desc* left,
                                     std::uint32_t partition, Findings& report) {
  const Desc& desc = table_[number];
  const auto bad = [&](const char* id, const char* what) {
    add_violation(report, id, "phast block", leaf_offset(desc), what);
  };
  const std::uint64_t low = desc.low.load(std::memory_order_acquire);
  const std::uint64_t expected =
      left == nullptr ? inner_.partitioning().low(partition)
                      : left->bound.load(std::memory_order_acquire) + (Codec::kBytes ? 0 : 1);
  if (low != expected) bad("phast.I1", "does not meet its neighbour");
  Probe bound{.word = desc.bound.load(std::memory_order_acquire)};
  if (bound.word < low) bad("phast.I1", "has its bound below its low");
  if constexpr (Codec::kBytes) {
    const Separator<P>* s = desc.separators.bound.load(std::memory_order_acquire);
    if (s != nullptr) bound.bytes = s->view();
    if (s == nullptr) bound.last = true;
    if (left != nullptr) {
      const Separator<P>* l = left->separators.bound.load(std::memory_order_acquire);
      if (desc.separators.low.load(std::memory_order_acquire) != l)
        bad("phast.I1", "has a foreign low");
      if (s != nullptr && l != nullptr && bound.word == low && s->view() <= l->view()) {
        bad("phast.I1", "has its bound below its low");
      }
    }
  }
  if (enter(bound, inner_.locate(bound)).number != number)
    bad("ordered.N1", "is not found by its bound");
}

template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::stats(EngineStats& out) {
  EpochGuard<P> guard(context_.epochs);
  out.engine = Engine::phast;
  out.entries = 0;
  out.leaves = 0;
  std::uint64_t record_bytes = 0;
  for_each_leaf([&](std::uint32_t number) {
    const Desc& desc = table_[number];
    const std::uint64_t visible = desc.visible();
    ++out.leaves;
    out.entries += static_cast<std::uint64_t>(__builtin_popcountll(visible));
    if (!records()) return;
    const Leaf& leaf = leaf_of(desc);
    for (std::uint64_t v = visible; v != 0; v &= v - 1) {
      const std::uint64_t word = context_.platform.load(leaf.entries[__builtin_ctzll(v)].value);
      if (word != 0) record_bytes += context_.heap.block_bytes(word & kOffsetMask);
    }
  });
  if (out.leaves > 0) {
    out.load_factor = static_cast<double>(out.entries) / static_cast<double>(out.leaves * kEntries);
  }
  if (!Codec::kBytes && context_.platform.load(root_->zero_present) != 0) ++out.entries;
  out.height = 4;  // index cache, inner node, descriptor, leaf
  out.inner_nodes = inner_.node_count();
  out.pm_bytes = out.leaves * sizeof(Leaf) + record_bytes + context_.heap.block_bytes(root_offset_);
  out.scan_order_bytes = table_.order_bytes();
  out.dram_bytes = table_.dram_bytes() + inner_.dram_bytes();
  out.splits = splits_.load(std::memory_order_relaxed);
  out.merges = unlinks_.load(std::memory_order_relaxed);
}

}  // namespace perdure::phast
