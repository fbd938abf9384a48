// Check: check(), the audit and the statistics; no mutation is in flight. Verifies phast.I1,
// phast.I2, phast.D1 to phast.D4 and ordered.N1.
#pragma once

#include <cstdint>
#include <cstring>

#include "index/phast/recovery.h"

namespace perdure::phast {

template <class T>
class Check : public Recovery<T> {
  using Base = Recovery<T>;

 protected:
  using Base::check_record, Base::context_, Base::enter, Base::for_each_leaf, Base::inner_,
      Base::kOrderNumber, Base::leaf_of, Base::leaf_offset, Base::probe_of, Base::record_at,
      Base::record_values_, Base::records, Base::root_, Base::root_offset_, Base::table_,
      Base::value_of, Base::word_records_;
  using typename Base::Codec, typename Base::Desc, typename Base::Entry, typename Base::Leaf,
      typename Base::P;

 public:
  using Base::Base, Base::kBytes, Base::kEntries;

  [[gnu::noinline]] void check(const CheckOptions& options, Findings& report) override {
    EpochGuard<P> guard(context_.epochs);
    const ordered::Partitioning& partitioning = inner_.partitioning();
    ++report.objects;
    if (!this->root_intact(*root_, partitioning.count()))
      add_violation(report, kKind, root_offset_, "damaged root block");
    if (!kBytes && root_->zero_present != 0) {
      ++report.entries;
      if (options.deep && record_values_ && !check_record(root_->zero_value, true).ok()) {
        add_violation(report, kKind, root_offset_, "key 0 names a damaged record");
      } else if (report.whole_entries != nullptr && this->zero_as_closed()) {
        detail::Entry entry;
        if (value_of(root_->zero_value, entry.value)) (*report.whole_entries)(entry);
      }
    }
    for (std::uint32_t p = 0; p < partitioning.count(); ++p) {
      const Desc* left = nullptr;
      for_each_leaf(p, [&](std::uint32_t n) {
        check_place(n, left, p, report);
        check_leaf(n, report);
        if (options.deep) check_entries(n, report);
        if (report.whole_entries != nullptr) deliver_entries(table_[n], *report.whole_entries);
        tell_progress(options, report, n, 64);
        left = &table_[n];
      });
      if (left == nullptr || left->bound.load(std::memory_order_acquire) != partitioning.bound(p)) {
        add_violation(report, "phast.I1", kKind, 0,
                      "a partition's chain does not end at its bound");
      }
    }
  }

  [[gnu::noinline]] void stats(EngineStats& out) override {
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
      out.load_factor =
          static_cast<double>(out.entries) / static_cast<double>(out.leaves * kEntries);
    }
    if (!kBytes && context_.platform.load(root_->zero_present) != 0) ++out.entries;
    out.height = 4;  // index cache, inner node, descriptor, leaf
    out.inner_nodes = inner_.node_count();
    out.pm_bytes =
        out.leaves * sizeof(Leaf) + record_bytes + context_.heap.block_bytes(root_offset_);
    out.scan_order_bytes = table_.order_bytes();
    out.dram_bytes = table_.dram_bytes() + inner_.dram_bytes();
    out.splits = this->counts_.splits.load(std::memory_order_relaxed);
    out.merges = this->counts_.unlinks.load(std::memory_order_relaxed);
  }

 protected:
  // Calls mark() for every block that the map can reach.
  [[gnu::noinline]] Status enumerate(Status (Heap<P>::*mark)(std::uint64_t)) {
    Status s;
    const auto reach = [&](std::uint64_t offset) {
      if (s.ok()) s = (context_.heap.*mark)(offset);
    };
    if (!kBytes && record_values_ && context_.platform.load(root_->zero_present) != 0) {
      reach(context_.platform.load(root_->zero_value));
    }
    for_each_leaf([&](std::uint32_t number) {
      const Desc& desc = table_[number];
      const Leaf& leaf = leaf_of(desc);
      const std::uint64_t bound = context_.platform.load(leaf.bound);
      if (kBytes && bound != 0) reach(bound);
      if (records()) {
        for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
          reach(context_.platform.load(leaf.entries[__builtin_ctzll(v)].value) & kOffsetMask);
        }
      }
      reach(leaf_offset(desc));  // after the blocks that it names: take_back() frees its memory
    });
    reach(root_offset_);
    return s;
  }

 private:
  static constexpr const char* kKind = "phast block";

  // Returns a function that adds a violation of the leaf.
  static auto reporter(Findings& report, const Desc& desc) {
    return [&](const char* id, const char* what) {
      add_violation(report, id, kKind, leaf_offset(desc), what);
    };
  }

  // Whether the leaf's range begins where its left neighbour's ends, is not empty, and is the one
  // to which the inner levels lead.
  [[gnu::noinline]] void check_place(std::uint32_t number, const Desc* left,
                                     std::uint32_t partition, Findings& report) {
    const Desc& desc = table_[number];
    const auto bad = reporter(report, desc);
    const std::uint64_t low = desc.low.load(std::memory_order_acquire);
    const std::uint64_t expected =
        left == nullptr ? inner_.partitioning().low(partition)
                        : left->bound.load(std::memory_order_acquire) + (kBytes ? 0 : 1);
    if (low != expected) bad("phast.I1", "does not meet its neighbour");
    Probe bound{.word = desc.bound.load(std::memory_order_acquire)};
    if (bound.word < low) bad("phast.I1", "has its bound below its low");
    if constexpr (kBytes) {
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

  // Compares a leaf with its descriptor. Reads no key.
  [[gnu::noinline]] void check_leaf(std::uint32_t number, Findings& report) {
    const P& platform = context_.platform;
    const Desc& desc = table_[number];
    const Leaf& leaf = leaf_of(desc);
    const std::uint64_t visible = desc.visible();
    const auto bad = reporter(report, desc);
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
    if constexpr (kBytes) {
      const Separator<P>* s = desc.separators.bound.load(std::memory_order_acquire);
      if (bound != (s == nullptr ? 0 : s->record))
        bad("phast.I1", "bound differs from its descriptor's");
      if (bound != 0) {
        ++report.objects;
        if (s == nullptr || !check_record(bound, true).ok() ||
            RecordView::read(platform, record_at(bound)).key() != s->view()) {
          bad("", "has a damaged bound");
        }
      }
    } else if (bound != desc.bound.load(std::memory_order_acquire)) {
      bad("phast.I1", "bound differs from its descriptor's");
    }
    for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
      const bool empty = platform.load(Codec::commit(const_cast<Entry&>(leaf.entries[slot]))) == 0;
      const bool shown = (visible >> slot & 1) != 0;
      if (empty && shown) bad("phast.D1", "shows an empty slot");
      if (kBytes && !empty && !shown) bad("phast.I2", "hides an entry");
    }
  }

  // Every entry of a leaf: record, range, fingerprint, uniqueness, and that a lookup gets there. A
  // key in two leaves would be outside the range of one of them.
  [[gnu::noinline]] void check_entries(std::uint32_t number, Findings& report) {
    const P& platform = context_.platform;
    const Desc& desc = table_[number];
    const Leaf& leaf = leaf_of(desc);
    const std::uint64_t visible = desc.visible();
    const auto bad = reporter(report, desc);
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
      if (records() && (shown || kBytes) && !check_record(word, true).ok()) {
        bad("", "names a damaged record");
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
      if constexpr (kBytes) {
        if (Codec::fingerprint(probe.bytes) != probe.fingerprint)
          bad("phast.D1", "has a wrong hash");
        if (head_word(probe.bytes) != probe.word) bad("", "has a wrong head");
      }
      if (inside && enter(probe, inner_.locate(probe)).number != number)
        bad("ordered.N1", "hides from lookups");
    }
    if (readable) check_order(number, report);
  }

  // Passes on the entries that a checksum covers. A record of byte strings has one of its own. All
  // else is covered by the leaf's, if the pool was closed.
  [[gnu::noinline]] void deliver_entries(const Desc& desc,
                                         const FunctionRef<void(const detail::Entry&)>& visit) {
    const bool own = kBytes && !word_records_;
    if (!own && !this->as_closed(desc)) return;
    const Leaf& leaf = leaf_of(desc);
    for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
      const Entry& entry = leaf.entries[__builtin_ctzll(v)];
      const std::uint64_t word = context_.platform.load(entry.value);
      if (records() && !check_record(word, true).ok()) continue;
      const Probe probe = probe_of(entry);
      if constexpr (kBytes) {  // a damaged slot may name a record that was freed
        const bool named = Codec::fingerprint(probe.bytes) == probe.fingerprint &&
                           head_word(probe.bytes) == probe.word;
        if (!named || desc.below(probe) || desc.above(probe)) continue;
      }
      detail::Entry out{.key = {.word = probe.word, .bytes = probe.bytes}, .value = {}};
      if (value_of(word, out.value)) visit(out);
    }
  }

  // Whether the keys of a leaf are distinct, and the cached scan order, if it is valid, is theirs.
  [[gnu::noinline]] void check_order(std::uint32_t number, Findings& report) {
    const Desc& desc = table_[number];
    const Leaf& leaf = leaf_of(desc);
    const auto bad = reporter(report, desc);
    std::uint8_t order[64];
    const std::uint32_t count = this->sort_slots(leaf, desc.visible(), order);
    for (std::uint32_t i = 1; i < count; ++i) {
      const Probe a = probe_of(leaf.entries[order[i - 1]]);
      const Probe b = probe_of(leaf.entries[order[i]]);
      if (a.word == b.word && a.bytes == b.bytes) bad("phast.I2", "holds a key twice");
    }
    const std::uint64_t cached = desc.order.load(std::memory_order_acquire);
    const std::uint64_t stamp =
        Base::order_stamp(desc.version.load(std::memory_order_acquire), count);
    if (cached == 0 || (cached & ~kOrderNumber) != stamp) return;
    const auto* slots = table_.order(static_cast<std::uint32_t>(cached & kOrderNumber)).slots;
    if (std::memcmp(slots, order, count) != 0) bad("phast.D3", "has a wrong scan order");
  }
};

}  // namespace perdure::phast
