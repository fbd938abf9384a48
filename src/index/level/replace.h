// Replace: replaces the value of an item. One word is stored in place. An array that differs in its
// second word goes into the line's other slot; or it is replaced in place, and an Update line
// records that, which recovery applies again. level.I3 and level.I4 for these stores.
//
// ORDERING  of replace_in_place; each step comes after the fence of the step before:
//   Update line (its place last) -> the slot's words -> place of the Update 0. A crash keeps a
//   prefix of a line's stores, so an Update that has its place has its value. It names a slot whose
//   lock is held until the Update is gone, so no other value can have come into the slot.
#pragma once

#include <cstring>

#include "index/level/drain.h"

namespace perdure::level {

// What a mutation passes to an attempt under locks, and what it gets back.
struct Fresh {
  std::uint64_t record = 0;    // a durable record that nothing names
  std::uint64_t replaced = 0;  // a record that nothing names any more
  std::uint64_t damaged = 0;   // a record that cannot be read
  bool found = false;
};

template <class T>
class Replace : public Drainer<T> {
 protected:
  using Base = Drainer<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::context_, Base::has_records, Base::hide, Base::load, Base::move_latches_,
      Base::persist, Base::persisted, Base::records_, Base::show, Base::updates, Base::value_bytes_;

 public:
  using Base::Base;

 protected:
  // `record`: for maps whose values have one.
  [[gnu::always_inline]] Item<T> item_of(const Probe& probe, const detail::Value& value,
                                         std::uint64_t record) const {
    if constexpr (Form::kArrays) {
      Item<T> item{.key = {probe.word, probe.second}, .value = {value.word, 0}};
      if (value_bytes_ != 0) std::memcpy(item.value, value.bytes.data(), value_bytes_);
      return item;
    } else {
      return {.key = {probe.word}, .value = {has_records() ? record : value.word}};
    }
  }

  // Returns whether one store of a word can replace the value, in the slot or in its record.
  [[gnu::always_inline]] bool in_place(const detail::Value& before,
                                       const detail::Value& value) const {
    if (!has_records()) return true;
    return Codec::kBytes && value.word_size != 0 && before.word_size == value.word_size;
  }

  // For an assertion.
  bool record_persisted(std::uint64_t record) const {
    const auto* prefix = records_.at(record);
    return context_.platform.persisted(prefix, RecordView::read(context_.platform, prefix).size());
  }

  // The caller holds the lock of the item's bucket. `fresh.record` is durable, or 0; if it is 0,
  // this may return `wants_record`.
  [[gnu::always_inline]] Made replace_value(const Place<T>& place, const Probe& probe,
                                            const detail::Value& value, Fresh& fresh,
                                            Locks<T>& locks) {
    if constexpr (Form::kArrays) {
      return replace_array(place, load(place), item_of(probe, value, 0), locks);
    } else {
      std::uint64_t& head = Form::head(place.line(), place.in_line());
      if (!has_records()) return store_word(place, head, value.word, locks);
      return replace_record(place, head, value, fresh, locks);
    }
  }

  // Recovery: stores the value of each Update again, even if its slot has it already. Then clears
  // the Updates, durably: after the next update of the slot, an old one must not count as one in
  // progress.
  [[gnu::noinline]] Status finish_updates()
    requires(Form::kArrays)
  {
    P& platform = context_.platform;
    bool wrote = false;
    for (layout::Update& update : updates()) {
      const std::uint64_t word = platform.load(update.place);
      if (word == 0 || !P::runs("level.recover.update"_site)) continue;
      wrote = true;
      Place<T> place = this->place_of(word & ~std::uint64_t{1});
      if (!place.found()) continue;
      place.slot += static_cast<std::uint32_t>(word & 1);
      Line<T>& line = place.line();
      if ((Form::tokens(platform, line) & place.bit()) == 0) continue;
      Item<T> item = load(place);
      item.value[0] = platform.load(update.value[0]);
      item.value[1] = platform.load(update.value[1]) & Form::kFirstTail;
      Form::put(platform, line, place.in_line(), item);
      platform.flush(&line, sizeof(line), "level.recover.update"_site);
    }
    if (!wrote) return {};
    if (!platform.fence("level.recover.update"_site)) return StatusCode::poisoned;
    for (layout::Update& update : updates()) {
      if (platform.load(update.place) == 0) continue;
      platform.store(update.place, 0);
      platform.flush(&update.place, 8, "level.recover.update_clear"_site);
    }
    return platform.fence("level.recover.update_clear"_site) ? Status() : StatusCode::poisoned;
  }

 private:
  // Stores one word, which the medium then has as it was or as it is.
  [[gnu::always_inline]] Made store_word(const Place<T>& place, std::uint64_t& target,
                                         std::uint64_t word, Locks<T>& locks) {
    P& platform = context_.platform;
    locks.changed(place.tier, place.bucket);
    platform.store(target, word);
    if (!persist(&target, sizeof(target), "level.update.value"_site))
      return Made::failed;  // PP(update)
    PERDURE_ASSERT(P, "level.I4", platform.persisted(&target, sizeof(target)));
    return Made::done;
  }

  [[gnu::noinline]] Made replace_record(const Place<T>& place, std::uint64_t& head,
                                        const detail::Value& value, Fresh& fresh, Locks<T>& locks) {
    const Item<T> item = load(place);
    const std::uint64_t link = item.value[0];
    detail::Value before;
    if (!this->value_of(item, before)) {
      fresh.damaged = link;
      return Made::failed;
    }
    if (in_place(before, value)) {
      return store_word(place, const_cast<RecordPrefix*>(records_.at(link))->value, value.word,
                        locks);
    }
    if (fresh.record == 0) return Made::wants_record;
    PERDURE_ASSERT(P, "level.I3", record_persisted(fresh.record));
    const Made made = store_word(place, head, fresh.record, locks);
    if (made == Made::done) {
      fresh.record = 0;
      fresh.replaced = link;
    }
    return made;
  }

  // Replaces a value of two words. If only the first word differs, one store does it. If the line's
  // other slot is free, the value goes there: one store sets that slot's token and clears this
  // one's. Else the value is replaced in place, under an Update.
  [[gnu::noinline]] Made replace_array(const Place<T>& place, const Item<T>& before,
                                       const Item<T>& item, Locks<T>& locks)
    requires(Form::kArrays)
  {
    P& platform = context_.platform;
    Line<T>& line = place.line();
    if (item.value[1] == before.value[1]) {
      return store_word(place, Form::head(line, place.in_line()), item.value[0], locks);
    }
    locks.changed(place.tier, place.bucket);
    const std::uint32_t own = place.in_line();
    const Place<T> other{place.tier, place.bucket, place.slot - own + (1 - own)};
    if ((Form::tokens(platform, line) & other.bit()) != 0) return replace_in_place(place, item);
    Form::put(platform, line, other.in_line(), item, place.bit());
    if (!persist(&line, sizeof(line), "level.update.slot"_site)) return Made::failed;  // PP(update)
    PERDURE_ASSERT(P, "level.I4", persisted(line));
    show(other, place.meta().print(place.slot));
    hide(place);
    return Made::done;
  }

  // Stores the Update, then the value, then clears the Update. All that happens under the lock of
  // the slot: otherwise recovery could bring this value back after a later change of the slot.
  [[gnu::noinline]] Made replace_in_place(const Place<T>& place, const Item<T>& item)
    requires(Form::kArrays)
  {
    P& platform = context_.platform;
    const std::uint32_t number = P::thread_slot() % kMoveLines;
    LatchGuard latch(move_latches_[number]);
    layout::Update& update = updates()[number];
    platform.store(update.value[0], item.value[0]);
    platform.store(update.value[1], item.value[1]);
    platform.store(update.place, place.line_offset() | place.in_line());
    if (!persist(&update, sizeof(update), "level.update.record"_site))
      return Made::failed;  // PP(update)
    PERDURE_ASSERT(P, "level.I3", platform.persisted(&update, sizeof(update)));
    Form::put(platform, place.line(), place.in_line(), item);
    if (!persist(&place.line(), sizeof(Line<T>), "level.update.array"_site)) return Made::failed;
    PERDURE_ASSERT(P, "level.I4", persisted(place.line()));
    platform.store(update.place, 0);
    if (!persist(&update.place, 8, "level.update.clear"_site)) return Made::failed;
    PERDURE_ASSERT(P, "level.I4", platform.persisted(&update.place, 8));
    return Made::done;
  }
};

}  // namespace perdure::level
