// Scan: for_each. Each entry that it delivers is durable, and so is each absence (clevel.I5).
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "index/clevel/plans.h"

namespace perdure::clevel {

template <class T>
class Scan : public Plans<T> {
  using Base = Plans<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;

 public:
  Expected<void> for_each(FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
    const Pause pause(*this);
    const LevelList& list = levels();
    Status s;
    bool more = true;
    for (std::uint32_t i = 0; i < list.count && more; ++i) {
      const Level& level = *list.levels[i];
      for (std::uint64_t b = 0; b < level.count && more; ++b) {
        more = deliver_bucket(list, i, level.buckets[b], visit, s);
      }
    }
    if (s.ok() && damaged_.load(std::memory_order_acquire)) s = known_damage();
    if (!s.ok()) return fail(std::move(s));
    return {};
  }

 protected:
  using Base::Base;
  using Base::begin_read, Base::bytes_values_, Base::context_, Base::damaged_, Base::item_at,
      Base::levels, Base::look_at, Base::make_durable, Base::named_above, Base::offset_of,
      Base::plausible, Base::probe_of, Base::value_at, Base::verified;
  using typename Base::Pause;

 private:
  // Delivers the entries of one bucket. Returns false if the visitor wants no more, or if it has
  // set `s` to an error.
  [[gnu::noinline]] bool deliver_bucket(const LevelList& list, std::uint32_t level, Bucket& bucket,
                                        FunctionRef<bool(std::span<const detail::Entry>)> visit,
                                        Status& s) {
    P& platform = context_.platform;
    detail::Entry entries[8];
    std::size_t count = 0;
    bool wrote = false;
    // Loaded before the slots: the walk of an open clears one of two that name an item.
    const bool checked = verified();
    for (std::uint32_t i = 0; i < G::kSlots && s.ok(); ++i) {
      const std::uint64_t word = platform.load(bucket.slots[i]);
      if (word == 0 || word == kSealed || !plausible(word)) continue;
      Item* item = item_at(word);
      const std::uint64_t state = platform.load(item->state);
      if (is_pending(state)) continue;
      if (!is_live(state)) {  // its key, and so its stripe, is not known any more
        (void)context_.settle(offset_of(item), sizeof(Item));
        platform.flush(item, sizeof(Item), "clevel.scan.dead"_site);
        wrote = true;
        continue;
      }
      if (!checked) {
        const Look look = look_at(bucket.slots[i], word, state);
        if (look == Look::changed) --i;  // this slot again
        if (look == Look::damaged) s = damaged_at(word & kOffsetMask);
        if (look != Look::whole) continue;
      }
      const Probe probe = probe_of(item, state);
      if (level == 0 && !checked && named_above(list, word, probe)) continue;
      const std::uint64_t value = platform.load(item->value);
      if (bytes_values_ && value == kGone) continue;
      const Found found{.item = item,
                        .word = word,
                        .slot = &bucket.slots[i],
                        .state = state,
                        .value = value,
                        .list = &list};
      if (s = make_durable(found, probe, 0); !s.ok()) break;
      detail::Entry& entry = entries[count];
      entry.key = {.word = probe.word, .bytes = probe.bytes};
      if (s = value_at(found, entry.value); s.ok()) ++count;
    }
    if (s.ok() && wrote && !platform.fence("clevel.scan.dead"_site)) s = StatusCode::poisoned;
    if (s.ok() && platform.poisoned()) s = platform.failure();
    return s.ok() && (count == 0 || visit({entries, count}));
  }
};

}  // namespace perdure::clevel
