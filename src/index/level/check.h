// Check: invariants, audit and statistics. No mutation is in progress in a check or an audit.
#pragma once

#include "index/engine_report.h"
#include "index/level/close.h"
#include "index/root.h"

namespace perdure::level {

template <class T>
class Check : public Close<T> {
 protected:
  using Base = Close<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::check_record, Base::context_, Base::current, Base::has_records, Base::kSlots,
      Base::load, Base::may_hold, Base::moves_begun_, Base::moves_ended_, Base::records_,
      Base::resizes_, Base::root_, Base::root_offset_, Base::seeds_;

 public:
  using Base::Base;

  // Passes every block that the map can reach to `mark`. A block comes before the block that names
  // it.
  [[gnu::noinline]] Status enumerate(Status (Heap<P>::*mark)(std::uint64_t)) {
    Status s;
    const auto reach = [&](std::uint64_t offset) {
      if (s.ok()) s = (context_.heap.*mark)(offset);
    };
    const View<T>& view = *current();
    for (const Tier<T>* tier : view.all()) {
      for_each_record(*tier, reach);
      reach(tier->offset);
    }
    reach(view.descriptor);
    reach(root_offset_);
    return s;
  }

  void check(const CheckOptions& options, Findings& report) override {
    EpochGuard<P> guard(context_.epochs);
    const View<T>& view = *current();
    report.objects += 2;  // root block and descriptor
    if (!root_intact<P>(*root_, Base::kRootCrc)) report.add("level: damaged root block");
    const auto& descriptor = *context_.heap.template at<layout::Descriptor>(view.descriptor);
    if (context_.platform.load(root_->descriptor) != view.descriptor ||
        !Base::descriptor_intact(descriptor) || descriptor.levels != view.levels ||
        descriptor.generation != view.generation ||
        descriptor.drain != static_cast<std::uint8_t>(view.drain)) {
      report.add("level: the list of levels differs from what is in DRAM");
    }
    for (std::uint32_t i = 0; i < view.levels; ++i) {
      const Tier<T>& tier = *view.tiers[i];
      ++report.objects;
      report.bytes += Tier<T>::bytes_of(tier.log);
      if (tier.log + i != view.tiers[0]->log || descriptor.offsets[i] != tier.offset) {
        report.add("level: a level is not half of the one above it");
      }
      const std::uint64_t before = report.entries;
      for (std::uint64_t bucket = 0; bucket < tier.buckets(); ++bucket) {
        check_bucket(view, *view.tiers[i], bucket, options.deep, report);
        tell_progress(options, report, bucket, 4096);
      }
      if (report.entries - before != tier.items()) report.add("level: a level's count is wrong");
    }
  }

  void stats(EngineStats& out) override {
    EpochGuard<P> guard(context_.epochs);
    const View<T>& view = *current();
    out.engine = Engine::level;
    out.entries = items_at_rest(out.partial);
    out.load_factor = static_cast<double>(out.entries) / static_cast<double>(view.slots());
    out.height = view.levels;
    out.dram_bytes = sizeof(view);
    out.pm_bytes = context_.heap.block_bytes(root_offset_) + sizeof(layout::Descriptor);
    for (const Tier<T>* tier : view.all()) {
      if (!out.levels.push_back({tier->buckets() * kSlots, tier->items()})) out.partial = true;
      out.pm_bytes += Tier<T>::bytes_of(tier->log);
      out.dram_bytes += sizeof(*tier) + tier->buckets() * sizeof(Meta<P>);
      for_each_record(
          *tier, [&](std::uint64_t offset) { out.pm_bytes += context_.heap.block_bytes(offset); });
    }
    LatchGuard latch(this->resize_latch_);
    resizes_.copy_to(out);
  }

 private:
  // Calls visit(offset) for the records of a level.
  template <class F>
  [[gnu::always_inline]] void for_each_record(const Tier<T>& tier, F&& visit) const {
    for (std::uint64_t bucket = 0; bucket < tier.buckets() && has_records(); ++bucket) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        if (tier.metas[bucket].print(slot) != 0) visit(load(tier, bucket, slot).value[0]);
      }
    }
  }

  [[gnu::noinline]] void check_bucket(const View<T>& view, Tier<T>& tier, std::uint64_t bucket,
                                      bool deep, Findings& report) {
    const P& platform = context_.platform;
    const Meta<P>& meta = tier.metas[bucket];
    const auto violates = [&](const char* id, const char* what) {
      add_violation(report, id, "level bucket", tier.bucket_offset(bucket), what);
    };
    const auto bad = [&](const char* what) { violates("", what); };
    if ((meta.version.load(std::memory_order_acquire) & 1) != 0) bad("is locked");
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      const Place<T> place{&tier, bucket, slot};
      const std::uint64_t tokens = Form::tokens(platform, place.line());
      if (slot % Form::kSlots == 0 && tokens >> Form::kSlots != 0) bad("has unknown tokens");
      const bool counts = (tokens & place.bit()) != 0;
      if (counts != (meta.print(slot) != 0)) violates("level.I1", "differs from its fingerprints");
      if (!counts) continue;
      ++report.entries;
      const std::uint64_t before = report.violation_count;
      const Item<T> item = load(place);
      const std::uint64_t word = item.value[0];
      if (has_records()) {
        ++report.objects;
        report.bytes += context_.heap.block_bytes(word);
      }
      if (!deep) continue;
      if (has_records() && !check_record(word, true).ok()) {
        bad("names a damaged record");
        continue;
      }
      Probe probe = this->probe_of(item);
      if constexpr (Codec::kBytes) {
        const Probe whole =
            Codec::probe({.bytes = RecordView::read(platform, records_.at(word)).key()}, seeds_);
        if (whole.word != probe.word) bad("has a wrong hash");
        probe = whole;
      }
      if (meta.print(slot) != probe.print) bad("has a wrong fingerprint");
      if (!may_hold(tier, bucket, probe)) {
        violates("level.I1", "holds a foreign key");
        continue;
      }
      // The first place that a lookup meets. If a key has two copies, it is not that of one copy.
      const Place<T> first = this->find_locked(view, probe);
      if (first.tier != &tier || first.bucket != bucket || first.slot != slot) {
        violates("level.I2", "holds a key that is elsewhere too");
      }
      // A damaged slot may name a record that was freed.
      const bool sound = report.violation_count == before;
      if (report.whole_entries == nullptr || !sound || !this->as_closed(tier, bucket, slot)) {
        continue;
      }
      detail::Entry entry;
      if (!this->value_of(item, entry.value)) continue;
      entry.key = this->key_of(item);
      (*report.whole_entries)(entry);
    }
  }

  // Returns the number of items, each counted in one level of one list. Sets `partial` if rounds of
  // drains never pause. The caller is pinned.
  [[gnu::noinline]] std::uint64_t items_at_rest(bool& partial) {
    // Some tenths of a second: a mover may have lost its core to the system.
    constexpr unsigned kTries = 200'000;
    for (unsigned n = 0;; ++n) {
      const std::uint64_t ended = moves_ended_.load(std::memory_order_acquire);
      const View<T>* view = current();
      const std::uint64_t items = view->items();
      // A read-modify-write, so that it stays behind the counts.
      const bool still = moves_begun_.fetch_add(0, std::memory_order_acq_rel) == ended;
      if (still && current() == view) return items;
      if (n == kTries) {
        partial = true;
        return items;
      }
      P::pause(n);
    }
  }
};

}  // namespace perdure::level
