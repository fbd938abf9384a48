// Many: the mutations of write_many() that share a fence. Responsible for what Write is responsible
// for; each mutation has the stores, the linearization point and the persist point of its single
// call.
//
// OPERATIONS  A mutation holds the stripe of its key from latch() to finish(), and others may be
//   held meanwhile. So it never waits for a stripe: the group is divided before one that is held.
//   All stripes of a part are taken before its first write-back, because a CAS would wait for it.
//   Records are made before the first stripe is taken, and share a fence of their own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "index/phast/write.h"

namespace perdure::phast {

template <class T>
class Many : public Write<T> {
  using Base = Write<T>;

 protected:
  using Base::check_claim, Base::context_, Base::find_slot, Base::holds, Base::in_range,
      Base::leaf_of, Base::record_at, Base::records, Base::records_, Base::stripe_of, Base::table_,
      Base::validate;
  using typename Base::Codec, typename Base::Desc, typename Base::Entry, typename Base::Group,
      typename Base::P;

 public:
  using Base::Base, Base::kBytes;

 protected:
  // A mutation of write_many.
  struct Pending {
    enum class Step : std::uint8_t { none, fill, replace, clear };
    Step step = Step::none;
    bool in_record = false;  // replace: the word that the record has
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
  bool prepare(const detail::Mutation& mutation, const Group& group, std::size_t i,
               Pending& pending) {
    const Probe& probe = group.probes[i];
    pending = {.leaf = group.leaves[i], .probe = &probe, .value = mutation.value.word};
    if (!records() || mutation.kind == MutationKind::erase || !takes(mutation, probe)) return false;
    std::uint64_t before = 0;
    const bool present = find_slot(table_[pending.leaf], probe, before) != kNoSlot;
    if (present ? mutation.kind == MutationKind::insert || in_place(before, mutation.value)
                : mutation.kind == MutationKind::update) {
      return false;
    }
    auto record = records_.write(probe.bytes, mutation.value, "phast.many.record"_site);
    if (!record) return false;
    pending.record = *record;
    pending.value = kBytes ? *record | std::uint64_t{probe.fingerprint} << 56 : *record;
    return true;
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
    if (present ? mutation.kind != MutationKind::insert : inserts) {
      step = !present                               ? Step::fill
             : mutation.kind == MutationKind::erase ? Step::clear
                                                    : Step::replace;
    }
    pending.in_record =
        step == Step::replace && records() && in_place(pending.before, mutation.value);
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
        platform.store(Codec::commit(entry), 0);               // LP(erase)
        desc.version.fetch_add(2, std::memory_order_release);  // phast.D3
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
    Desc& desc = table_[pending.leaf];
    if (durable) {
      PERDURE_ASSERT(P, "phast.D1",
                     context_.platform.persisted(changed(pending), changed_bytes(pending)));
      if (pending.step == Step::fill) {  // LP(insert)
        desc.set_fingerprint(pending.slot, pending.probe->fingerprint);
        this->came();
      } else if (pending.step == Step::clear) {
        desc.set_fingerprint(pending.slot, 0);
        this->went();
      }
    } else {
      result = fail(StatusCode::poisoned);
    }
    desc.search.stripes.release(stripe_of(*pending.probe));
  }
  [[gnu::always_inline]] void clean_up(const Pending& pending) {
    using Step = typename Pending::Step;
    const bool drops_record = records() && (pending.step == Step::clear ||
                                            (pending.step == Step::replace && !pending.in_record));
    if (drops_record && !context_.platform.poisoned()) {
      context_.heap.retire(pending.before & kOffsetMask, "phast.many.retire"_site);
    }
    if (pending.step == Step::clear && table_[pending.leaf].visible() == 0) {
      this->try_unlink(pending.leaf);
    }
  }
  [[gnu::always_inline]] void discard(const Pending& pending) {
    if (pending.record != 0) [[unlikely]]
      context_.heap.discard(pending.record);
  }

 private:
  [[gnu::always_inline]] bool takes(const detail::Mutation& mutation, const Probe& probe) const {
    return (kBytes || probe.word != 0) &&
           (mutation.kind == MutationKind::erase
                ? validate(mutation.key).ok()
                : validate(mutation.key, mutation.value, true, records()).ok());
  }
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

  // As latch_leaf(), but returns false if the stripe is held.
  [[gnu::always_inline]] bool try_latch(const Probe& probe, std::uint32_t& number,
                                        std::uint32_t& slot, bool claims) {
    const unsigned stripe = stripe_of(probe);
    for (;;) {
      number = this->enter(probe, number).number;
      Desc& desc = table_[number];
      std::uint32_t word = desc.search.stripes.load();
      if ((word >> 8 * stripe & 0xFF) != 0) return false;
      slot = claims ? desc.free_slot(word, probe.fingerprint) : kNoSlot;
      const std::uint32_t held = kHeld | (slot + 1);
      if (!desc.search.stripes.compare_exchange(word, word | held << 8 * stripe)) continue;
      if (in_range(desc, probe) && (slot == kNoSlot || desc.is_free(slot))) return true;
      desc.search.stripes.release(stripe);
    }
  }
};

}  // namespace perdure::phast
