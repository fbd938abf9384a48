// Lookup: finds a key's item and reads its value. What it returns is durable (clevel.I5). Items of
// a map that is not verified are checked first (clevel.I7); damage is never "absent" (clevel.I10).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "index/blob.h"
#include "index/clevel/state.h"

namespace perdure::clevel {

// The result of a walk through the levels.
struct Found {
  Item* item = nullptr;  // null: absent
  std::uint64_t word = 0;
  std::uint64_t* slot = nullptr;
  std::uint64_t state = 0;
  std::uint64_t value = 0;
  const LevelList* list = nullptr;
  std::uint64_t moves = 0;    // moves_ before the walk
  std::uint64_t damaged = 0;  // the offset of an item that a clean close left whole and is not
  bool verified = false;      // verified_ before the walk
};

// An item by its checksum. `changed`: the slot or the item has changed meanwhile.
enum class Look : std::uint8_t { whole, torn, damaged, changed };

template <class T>
class Lookup : public State<T> {
  using Base = State<T>;
  using P = typename T::Platform;
  using G = typename T::Geometry;

 protected:
  using Base::absent, Base::bytes_values_, Base::clean_, Base::context_, Base::damaged_,
      Base::deliver, Base::item_at, Base::kBytesKeys, Base::kGroup, Base::levels, Base::moves_,
      Base::offset_of, Base::plausible, Base::probe_of, Base::stripe_of, Base::verified,
      Base::whole, Base::word_key;
  using Base::Base;
  using typename Base::Keys, typename Base::Visit;

  [[gnu::always_inline]] Expected<bool> find(const detail::Key& key, Visit visit) {
    const Probe probe = probe_of(key);
    prefetch(probe);
    return read_probe(probe, visit);
  }
  struct Group {
    Probe probes[kGroup];
  };
  [[gnu::always_inline]] Status fetch(Keys keys, Group& group) const {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      group.probes[i] = probe_of(keys[i]);
      prefetch(group.probes[i]);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) prefetch_items(group.probes[i]);
    return {};
  }
  [[gnu::always_inline]] Expected<bool> find_fetched(const Group& group, std::size_t i,
                                                     Visit visit) {
    return read_probe(group.probes[i], visit);
  }

  // Calls visit(slot) for the slots with the key's tag in its two buckets, until it returns true.
  template <class F>
  [[gnu::always_inline]] static bool for_each_match(const Probe& probe, const Level& level,
                                                    F&& visit) {
    for (Bucket* bucket : level.buckets_of(probe)) {
      std::uint32_t matching = P::match_words(bucket->slots, G::kSlots, probe.tag());
      for (; matching != 0; matching &= matching - 1) {
        if (visit(bucket->slots[__builtin_ctz(matching)])) return true;
      }
    }
    return false;
  }

  // Finds the key's item. The result is durable, also if the key is absent. `own` masks the
  // caller's own latch of the key's stripe. The caller is pinned.
  [[gnu::always_inline]] Status search(const Probe& probe, std::uint32_t own, Found& found) {
    bool wrote = false;
    while (!walk(probe, own, found, wrote)) {
    }
    if (wrote && !context_.platform.fence("clevel.help.dead"_site)) [[unlikely]]
      return StatusCode::poisoned;
    if (found.damaged != 0) [[unlikely]]
      return damaged_at(found.damaged);
    if (found.item == nullptr) {
      const bool damaged = !found.verified && damaged_.load(std::memory_order_acquire);
      return damaged ? known_damage() : Status();
    }
    return make_durable(found, probe, own);
  }

  // clevel.I5. The caller has loaded the value before. If an insert, update or erase of the stripe
  // is in flight, writes back and fences the item and its slot.
  [[gnu::always_inline]] Status make_durable(const Found& found, const Probe& probe,
                                             std::uint32_t own) {
    P& platform = context_.platform;
    if (stripe_of(probe).in_flight(own) && platform.durable()) [[unlikely]] {
      write_back(found);
      if (!platform.fence("clevel.help.item"_site)) return StatusCode::poisoned;
    }
    if (context_.after_kill == nullptr) [[likely]]
      return {};
    bool settled = context_.settle(offset_of(found.slot), sizeof(*found.slot)) &&
                   context_.settle(offset_of(found.item), item_bytes(found.state));
    if (settled && bytes_values_ && found.value != 0) {
      settled = context_.settle(found.value, context_.heap.block_bytes(found.value));
    }
    return settled ? Status() : StatusCode::poisoned;
  }

  [[gnu::always_inline]] Status value_at(const Found& found, detail::Value& value) const {
    if (!bytes_values_) {
      value = {.word = found.value, .word_size = 8};
      return {};
    }
    value = {};
    const std::uint64_t item = offset_of(found.item);
    if (found.value == 0) {
      if (item_bytes(found.state) > context_.heap.block_bytes(item)) return damaged_at(item);
      value.bytes = {value_of(found.item, found.state), inline_bytes(found.state)};
      return {};
    }
    if (!context_.heap.is_block(found.value)) return damaged_at(item);
    const bool fits = Blob::read(context_.platform, context_.heap, found.value, value.bytes);
    return fits ? Status() : damaged_at(found.value);
  }

  // clevel.I7, clevel.I8.
  [[gnu::noinline]] Look look_at(const std::uint64_t& slot, std::uint64_t word,
                                 std::uint64_t state) const {
    const P& platform = context_.platform;
    const bool counts = whole(word, state);
    // A thread that replaces the value of a closed item opens it first. A thread that frees an item
    // clears its slot.
    if (platform.load(slot) != word || platform.load(item_at(word)->state) != state) {
      return Look::changed;
    }
    if (counts) return Look::whole;
    return clean_ || is_closed(state) ? Look::damaged : Look::torn;
  }

  // Whether a slot above the last level names the item.
  [[gnu::noinline]] bool named_above(const LevelList& list, std::uint64_t word,
                                     const Probe& probe) const {
    for (std::uint32_t i = 1; i < list.count; ++i) {
      const bool here = for_each_match(probe, *list.levels[i], [&](const std::uint64_t& slot) {
        return context_.platform.load(slot) == word;
      });
      if (here) return true;
    }
    return false;
  }

  [[gnu::always_inline]] void prefetch(const Probe& probe) const {
    for (const Level* level : levels()) {
      for (const Bucket* bucket : level->buckets_of(probe)) __builtin_prefetch(bucket);
    }
  }
  [[gnu::always_inline]] void prefetch_items(const Probe& probe) const {
    for (const Level* level : levels()) {
      for_each_match(probe, *level, [&](const std::uint64_t& slot) {
        __builtin_prefetch(item_at(context_.platform.load(slot)));
        return false;
      });
    }
  }

 private:
  [[gnu::always_inline]] Expected<bool> read_probe(const Probe& probe, Visit visit) {
    Found found;
    if (Status s = search(probe, 0, found); !s.ok()) return fail(std::move(s));
    if (found.item == nullptr) return absent();
    detail::Value value;
    Status s = value_at(found, value);
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    if (!s.ok()) return fail(std::move(s));
    return deliver(value, visit);
  }

  // One walk through the levels, from the last to the first: items move in that direction, ahead of
  // the walk. Returns false if it must be repeated: nothing was found, and the list of levels or an
  // unverified slot has changed.
  [[gnu::always_inline]] bool walk(const Probe& probe, std::uint32_t own, Found& found,
                                   bool& wrote) {
    const P& platform = context_.platform;
    const std::uint64_t moves = moves_.load(std::memory_order_acquire);
    const LevelList& list = levels();
    const bool checked = verified();
    found = {.list = &list, .verified = checked};
    bool again = false;
    const auto matches = [&](std::uint64_t& slot) {
      const std::uint64_t word = platform.load(slot);
      if (word >> kOffsetBits != probe.tag() || !plausible(word)) return false;  // it has changed
      Item* item = item_at(word);
      const std::uint64_t state = platform.load(item->state);  // LP(find), if it is live
      if (!is_live(state)) {
        wrote = note_dead(item, state, probe, own) || wrote;
        return false;
      }
      if (!same_key(item, state, probe)) return false;
      if (!checked) {  // clevel.I7
        const Look look = look_at(slot, word, state);
        if (look == Look::changed) return again = true;
        if (look == Look::torn) return false;
        if (look == Look::damaged) {
          found.damaged = word & kOffsetMask;
          return true;
        }
      }
      const std::uint64_t value = platform.load(item->value);
      if (bytes_values_ && value == kGone) return false;  // dead, durably
      found = {.item = item,
               .word = word,
               .slot = &slot,
               .state = state,
               .value = value,
               .list = &list,
               .moves = moves};
      return true;
    };
    for (const Level* level : list) {
      if (for_each_match(probe, *level, matches)) return !again;
    }
    return &levels() == &list;
  }

  [[gnu::always_inline]] bool same_key(const Item* item, std::uint64_t state,
                                       const Probe& probe) const {
    if constexpr (kBytesKeys) {
      const std::size_t size = key_bytes(state);
      // A damaged length must not lead beyond the file.
      return size == probe.bytes.size() &&
             context_.heap.contains(offset_of(item), sizeof(Item) + size) &&
             std::string_view(key_of(item), size) == probe.bytes;
    } else {
      return word_key(item) == probe.word;
    }
  }

  // "Absent" may rest on this dead item of the key's tag. Returns true if it was written back; the
  // caller then fences. A pending item has not been there yet.
  [[gnu::noinline]] bool note_dead(const Item* item, std::uint64_t state, const Probe& probe,
                                   std::uint32_t own) {
    if (is_pending(state)) return false;
    (void)context_.settle(offset_of(item), sizeof(Item));
    if (!context_.platform.durable() || !stripe_of(probe).in_flight(own)) return false;
    context_.platform.flush(item, sizeof(Item), "clevel.help.dead"_site);
    return true;
  }

  // Writes back all that the item's presence rests on. A blob is durable before it is named.
  [[gnu::noinline]] void write_back(const Found& found) {
    context_.platform.flush(found.item, item_bytes(found.state), "clevel.help.item"_site);
    context_.platform.flush(found.slot, sizeof(*found.slot), "clevel.help.slot"_site);
  }
};

}  // namespace perdure::clevel
