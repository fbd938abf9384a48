// Recovery: reads the root block and the ring at open, walks the slots while the map serves, and
// closes the items; checks, enumerates blocks, and counts. clevel.I2, clevel.I7, clevel.I8,
// clevel.I9 (the sum), clevel.I10.
//
// CHECK  check() verifies clevel.I1, clevel.I2 and clevel.I3, and enumerate() names the blocks,
//   while no mutation is in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "index/clevel/write.h"
#include "index/engine_report.h"
#include "index/root.h"

namespace perdure::clevel {

template <class T>
class Recovery : public Write<T> {
  using Base = Write<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;

 public:
  Expected<Recovered> recover(bool clean) override {
    if (stripes_ == nullptr) return fail(StatusCode::out_of_memory);
    clean_ = clean;
    if (Status s = read_root(); !s.ok()) return fail(std::move(s));
    if (Status s = read_levels(); !s.ok()) return fail(std::move(s));
    if (context_.platform.load(root_->opened) != 0) return Recovered::marking;
    verified_.store(true, std::memory_order_release);  // no thread has ever stored into it
    return Recovered::done;
  }

  // Walks the slots of the levels found at open. A level made since then holds items that were
  // marked when they were copied, and new ones. No level goes meanwhile (clevel.I7).
  Expected<bool> mark_some(std::uint64_t budget) noexcept override {
    if (damaged_.load(std::memory_order_relaxed)) return fail(known_damage());
    EpochGuard<P> guard(context_.epochs);
    if (!guard.ok()) return fail(StatusCode::out_of_memory);
    const Moving moving(*this);
    const LevelList& list = levels();
    bool wrote = false;
    Status s;
    const std::uint64_t buckets = std::max<std::uint64_t>(budget / (8 * G::kSlots), 1);
    for (std::uint64_t n = 0; n < buckets && !walk_is_over(list); ++n) {
      if (mark_bucket_ == list.levels[mark_level_]->count) {
        ++mark_level_;
        mark_bucket_ = 0;
      }
      Bucket& bucket = list.levels[mark_level_]->buckets[mark_bucket_];
      if (clean_) sum_bucket(bucket);
      s = mark_bucket(list, bucket, wrote);
      if (!s.ok()) break;
      ++mark_bucket_;
      ++mark_rank_;
    }
    const bool over = walk_is_over(list);
    if (s.ok() && over) s = verify_sum();
    // The sum lacks a mutation that has failed on the way, and pages that were lost read as zeros.
    if (!s.ok() && context_.platform.poisoned()) s = context_.platform.failure();
    if (s == StatusCode::corruption) {
      note_damage();
      wrote = true;
    }
    // A cleared slot is durable before the sweep can free the block that it named (clevel.I4).
    if (wrote && !context_.platform.fence("clevel.mark.slot"_site) && s.ok()) {
      s = StatusCode::poisoned;
    }
    PERDURE_ASSERT(P, "clevel.I10",
                   s != StatusCode::corruption || context_.platform.poisoned() ||
                       context_.platform.persisted(&root_->damaged, sizeof(root_->damaged)));
    if (!s.ok()) return fail(std::move(s));
    if (!over) return true;
    found_.store(marked_ - this->gained(), std::memory_order_relaxed);
    verified_.store(true, std::memory_order_release);
    context_.background.wake(rehash_);
    return false;
  }

  // clevel.I8. The walk ends first: it clears the slots that a killed process left.
  [[gnu::noinline]] Status close() override {
    constexpr std::uint64_t kBudget = 1 << 16;
    (void)this->give_back_ahead();
    while (!verified_.load(std::memory_order_relaxed)) {
      if (auto more = mark_some(kBudget); !more) return std::move(more.error());
    }
    P& platform = context_.platform;
    std::uint64_t sum = 0;
    for (const Level* level : *levels_.load(std::memory_order_relaxed)) sum += close_level(*level);
    if (platform.load(root_->slots_sum) != sum) {
      platform.store(root_->slots_sum, sum);
      platform.flush(&root_->slots_sum, sizeof(sum), "clevel.close.sum"_site);
    }
    return {};
  }

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
  using Base::added_ahead_, Base::ahead_latch_, Base::bytes_values_, Base::clean_, Base::context_,
      Base::damaged_, Base::fits, Base::for_each_match, Base::found_, Base::is_item_block,
      Base::item_at, Base::kBytesKeys, Base::kSumLatches, Base::level_word, Base::levels,
      Base::levels_, Base::look_at, Base::named_above, Base::offset_of, Base::persist,
      Base::plausible, Base::probe_of, Base::rehash_, Base::resize_latch_, Base::root_,
      Base::root_offset_, Base::search, Base::seed_, Base::slot_term, Base::slots_of,
      Base::stripes_, Base::sum_latches_, Base::summed_, Base::value_at, Base::verified,
      Base::verified_, Base::whole;
  using Base::Base;
  using typename Base::Moving, typename Base::Pause;

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
  // Checks the whole root block before it uses any field.
  [[gnu::noinline]] Status read_root() {
    if (Status s = context_.heap.mark(root_offset_); !s.ok()) return s;
    if (context_.heap.block_bytes(root_offset_) < sizeof(Root)) return bad_root("size");
    if (!context_.settle(root_offset_, sizeof(Root))) return StatusCode::poisoned;
    const Root image = *root_;
    if (image.magic != layout::kRootMagic) return bad_root("magic");
    if (image.slots != G::kSlots) return bad_root("geometry");
    if (!root_intact<P>(image, Base::kRootCrc)) return bad_root("checksum");
    if (((image.flags & layout::kBytesKeys) != 0) != kBytesKeys) return bad_root("key kind");
    if (image.opened != 0 && image.opened != layout::kOpened) return bad_root("state");
    if (image.damaged != 0 && image.damaged != layout::kDamaged) return bad_root("state");
    damaged_.store(image.damaged != 0, std::memory_order_relaxed);
    bytes_values_ = (image.flags & layout::kBytesValues) != 0;
    seed_ = {.a = image.seed[0], .b = image.seed[1]};
    return {};
  }

  // clevel.I1. The run of words in the ring begins behind a 0.
  [[gnu::noinline]] Status read_levels() {
    const P& platform = context_.platform;
    const auto word_at = [&](std::uint32_t i) { return platform.load(root_->levels[i % kRing]); };
    std::uint32_t begin = 0;
    while (begin < kRing && (word_at(begin) == 0 || word_at(begin + kRing - 1) != 0)) ++begin;
    if (begin == kRing) return bad_levels("no end");
    auto* list = new (std::nothrow) LevelList;
    if (list == nullptr) return StatusCode::out_of_memory;
    levels_.store(list, std::memory_order_release);
    for (std::uint32_t i = 0; i < kRing; ++i) {
      const std::uint64_t word = word_at(begin + i);
      if (i >= kMaxLevels || word == 0) {
        if (word != 0) return bad_levels("two runs");
        continue;
      }
      if (list->count != i) return bad_levels("two runs");
      const std::uint64_t log = word & 63;
      const std::uint64_t offset = word & kOffsetMask & ~std::uint64_t{63};
      if (log < 1 || log > kMaxLogBuckets || word != level_word(offset, 1ULL << log))
        return bad_levels("checksum");
      if (Status s = context_.heap.mark(offset); !s.ok()) return s;
      if (context_.heap.block_bytes(offset) < (sizeof(Bucket) << log)) return bad_levels("block");
      auto* level = new (std::nothrow) Level;
      if (level == nullptr) return StatusCode::out_of_memory;
      *level = {.buckets = context_.heap.template at<Bucket>(offset),
                .count = 1ULL << log,
                .offset = offset,
                .ring = (begin + i) % kRing,
                .inherited = true,
                .number = i};
      list->levels[list->count++] = level;
    }
    return list->count >= 2 ? Status() : bad_levels("too short");
  }

  // Whether the walk has been through all levels found at open. They come first in the list.
  bool walk_is_over(const LevelList& list) const {
    return mark_bucket_ == list.levels[mark_level_]->count &&
           (mark_level_ + 1 == list.count || !list.levels[mark_level_ + 1]->inherited);
  }

  // Marks what the slots of the bucket name, and clears the slots of dead and torn items.
  [[gnu::noinline]] Status mark_bucket(const LevelList& list, Bucket& bucket, bool& wrote) {
    P& platform = context_.platform;
    Heap<P>& heap = context_.heap;
    // Whether a seal may be here (clevel.I2). Levels made since the open begin no drain.
    const bool drained = mark_level_ == 0 && list.growing() && list.levels[2]->inherited;
    for (std::uint32_t i = 0; i < G::kSlots; ++i) {
      std::uint64_t& slot = bucket.slots[i];
      std::uint64_t word = platform.load(slot);
      if (word == kSealed && !drained) return damaged_at(offset_of(&slot));
      while (word != 0 && word != kSealed) {
        const std::uint64_t offset = word & kOffsetMask;
        if ((word & 15) != 0 || word >> kOffsetBits == 0 || !is_item_block(offset)) {
          return damaged_at(offset);
        }
        const std::uint64_t state = platform.load(item_at(word)->state);
        // An insert of this process will show the item or clear the slot. The sweep does not free
        // its block. What a dead process has left pending is torn.
        if (is_pending(state) && !heap.unmarked(offset) && P::runs("clevel.mark.pending"_site)) {
          break;
        }
        const Look look = look_at(slot, word, state);
        if (look == Look::changed) {
          word = platform.load(slot);
          continue;
        }
        const bool dead = (state & (kLive | kDead)) == kDead;
        // If an item died after a clean close, its state says in which slot it was.
        const bool died_here = dead && (!clean_ || state == dead_state(offset_of(&slot)));
        if (look == Look::damaged && !died_here) return damaged_at(offset);
        bool clears = dead || look != Look::whole;
        // A dead process has left the item, or an erase of this one will clear the slot, too. A
        // thread that finds the slot empty does not know of the death.
        if (dead && !persist(item_at(word), sizeof(Item), "clevel.mark.dead"_site)) {
          return StatusCode::poisoned;
        }
        std::uint64_t value = 0;
        if (!clears) {
          value = bytes_values_ ? platform.load(item_at(word)->value) : 0;
          const Probe probe = probe_of(item_at(word), state);
          if (value == kGone || probe.tag() != word >> kOffsetBits) {
            if (platform.load(item_at(word)->state) == state) return damaged_at(offset);
            word = platform.load(slot);
            continue;
          }
          // A move was cut short. The slot above was durable before the mark, and will be marked.
          clears = !clean_ && mark_level_ == 0 && named_above(list, word, probe) &&
                   P::runs("clevel.mark.twice"_site);
        }
        if (clears) {
          if (!platform.compare_exchange(slot, word, 0)) continue;
          platform.flush(&slot, sizeof(slot), "clevel.mark.slot"_site);
          wrote = true;
          break;
        }
        ++marked_;
        if (Status s = heap.mark_serving(offset, "clevel.mark.item"_site); !s.ok()) return s;
        if (value != 0) {
          if (Status s = heap.mark_serving(value); !s.ok()) return s;
        }
        break;
      }
    }
    return {};
  }

  // Adds up the slots of the bucket that the walk comes to. Changes from here on do not count
  // (clevel.I9).
  [[gnu::noinline]] void sum_bucket(const Bucket& bucket) {
    // A step that has failed has summed it already.
    if (summed_.load(std::memory_order_relaxed) > mark_rank_) return;
    const LatchGuard guard(sum_latches_[mark_rank_ % kSumLatches]);
    for (std::uint32_t i = 0; i < G::kSlots; ++i) {
      slots_summed_ += slot_term(bucket.slots[i], context_.platform.load(bucket.slots[i]));
    }
    summed_.store(mark_rank_ + 1, std::memory_order_relaxed);
  }
  // Checks that every slot is as the close left it or has been changed since.
  Status verify_sum() const {
    const std::uint64_t closed = slots_summed_ - added_ahead_.load(std::memory_order_relaxed);
    if (!clean_ ||
        matches<P>(closed == context_.platform.load(root_->slots_sum), "clevel.slots.sum"_site)) {
      return {};
    }
    return differs_from_close("slots");
  }
  // clevel.I10. The next open cannot find the damage out: after a crash, an item or slot that was
  // lost whole looks like one that never was. The caller fences.
  [[gnu::noinline]] void note_damage() {
    damaged_.store(true, std::memory_order_release);
    context_.platform.store(root_->damaged, layout::kDamaged);
    context_.platform.flush(&root_->damaged, sizeof(root_->damaged), "clevel.mark.slot"_site);
  }

  // Closes the items and returns the sum of the slots. Does not write the items back: an item that
  // a power failure leaves open lacks only the check of its value.
  [[gnu::noinline]] std::uint64_t close_level(const Level& level) {
    constexpr std::uint64_t kAheadBuckets = 4;
    P& platform = context_.platform;
    std::uint64_t sum = 0;
    const auto items_of = [&](std::uint64_t bucket, auto&& visit) {
      for (const std::uint64_t& slot : level.buckets[bucket].slots) {
        const std::uint64_t word = platform.load(slot);
        if (word > kSealed && plausible(word)) visit(item_at(word));
      }
    };
    for (std::uint64_t b = 0; b < level.count; ++b) {
      if (b + kAheadBuckets < level.count) {
        items_of(b + kAheadBuckets, [](Item* item) { __builtin_prefetch(item, 1); });
      }
      for (std::uint32_t i = 0; i < G::kSlots; ++i) {
        const std::uint64_t& slot = level.buckets[b].slots[i];
        sum += slot_term(slot, platform.load(slot));
      }
      items_of(b, [&](Item* item) {
        const std::uint64_t state = platform.load(item->state);
        PERDURE_ASSERT(P, "clevel.I8", is_live(state) || platform.poisoned());
        if (!is_live(state) || is_closed(state)) return;
        platform.store(item->state, toggle_closed(state, platform.load(item->value)));
      });
    }
    return sum;
  }

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

  // For mark_some() only:
  std::uint32_t mark_level_ = 0;
  std::uint64_t mark_bucket_ = 0;
  std::uint64_t marked_ = 0;     // entries
  std::uint64_t mark_rank_ = 0;  // buckets that are done
  std::uint64_t slots_summed_ = 0;
};

}  // namespace perdure::clevel
