// Check: verifies clevel.I1, clevel.I2 and clevel.I3, and enumerates blocks, while no mutation is
// in flight; and statistics.
#pragma once

#include <cstdint>

#include "index/clevel/recovery.h"
#include "index/engine_report.h"
#include "index/root.h"

namespace perdure::clevel {

template <class T>
class Check : public Recovery<T> {
  using Base = Recovery<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;

 public:
  void check(const CheckOptions& options, Findings& report) override {
    EpochGuard<P> guard(context_.epochs);
    if (!guard.ok()) return add_violation(report, "clevel block", root_offset_, "out of memory");
    const P& platform = context_.platform;
    const LevelList& list = levels();
    ++report.objects;
    const Root image = *root_;
    if (!root_intact<P>(image, Base::kRootCrc)) {
      add_violation(report, "clevel block", root_offset_, "damaged root block");
    }
    std::uint32_t used = 0;
    for (const std::uint64_t word : image.levels) used += word != 0 ? 1 : 0;
    if (used < list.count || used > list.count + list.announced) {
      add_violation(report, "clevel.I1", "clevel block", root_offset_,
                    "levels differ from the list");
    }
    for (std::uint32_t i = 0; i < list.count; ++i) {
      const Level& level = *list.levels[i];
      ++report.objects;
      report.bytes += level.count * sizeof(Bucket);
      if (platform.load(root_->levels[level.ring]) != level_word(level.offset, level.count)) {
        add_violation(report, "clevel.I1", "clevel block", level.offset,
                      "is a level that its word does not name");
      }
      for (std::uint64_t b = 0; b < level.count; ++b) {
        for (std::uint32_t s = 0; s < G::kSlots; ++s) {
          const std::uint64_t word = platform.load(level.buckets[b].slots[s]);
          if (word != 0) check_slot(list, i, b, word, options, report);
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

  void stats(EngineStats& out) override {
    EpochGuard<P> guard(context_.epochs);
    out.partial = !guard.ok();
    if (!guard.ok()) return;
    const Pause pause(*this);  // a moving item would be counted twice or not at all
    const LevelList& list = levels();
    out.engine = Engine::clevel;
    out.entries = 0;
    out.height = list.count;
    out.inner_nodes = 0;
    out.pm_bytes = context_.heap.block_bytes(root_offset_);
    for (std::uint32_t i = list.count; i-- > 0;) {
      if (!out.levels.push_back(level_stats(list, i, out))) out.partial = true;
    }
    out.load_factor = static_cast<double>(out.entries) / static_cast<double>(slots_of(list));
    out.dram_bytes = sizeof(ClevelMap<T>) + G::kStripes * sizeof(Stripe<P>) + sizeof(LevelList) +
                     list.count * sizeof(Level);
    {
      const LatchGuard latch(ahead_latch_);
      for (const Fresh& block : this->ahead()) out.pm_bytes += block.buckets * sizeof(Bucket);
    }
    const LatchGuard latch(resize_latch_);
    this->copy_resizes(levels(), out);
  }

 protected:
  using Base::ahead_latch_, Base::bytes_values_, Base::context_, Base::fits, Base::for_each_match,
      Base::is_item_block, Base::item_at, Base::kBytesKeys, Base::level_word, Base::levels,
      Base::named_above, Base::plausible, Base::probe_of, Base::resize_latch_, Base::root_,
      Base::root_offset_, Base::search, Base::slots_of, Base::stripes_, Base::value_at,
      Base::verified, Base::whole;
  using Base::Base;
  using typename Base::Pause;

  // Names every block that the map can reach, an item before the level that names it.
  [[gnu::noinline]] Status enumerate(Status (Heap<P>::*mark)(std::uint64_t)) {
    const P& platform = context_.platform;
    const LevelList& list = levels();
    const bool checked = verified();
    Status s;
    const auto reach = [&](std::uint64_t offset) {
      if (s.ok()) s = (context_.heap.*mark)(offset);
    };
    reach(root_offset_);
    for (std::uint32_t i = 0; i < list.count; ++i) {
      const Level& level = *list.levels[i];
      for (std::uint64_t n = 0; n < level.count * G::kSlots && s.ok(); ++n) {
        const std::uint64_t word = platform.load(level.buckets[n / G::kSlots].slots[n % G::kSlots]);
        if (word == 0 || word == kSealed) continue;
        if (!is_item_block(word & kOffsetMask)) return damaged_at(word & kOffsetMask);
        const Item* item = item_at(word);
        const std::uint64_t state = platform.load(item->state);
        // Not reachable: its eraser frees the item, or the sweep does.
        if (!is_live(state) || (!checked && !whole(word, state))) continue;
        if (!fits(word, state)) return damaged_at(word & kOffsetMask);
        if (i == 0 && !checked && named_above(list, word, probe_of(item, state))) continue;
        const std::uint64_t value = bytes_values_ ? platform.load(item->value) : 0;
        if (value > kGone) reach(value);
        reach(word & kOffsetMask);
      }
      reach(level.offset);
    }
    for (const Level* level : list.coming()) reach(level->offset);
    for (const Fresh& block : this->ahead()) {
      if (block.offset != 0) reach(block.offset);
    }
    return s;
  }

 private:
  // clevel.I2 and clevel.I3 for one slot.
  [[gnu::noinline]] void check_slot(const LevelList& list, std::uint32_t level,
                                    std::uint64_t bucket, std::uint64_t word,
                                    const CheckOptions& options, Findings& report) {
    const auto violates = [&](const char* id, const char* what) {
      add_violation(report, id, "clevel block", word & kOffsetMask, what);
    };
    const auto bad = [&](const char* what) { violates("", what); };
    if (word == kSealed) {
      if (level != 0 || !list.growing()) {
        add_violation(report, "clevel.I2", "clevel block", list.levels[level]->offset,
                      "is sealed but does not drain");
      }
      return;
    }
    if (!plausible(word) || !is_item_block(word & kOffsetMask)) {
      return violates("clevel.I2", "is named by a slot but is no item");
    }
    Item* item = item_at(word);
    const std::uint64_t state = context_.platform.load(item->state);
    ++report.objects;
    report.bytes += context_.heap.block_bytes(word & kOffsetMask);
    const bool checked = verified();
    if (!is_live(state)) {
      if (checked) bad("is dead but named");
      return;
    }
    if (!fits(word, state)) return bad("does not fit its block");
    if (!kBytesKeys && key_bytes(state) != 8) return bad("has no integer key");
    const Probe probe = probe_of(item, state);
    const bool moving = level == 0 && !checked && named_above(list, word, probe);
    if (!moving) ++report.entries;
    if (!options.deep) return;
    if (!whole(word, state)) return bad("is damaged (checksum)");
    const bool tagged = word >> kOffsetBits == probe.tag();
    if (!tagged) bad("has a wrong tag");
    const std::uint64_t mask = list.levels[level]->mask();
    const bool placed = bucket == probe.first(mask) || bucket == probe.second(mask);
    if (!placed) violates("clevel.I2", "is in a wrong bucket");
    Found found;
    if (!search(probe, 0, found).ok() || found.item != item) {
      violates("clevel.I3", "is not what its key finds");
    }
    // A damaged slot may name an item that another slot names, too.
    const bool named_elsewhere = (!tagged || !placed) && found.item != nullptr;
    std::uint32_t here = 0;
    for (std::uint32_t i = level; i < list.count; ++i) {
      for_each_match(probe, *list.levels[i], [&](const std::uint64_t& slot) {
        here += context_.platform.load(slot) == word ? 1 : 0;
        return false;
      });
    }
    if (here != (moving ? 2U : 1U)) violates("clevel.I3", "is named by too many slots");
    detail::Entry entry{.key = {.word = probe.word, .bytes = probe.bytes}, .value = {}};
    detail::Value& value = entry.value;
    const std::uint64_t named = context_.platform.load(item->value);
    const std::uint64_t blob = bytes_values_ ? named : 0;
    if ((blob != 0 && !context_.heap.is_block(blob)) ||
        !value_at({.item = item, .state = state, .value = named}, value).ok()) {
      return bad("names no value");
    }
    if (blob != 0) {
      ++report.objects;
      report.bytes += context_.heap.block_bytes(blob);
      if (!Blob::intact(context_.platform, context_.heap, blob, value.bytes,
                        "clevel.blob.crc"_site)) {
        return bad("has a damaged value (checksum)");
      }
    }
    if (report.whole_entries != nullptr && !moving && !named_elsewhere) {
      (*report.whole_entries)(entry);
    }
  }

  [[gnu::noinline]] LevelStats level_stats(const LevelList& list, std::uint32_t number,
                                           EngineStats& out) {
    const P& platform = context_.platform;
    const Level& level = *list.levels[number];
    const bool checked = verified();
    LevelStats stats{.slots = level.count * G::kSlots};
    for (std::uint64_t n = 0; n < stats.slots; ++n) {
      const std::uint64_t word = platform.load(level.buckets[n / G::kSlots].slots[n % G::kSlots]);
      if (word == 0 || word == kSealed || !plausible(word)) continue;
      const Item* item = item_at(word);
      const std::uint64_t state = platform.load(item->state);
      if (!is_live(state) || !fits(word, state)) continue;
      if (number == 0 && !checked && named_above(list, word, probe_of(item, state))) continue;
      ++stats.entries;
      out.pm_bytes += context_.heap.block_bytes(word & kOffsetMask);
      const std::uint64_t value = bytes_values_ ? platform.load(item->value) : 0;
      if (value > kGone) out.pm_bytes += context_.heap.block_bytes(value);
    }
    out.entries += stats.entries;
    out.pm_bytes += context_.heap.block_bytes(level.offset);
    return stats;
  }
};

}  // namespace perdure::clevel
