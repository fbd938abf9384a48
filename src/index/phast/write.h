// Write: insert, put, update, erase. Responsible for phast.I4 and phast.I5 of writers, and for
// phast.D1 to phast.D3.
#pragma once

#include <cstdint>
#include <utility>

#include "index/phast/structure.h"

namespace perdure::phast {

template <class T>
class Write : public Structure<T> {
  using Base = Structure<T>;

 protected:
  using Base::absent, Base::adds, Base::begin_mutation, Base::context_, Base::find_slot,
      Base::inner_, Base::leaf_of, Base::persist, Base::record_at, Base::records, Base::root_,
      Base::stripe_of, Base::table_, Base::validate, Base::zero_latch_;
  using typename Base::Codec, typename Base::Desc, typename Base::Entry, typename Base::Mode,
      typename Base::P;

 public:
  using Base::Base, Base::kBytes;

  Expected<bool> remove(const detail::Key& key, const detail::Value* expected) {
    if (Status s = validate(key); !s.ok()) return fail(std::move(s));
    MutationGuard<P> guard(context_.epochs);
    if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
    const Probe probe = Codec::probe(key);
    if constexpr (!kBytes) {
      if (probe.word == 0) return erase_zero(expected);
    }
    const unsigned stripe = stripe_of(probe);
    const std::uint32_t number = latch_leaf<false, true>(probe).number;
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
    if (empty) this->try_unlink(number);
    return this->went();
  }

 protected:
  template <Mode kMode>
  [[gnu::noinline]] Expected<bool> write(const detail::Key& key, const detail::Value& value,
                                         const detail::Value* expected = nullptr) {
    if (Status s = validate(key, value, true, records()); !s.ok()) return fail(std::move(s));
    return this->with_room([&] { return write_once<kMode>(key, value, expected); });
  }

  // Whether the entry with this second word has the value. The stripe is held.
  [[gnu::noinline]] Expected<bool> holds_value(std::uint64_t word,
                                               const detail::Value& expected) const {
    detail::Value value;
    if (!this->value_of(word, value)) return fail(this->damaged_record(word));
    return detail::same_value(value, expected) ? Expected<bool>(true) : absent();
  }

  // Inserts into a claimed slot.
  [[gnu::always_inline]] Status fill_slot(Desc& desc, std::uint32_t slot, const Probe& probe,
                                          const detail::Value& value) {
    P& platform = context_.platform;
    check_claim(desc, slot, probe);
    auto word = stored_value(probe, value);
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

  static bool in_range(const Desc& desc, const Probe& probe) {
    return desc.linked() && !desc.below(probe) && !desc.above(probe);
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

 private:
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
  [[gnu::always_inline]] Latched latch_leaf(const Probe& probe) {
    const unsigned stripe = stripe_of(probe);
    std::uint32_t number = inner_.locate(probe);
    this->prefetch_home(number, probe);
    for (unsigned spins = 0;;) {
      number = this->enter(probe, number).number;
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
      if (free && in_range(desc, probe)) [[likely]]
        return {number, slot};
      desc.search.stripes.release(stripe);
    }
  }

  // Returns the second word of an entry for this value.
  [[gnu::always_inline]] Expected<std::uint64_t> stored_value(const Probe& probe,
                                                              const detail::Value& value) {
    if (!records()) return value.word;
    auto record = this->records_.make(probe.bytes, value, "phast.record.write"_site);
    if (!record) return record;
    PERDURE_ASSERT(P, "phast.I3",
                   context_.platform.persisted(record_at(*record),
                                               RecordView::bytes_needed(probe.bytes, value)));
    return kBytes ? *record | std::uint64_t{probe.fingerprint} << 56 : *record;
  }

  // Replaces the value of a visible slot.
  [[gnu::always_inline]] Status replace_value(Desc& desc, std::uint32_t slot, std::uint64_t before,
                                              const Probe& probe, const detail::Value& value) {
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
        auto fresh = stored_value(probe, value);  // durable before the only pointer is replaced
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
    desc.version.fetch_add(2, std::memory_order_release);
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
    constexpr bool kClaims = adds(kMode);
    constexpr bool kPresent = kMode != Mode::insert;
    const unsigned stripe = stripe_of(probe);
    for (;;) {
      const auto [number, claimed] = latch_leaf<kClaims, kPresent>(probe);
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
        if (kMode != Mode::insert) s = replace_value(desc, slot, before, probe, value);
        desc.search.stripes.release(stripe);
        if (!s.ok()) return fail(std::move(s));
        return kMode == Mode::update;
      }
      if (!kClaims) {
        desc.search.stripes.release(stripe);
        return absent();
      }
      if (claimed != kNoSlot) {
        Status s = fill_slot(desc, claimed, probe, value);
        desc.search.stripes.release(stripe);  // after a failure the slot is free again
        if (!s.ok()) return fail(std::move(s));
        return this->came();
      }
      desc.search.stripes.release(stripe);
      if (Status s = this->split(number, probe); !s.ok()) return fail(std::move(s));
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
    auto word = stored_value(Probe{}, value);
    if (!word) return fail(std::move(word.error()));
    const std::uint64_t before = platform.load(root_->zero_value);
    platform.store(root_->zero_value, *word);
    platform.store(root_->zero_present, 1);
    if (!persist(&root_->zero_value, 16, "phast.zero.write"_site))
      return fail(StatusCode::poisoned);
    PERDURE_ASSERT(P, "phast.I4", platform.persisted(&root_->zero_value, 16));
    if (present && records()) context_.heap.retire(before, "phast.zero.retire"_site);
    return !adds(mode) || (!present && this->came());
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
    return this->went();
  }
};

}  // namespace perdure::phast
