// Write: makes the mutations insert, put, update, erase and write_many. Responsible for phast.I4
// and phast.I5 of writers, and for phast.D1 to phast.D3.
//
// MANY  The mutations of a write_many() share a fence; each has the stores, the linearization point
//   and the persist point of its single call. A mutation holds the stripe of its key from latch()
//   to finish(), and others may be held meanwhile. So it never waits for a stripe: the group is
//   divided before one that is held. All stripes of a part are taken before its first write-back,
//   because a CAS would wait for it. Records are made before the first stripe is taken, and share a
//   fence of their own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "index/phast/beside.h"

namespace perdure::phast {

template <class T>
class Write : public Beside<T> {
  using Base = Beside<T>;

 protected:
  using Base::absent, Base::adds, Base::begin_mutation, Base::begin_read, Base::came,
      Base::check_record, Base::context_, Base::damaged_record, Base::enter, Base::find_slot,
      Base::inner_, Base::key_of, Base::leaf_of, Base::persist, Base::prefetch_home,
      Base::prefetch_record, Base::record_at, Base::records, Base::records_, Base::root_,
      Base::split, Base::stripe_of, Base::table_, Base::try_unlink, Base::validate, Base::value_of,
      Base::went, Base::with_room, Base::zero_latch_;
  using typename Base::Codec, typename Base::Desc, typename Base::Entry, typename Base::Group,
      typename Base::Leaf, typename Base::Located, typename Base::Mode, typename Base::P;

 public:
  using Base::Base, Base::kBytes, Base::kEntries;

  Expected<bool> remove(const detail::Key& key, const detail::Value* expected) {
    if (Status s = validate(key); !s.ok()) return fail(std::move(s));
    auto done = remove_once(key, expected);
    if (!done && done.error() == StatusCode::busy) [[unlikely]]
      done = remove_beside(key, expected);
    return done;
  }

 protected:
  // --- insert, put, update, erase ---

  [[gnu::cold, gnu::noinline]] Expected<bool> remove_beside(const detail::Key& key,
                                                            const detail::Value* expected) {
    return this->go_beside(key, false, [&] { return remove_once(key, expected); });
  }
  [[gnu::always_inline]] Expected<bool> remove_once(const detail::Key& key,
                                                    const detail::Value* expected) {
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
    const Probe probe = Codec::probe(key);
    if constexpr (!kBytes) {
      if (probe.word == 0) return erase_zero(expected);
    }
    const unsigned stripe = stripe_of(probe);
    const std::uint32_t number = latch_leaf<false, true>(probe, locate(probe)).number;
    Desc& desc = table_[number];
    if (context_.platform.poisoned()) [[unlikely]] {
      desc.search.stripes.release(stripe);
      return fail(StatusCode::poisoned);
    }
    std::uint64_t before = 0;
    const std::uint32_t slot = find_slot(desc, probe, before);
    if (slot == kNoSlot) {
      desc.search.stripes.release(stripe);
      return absent();
    }
    if (expected != nullptr) {
      auto same = holds_value(before, *expected);
      if (!same || !*same) {
        desc.search.stripes.release(stripe);
        return same;
      }
    }
    Status s = clear_slot(desc, slot, before);
    const bool empty = desc.visible() == 0;
    desc.search.stripes.release(stripe);
    if (!s.ok()) return fail(std::move(s));
    if (empty) try_unlink(number);
    return went();
  }

  template <Mode kMode>
  [[gnu::noinline]] Expected<bool> write(const detail::Key& key, const detail::Value& value,
                                         const detail::Value* expected = nullptr) {
    if (Status s = validate(key, value, true, records()); !s.ok()) return fail(std::move(s));
    auto done = with_room(
        [&]() __attribute__((always_inline)) { return write_once<kMode>(key, value, expected); });
    if (!done && done.error() == StatusCode::busy) [[unlikely]]
      done = write_beside<kMode>(key, value, expected);
    return done;
  }
  template <Mode kMode>
  [[gnu::cold, gnu::noinline]] Expected<bool> write_beside(const detail::Key& key,
                                                           const detail::Value& value,
                                                           const detail::Value* expected) {
    return this->go_beside(key, adds(kMode),
                           [&] { return write_once<kMode>(key, value, expected); });
  }

  // Inserts into a claimed slot. `made`: see stored_value().
  [[gnu::always_inline]] Status fill_slot(Desc& desc, std::uint32_t slot, const Probe& probe,
                                          const detail::Value& value, std::uint64_t& made) {
    P& platform = context_.platform;
    check_claim(desc, slot, probe);
    auto word = stored_value(probe, value, made);
    if (!word) return std::move(word.error());
    Entry& entry = leaf_of(desc).entries[slot];
    if constexpr (kBytes) {
      platform.store(entry.key, probe.word);
      platform.store(entry.value, *word);  // the commit word, last into the line
    } else {
      platform.store(entry.value, *word);
      platform.store(entry.key, probe.word);
    }
    if (!persist(&entry, sizeof(entry), "phast.insert.entry"_site))
      return StatusCode::poisoned;  // PP(insert)
    PERDURE_ASSERT(P, "phast.D1", platform.persisted(&entry, sizeof(entry)));
    desc.set_fingerprint(slot, probe.fingerprint);  // LP(insert)
    return {};
  }

  // --- write_many ---

  // A mutation of write_many.
  struct Pending {
    enum class Step : std::uint8_t { none, fill, replace, clear };
    Step step = Step::none;
    bool in_record = false;  // replace: the word that the record has
    bool planned = false;    // the record is of a batch, which keeps it
    std::uint32_t leaf = 0;
    std::uint32_t slot = 0;
    const Probe* probe = nullptr;
    std::uint64_t value = 0;   // to store: the value, or the word that names its record
    std::uint64_t before = 0;  // what is replaced or cleared
    std::uint64_t record = 0;  // a block that nothing names
  };
  static bool begin_group(std::size_t /*n*/) { return true; }
  static bool joins(const detail::Mutation& /*mutation*/) { return true; }

  // A guess, without a latch: an entry that comes or goes meanwhile is for the single call.
  [[gnu::always_inline]] bool prepare(const detail::Mutation& mutation, const Group& group,
                                      std::size_t i, Pending& pending) {
    const Probe& probe = group.probes[i];
    pending = {.leaf = group.leaves[i], .probe = &probe, .value = mutation.value.word};
    if (!records() || mutation.kind == MutationKind::erase || !takes(mutation, probe)) return false;
    if (const std::uint64_t block = this->block_of(mutation); block != 0) {
      name_record(pending, block);
      pending.planned = true;
      return false;
    }
    std::uint64_t before = 0;
    const bool present = find_slot(table_[pending.leaf], probe, before) != kNoSlot;
    if (present ? mutation.kind == MutationKind::insert || in_place(before, mutation.value)
                : mutation.kind == MutationKind::update) {
      return false;
    }
    auto record = records_.write(probe.bytes, mutation.value, "phast.many.record"_site);
    if (!record) return false;
    name_record(pending, *record);
    return true;
  }
  static void name_record(Pending& pending, std::uint64_t record) {
    pending.record = record;
    pending.value = kBytes ? record | std::uint64_t{pending.probe->fingerprint} << 56 : record;
  }
  bool settle_records() { return context_.platform.fence("phast.many.record"_site); }

  bool latch(const detail::Mutation& mutation, const Group& group, std::size_t i, Pending& pending,
             Expected<bool>& result) {
    using Step = typename Pending::Step;
    const Probe& probe = group.probes[i];
    const bool inserts =
        mutation.kind == MutationKind::put || mutation.kind == MutationKind::insert;
    std::uint32_t claimed = kNoSlot;
    if (!takes(mutation, probe) || !try_latch(probe, pending.leaf, claimed, inserts)) return false;
    Desc& desc = table_[pending.leaf];
    pending.slot = find_slot(desc, probe, pending.before);
    const bool present = pending.slot != kNoSlot;
    if (!present) pending.slot = claimed;
    Step step = Step::none;
    if (present && pending.planned && (pending.before & kOffsetMask) == pending.record) {
      // The batch has put it already, before a crash.
    } else if (present ? mutation.kind != MutationKind::insert : inserts) {
      step = !present                               ? Step::fill
             : mutation.kind == MutationKind::erase ? Step::clear
                                                    : Step::replace;
    }
    pending.in_record = step == Step::replace && records() && !pending.planned &&
                        in_place(pending.before, mutation.value);
    const bool lacks_record = records() && pending.record == 0 && !pending.in_record &&
                              (step == Step::fill || step == Step::replace);
    if (context_.platform.poisoned() || lacks_record ||
        (step == Step::fill && claimed == kNoSlot)) {
      desc.search.stripes.release(stripe_of(probe));
      return false;
    }
    result = inserts ? !present : present;
    pending.step = step;
    if (step == Step::none) {
      desc.search.stripes.release(stripe_of(probe));
      return true;
    }
    if (pending.in_record) {
      pending.value = mutation.value.word;
    } else {
      __builtin_prefetch(&leaf_of(desc).entries[pending.slot], 1);
    }
    return true;
  }
  [[gnu::always_inline]] void store(Pending& pending) {
    P& platform = context_.platform;
    Desc& desc = table_[pending.leaf];
    Entry& entry = leaf_of(desc).entries[pending.slot];
    PERDURE_ASSERT(P, "phast.I3", !stores_record(pending) || record_persisted(pending.record));
    switch (pending.step) {
      case Pending::Step::none:
        return;
      case Pending::Step::fill:
        check_claim(desc, pending.slot, *pending.probe);
        if constexpr (kBytes) {
          platform.store(entry.key, pending.probe->word);
          platform.store(entry.value, pending.value);
        } else {
          platform.store(entry.value, pending.value);
          platform.store(entry.key, pending.probe->word);
        }
        break;
      case Pending::Step::replace:
        PERDURE_ASSERT(P, "phast.I5", holds(desc, pending.probe->fingerprint));
        platform.store(replaced_word(pending), pending.value);  // LP(update)
        break;
      case Pending::Step::clear:
        PERDURE_ASSERT(P, "phast.I5", holds(desc, pending.probe->fingerprint));
        platform.store(Codec::commit(entry), 0);                         // LP(erase)
        desc.version.fetch_add(kOneRemoved, std::memory_order_release);  // phast.D3
        break;
    }
    if (stores_record(pending)) pending.record = 0;  // the entry names it
  }
  [[gnu::always_inline]] bool write_back(const Pending& pending) {
    if (pending.step == Pending::Step::none) return false;
    context_.platform.flush(changed(pending), changed_bytes(pending), "phast.many.entry"_site);
    return true;
  }
  bool settle() { return context_.platform.fence("phast.many.entry"_site); }  // PP
  [[gnu::always_inline]] void finish(const Pending& pending, bool durable, Expected<bool>& result) {
    using Step = typename Pending::Step;
    if (pending.step == Step::none) {
      if (!*result && context_.platform.poisoned()) result = fail(context_.platform.failure());
      return;
    }
    if (durable) {
      show(pending);
    } else {
      result = fail(StatusCode::poisoned);
    }
    table_[pending.leaf].search.stripes.release(stripe_of(*pending.probe));
  }
  // Of a mutation that is durable: what readers find.
  [[gnu::always_inline]] void show(const Pending& pending) {
    using Step = typename Pending::Step;
    PERDURE_ASSERT(P, "phast.D1",
                   pending.step == Step::none ||
                       context_.platform.persisted(changed(pending), changed_bytes(pending)));
    Desc& desc = table_[pending.leaf];
    if (pending.step == Step::fill) {  // LP(insert)
      desc.set_fingerprint(pending.slot, pending.probe->fingerprint);
      came();
    } else if (pending.step == Step::clear) {
      desc.set_fingerprint(pending.slot, 0);
      went();
    }
  }
  [[gnu::always_inline]] void clean_up(const Pending& pending) {
    using Step = typename Pending::Step;
    const bool drops_record = records() && (pending.step == Step::clear ||
                                            (pending.step == Step::replace && !pending.in_record));
    if (drops_record && !context_.platform.poisoned()) {
      context_.heap.retire(pending.before & kOffsetMask, "phast.many.retire"_site);
    }
    if (pending.step == Step::clear && table_[pending.leaf].visible() == 0) {
      try_unlink(pending.leaf);
    }
  }
  [[gnu::always_inline]] void discard(const Pending& pending) {
    if (pending.record != 0 && !pending.planned) [[unlikely]]
      context_.heap.discard(pending.record);
  }

  // Whether the entry with this second word has the value. The stripe is held.
  [[gnu::noinline]] Expected<bool> holds_value(std::uint64_t word,
                                               const detail::Value& expected) const {
    detail::Value value;
    if (!value_of(word, value)) return fail(damaged_record(word));
    return detail::same_value(value, expected) ? Expected<bool>(true) : absent();
  }

  [[gnu::always_inline]] bool takes(const detail::Mutation& mutation, const Probe& probe) const {
    return (kBytes || probe.word != 0) &&
           (mutation.kind == MutationKind::erase
                ? validate(mutation.key).ok()
                : validate(mutation.key, mutation.value, true, records()).ok());
  }
  // As latch_leaf(), but returns false if the stripe is held.
  [[gnu::always_inline]] bool try_latch(const Probe& probe, std::uint32_t& number,
                                        std::uint32_t& slot, bool claims) {
    const unsigned stripe = stripe_of(probe);
    for (;;) {
      number = enter(probe, {number}).number;
      Desc& desc = table_[number];
      std::uint32_t word = desc.search.stripes.load();
      if ((word >> 8 * stripe & 0xFF) != 0) return false;
      slot = claims ? desc.free_slot(word, probe.fingerprint) : kNoSlot;
      const std::uint32_t held = kHeld | (slot + 1);
      if (!desc.search.stripes.compare_exchange(word, word | held << 8 * stripe)) continue;
      if (in_range(desc, probe, {number}) && (slot == kNoSlot || desc.is_free(slot))) return true;
      desc.search.stripes.release(stripe);
    }
  }

 private:
  // --- insert, put, update, erase ---

  [[gnu::always_inline]] static bool in_range(const Desc& desc, const Probe& probe,
                                              const Located& located) {
    return desc.linked() && (located.proves(desc) || (!desc.below(probe) && !desc.above(probe)));
  }
  // Before a claimed slot is filled.
  [[gnu::always_inline]] static void check_claim([[maybe_unused]] const Desc& desc,
                                                 [[maybe_unused]] std::uint32_t slot,
                                                 [[maybe_unused]] const Probe& probe) {
    PERDURE_ASSERT(P, "phast.I5", holds(desc, probe.fingerprint));
    PERDURE_ASSERT(P, "phast.D2", desc.holder(stripe_of(probe)) == (kHeld | (slot + 1)));
    PERDURE_ASSERT(P, "phast.D2", desc.is_free(slot));
    PERDURE_ASSERT(P, "phast.I2", !desc.below(probe) && !desc.above(probe));
  }
  // For assertions: whether the caller holds the key's stripe in its leaf, and the leaf is linked.
  static bool holds(const Desc& desc, std::uint8_t fingerprint) {
    return (desc.holder(fingerprint % P::ByteLatches::kCount) & kHeld) != 0 && desc.linked();
  }

  struct Latched {
    std::uint32_t number;
    std::uint32_t slot;  // claimed; kNoSlot if no slot was requested, or if none is free
  };

  // Acquires the key's stripe in the leaf that holds the key. If `kClaims`, also claims a free slot
  // if there is one. Both by one CAS (phast.I5). Afterwards the leaf's range cannot change.
  // The CAS waits for the previous operation's write-back, and all that follows waits for the CAS.
  // Hence the miss of the entry that will be written begins before the CAS. `kPresent`: the key is
  // likely to be there, so the miss is that of its own entry.
  template <bool kClaims, bool kPresent>
  [[gnu::always_inline]] Latched latch_leaf(const Probe& probe, Located start) {
    const unsigned stripe = stripe_of(probe);
    for (unsigned spins = 0;;) {
      const std::uint32_t number = start.leaf = enter(probe, start).number;
      Desc& desc = table_[number];
      std::uint32_t word = desc.search.stripes.load();
      if ((word >> 8 * stripe & 0xFF) != 0) {
        P::pause(spins++);
        continue;  // the leaf may be splitting: look again where the key is
      }
      std::uint32_t slot = kNoSlot;
      if constexpr (kClaims) {
        slot = desc.free_slot(word, probe.fingerprint);
        if (slot != kNoSlot) __builtin_prefetch(&leaf_of(desc).entries[slot], 1);
      }
      if constexpr (kPresent) {
        const std::uint64_t m = desc.matches(probe.fingerprint);
        if (m != 0) __builtin_prefetch(&leaf_of(desc).entries[__builtin_ctzll(m)], 1);
      }
      const std::uint32_t held = kHeld | (slot + 1);  // kNoSlot + 1 is 0
      if (!desc.search.stripes.compare_exchange(word, word | held << 8 * stripe)) continue;
      const bool free = slot == kNoSlot || desc.is_free(slot);  // phast.D2
      if (free && in_range(desc, probe, start)) [[likely]]
        return {number, slot};
      desc.search.stripes.release(stripe);
    }
  }

  // The leaf that the search names. Fetches the line of it that has the key, if there was room.
  [[gnu::always_inline]] Located locate(const Probe& probe) const {
    const Located located = inner_.locate_range(probe);
    prefetch_home(located.leaf, probe);
    return located;
  }

  // Returns the second word of an entry for this value. `made`: that word, if its record was made
  // already; becomes 0, because the caller stores the word.
  [[gnu::always_inline]] Expected<std::uint64_t> stored_value(const Probe& probe,
                                                              const detail::Value& value,
                                                              std::uint64_t& made) {
    if (made != 0) return std::exchange(made, 0);
    if (!records()) return value.word;
    auto record = records_.make(probe.bytes, value, "phast.record.write"_site);
    if (!record) return record;
    PERDURE_ASSERT(P, "phast.I3",
                   context_.platform.persisted(record_at(*record),
                                               RecordView::bytes_needed(probe.bytes, value)));
    return kBytes ? *record | std::uint64_t{probe.fingerprint} << 56 : *record;
  }

  // Replaces the value of a visible slot.
  [[gnu::always_inline]] Status replace_value(Desc& desc, std::uint32_t slot, std::uint64_t before,
                                              const Probe& probe, const detail::Value& value,
                                              std::uint64_t& made) {
    P& platform = context_.platform;
    PERDURE_ASSERT(P, "phast.I5", holds(desc, probe.fingerprint));
    std::uint64_t* target = &leaf_of(desc).entries[slot].value;
    std::uint64_t word = value.word;
    bool replaces_record = false;
    if (records()) {
      auto* prefix = const_cast<RecordPrefix*>(record_at(before));
      const std::uint32_t size = RecordView::read(platform, prefix).word_size();
      if (kBytes && size != 0 && size == value.word_size) {
        target = &prefix->value;  // a word of the same size: in place in the record
      } else {
        auto fresh =
            stored_value(probe, value, made);  // durable before the only pointer is replaced
        if (!fresh) return std::move(fresh.error());
        word = *fresh;
        replaces_record = true;
      }
    }
    platform.store(*target, word);                                                    // LP(update)
    if (!persist(target, 8, "phast.update.value"_site)) return StatusCode::poisoned;  // PP(update)
    PERDURE_ASSERT(P, "phast.I4", platform.persisted(target, 8));
    if (replaces_record) {
      context_.heap.retire(before & kOffsetMask, "phast.update.retire"_site);
    }
    return {};
  }

  // Removes the entry of a visible slot. The slot is free afterwards.
  [[gnu::always_inline]] Status clear_slot(Desc& desc, std::uint32_t slot, std::uint64_t before) {
    P& platform = context_.platform;
    PERDURE_ASSERT(P, "phast.I5", holds(desc, P::load_byte(desc.search.fingerprints[slot])));
    Entry& entry = leaf_of(desc).entries[slot];
    platform.store(Codec::commit(entry), 0);  // LP(erase)
    // phast.D3. A locked instruction, hence before the fence.
    desc.version.fetch_add(kOneRemoved, std::memory_order_release);
    if (!persist(&entry, sizeof(entry), "phast.erase.entry"_site))
      return StatusCode::poisoned;  // PP(erase)
    PERDURE_ASSERT(P, "phast.I4", platform.persisted(&Codec::commit(entry), 8));
    desc.set_fingerprint(slot, 0);
    if (records()) context_.heap.retire(before & kOffsetMask, "phast.erase.retire"_site);
    return {};
  }

  template <Mode kMode>
  [[gnu::always_inline]] Expected<bool> write_once(const detail::Key& key,
                                                   const detail::Value& value,
                                                   const detail::Value* expected) {
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
    const Probe probe = Codec::probe(key);
    if constexpr (!kBytes) {
      if (probe.word == 0) return write_zero(value, kMode, expected);
    }
    const Located located = locate(probe);
    std::uint64_t made = 0;
    if (kMode == Mode::put && records() && (!kBytes || value.word_size == 0)) {
      // Whether the key is there or not, it needs a record. The misses of the leaf overlap with
      // that, and no stripe is held during the fence.
      __builtin_prefetch(&table_[located.leaf]);
      __builtin_prefetch(&table_[located.leaf].search);
      auto word = stored_value(probe, value, made);
      if (!word) return fail(std::move(word.error()));
      made = *word;
    }
    auto done = write_latched<kMode>(located, probe, value, expected, made);
    if (made != 0) [[unlikely]]
      context_.heap.discard(made & kOffsetMask);
    return done;
  }

  template <Mode kMode>
  [[gnu::always_inline]] Expected<bool> write_latched(Located start, const Probe& probe,
                                                      const detail::Value& value,
                                                      const detail::Value* expected,
                                                      std::uint64_t& made) {
    constexpr bool kClaims = adds(kMode);
    constexpr bool kPresent = kMode != Mode::insert;
    const unsigned stripe = stripe_of(probe);
    for (;;) {
      const auto [number, claimed] = latch_leaf<kClaims, kPresent>(probe, start);
      start.leaf = number;
      Desc& desc = table_[number];
      // What the last holder of the stripe left in a poisoned pool does not count.
      if (context_.platform.poisoned()) [[unlikely]] {
        desc.search.stripes.release(stripe);
        return fail(StatusCode::poisoned);
      }
      std::uint64_t before = 0;
      const std::uint32_t slot = find_slot(desc, probe, before);
      if (slot != kNoSlot) {
        if (kMode == Mode::update && expected != nullptr) [[unlikely]] {
          auto same = holds_value(before, *expected);
          if (!same || !*same) {
            desc.search.stripes.release(stripe);
            return same;
          }
        }
        Status s;
        if (kMode != Mode::insert) s = replace_value(desc, slot, before, probe, value, made);
        desc.search.stripes.release(stripe);
        if (!s.ok()) return fail(std::move(s));
        return kMode == Mode::update;
      }
      if (!kClaims) {
        desc.search.stripes.release(stripe);
        return absent();
      }
      if (claimed != kNoSlot) {
        Status s = fill_slot(desc, claimed, probe, value, made);
        desc.search.stripes.release(stripe);  // after a failure the slot is free again
        if (!s.ok()) return fail(std::move(s));
        return came();
      }
      desc.search.stripes.release(stripe);
      if (Status s = split(number, probe); !s.ok()) return fail(std::move(s));
    }
  }

  // --- integer key 0: value, then present, in one line of the root; its latch spans the fence ---

  [[gnu::noinline]] Expected<bool> write_zero(const detail::Value& value, Mode mode,
                                              const detail::Value* expected) {
    P& platform = context_.platform;
    LatchGuard latch(zero_latch_);
    if (platform.poisoned()) return fail(StatusCode::poisoned);
    const bool present = platform.load(root_->zero_present) != 0;
    if (!present && !adds(mode)) return absent();
    if (present && mode == Mode::insert) return false;
    if (expected != nullptr) {
      auto same = holds_value(platform.load(root_->zero_value), *expected);
      if (!same || !*same) return same;
    }
    std::uint64_t made = 0;
    auto word = stored_value(Probe{}, value, made);
    if (!word) return fail(std::move(word.error()));
    const std::uint64_t before = platform.load(root_->zero_value);
    platform.store(root_->zero_value, *word);
    platform.store(root_->zero_present, 1);
    if (!persist(&root_->zero_value, 16, "phast.zero.write"_site))
      return fail(StatusCode::poisoned);
    PERDURE_ASSERT(P, "phast.I4", platform.persisted(&root_->zero_value, 16));
    if (present && records()) context_.heap.retire(before, "phast.zero.retire"_site);
    return !adds(mode) || (!present && came());
  }

  [[gnu::noinline]] Expected<bool> erase_zero(const detail::Value* expected) {
    P& platform = context_.platform;
    LatchGuard latch(zero_latch_);
    if (platform.poisoned()) return fail(StatusCode::poisoned);
    if (platform.load(root_->zero_present) == 0) return absent();
    if (expected != nullptr) {
      auto same = holds_value(platform.load(root_->zero_value), *expected);
      if (!same || !*same) return same;
    }
    platform.store(root_->zero_present, 0);
    if (!persist(&root_->zero_present, 8, "phast.zero.erase"_site))
      return fail(StatusCode::poisoned);
    PERDURE_ASSERT(P, "phast.I4", platform.persisted(&root_->zero_present, 8));
    if (records()) context_.heap.retire(platform.load(root_->zero_value));
    return went();
  }

  // --- write_many ---

  // Whether the value can replace the word that the record of this entry has.
  bool in_place(std::uint64_t word, const detail::Value& value) const {
    if (!kBytes || value.word_size == 0) return false;
    return RecordView::read(context_.platform, record_at(word)).word_size() == value.word_size;
  }
  bool stores_record(const Pending& pending) const {
    return records() && (pending.step == Pending::Step::fill ||
                         (pending.step == Pending::Step::replace && !pending.in_record));
  }
  // For an assertion.
  bool record_persisted(std::uint64_t record) const {
    const auto view = RecordView::read(context_.platform, record_at(record));
    return context_.platform.persisted(record_at(record), view.size());
  }
  std::uint64_t& replaced_word(const Pending& pending) {
    if (pending.in_record) return const_cast<RecordPrefix*>(record_at(pending.before))->value;
    return leaf_of(table_[pending.leaf]).entries[pending.slot].value;
  }
  const void* changed(const Pending& pending) {
    if (pending.in_record) return &replaced_word(pending);
    return &leaf_of(table_[pending.leaf]).entries[pending.slot];
  }
  static std::size_t changed_bytes(const Pending& pending) {
    return pending.in_record ? sizeof(std::uint64_t) : sizeof(Entry);
  }
};

}  // namespace perdure::phast
