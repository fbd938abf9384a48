// Recovery: reads the root block and the list of levels, ends what a crash left unfinished, and
// builds fingerprints and counts. It restores level.I1 to level.I3 after a crash. It also has the
// checksums that a clean close stores and that the next open compares (E21, E27), and the check,
// the audit and the statistics. No mutation is in progress in a check or an audit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "index/closed_sum.h"
#include "index/engine_report.h"
#include "index/level/write.h"
#include "index/root.h"

namespace perdure::level {

template <class T>
class Recovery : public Write<T> {
 protected:
  using Base = Write<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::check_record, Base::clear_token, Base::context_, Base::current, Base::expect_growth,
      Base::find_locked, Base::finish_moves, Base::has_records, Base::kRootBytes, Base::kSlots,
      Base::key_bytes_, Base::key_of, Base::load, Base::may_hold, Base::may_shrink_,
      Base::moves_begun_, Base::moves_ended_, Base::pass_over, Base::probe_of, Base::record_values_,
      Base::records_, Base::resize_begins, Base::resizes_, Base::root_, Base::root_offset_,
      Base::seeds_, Base::value_bytes_, Base::value_of, Base::word_records_;

 public:
  using Base::Base;

  Expected<Recovered> recover(bool clean) override {
    if (Status s = read_root(); !s.ok()) return fail(std::move(s));
    if (Status s = read_descriptor(clean); !s.ok()) return fail(std::move(s));
    closed_ = clean;
    if (!clean) {
      if constexpr (Form::kArrays) {
        if (Status s = this->finish_updates(); !s.ok()) return fail(std::move(s));
      }
      if (Status s = finish_moves(); !s.ok()) return fail(std::move(s));
    }
    View<T>& view = *current();
    // The level that is being drained comes last. An item of it that is also in another level is
    // dropped there, before it is marked a second time.
    const Tier<T>* source = view.drain == Drain::none ? nullptr : &view.source();
    std::uint64_t sum = 0;
    for (const bool drained : {false, true}) {
      for (Tier<T>* tier : view.all()) {
        if ((tier == source) != drained) continue;
        Status s = for_each_bucket(*tier, sum, [&](std::uint64_t bucket, std::uint64_t& share) {
          if (clean) share += sum_of(*tier, bucket);
          return recover_bucket(*tier, bucket, clean, drained && !clean);
        });
        if (!s.ok()) return fail(std::move(s));
      }
    }
    // E27.
    if (clean && !matches<P>(context_.platform.load(root_->closed) >> 32 == short_sum(sum),
                             "level.close.sum"_site)) {
      if (Status s = pass_over(differs_from_close("buckets")); !s.ok()) return fail(std::move(s));
    }
    view.turn_search();
    expect_growth(view);
    for (std::uint32_t i = 2; i < view.levels; ++i) {
      resize_begins(view, view, view.drain == Drain::top);  // it goes on
    }
    return Recovered::done;
  }

  Status close() override {
    P& platform = context_.platform;
    const View<T>& view = *current();
    std::uint64_t sum = 0;
    for (const Tier<T>* tier : view.all()) {
      Status s = for_each_bucket(*tier, sum, [&](std::uint64_t bucket, std::uint64_t& share) {
        for (std::uint32_t first = 0; first < kSlots; first += Form::kSlots) {
          const Line<T>& line = tier->line(bucket, first);
          std::uint64_t& word = tier->check(bucket, first);
          std::uint64_t crcs = std::uint64_t{line_crc(line)} << Tier<T>::check_bit(first);
          if constexpr (Form::kArrays) {
            crcs |= platform.load(word) & ~(0xFFFF'FFFFULL << Tier<T>::check_bit(first));
          } else {
            crcs |= std::uint64_t{values_crc(line)} << 32;
          }
          if (platform.load(word) == crcs) continue;
          platform.store(word, crcs);
          platform.flush(&word, 8, "level.close.line"_site);
        }
        share += sum_of(*tier, bucket);
        return Status();
      });
      if (!s.ok()) return s;
    }
    const std::uint64_t closed =
        closed_crc(view.descriptor, view.generation) | std::uint64_t{short_sum(sum)} << 32;
    if (platform.load(root_->closed) != closed) {
      platform.store(root_->closed, closed);
      platform.flush(&root_->closed, 8, "level.close.root"_site);
    }
    return {};
  }

  // --- check, audit and statistics ---

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
  // Checks the root block before it uses any field of it.
  [[gnu::noinline]] Status read_root() {
    if (Status s = context_.heap.mark(root_offset_, "level.recover.mark_root"_site); !s.ok()) {
      return s;
    }
    const layout::Root& image = *root_;
    if (context_.heap.block_bytes(root_offset_) < kRootBytes) return bad_root("size");
    if (image.magic != layout::kRootMagic) return bad_root("magic");
    if (!root_intact<P>(image, Base::kRootCrc)) return bad_root("checksum");
    if (image.geometry != T::Geometry::kBucketLines || image.first_log == 0 ||
        image.first_log > kMaxLog) {
      return bad_root("geometry");
    }
    if (((image.flags & layout::kBytesKeys) != 0) != Codec::kBytes ||
        ((image.flags & layout::kArrayLines) != 0) != Form::kArrays) {
      return bad_root("key kind");
    }
    if (image.key_bytes > kMaxArrayKeyBytes || image.value_bytes > kMaxArrayValueBytes) {
      return bad_root("sizes of arrays");
    }
    key_bytes_ = image.key_bytes;
    value_bytes_ = image.value_bytes;
    record_values_ = (image.flags & layout::kRecordValues) != 0;
    word_records_ = (image.flags & layout::kWordRecords) != 0;
    may_shrink_ = (image.flags & layout::kMayShrink) != 0;
    seeds_ = {{image.seeds[0], image.seeds[1]}};
    return {};
  }

  // Makes the view of the current levels, without their items.
  [[gnu::noinline]] Status read_descriptor(bool clean) {
    Heap<P>& heap = context_.heap;
    const std::uint64_t offset = context_.platform.load(root_->descriptor);
    if (!heap.contains(offset, sizeof(layout::Descriptor)) || offset % kLine != 0) {
      return bad_levels("place");
    }
    if (Status s = heap.mark(offset, "level.recover.mark_descriptor"_site); !s.ok()) return s;
    const layout::Descriptor image = *heap.template at<layout::Descriptor>(offset);
    if (heap.block_bytes(offset) < sizeof(image)) return bad_levels("size");
    if (!Base::descriptor_intact(image)) return bad_levels("checksum");
    const auto closed = static_cast<std::uint32_t>(context_.platform.load(root_->closed));
    if (clean &&
        !matches<P>(closed == closed_crc(offset, image.generation), "level.root.closed_crc"_site)) {
      return bad_levels("not the one that was closed");
    }
    const auto drain = static_cast<Drain>(image.drain);
    const bool settled = drain == Drain::none ? image.levels == 2 : image.levels > 2;
    if (image.levels < 2 || image.levels > kMaxLevels || image.drain > 2 || !settled ||
        (drain == Drain::top && image.levels != 3) || image.top_log > kMaxLog ||
        image.top_log + 1U < image.levels) {
      return bad_levels("shape");
    }
    auto* view = new (std::nothrow) View<T>;
    if (view == nullptr) return StatusCode::out_of_memory;
    view->descriptor = offset;
    view->generation = image.generation;
    view->drain = drain;
    this->view_.store(view, std::memory_order_release);  // from here on the destructor deletes it
    for (std::uint32_t i = 0; i < image.levels; ++i) {
      const std::uint64_t at = image.offsets[i];
      const std::uint32_t log = image.top_log - i;
      if (!heap.contains(at, Tier<T>::bytes_of(log)) || at % kLine != 0) {
        return bad_levels("place of a level");
      }
      if (Status s = heap.mark(at, "level.recover.mark_level"_site); !s.ok()) return s;
      if (heap.block_bytes(at) < Tier<T>::bytes_of(log)) return bad_levels("size of a level");
      Tier<T>* tier = Tier<T>::make(at, log, heap.template at<Line<T>>(at));
      if (tier == nullptr) return StatusCode::out_of_memory;
      view->add(tier);
    }
    return {};
  }

  // Sets fingerprints and counts of a bucket, and marks its records. `twice`: its items may be in
  // other levels, too.
  [[gnu::noinline]] Status recover_bucket(Tier<T>& tier, std::uint64_t bucket, bool clean,
                                          bool twice) {
    P& platform = context_.platform;
    const auto bad = [&](const char* what) {
      return pass_over(damaged_object("the bucket", tier.bucket_offset(bucket), what));
    };
    std::int64_t count = 0;
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      const Place<T> place{&tier, bucket, slot};
      Line<T>& line = place.line();
      const std::uint64_t tokens = Form::tokens(platform, line);
      if (slot % Form::kSlots == 0) {
        if (tokens >> Form::kSlots != 0) {
          if (Status s = bad("tokens"); !s.ok()) return s;
          continue;
        }
        // Before the records that the line names are looked at. The checksum of the values in the
        // records comes after that.
        if (clean && !line_intact(tier, bucket, slot, false)) {
          if (Status s = bad("checksum"); !s.ok()) return s;
        }
      }
      if ((tokens & place.bit()) == 0) continue;
      const Item<T> item = load(place);
      const Probe probe = probe_of(item);
      if (!may_hold(tier, bucket, probe)) {
        if (Status s = bad("a key in a foreign bucket"); !s.ok()) return s;
        continue;
      }
      if (twice && is_twice(tier, item, probe) && P::runs("level.recover.twice"_site)) {
        clear_token(place);
        platform.flush(&line.tokens, 8, "level.recover.twice"_site);
        continue;
      }
      if constexpr (Form::kArrays) {
        if (!clean && is_double(place, item, probe) && P::runs("level.recover.double"_site)) {
          clear_token(place);
          platform.flush(&line.tokens, 8, "level.recover.double"_site);
          continue;
        }
      }
      if (has_records()) {
        if (Status s = mark_record(item.value[0]); !s.ok()) {
          if (Status p = pass_over(std::move(s)); !p.ok()) return p;
          continue;
        }
      }
      place.meta().set_print(slot, probe.print);
      ++count;
    }
    if (clean && word_records_) {
      for (std::uint32_t first = 0; first < kSlots; first += Form::kSlots) {
        if (line_intact(tier, bucket, first, true)) continue;
        if (Status s = bad("checksum of values"); !s.ok()) return s;
      }
    }
    if (count != 0) tier.add(count);
    return {};
  }

  [[gnu::always_inline]] Status mark_record(std::uint64_t offset) {
    Status s = check_record(offset, false);
    if (s.ok()) s = context_.heap.mark(offset, "level.recover.mark_record"_site);
    if (s.ok() && context_.heap.block_bytes(offset) == 0) s = Records<P>::damaged(offset);
    return s;
  }

  // Returns whether the key is also in an earlier slot of the bucket: a crash has ended an update
  // between its two slots (E30).
  bool is_double(const Place<T>& place, const Item<T>& item, const Probe& probe) const {
    for (Place<T> other{place.tier, place.bucket, 0}; other.slot < place.slot; ++other.slot) {
      if (other.meta().print(other.slot) == probe.print && Base::same_item(item, load(other))) {
        return true;
      }
    }
    return false;
  }

  // Returns whether an item of the level that is being drained is also in another level.
  [[gnu::noinline]] bool is_twice(const Tier<T>& source, const Item<T>& item,
                                  const Probe& probe) const {
    for (Tier<T>* tier : current()->all()) {
      if (tier == &source) continue;
      for (const std::uint64_t hash : probe.hashes) {
        Place<T> other{tier, tier->index(hash), 0};
        for (; other.found(); ++other.slot) {
          if (other.meta().print(other.slot) != 0 && Base::same_item(item, load(other))) {
            return true;
          }
        }
      }
    }
    return false;
  }

  // --- checksums of a clean close ---

  // Calls visit(bucket, share) for all buckets, in parallel, and stops at the first error. Each
  // worker fences what it has written back. The shares are added to `sum`.
  template <class F>
  Status for_each_bucket(const Tier<T>& tier, std::uint64_t& sum, F&& visit) {
    constexpr std::uint64_t kPiece = 4096;
    typename P::Latch latch;
    Status first_error;
    const std::uint64_t pieces = (tier.buckets() + kPiece - 1) / kPiece;
    const std::size_t workers = std::min<std::uint64_t>(std::max(context_.threads, 1U), pieces);
    typename P::template Atomic<std::uint64_t> next{0};
    P::parallel(workers, [&](std::size_t) {
      Status s;
      std::uint64_t share = 0;
      while (s.ok()) {
        const std::uint64_t piece = next.fetch_add(1, std::memory_order_relaxed);
        if (piece >= pieces) break;
        const std::uint64_t end = std::min((piece + 1) * kPiece, tier.buckets());
        for (std::uint64_t b = piece * kPiece; b < end && s.ok(); ++b) s = visit(b, share);
      }
      if (!context_.platform.fence("level.each.bucket"_site) && s.ok()) s = StatusCode::poisoned;
      LatchGuard guard(latch);
      sum += share;
      if (first_error.ok()) first_error = std::move(s);
    });
    return first_error;
  }

  static std::uint32_t closed_crc(std::uint64_t descriptor, std::uint64_t generation) {
    const std::uint64_t words[2] = {descriptor, generation};
    return crc32c(0, words, sizeof(words));
  }

  // `values`: compares the checksum of the word values in records, else that of the line.
  [[gnu::noinline]] bool line_intact(const Tier<T>& tier, std::uint64_t bucket, std::uint32_t slot,
                                     bool values) const {
    const Line<T>& line = tier.line(bucket, slot);
    const std::uint64_t crcs = context_.platform.load(tier.check(bucket, slot));
    if (values) {
      return matches<P>(static_cast<std::uint32_t>(crcs >> 32) == values_crc(line),
                        "level.values.crc"_site);
    }
    return matches<P>(
        static_cast<std::uint32_t>(crcs >> Tier<T>::check_bit(slot)) == line_crc(line),
        "level.line.crc"_site);
  }

  // Whether the slot's line is as the close has left it. True if the pool was not closed: then
  // there is no checksum. No mutation has run since the open.
  bool as_closed(const Tier<T>& tier, std::uint64_t bucket, std::uint32_t slot) const {
    return !closed_ || (line_intact(tier, bucket, slot, false) &&
                        (!word_records_ || line_intact(tier, bucket, slot, true)));
  }

  // Returns what the checksums of a bucket's lines add to the sum of all (E27).
  std::uint64_t sum_of(const Tier<T>& tier, std::uint64_t bucket) const {
    std::uint64_t sum = 0;
    for (std::uint32_t slot = 0; slot < kSlots; slot += Form::kArrays ? kSlots : Form::kSlots) {
      const std::uint64_t& word = tier.check(bucket, slot);
      const auto place = reinterpret_cast<const std::byte*>(&word) -
                         reinterpret_cast<const std::byte*>(tier.lines);
      sum += closed_term(tier.offset + static_cast<std::uint64_t>(place),
                         context_.platform.load(word));
    }
    return sum;
  }

  // A line that was never used has checksum 0, so close writes nothing to it.
  std::uint32_t line_crc(const Line<T>& line) const {
    static constexpr Line<T> kZero{};
    if (std::memcmp(&line, &kZero, Form::kCoveredBytes) == 0) return 0;
    return crc32c(0, &line, Form::kCoveredBytes);
  }

  // Returns the checksum of the word values, which are updated in place, so that no record's own
  // checksum covers them.
  [[gnu::noinline]] std::uint32_t values_crc(const Line<T>& line) const {
    std::uint64_t words[Form::kSlots];
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < Form::kSlots && word_records_; ++i) {
      if ((Form::tokens(context_.platform, line) >> i & 1) == 0) continue;
      const std::uint64_t offset = Form::load(context_.platform, line, i).value[0];
      if (!check_record(offset, false).ok()) continue;
      words[count++] = context_.platform.load(records_.at(offset)->value);
    }
    return count == 0 ? 0 : crc32c(0, words, count * sizeof(words[0]));
  }

  // --- check, audit and statistics ---

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
      Probe probe = probe_of(item);
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
      const Place<T> first = find_locked(view, probe);
      if (first.tier != &tier || first.bucket != bucket || first.slot != slot) {
        violates("level.I2", "holds a key that is elsewhere too");
      }
      // A damaged slot may name a record that was freed.
      const bool sound = report.violation_count == before;
      if (report.whole_entries == nullptr || !sound || !as_closed(tier, bucket, slot)) {
        continue;
      }
      detail::Entry entry;
      if (!value_of(item, entry.value)) continue;
      entry.key = key_of(item);
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

  bool closed_ = false;  // the pool was closed before this open
};

}  // namespace perdure::level
