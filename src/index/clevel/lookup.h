// Lookup: finds a key's item and reads its value; for_each; and the blocks that levels are made of.
//
// READS  What a lookup or a scan returns is durable, and so is each absence (clevel.I5). Items of a
//   map that is not verified are checked first (clevel.I7); damage is never "absent" (clevel.I10).
// BLOCKS  Each level was durably empty (clevel.I1). Background work zeroes the next one ahead of
//   need, and it then lies ready. A thread that needs a level takes that one, or makes a small one
//   by itself: it waits for no other thread. A block has one owner at each moment: the step of the
//   unit (next_, under ahead_latch_), the word ready_, the thread that took or made it, or the
//   list. It goes to ready_ and from it by one compare-and-swap, and only when it is durably zero.
//   No thread stores into a block that it does not own, so one that is stopped harms no level.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
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

// A durably empty block that one thread owns; offset 0: there is none.
struct Fresh {
  std::uint64_t offset = 0;
  std::uint64_t buckets = 0;
};

template <class T>
class Lookup : public State<T> {
  using Base = State<T>;
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
    if (s.ok() && damaged_.load(std::memory_order_acquire)) s = this->of_this_map(known_damage());
    if (!s.ok()) return fail(std::move(s));
    return {};
  }

 protected:
  using Base::absent, Base::begin_read, Base::bytes_values_, Base::clean_, Base::context_,
      Base::damaged_, Base::deliver, Base::item_at, Base::kBytesKeys, Base::kGroup, Base::levels,
      Base::moves_, Base::offset_of, Base::persist, Base::plausible, Base::probe_of,
      Base::stripe_of, Base::verified, Base::whole, Base::word_key;
  using Base::Base;
  using typename Base::Got, typename Base::Keys, typename Base::Pause, typename Base::Visit;

  [[gnu::always_inline]] Expected<bool> find(const detail::Key& key, Visit visit) {
    const Probe probe = probe_of(key);
    prefetch(probe);
    return read_probe(probe, visit);
  }
  // The common case of find(), in few instructions: an integer with a word, nothing of its stripe
  // in flight, no dead item of its tag, and the walk of the open is over (clevel.I7). `failed`: the
  // caller looks again.
  [[gnu::always_inline]] Got find_at_once(const detail::Key& key, detail::Value& value) const
    requires(!kBytesKeys)
  {
    if (!verified() || bytes_values_ || context_.after_kill != nullptr) [[unlikely]]
      return Got::failed;
    const P& platform = context_.platform;
    const Probe probe = probe_of(key);
    const std::uint16_t tag = probe.tag();
    const LevelList& list = levels();
    const Bucket* buckets[2 * kMaxLevels];
    const Bucket** end = buckets;
    for (const Level* level : list) {
      for (const Bucket* bucket : level->buckets_of(probe)) {
        __builtin_prefetch(bucket);
        *end++ = bucket;
      }
    }
    for (const Bucket** bucket = buckets; bucket != end; ++bucket) {
      const std::uint64_t* const slots = (*bucket)->slots;
      for (std::uint32_t m = P::match_words(slots, G::kSlots, tag); m != 0; m &= m - 1) {
        const std::uint64_t word = platform.load(slots[__builtin_ctz(m)]);
        const Item* item = item_at(word);
        if (word >> kOffsetBits != tag || !plausible(word) || !is_live(platform.load(item->state)))
            [[unlikely]]
          return Got::failed;
        if (word_key(item) != key.word) continue;
        value = {.word = platform.load(item->value), .word_size = 8};
        return stripe_of(probe).in_flight(0) ? Got::failed : Got::present;
      }
    }
    return &levels() == &list ? Got::absent : Got::failed;
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
      return this->damaged_item(found.damaged);
    if (found.item == nullptr) {
      const bool damaged = !found.verified && damaged_.load(std::memory_order_acquire);
      return damaged ? this->of_this_map(known_damage()) : Status();
    }
    return make_durable(found, probe, own);
  }

  [[gnu::always_inline]] Status value_at(const Found& found, detail::Value& value) const {
    if (!bytes_values_) {
      value = {.word = found.value, .word_size = 8};
      return {};
    }
    value = {};
    const std::uint64_t item = offset_of(found.item);
    if (found.value == 0) {
      if (item_bytes(found.state) > context_.heap.block_bytes(item))
        return this->damaged_item(item);
      value.bytes = {value_of(found.item, found.state), inline_bytes(found.state)};
      return {};
    }
    if (!context_.heap.is_block(found.value)) return this->damaged_item(item);
    const bool fits = Blob::read(context_.platform, context_.heap, found.value, value.bytes);
    return fits ? Status() : this->damaged_item(found.value);
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

  // --- blocks for levels ---
  // Returns the ring's word of a level. ready_ has words of this form, too.
  static std::uint64_t level_word(std::uint64_t offset, std::uint64_t buckets) {
    const std::uint64_t word = offset | static_cast<std::uint64_t>(__builtin_ctzll(buckets));
    return word | std::uint64_t{crc32c(0, &word, sizeof(word)) & 0xFFFF} << kOffsetBits;
  }

  // Called with the slot that an insert has taken. If so few slots of its bucket are free, though
  // it was among the key's emptiest, the table will soon grow: wakes the unit that zeroes the
  // level.
  [[gnu::noinline]] void look_ahead(const LevelList& list, const std::uint64_t* slot) {
    const auto line = reinterpret_cast<std::uintptr_t>(slot) & ~(kLine - 1);
    const std::uint32_t empty =
        P::match_words(reinterpret_cast<const std::uint64_t*>(line), G::kSlots, 0);
    if (__builtin_popcount(empty) > static_cast<int>(G::kSlots / 8)) return;
    const std::uint64_t buckets = list.next_size();
    if (wanted_.load(std::memory_order_relaxed) == buckets || &levels() != &list) return;
    want(buckets);
  }
  void want(std::uint64_t buckets) {
    wanted_.store(buckets, std::memory_order_release);
    context_.background.wake(ahead_);
  }

  // For an insert that found no slot: the block that lies ready, or else one that it makes itself,
  // of 4 KiB, and of four times as much for every level beyond the third. Waits for no thread. Once
  // the pool has refused the next size: one in place of the last level, see in_place_of_last().
  [[gnu::noinline]] Expected<Fresh> block_at_once(const LevelList& list) {
    const std::uint64_t buckets = list.next_size();
    if (const Fresh ready = take_ready(buckets); ready.offset != 0) return ready;
    if (refused_.load(std::memory_order_relaxed) == buckets) {
      // The pool is full, unless the size fits by now.
      auto block = context_.heap.allocate(buckets * sizeof(Bucket), BlockKind::plain);
      if (!block) return in_place_of_last(list, std::move(block.error()));
      context_.heap.free(*block);
      refused_.store(0, std::memory_order_relaxed);
    }
    const std::uint32_t beyond = list.count - std::min<std::uint32_t>(list.count, 3);
    return make_block(std::min(buckets, G::kOwn << 2 * beyond));
  }
  // For a step of the rehash: the block that lies ready, or none after a step towards it.
  [[gnu::noinline]] Expected<Fresh> block_in_time(const LevelList& list) {
    const std::uint64_t buckets = list.next_size();
    if (const Fresh ready = take_ready(buckets); ready.offset != 0) return ready;
    if (buckets <= G::kOwn) return make_block(buckets);
    if (wanted_.load(std::memory_order_relaxed) != buckets) want(buckets);
    Status failure;
    if (ahead_latch_.try_lock()) {
      (void)prepare_some(failure);
      ahead_latch_.unlock();
    }
    if (!failure.ok()) return fail(std::move(failure));
    return take_ready(buckets);
  }
  // For a shrink or a batch, however long it takes.
  [[gnu::noinline]] Expected<Fresh> make_block(std::uint64_t buckets) {
    auto block = context_.heap.allocate(buckets * sizeof(Bucket), BlockKind::plain);
    if (!block) return fail(std::move(block.error()));
    for (std::uint64_t done = 0; done < buckets; done += G::kAhead) {
      if (!zero_buckets(*block, done, std::min(G::kAhead, buckets - done))) {
        return fail(StatusCode::poisoned);
      }
    }
    return Fresh{.offset = *block, .buckets = buckets};
  }
  [[gnu::noinline]] Fresh take_ready(std::uint64_t buckets) {
    std::uint64_t word = ready_.load(std::memory_order_acquire);
    if (word == 0 || fresh_of(word).buckets != buckets ||
        !ready_.compare_exchange_strong(word, 0, std::memory_order_acq_rel)) {
      return {};
    }
    return fresh_of(word);
  }
  // Puts a block where it lies ready, if its size is the one that will be needed.
  [[gnu::noinline]] void put_back(const Fresh& block) {
    std::uint64_t none = 0;
    if (block.buckets == wanted_.load(std::memory_order_acquire) &&
        ready_.compare_exchange_strong(none, level_word(block.offset, block.buckets),
                                       std::memory_order_acq_rel)) {
      return;
    }
    context_.heap.free(block.offset);
  }

  // Frees the block that is not needed yet. Returns whether there was one.
  bool give_back_ahead() {
    const LatchGuard guard(ahead_latch_);
    wanted_.store(0, std::memory_order_release);
    bool any = false;
    for (const Fresh& block : {fresh_of(ready_.exchange(0, std::memory_order_acq_rel)),
                               std::exchange(next_, {}).block}) {
      if (block.offset == 0) continue;
      context_.heap.free(block.offset);
      any = true;
    }
    return any;
  }
  // Those blocks, or 0. ahead_latch_ is held, or no other thread is there. Another thread may take
  // the one that lies ready.
  std::array<Fresh, 2> ahead() const {
    const std::uint64_t word = ready_.load(std::memory_order_acquire);
    return {word != 0 ? fresh_of(word) : Fresh(), next_.block};
  }

  // Zeroes the next level ahead of need, as a unit of background work.
  struct AheadUnit final : BackgroundWork<P> {
    explicit AheadUnit(Lookup* m) : map(m) {}
    Step run_some() noexcept override {
      // The holder may wait for a thread that waits for this step.
      if (!map->ahead_latch_.try_lock()) return Step::more;
      Status failure;  // a thread that needs the level finds the same
      const Step step = map->prepare_some(failure);
      map->ahead_latch_.unlock();
      return step;
    }
    Lookup* map;
  };

  // Held across allocations, which may wait for background work: steps only try to take it. No
  // insert takes it.
  typename P::Latch ahead_latch_;
  AheadUnit ahead_{this};

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

  // Writes back all that the item's presence rests on. A blob is durable before it is named.
  [[gnu::noinline]] void write_back(const Found& found) {
    context_.platform.flush(found.item, item_bytes(found.state), "clevel.help.item"_site);
    context_.platform.flush(found.slot, sizeof(*found.slot), "clevel.help.slot"_site);
  }

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
        if (look == Look::damaged) s = this->damaged_item(word & kOffsetMask);
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

  // --- blocks for levels ---
  static Fresh fresh_of(std::uint64_t word) {
    return {.offset = word & kOffsetMask & ~std::uint64_t{63},
            .buckets = std::uint64_t{1} << (word & 63)};
  }

  // The free space is too scattered for the next size. A level as large as the last one, which then
  // drains, has slots for this key and for others, and the table is none the smaller afterwards.
  [[gnu::noinline, gnu::cold]] Expected<Fresh> in_place_of_last(const LevelList& list,
                                                                Status&& refused) {
    const std::uint64_t buckets = list.levels[0]->count;
    if (list.growing() || buckets > G::kOwn * kMostInPlace) return fail(std::move(refused));
    return make_block(buckets);
  }

  // The block has `buckets` from `first` on.
  bool zero_buckets(std::uint64_t block, std::uint64_t first, std::uint64_t buckets) {
    auto* begin = context_.heap.template at<Bucket>(block) + first;
    context_.platform.zero(begin, buckets * sizeof(Bucket));
    return persist(begin, buckets * sizeof(Bucket), "clevel.ahead.zero"_site);
  }

  // Zeroes a part of the next level. When all is zeroed, it lies ready. ahead_latch_ is held.
  [[gnu::noinline]] Step prepare_some(Status& failure) {
    const std::uint64_t buckets = wanted_.load(std::memory_order_acquire);
    std::uint64_t old = ready_.load(std::memory_order_acquire);
    if (buckets == 0 || (old != 0 && fresh_of(old).buckets == buckets)) return Step::rest;
    if (old != 0 && ready_.compare_exchange_strong(old, 0, std::memory_order_acq_rel)) {
      context_.heap.free(fresh_of(old).offset);
    }
    if (next_.block.buckets != buckets) {
      if (next_.block.offset != 0) context_.heap.free(next_.block.offset);
      next_ = {};
      auto block = context_.heap.allocate(buckets * sizeof(Bucket), BlockKind::plain);
      if (!block) {
        if (block.error() == StatusCode::pool_full) {
          refused_.store(buckets, std::memory_order_relaxed);
        }
        failure = std::move(block.error());
        return Step::rest;
      }
      next_.block = {.offset = *block, .buckets = buckets};
    }
    const std::uint64_t n = std::min(G::kAhead, buckets - next_.zeroed);
    if (!zero_buckets(next_.block.offset, next_.zeroed, n)) {
      failure = StatusCode::poisoned;
      return Step::rest;
    }
    next_.zeroed += n;
    if (next_.zeroed != buckets) return Step::more;
    put_back(std::exchange(next_, {}).block);
    return Step::rest;
  }

  static constexpr std::uint64_t kMostInPlace = 16;  // times kOwn: 64 KiB, which an insert zeroes

  struct {  // the next level, as far as it is zeroed; under ahead_latch_
    Fresh block;
    std::uint64_t zeroed = 0;
  } next_;
  typename P::template Atomic<std::uint64_t> wanted_{0};   // buckets of the next level
  typename P::template Atomic<std::uint64_t> refused_{0};  // buckets that the pool had no room for
  typename P::template Atomic<std::uint64_t> ready_{0};    // the word of the one that lies ready
};

}  // namespace perdure::clevel
