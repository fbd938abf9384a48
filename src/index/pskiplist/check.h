// Check: enumeration of the map's blocks, verification of invariants, statistics. No mutation is in
// flight. Verifies pskiplist.I1, pskiplist.I2, pskiplist.I8, pskiplist.N3, pskiplist.D4 and
// pskiplist.H1.
#pragma once

#include <cstdint>
#include <cstdio>

#include "index/engine_report.h"
#include "index/pskiplist/recovery.h"

namespace perdure::pskiplist {

template <class T>
class Check : public Recovery<T> {
 protected:
  using Base = Recovery<T>;
  using Base::Base;
  using Base::chain_, Base::check_record, Base::clock, Base::comes_before, Base::directory_;
  using Base::context_;
  using Base::entry_at, Base::for_each_entry, Base::for_each_leaf, Base::for_each_segment;
  using Base::is_segment, Base::key_of, Base::latest, Base::load, Base::names_record, Base::nodes_;
  using Base::record_values_, Base::reserve_, Base::root_, Base::root_offset_;
  using Base::segment_at, Base::slot_at;
  using typename Base::Chain, typename Base::Codec, typename Base::Listing, typename Base::Node;
  using typename Base::P;

  // Names every block that the map can reach. A block comes after the blocks that it names.
  [[gnu::noinline]] Status enumerate(Status (Heap<P>::*mark)(std::uint64_t)) {
    Status s;
    const auto reach = [&](std::uint64_t offset) {
      if (s.ok()) s = (context_.heap.*mark)(offset);
    };
    // Damage under an open pool is reported, and not followed.
    const auto bad_link = [](std::uint64_t offset) {
      return Status::format(StatusCode::corruption, "nothing can lie at offset %llu",
                            static_cast<unsigned long long>(offset));
    };
    std::uint64_t left = chain_.blocks();
    for (std::uint64_t block = load(root_->chain); block != 0 && s.ok(); --left) {
      if (left == 0 || block % kLine != 0 || !context_.heap.contains(block, Chain::kBlockBytes)) {
        return bad_link(block);
      }
      for (std::uint32_t i = 0; i < Chain::kSlots; ++i) {
        const Slot& slot = slot_at(Chain::slot_in(block, i));
        if (load(slot.first.stamp) == 0) continue;
        if (Codec::kBytes) reach(load(slot.key));
        for_each_entry(slot,
                       [&](std::uint64_t entry, std::uint64_t stamp) {
                         if (names_record(stamp)) reach(load(entry_at(entry).value));
                         return s.ok();
                       },
                       {.wary = true});
        std::uint32_t steps = 1U << 20;
        for (std::uint64_t segment = load(slot.more); segment != 0 && s.ok();) {
          if (steps-- == 0 || !is_segment(segment)) return bad_link(segment);
          const std::uint64_t next = load(segment_at(segment).next);
          reach(segment);
          segment = next;
        }
      }
      const std::uint64_t next = load(context_.heap.template at<layout::Block>(block)->next);
      reach(block);
      block = next;
    }
    reserve_.for_each(reach);
    reach(root_offset_);
    return s;
  }

 private:
  [[gnu::noinline]] void check_key(std::uint32_t number, std::uint64_t word, bool deep,
                                   std::uint64_t& hinted, Findings& report) {
    Node& node = nodes_[number];
    // `id`: the invariant that does not hold, if it is one.
    const auto bad = [&](const char* what, const char* id = nullptr) {
      char line[160];
      std::snprintf(line, sizeof(line), "pskiplist key %llx: %s%s%s%s",
                    static_cast<unsigned long long>(word), what, id != nullptr ? " (" : "",
                    id != nullptr ? id : "", id != nullptr ? ")" : "");
      report.add(line);
    };
    if (node.load().phase() != Phase::idle) return bad("is being written");
    const Slot& slot = slot_at(node.slot.load(std::memory_order_relaxed));
    End last;
    for_each_entry(slot,
                   [&](std::uint64_t offset, std::uint64_t stamp) {
                     const std::uint64_t version = version_of(stamp);
                     if (version <= last.version()) {
                       bad("has versions that do not rise", "pskiplist.I1");
                     }
                     if (version > clock())
                       bad("has a version that was never open", "pskiplist.I8");
                     last = {offset, 0, stamp, last.entries + 1};
                     if (!names_record(stamp)) return true;
                     const std::uint64_t record = load(entry_at(offset).value);
                     ++report.objects;
                     report.bytes += context_.heap.block_bytes(record);
                     if (deep && !check_record(record, true).ok()) bad("names a damaged record");
                     return true;
                   },
                   {.wary = true});
    const End end = node.end();
    if (last.entries == 0 || last.entries != end.entries) {
      bad("has another number of entries than in DRAM", "pskiplist.N3");
    }
    if (last.entry != end.entry) bad("ends elsewhere than in DRAM", "pskiplist.N3");
    if (last.stamp != end.stamp) bad("ends otherwise than in DRAM", "pskiplist.N3");
    if (last.present()) {
      ++report.entries;
      if (load(entry_at(last.entry).value) != end.value) {
        bad("has another value than in DRAM", "pskiplist.N3");
      }
    }
    if (!deep) return;
    if (Codec::kBytes && !check_record(node.key, true).ok()) return bad("has a damaged name");
    const Probe probe = Codec::probe(key_of(word, number));
    const std::uint32_t hint = directory_.find_hinted(probe);
    if (directory_.find_listed(probe) != number) bad("is not found", "pskiplist.I2");
    if (hint != 0 && hint != number) bad("is found elsewhere by a hint", "pskiplist.H1");
    hinted += hint == number ? 1 : 0;
    if (report.whole_entries != nullptr && last.present())
      deliver_entry(number, word, last, report);
  }
  // Passes on the key's latest value. A record has a checksum of its own, but does not say which
  // key it belongs to: the slot does.
  [[gnu::noinline]] void deliver_entry(std::uint32_t number, std::uint64_t word, const End& last,
                                       Findings& report) {
    const Node& node = nodes_[number];
    const std::uint64_t value = load(entry_at(last.entry).value);
    if (!this->as_closed(node)) return;
    if (record_values_) {  // not the record of a key
      if (!check_record(value, true).ok()) return;
      const auto record = RecordView::read(context_.platform, this->records_.at(value));
      if (!record.key().empty()) return;
    }
    detail::Entry entry{.key = key_of(word, number), .value = {}};
    if (this->value_of(value, entry.value)) (*report.whole_entries)(entry);
  }

 public:
  void check(const CheckOptions& options, Findings& report) override {
    EpochGuard<P> guard(context_.epochs);
    report.objects += 1 + chain_.blocks();
    report.bytes += sizeof(layout::Root) + chain_.blocks() * Chain::kBlockBytes;
    if (!root_intact<P>(*root_, Base::kRootCrc)) {
      report.add("pskiplist: damaged root block");
    }
    const auto bad = [&](const char* id, const char* what) {
      add_violation(report, id, "pskiplist root", root_offset_, what);
    };
    if (load(root_->limit) + 1 < clock()) {
      bad("pskiplist.I8", "the limit of versions is below the clock");
    }
    std::uint64_t keys = 0;
    std::uint64_t hinted = 0;
    Listed before{0, 0};
    auto done = for_each_leaf({}, [&](const Listing& listing) {
      for (std::uint32_t i = 0; i < listing.count; ++i) {
        const Listed key{listing.words[i], listing.nodes[i]};
        if (keys++ != 0 && !comes_before(before, key)) report.add("pskiplist: keys out of order");
        before = key;
        check_key(key.node, key.word, options.deep, hinted, report);
        tell_progress(options, report, keys, 4096);
      }
      return true;
    });
    if (!done) report.add(done.error().message());
    if (keys != chain_.used_slots()) bad("pskiplist.I2", "keys and slots differ in number");
    if (options.deep && report.ok() && hinted != directory_.hints()) {  // else not all were counted
      bad("pskiplist.D4", "hints name nodes that no leaf lists");
    }
  }

  void stats(EngineStats& out) override {
    EpochGuard<P> guard(context_.epochs);
    const Heap<P>& heap = context_.heap;
    out.engine = Engine::pskiplist;
    out.entries = 0;
    out.pm_bytes = heap.block_bytes(root_offset_) + chain_.blocks() * Chain::kBlockBytes;
    const auto add = [&](std::uint64_t block) {
      out.pm_bytes += heap.block_bytes(block);
      return true;
    };
    reserve_.for_each(add);
    auto done = for_each_leaf({}, [&](const Listing& listing) {
      for (std::uint32_t i = 0; i < listing.count; ++i) {
        Node& node = nodes_[listing.nodes[i]];
        out.entries += latest(node).present() ? 1 : 0;
        const std::uint64_t offset = node.slot.load(std::memory_order_acquire);
        if (offset == 0) continue;
        if (Codec::kBytes) add(node.key);
        for_each_segment(slot_at(offset), add, {.wary = true});
        if (!record_values_) continue;
        for_each_entry(slot_at(offset),
                       [&](std::uint64_t entry, std::uint64_t stamp) {
                         return is_removed(stamp) || add(load(entry_at(entry).value));
                       },
                       {.wary = true});
      }
      return true;
    });
    if (!done) out.partial = true;
    const std::uint64_t slots = chain_.blocks() * Chain::kSlots;
    out.load_factor =
        slots != 0 ? static_cast<double>(out.entries) / static_cast<double>(slots) : 0;
    out.height = 3;
    out.leaves = directory_.leaves();
    out.inner_nodes = directory_.inner_nodes();
    out.dram_bytes = nodes_.dram_bytes() + directory_.dram_bytes() + chain_.dram_bytes();
  }
};

}  // namespace perdure::pskiplist
