// Phast: invariants, audit and statistics. Included by phast.h only. No mutation is in flight.
#pragma once

#include <cstdio>

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

template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::release_blocks() {
  (void)enumerate(&Heap<P>::take_back);
}

namespace internal {
inline void violation(CheckReport& report, std::uint64_t leaf, const char* what) {
  if (report.violations.size() >= 100) return;
  char line[160];
  std::snprintf(line, sizeof(line), "phast leaf at offset %llu: %s",
                static_cast<unsigned long long>(leaf), what);
  report.violations.emplace_back(line);
}
}  // namespace internal

template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::check_leaf(std::uint32_t number, const CheckOptions& options,
                                    CheckReport& report) {
  const P& platform = context_.platform;
  const Desc& desc = table_[number];
  const Leaf& leaf = leaf_of(desc);
  const std::uint64_t offset = leaf_offset(desc);
  const std::uint64_t visible = desc.visible();
  const auto bad = [&](const char* what) { internal::violation(report, offset, what); };
  ++report.objects;
  report.entries += static_cast<std::uint64_t>(__builtin_popcountll(visible));
  if ((desc.version.load(std::memory_order_acquire) & 1) != 0) bad("is linked but dead");
  if (desc.search.stripes.load() != 0) bad("is latched");
  const std::uint32_t next = desc.next.load(std::memory_order_acquire);
  if (platform.load(leaf.next) != (next == kNoLeaf ? 0 : leaf_offset(table_[next]))) {
    bad("next differs from its descriptor's");
  }
  for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
    const Entry& entry = leaf.entries[slot];
    const bool shown = (visible >> slot & 1) != 0;
    const std::uint64_t commit = platform.load(Codec::commit(const_cast<Entry&>(entry)));
    if (commit == 0) {
      if (shown) bad("shows an empty slot");
      continue;
    }
    if (Codec::kBytes && !check_record(platform.load(entry.value), true).ok()) {
      bad("names a damaged record");
      continue;
    }
    const Probe probe = probe_of(entry);
    const bool inside = !desc.below(probe) && !desc.above(probe);
    if (shown && !inside) bad("shows a key outside its range");
    if (!shown && (inside || Codec::kBytes || desc.below(probe))) bad("hides an entry");
    if (!shown) continue;
    if (records()) ++report.objects;
    if ((desc.matches(probe.fingerprint) >> slot & 1) == 0) bad("has a wrong fingerprint");
    if (Codec::kBytes && Codec::fingerprint_of(probe) != probe.fingerprint) bad("has a wrong hash");
    if (!Codec::kBytes && record_values_ && !check_record(platform.load(entry.value), true).ok()) {
      bad("names a damaged record");
    }
  }
  std::uint8_t order[64];
  const std::uint32_t count = sort_slots(leaf, visible, order);
  for (std::uint32_t i = 1; i < count; ++i) {
    const Probe a = probe_of(leaf.entries[order[i - 1]]);
    const Probe b = probe_of(leaf.entries[order[i]]);
    if (a.word == b.word && a.bytes == b.bytes) bad("holds a key twice");
  }
  (void)options;
}

template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::check(const CheckOptions& options, CheckReport& report) {
  EpochGuard<P> guard(context_.epochs);
  const Partitioning& partitioning = inner_.partitioning();
  ++report.objects;
  if (!Codec::kBytes && root_->zero_present != 0) ++report.entries;
  for (std::uint32_t p = 0; p < partitioning.count(); ++p) {
    const Desc* left = nullptr;
    for (std::uint32_t n = inner_.first_leaf(p); n != kNoLeaf;
         n = table_[n].next.load(std::memory_order_acquire)) {
      const Desc& desc = table_[n];
      const std::uint64_t low = desc.low.load(std::memory_order_acquire);
      const std::uint64_t expected =
          left == nullptr ? partitioning.low(p)
                          : left->bound.load(std::memory_order_acquire) + (Codec::kBytes ? 0 : 1);
      if (low != expected)
        internal::violation(report, leaf_offset(desc), "does not meet its neighbour");
      if (desc.bound.load(std::memory_order_acquire) < low) {
        internal::violation(report, leaf_offset(desc), "has its bound below its low");
      }
      check_leaf(n, options, report);
      Probe probe{.word = desc.bound.load(std::memory_order_acquire)};
      if constexpr (Codec::kBytes) {
        const Separator<P>* s = desc.separators.bound.load(std::memory_order_acquire);
        if (s != nullptr) probe.bytes = s->view();
        if (s == nullptr) probe.last = true;
      }
      if (enter(probe, inner_.locate(probe)).number != n) {
        internal::violation(report, leaf_offset(desc), "is not found by its bound");
      }
      left = &desc;
    }
    if (left == nullptr || left->bound.load(std::memory_order_acquire) != partitioning.bound(p)) {
      internal::violation(report, 0, "a partition's chain does not end at its bound");
    }
  }
}

template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::stats(MapStats& out) {
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
