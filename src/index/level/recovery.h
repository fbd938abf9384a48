// Recovery: reads the root block and the list of levels, ends what a crash left unfinished, and
// builds fingerprints and counts. level.I1 to level.I3 after a crash.
#pragma once

#include <new>
#include <utility>

#include "index/engine_report.h"
#include "index/level/check.h"
#include "index/root.h"

namespace perdure::level {

template <class T>
class Recovery : public Check<T> {
 protected:
  using Base = Check<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::context_, Base::current, Base::has_records, Base::kRootBytes, Base::kSlots,
      Base::key_bytes_, Base::line_intact, Base::load, Base::may_shrink_, Base::pass_over,
      Base::record_values_, Base::root_, Base::root_offset_, Base::seeds_, Base::value_bytes_,
      Base::word_records_;

 public:
  using Base::Base;

  Expected<Recovered> recover(bool clean) override {
    if (Status s = read_root(); !s.ok()) return fail(std::move(s));
    if (Status s = read_descriptor(clean); !s.ok()) return fail(std::move(s));
    this->closed_ = clean;
    if (!clean) {
      if constexpr (Form::kArrays) {
        if (Status s = this->finish_updates(); !s.ok()) return fail(std::move(s));
      }
      if (Status s = this->finish_moves(); !s.ok()) return fail(std::move(s));
    }
    View<T>& view = *current();
    // The level that is being drained comes last. An item of it that is also in another level is
    // dropped there, before it is marked a second time.
    const Tier<T>* source = view.drain == Drain::none ? nullptr : &view.source();
    std::uint64_t sum = 0;
    for (const bool drained : {false, true}) {
      for (Tier<T>* tier : view.all()) {
        if ((tier == source) != drained) continue;
        Status s =
            this->for_each_bucket(*tier, sum, [&](std::uint64_t bucket, std::uint64_t& share) {
              if (clean) share += this->sum_of(*tier, bucket);
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
    this->expect_growth(view);
    for (std::uint32_t i = 2; i < view.levels; ++i) {
      this->resize_begins(view, view, view.drain == Drain::top);  // it goes on
    }
    return Recovered::done;
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
    if (clean && !matches<P>(closed == Base::closed_crc(offset, image.generation),
                             "level.root.closed_crc"_site)) {
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
      view->tiers[view->levels++] = tier;
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
      const Probe probe = this->probe_of(item);
      if (!Base::may_hold(tier, bucket, probe)) {
        if (Status s = bad("a key in a foreign bucket"); !s.ok()) return s;
        continue;
      }
      if (twice && is_twice(tier, item, probe) && P::runs("level.recover.twice"_site)) {
        this->clear_token(place);
        platform.flush(&line.tokens, 8, "level.recover.twice"_site);
        continue;
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
    Status s = this->check_record(offset, false);
    if (s.ok()) s = context_.heap.mark(offset, "level.recover.mark_record"_site);
    if (s.ok() && context_.heap.block_bytes(offset) == 0) s = Records<P>::damaged(offset);
    return s;
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
};

}  // namespace perdure::level
