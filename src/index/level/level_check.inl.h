// Level: invariants, audit and statistics. Included by level.h only. No mutation is in flight.
#pragma once

#include <algorithm>

#include "index/engine_report.h"
#include "index/level/level.h"

namespace perdure::level {

// Names every block the map can reach; what is named by others first.
template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::enumerate(Status (Heap<P>::*mark)(std::uint64_t) noexcept) noexcept {
  Status s;
  const auto reach = [&](std::uint64_t offset) {
    if (s.ok()) s = (context_.heap.*mark)(offset);
  };
  const ViewT& view = *current();
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    const TierT& tier = *view.tiers[i];
    for (std::uint64_t bucket = 0; bucket < tier.buckets() && records(); ++bucket) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        if (tier.metas[bucket].print(slot) == 0) continue;
        reach(Form::load(context_.platform, tier.line(bucket, slot), slot % Form::kSlots).value[0]);
      }
    }
    reach(tier.offset);
  }
  reach(view.descriptor);
  reach(root_offset_);
  return s;
}

template <Platform P, class Codec, class G>
void Level<P, Codec, G>::release_blocks() {
  context_.background.remove(work_);
  Base::release_blocks();
}

template <Platform P, class Codec, class G>
void Level<P, Codec, G>::check_bucket(const ViewT& view, TierT& tier, std::uint64_t bucket,
                                      bool deep, Findings& report) noexcept {
  const P& platform = context_.platform;
  const MetaT& meta = tier.metas[bucket];
  const std::uint64_t offset = tier.offset + bucket * TierT::kLines * sizeof(Line);
  const auto bad = [&](const char* what) { add_violation(report, "level bucket", offset, what); };
  const auto violates = [&](const char* id, const char* what) {
    add_violation(report, id, "level bucket", offset, what);
  };
  if ((meta.version.load(std::memory_order_acquire) & 1) != 0) bad("is locked");
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const Place place{&tier, bucket, slot};
    const std::uint64_t tokens = Form::tokens(platform, place.line());
    if (slot % Form::kSlots == 0 && tokens >> Form::kSlots != 0) bad("has unknown tokens");
    const bool counts = (tokens & place.bit()) != 0;
    if (counts != (meta.print(slot) != 0)) violates("level.I1", "differs from its fingerprints");
    if (!counts) continue;
    ++report.entries;
    const Item item = load(place);
    const std::uint64_t word = item.value[0];
    if (records()) {
      ++report.objects;
      report.bytes += context_.heap.block_bytes(word);
    }
    if (!deep) continue;
    if (records() && !check_record(word, true).ok()) {
      bad("names a damaged record");
      continue;
    }
    Probe probe = probe_of(item);
    if constexpr (Codec::kBytes) {
      const Probe whole =
          Codec::probe({.bytes = RecordView::read(platform, record_at(word)).key()}, seeds_);
      if (whole.word != probe.word) bad("has a wrong hash");
      probe = whole;
    }
    if (meta.print(slot) != probe.print) bad("has a wrong fingerprint");
    if (tier.index(probe.hashes[0]) != bucket && tier.index(probe.hashes[1]) != bucket) {
      violates("level.I1", "holds a foreign key");
      continue;
    }
    // The first that a lookup meets; of two copies one is not.
    const Place first = find_locked(view, probe);
    if (first.tier != &tier || first.bucket != bucket || first.slot != slot) {
      violates("level.I2", "holds a key that is elsewhere too");
    }
  }
}

template <Platform P, class Codec, class G>
void Level<P, Codec, G>::check(const CheckOptions& options, Findings& report) {
  EpochGuard<P> guard(context_.epochs);
  const ViewT& view = *current();
  report.objects += 2;  // root block and descriptor
  if (!root_intact(*root_)) report.add("level: damaged root block");
  const auto& descriptor = *context_.heap.template at<layout::Descriptor>(view.descriptor);
  if (context_.platform.load(root_->descriptor) != view.descriptor ||
      !descriptor_intact(descriptor) || descriptor.levels != view.levels ||
      descriptor.generation != view.generation ||
      descriptor.drain != static_cast<std::uint8_t>(view.drain)) {
    report.add("level: the list of levels differs from what is in DRAM");
  }
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    TierT& tier = *view.tiers[i];
    ++report.objects;
    report.bytes += TierT::bytes_of(tier.log);
    if (tier.log + i != view.tiers[0]->log || descriptor.offsets[i] != tier.offset) {
      report.add("level: a level is not half of the one above it");
    }
    const std::uint64_t before = report.entries;
    for (std::uint64_t bucket = 0; bucket < tier.buckets(); ++bucket) {
      check_bucket(view, tier, bucket, options.deep, report);
      tell_progress(options, report, bucket, 4096);
    }
    if (report.entries - before != tier.items()) report.add("level: a level's count is wrong");
  }
}

// Items, each counted in one level of one list; unless rounds of drains never pause. The caller is
// pinned.
template <Platform P, class Codec, class G>
std::uint64_t Level<P, Codec, G>::items_at_rest() noexcept {
  // A mover that the system has taken the core from is waited for, some tenths of a second.
  constexpr unsigned kTries = 200'000;
  for (unsigned n = 0;; ++n) {
    const std::uint64_t ended = moves_ended_.load(std::memory_order_acquire);
    const ViewT* view = current();
    const std::uint64_t items = view->items();
    // A read-modify-write, so that it stays behind the counts.
    const bool still = moves_begun_.fetch_add(0, std::memory_order_acq_rel) == ended;
    if ((still && current() == view) || n == kTries) return items;
    P::pause(n);
  }
}

template <Platform P, class Codec, class G>
void Level<P, Codec, G>::stats(EngineStats& out) {
  EpochGuard<P> guard(context_.epochs);
  const ViewT& view = *current();
  out.engine = Engine::level;
  out.entries = items_at_rest();
  out.load_factor = static_cast<double>(out.entries) / static_cast<double>(view.slots());
  out.height = view.levels;
  out.dram_bytes = sizeof(ViewT);
  out.pm_bytes = context_.heap.block_bytes(root_offset_) + sizeof(layout::Descriptor);
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    const TierT& tier = *view.tiers[i];
    const LevelStats level{tier.buckets() * kSlots, tier.items()};
    if (!out.levels.push_back(level)) out.partial = true;
    out.pm_bytes += TierT::bytes_of(tier.log);
    out.dram_bytes += sizeof(tier) + tier.buckets() * sizeof(MetaT);
    for (std::uint64_t bucket = 0; bucket < tier.buckets() && records(); ++bucket) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        if (tier.metas[bucket].print(slot) == 0) continue;
        const Item item =
            Form::load(context_.platform, tier.line(bucket, slot), slot % Form::kSlots);
        out.pm_bytes += context_.heap.block_bytes(item.value[0]);
      }
    }
  }
  LatchGuard latch(resize_latch_);
  const std::uint64_t kept = std::min<std::uint64_t>(resizes_begun_, MapStats::kMaxResizes);
  for (std::uint64_t i = resizes_begun_ - kept; i < resizes_begun_; ++i) {
    if (!out.resizes.push_back(resizes_[i % MapStats::kMaxResizes])) out.partial = true;
  }
}

}  // namespace perdure::level
