// PSkipList: invariants, audit and statistics. Included by pskiplist.h only. No mutation is in
// flight.
#pragma once

#include <cstdio>

#include "index/engine_report.h"
#include "index/pskiplist/pskiplist.h"

namespace perdure::pskiplist {

// Names every block the map can reach; what is named by others first.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::enumerate(Status (Heap<P>::*mark)(std::uint64_t) noexcept) noexcept {
  const P& platform = context_.platform;
  Status s;
  const auto reach = [&](std::uint64_t offset) {
    if (s.ok()) s = (context_.heap.*mark)(offset);
  };
  // What is damaged under an open pool is said, and not followed.
  const auto bad_link = [](std::uint64_t offset) {
    return Status::format(StatusCode::corruption, "nothing can lie at offset %llu",
                          static_cast<unsigned long long>(offset));
  };
  std::uint64_t left = chain_.blocks();
  for (std::uint64_t block = platform.load(root_->chain); block != 0 && s.ok(); --left) {
    if (left == 0 || block % kLine != 0 || !context_.heap.contains(block, Chain::kBlockBytes)) {
      return bad_link(block);
    }
    for (std::uint32_t i = 0; i < Chain::kSlots; ++i) {
      const Slot& slot = slot_at(Chain::slot_in(block, i));
      if (platform.load(slot.first.stamp) == 0) continue;
      if (Codec::kBytes) reach(platform.load(slot.key));
      for_each_entry(slot,
                     [&](std::uint64_t entry, std::uint64_t stamp) {
                       if (record_values_ && (stamp & layout::kRemoved) == 0) {
                         reach(platform.load(entry_at(entry).value));
                       }
                       return s.ok();
                     },
                     {.wary = true});
      std::uint32_t steps = 1U << 20;
      for (std::uint64_t segment = platform.load(slot.more); segment != 0 && s.ok();) {
        if (steps-- == 0 || !is_segment(segment)) return bad_link(segment);
        const std::uint64_t next = platform.load(segment_at(segment).next);
        reach(segment);
        segment = next;
      }
    }
    const std::uint64_t next = platform.load(context_.heap.template at<layout::Block>(block)->next);
    reach(block);
    block = next;
  }
  reserve_.for_each(reach);
  reach(root_offset_);
  return s;
}

template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::check_key(std::uint32_t number, std::uint64_t word, bool deep,
                                       std::uint64_t& hinted, Findings& report) noexcept {
  const P& platform = context_.platform;
  Node& node = nodes_[number];
  // With the id of the invariant that does not hold, if it is one.
  const auto bad = [&](const char* what, const char* id = nullptr) {
    char line[160];
    std::snprintf(line, sizeof(line), "pskiplist key %llx: %s%s%s%s",
                  static_cast<unsigned long long>(word), what, id != nullptr ? " (" : "",
                  id != nullptr ? id : "", id != nullptr ? ")" : "");
    report.add(line);
  };
  if (node.load().phase() != Phase::idle) return bad("is being written");
  const Slot& slot = slot_at(node.slot.load(std::memory_order_relaxed));
  std::uint64_t before = 0;
  std::uint64_t last = 0;
  std::uint64_t its_stamp = 0;
  std::uint32_t entries = 0;
  for_each_entry(slot,
                 [&](std::uint64_t offset, std::uint64_t stamp) {
                   const std::uint64_t version = version_of(stamp);
                   if (version <= before) bad("has versions that do not rise", "pskiplist.I1");
                   if (version > clock()) bad("has a version that was never open", "pskiplist.I8");
                   before = version;
                   last = offset;
                   its_stamp = stamp;
                   ++entries;
                   if (!record_values_ || (stamp & layout::kRemoved) != 0) return true;
                   const std::uint64_t record = platform.load(entry_at(offset).value);
                   ++report.objects;
                   report.bytes += context_.heap.block_bytes(record);
                   if (deep && !check_record(record, true).ok()) bad("names a damaged record");
                   return true;
                 },
                 {.wary = true});
  const End end = node.end();
  if (entries == 0 || entries != end.entries) {
    bad("has another number of entries than in DRAM", "pskiplist.N3");
  }
  if (last != end.entry) bad("ends elsewhere than in DRAM", "pskiplist.N3");
  if (its_stamp != end.stamp) bad("ends otherwise than in DRAM", "pskiplist.N3");
  if (last != 0 && (its_stamp & layout::kRemoved) == 0) {
    ++report.entries;
    if (platform.load(entry_at(last).value) != end.value) {
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
}

template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::check(const CheckOptions& options, Findings& report) {
  EpochGuard<P> guard(context_.epochs);
  report.objects += 1 + chain_.blocks();
  report.bytes += sizeof(layout::Root) + chain_.blocks() * Chain::kBlockBytes;
  if (!root_intact(*root_)) report.add("pskiplist: damaged root block");
  if (context_.platform.load(root_->limit) + 1 < clock()) {
    add_violation(report, "pskiplist.I8", "pskiplist root", root_offset_,
                  "the limit of versions is below the clock");
  }
  std::uint64_t keys = 0;
  std::uint64_t hinted = 0;
  Listed before{0, 0};
  auto done = for_each_leaf({}, [&](const Listing& listing) {
    for (std::uint32_t i = 0; i < listing.count; ++i) {
      const Listed key{listing.words[i], listing.nodes[i]};
      if (keys++ != 0 && !comes_before(before, key)) {
        report.add("pskiplist: keys out of order");
      }
      before = key;
      check_key(key.node, key.word, options.deep, hinted, report);
      tell_progress(options, report, keys, 4096);
    }
    return true;
  });
  if (!done) report.add(done.error().message());
  if (keys != chain_.used_slots()) {
    add_violation(report, "pskiplist.I2", "pskiplist root", root_offset_,
                  "keys and slots differ in number");
  }
  if (options.deep && report.ok() && hinted != directory_.hints()) {  // else not all were counted
    add_violation(report, "pskiplist.D4", "pskiplist root", root_offset_,
                  "hints name nodes that no leaf lists");
  }
}

template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::stats(EngineStats& out) {
  EpochGuard<P> guard(context_.epochs);
  const P& platform = context_.platform;
  out.engine = Engine::pskiplist;
  out.entries = 0;
  out.pm_bytes = context_.heap.block_bytes(root_offset_) + chain_.blocks() * Chain::kBlockBytes;
  reserve_.for_each([&](std::uint64_t block) { out.pm_bytes += context_.heap.block_bytes(block); });
  auto done = for_each_leaf({}, [&](const Listing& listing) {
    for (std::uint32_t i = 0; i < listing.count; ++i) {
      Node& node = nodes_[listing.nodes[i]];
      out.entries += latest(node).present() ? 1 : 0;
      const std::uint64_t offset = node.slot.load(std::memory_order_acquire);
      if (offset == 0) continue;
      const Slot& slot = slot_at(offset);
      if (Codec::kBytes) out.pm_bytes += context_.heap.block_bytes(node.key);
      Steps steps{.wary = true};
      for (std::uint64_t s = linked(slot.more, steps); s != 0;
           s = linked(segment_at(s).next, steps)) {
        out.pm_bytes += context_.heap.block_bytes(s);
      }
      if (!record_values_) continue;
      for_each_entry(slot,
                     [&](std::uint64_t entry, std::uint64_t stamp) {
                       if ((stamp & layout::kRemoved) == 0) {
                         out.pm_bytes +=
                             context_.heap.block_bytes(platform.load(entry_at(entry).value));
                       }
                       return true;
                     },
                     {.wary = true});
    }
    return true;
  });
  if (!done) out.partial = true;
  const std::uint64_t slots = chain_.blocks() * Chain::kSlots;
  out.load_factor = slots != 0 ? static_cast<double>(out.entries) / static_cast<double>(slots) : 0;
  out.height = 3;
  out.leaves = directory_.leaves();
  out.inner_nodes = directory_.inner_nodes();
  out.dram_bytes = nodes_.dram_bytes() + directory_.dram_bytes() + chain_.dram_bytes();
}

}  // namespace perdure::pskiplist
