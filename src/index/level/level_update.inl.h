// Level: replacing a value. Included by level.h only.
//
// ORDERING  of what replace_in_place does, each step behind the fence of the one before:
//   Update line (its place last) -> the slot's words -> place of the Update 0. A crash keeps a
//   prefix of a line's stores, so an Update has its value if it has its place. It names a slot
//   whose lock is held until it is gone, so that no other value can have come into it.
#pragma once

#include "index/level/level.h"

namespace perdure::level {

// Whether a word can take the place of the value in the slot, or in the record that it names.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline bool Level<P, Codec, G>::in_place(
    const detail::Value& before, const detail::Value& value) const noexcept {
  if (!records()) return true;
  return Codec::kBytes && value.word_size != 0 && before.word_size == value.word_size;
}

// Its key's locks are held. `fresh.record` is durable, or 0: then `wants_record` may be the answer.
template <Platform P, class Codec, class G>
typename Level<P, Codec, G>::Made Level<P, Codec, G>::replace_value(const Place& place,
                                                                    const Probe& probe,
                                                                    const detail::Value& value,
                                                                    Fresh& fresh,
                                                                    Locks& locks) noexcept {
  const Item item = load(place);
  if constexpr (Form::kArrays) {
    return replace_array(place, item, item_of(probe, value, 0), locks);
  }
  std::uint64_t& head = Form::head(place.line(), place.in_line());
  if (!records()) return store_word(place, head, value.word, locks);
  const std::uint64_t link = item.value[0];
  detail::Value before;
  if (!value_of(item, before)) {
    fresh.damaged = link;
    return Made::failed;
  }
  if (in_place(before, value)) {
    return store_word(place, const_cast<RecordPrefix*>(record_at(link))->value, value.word, locks);
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

// One word, which the medium has as it was or as it is.
template <Platform P, class Codec, class G>
[[gnu::always_inline]] inline typename Level<P, Codec, G>::Made Level<P, Codec, G>::store_word(
    const Place& place, std::uint64_t& target, std::uint64_t word, Locks& locks) noexcept {
  P& platform = context_.platform;
  locks.changed(place.tier, place.bucket);
  platform.store(target, word);
  platform.flush(&target, sizeof(target), "level.update.value"_site);
  if (!platform.fence("level.update.value"_site)) return Made::failed;  // PP(update)
  PERDURE_ASSERT(P, "level.I4", platform.persisted(&target, sizeof(target)));
  return Made::done;
}

// A value of two words. If only the first differs, as one. If the line's other slot is free, into
// that: its token comes on in the store that puts this one's off. Else in place, under an Update.
template <Platform P, class Codec, class G>
typename Level<P, Codec, G>::Made Level<P, Codec, G>::replace_array(const Place& place,
                                                                    const Item& before,
                                                                    const Item& item,
                                                                    Locks& locks) noexcept
  requires(Form::kArrays)
{
  P& platform = context_.platform;
  Line& line = place.line();
  if (item.value[1] == before.value[1]) {
    return store_word(place, Form::head(line, place.in_line()), item.value[0], locks);
  }
  locks.changed(place.tier, place.bucket);
  const std::uint32_t own = place.in_line();
  const Place other{place.tier, place.bucket, place.slot - own + (1 - own)};
  if ((Form::tokens(platform, line) & other.bit()) != 0) return replace_in_place(place, item);
  Form::put(platform, line, other.in_line(), item, place.bit());
  platform.flush(&line, sizeof(line), "level.update.slot"_site);
  if (!platform.fence("level.update.slot"_site)) return Made::failed;  // PP(update)
  PERDURE_ASSERT(P, "level.I4", persisted(line));
  show(other, place.meta().print(place.slot));
  hide(place);
  return Made::done;
}

// The Update first; then the value; and the Update is gone before anybody can change the slot
// again, or recovery would bring this value back.
template <Platform P, class Codec, class G>
typename Level<P, Codec, G>::Made Level<P, Codec, G>::replace_in_place(const Place& place,
                                                                       const Item& item) noexcept
  requires(Form::kArrays)
{
  P& platform = context_.platform;
  const std::uint32_t number = P::thread_slot() % kMoveLines;
  LatchGuard latch(move_latches_[number]);
  layout::Update& update = updates()[number];
  platform.store(update.value[0], item.value[0]);
  platform.store(update.value[1], item.value[1]);
  platform.store(update.place, place.line_offset() | place.in_line());
  platform.flush(&update, sizeof(update), "level.update.record"_site);
  if (!platform.fence("level.update.record"_site)) return Made::failed;  // PP(update)
  PERDURE_ASSERT(P, "level.I3", platform.persisted(&update, sizeof(update)));
  Form::put(platform, place.line(), place.in_line(), item);
  platform.flush(&place.line(), sizeof(Line), "level.update.array"_site);
  if (!platform.fence("level.update.array"_site)) return Made::failed;
  PERDURE_ASSERT(P, "level.I4", persisted(place.line()));
  platform.store(update.place, 0);
  platform.flush(&update.place, 8, "level.update.clear"_site);
  if (!platform.fence("level.update.clear"_site)) return Made::failed;
  PERDURE_ASSERT(P, "level.I4", platform.persisted(&update.place, 8));
  return Made::done;
}

// What an Update names gets its value, whether it has it already or not; then, durably, none is
// left: it must not be taken for one under way after the next update of the slot.
template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::finish_updates() noexcept
  requires(Form::kArrays)
{
  P& platform = context_.platform;
  bool wrote = false;
  for (layout::Update& update : updates()) {
    const std::uint64_t word = platform.load(update.place);
    if (word == 0 || !P::runs("level.recover.update"_site)) continue;
    wrote = true;
    Place place = place_of(word & ~std::uint64_t{1});
    if (!place.found()) continue;
    place.slot += static_cast<std::uint32_t>(word & 1);
    Line& line = place.line();
    if ((Form::tokens(platform, line) & place.bit()) == 0) continue;
    Item item = load(place);
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

}  // namespace perdure::level
