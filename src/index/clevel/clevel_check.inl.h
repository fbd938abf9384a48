// Clevel: invariants, audit and statistics. Included by clevel.h only. No mutation is in flight.
#pragma once

#include <algorithm>

#include "index/clevel/clevel.h"
#include "index/engine_report.h"

namespace perdure::clevel {

// A slot above the last level names the item.
template <Platform P, class Codec, class G>
bool Clevel<P, Codec, G>::named_above(const Context& now, std::uint64_t word,
                                      const Probe& probe) const noexcept {
  for (std::uint32_t i = 1; i < now.count; ++i) {
    const bool here = for_each_match(probe, *now.levels[i], [&](const std::uint64_t& slot) {
      return context_.platform.load(slot) == word;
    });
    if (here) return true;
  }
  return false;
}

// Names every block the map can reach, an item before the level that names it.
template <Platform P, class Codec, class G>
Status Clevel<P, Codec, G>::enumerate(Status (Heap<P>::*mark)(std::uint64_t) noexcept) noexcept {
  const P& platform = context_.platform;
  const Context& now = *levels_.load(std::memory_order_acquire);
  const bool verified = verified_.load(std::memory_order_acquire);
  Status s;
  const auto reach = [&](std::uint64_t offset) {
    if (s.ok()) s = (context_.heap.*mark)(offset);
  };
  reach(root_offset_);
  for (std::uint32_t i = 0; i < now.count; ++i) {
    const Level& level = *now.levels[i];
    for (std::uint64_t n = 0; n < level.count * G::kSlots && s.ok(); ++n) {
      const std::uint64_t word = platform.load(level.buckets[n / G::kSlots].slots[n % G::kSlots]);
      if (word == 0 || word == kSealed) continue;
      if (!is_item_block(word & kOffsetMask)) return damaged(word & kOffsetMask);
      const Item* item = item_at(word);
      const std::uint64_t state = platform.load(item->state);
      // Not reached: its eraser frees it, or the sweep.
      if (!is_live(state) || (!verified && !whole(word, state))) continue;
      if (!fits(word, state)) return damaged(word & kOffsetMask);
      if (i == 0 && !verified && named_above(now, word, probe_of(item, state))) continue;
      const std::uint64_t value = bytes_values_ ? platform.load(item->value) : 0;
      if (value > kGone) reach(value);
      reach(word & kOffsetMask);
    }
    reach(level.offset);
  }
  if (next_.offset != 0) reach(next_.offset);
  return s;
}

template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::release_blocks() {
  context_.background.remove(rehash_);
  context_.background.remove(ahead_);
  context_.epochs.drain_all();
  Base::release_blocks();
}

// clevel.I2 and clevel.I3 for one slot.
template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::check_slot(const Context& now, std::uint32_t level, std::uint64_t bucket,
                                     std::uint64_t word, const CheckOptions& options,
                                     Findings& report) {
  const auto bad = [&](const char* what) {
    add_violation(report, "clevel block", word & kOffsetMask, what);
  };
  const auto violates = [&](const char* id, const char* what) {
    add_violation(report, id, "clevel block", word & kOffsetMask, what);
  };
  if (word == kSealed) {
    if (level != 0 || !now.growing()) {
      add_violation(report, "clevel.I2", "clevel block", now.levels[level]->offset,
                    "is sealed but does not drain");
    }
    return;
  }
  if (!plausible(word) || !is_item_block(word & kOffsetMask)) {
    return violates("clevel.I2", "is named by a slot but is no item");
  }
  const Item* item = item_at(word);
  const std::uint64_t state = context_.platform.load(item->state);
  ++report.objects;
  report.bytes += context_.heap.block_bytes(word & kOffsetMask);
  const bool verified = verified_.load(std::memory_order_acquire);
  if (!is_live(state)) {
    if (verified) bad("is dead but named");
    return;
  }
  if (!fits(word, state)) return bad("does not fit its block");
  if (!Codec::kBytes && key_bytes(state) != 8) return bad("has no integer key");
  const Probe probe = probe_of(item, state);
  const bool moving = level == 0 && !verified && named_above(now, word, probe);
  if (!moving) ++report.entries;
  if (!options.deep) return;
  if (!whole(word, state)) return bad("is damaged (checksum)");
  if (word >> kOffsetBits != probe.tag()) bad("has a wrong tag");
  const std::uint64_t mask = now.levels[level]->mask();
  if (bucket != probe.first(mask) && bucket != probe.second(mask)) {
    violates("clevel.I2", "is in a wrong bucket");
  }
  Found found;
  if (!search(probe, 0, found).ok() || found.item != item) {
    violates("clevel.I3", "is not what its key finds");
  }
  std::uint32_t here = 0;
  for (std::uint32_t i = level; i < now.count; ++i) {
    for_each_match(probe, *now.levels[i], [&](const std::uint64_t& slot) {
      here += context_.platform.load(slot) == word ? 1 : 0;
      return false;
    });
  }
  if (here != (moving ? 2U : 1U)) violates("clevel.I3", "is named by too many slots");
  if (!bytes_values_) return;
  detail::Value value;
  const std::uint64_t blob = context_.platform.load(item->value);
  if (blob == 0) return;
  if (!context_.heap.is_block(blob) ||
      !value_at({.item = const_cast<Item*>(item), .state = state, .value = blob}, value).ok()) {
    return bad("names no value");
  }
  ++report.objects;
  report.bytes += context_.heap.block_bytes(blob);
  if (context_.heap.template at<layout::Blob>(blob)->crc != blob_crc(value.bytes) &&
      P::verifies("clevel.blob.crc"_site)) {
    bad("has a damaged value (checksum)");
  }
}

template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::check(const CheckOptions& options, Findings& report) {
  EpochGuard<P> guard(context_.epochs);
  if (!guard.ok()) return add_violation(report, "clevel block", root_offset_, "out of memory");
  const P& platform = context_.platform;
  const Context& now = *levels_.load(std::memory_order_acquire);
  ++report.objects;
  const layout::Root image = *root_;
  if (!has_checksum(image)) {
    add_violation(report, "clevel block", root_offset_, "damaged root block");
  }
  std::uint32_t used = 0;
  for (const std::uint64_t word : image.levels) used += word != 0 ? 1 : 0;
  if (used != now.count)
    add_violation(report, "clevel.I1", "clevel block", root_offset_, "levels differ from the list");
  for (std::uint32_t i = 0; i < now.count; ++i) {
    const Level& level = *now.levels[i];
    ++report.objects;
    report.bytes += level.count * sizeof(Bucket);
    if (platform.load(root_->levels[level.ring]) != level_word(level.offset, level.count)) {
      add_violation(report, "clevel.I1", "clevel block", level.offset,
                    "is a level that its word does not name");
    }
    for (std::uint64_t b = 0; b < level.count; ++b) {
      for (std::uint32_t s = 0; s < G::kSlots; ++s) {
        const std::uint64_t word = platform.load(level.buckets[b].slots[s]);
        if (word != 0) check_slot(now, i, b, word, options, report);
      }
      tell_progress(options, report, b, 1024);
    }
  }
  for (std::uint32_t i = 0; i < G::kStripes; ++i) {
    if (stripes_[i].in_flight(0)) {
      add_violation(report, "clevel block", root_offset_, "a stripe is in flight");
    }
  }
}

template <Platform P, class Codec, class G>
LevelStats Clevel<P, Codec, G>::level_stats(const Context& now, std::uint32_t number,
                                            EngineStats& out) noexcept {
  const P& platform = context_.platform;
  const Level& level = *now.levels[number];
  const bool verified = verified_.load(std::memory_order_acquire);
  LevelStats stats{.slots = level.count * G::kSlots};
  for (std::uint64_t n = 0; n < stats.slots; ++n) {
    const std::uint64_t word = platform.load(level.buckets[n / G::kSlots].slots[n % G::kSlots]);
    if (word == 0 || word == kSealed || !plausible(word)) continue;
    const Item* item = item_at(word);
    const std::uint64_t state = platform.load(item->state);
    if (!is_live(state) || !fits(word, state)) continue;
    if (number == 0 && !verified && named_above(now, word, probe_of(item, state))) continue;
    ++stats.entries;
    out.pm_bytes += context_.heap.block_bytes(word & kOffsetMask);
    const std::uint64_t value = bytes_values_ ? platform.load(item->value) : 0;
    if (value > kGone) out.pm_bytes += context_.heap.block_bytes(value);
  }
  out.entries += stats.entries;
  out.pm_bytes += context_.heap.block_bytes(level.offset);
  return stats;
}

template <Platform P, class Codec, class G>
void Clevel<P, Codec, G>::stats(EngineStats& out) {
  EpochGuard<P> guard(context_.epochs);
  out.partial = !guard.ok();
  if (!guard.ok()) return;
  const Pause pause(*this);  // what moves would be counted twice, or not at all
  const Context& now = *levels_.load(std::memory_order_acquire);
  out.engine = Engine::clevel;
  out.entries = 0;
  out.height = now.count;
  out.inner_nodes = 0;
  out.pm_bytes = context_.heap.block_bytes(root_offset_);
  for (std::uint32_t i = now.count; i-- > 0;) {
    if (!out.levels.push_back(level_stats(now, i, out))) out.partial = true;
  }
  out.load_factor = static_cast<double>(out.entries) / static_cast<double>(slots_of(now));
  out.dram_bytes =
      sizeof(*this) + G::kStripes * sizeof(Stripe<P>) + sizeof(Context) + now.count * sizeof(Level);
  {
    const LatchGuard latch(ahead_latch_);
    if (next_.offset != 0) out.pm_bytes += context_.heap.block_bytes(next_.offset);
  }
  const LatchGuard latch(resize_latch_);
  const std::uint64_t kept = std::min<std::uint64_t>(begun_, MapStats::kMaxResizes);
  for (std::uint64_t n = begun_ - kept; n < begun_; ++n) {
    if (!out.resizes.push_back(resizes_[n % MapStats::kMaxResizes])) out.partial = true;
  }
}

}  // namespace perdure::clevel
