// Many: the mutations of write_many() that share a fence. Responsible for what Write is responsible
// for; each mutation has the stores, the linearization point and the persist point of its single
// call.
//
// OPERATIONS  A mutation holds the stripe of its key from latch() to finish(), and others may be
//   held meanwhile. So it never waits for a stripe: the group is divided before one that is held.
//   All stripes of a part are taken before its first write-back, because a CAS would wait for it.
#pragma once

#include <cstdint>

#include "index/phast/write.h"

namespace perdure::phast {

template <class T>
class Many : public Write<T> {
  using Base = Write<T>;

 protected:
  using Base::check_claim, Base::context_, Base::find_slot, Base::holds, Base::in_range,
      Base::leaf_of, Base::records, Base::stripe_of, Base::table_, Base::validate;
  using typename Base::Codec, typename Base::Desc, typename Base::Entry, typename Base::Group,
      typename Base::P;

 public:
  using Base::Base, Base::kBytes;

 protected:
  // A mutation of write_many that holds the stripe of its key.
  struct Pending {
    enum class Step : std::uint8_t { none, fill, replace, clear };
    Step step = Step::none;
    std::uint32_t leaf = 0;
    std::uint32_t slot = 0;
    const Probe* probe = nullptr;
    std::uint64_t value = 0;
  };
  // Entries that hold their value, of integer keys. Others need a fence for their record.
  bool together() const { return !kBytes && !records(); }

  bool latch(const detail::Mutation& mutation, const Group& group, std::size_t i, Pending& pending,
             Expected<bool>& result) {
    using Step = typename Pending::Step;
    const Probe& probe = group.probes[i];
    const bool inserts =
        mutation.kind == MutationKind::put || mutation.kind == MutationKind::insert;
    if (probe.word == 0 || !validate(mutation.key).ok() ||
        (mutation.kind != MutationKind::erase &&
         !validate(mutation.key, mutation.value, true, false).ok())) {
      return false;
    }
    std::uint32_t claimed = kNoSlot;
    pending = {.leaf = group.leaves[i], .probe = &probe, .value = mutation.value.word};
    if (!try_latch(probe, pending.leaf, claimed, inserts)) return false;
    Desc& desc = table_[pending.leaf];
    std::uint64_t before = 0;
    pending.slot = find_slot(desc, probe, before);
    const bool present = pending.slot != kNoSlot;
    if (!present) pending.slot = claimed;
    if (present ? mutation.kind != MutationKind::insert : inserts) {
      pending.step = !present                               ? Step::fill
                     : mutation.kind == MutationKind::erase ? Step::clear
                                                            : Step::replace;
    }
    result = inserts ? !present : present;
    if (context_.platform.poisoned() || (pending.step == Step::fill && claimed == kNoSlot)) {
      desc.search.stripes.release(stripe_of(probe));
      return false;
    }
    if (pending.step == Step::none) {
      desc.search.stripes.release(stripe_of(probe));
    } else {
      __builtin_prefetch(&leaf_of(desc).entries[pending.slot], 1);
    }
    return true;
  }
  [[gnu::always_inline]] void store(const Pending& pending) {
    P& platform = context_.platform;
    Desc& desc = table_[pending.leaf];
    Entry& entry = leaf_of(desc).entries[pending.slot];
    switch (pending.step) {
      case Pending::Step::none:
        return;
      case Pending::Step::fill:
        check_claim(desc, pending.slot, *pending.probe);
        platform.store(entry.value, pending.value);
        platform.store(entry.key, pending.probe->word);
        return;
      case Pending::Step::replace:
        PERDURE_ASSERT(P, "phast.I5", holds(desc, pending.probe->fingerprint));
        platform.store(entry.value, pending.value);  // LP(update)
        return;
      case Pending::Step::clear:
        PERDURE_ASSERT(P, "phast.I5", holds(desc, pending.probe->fingerprint));
        platform.store(Codec::commit(entry), 0);               // LP(erase)
        desc.version.fetch_add(2, std::memory_order_release);  // phast.D3
        return;
    }
  }
  [[gnu::always_inline]] bool write_back(const Pending& pending) {
    if (pending.step == Pending::Step::none) return false;
    const Entry& entry = leaf_of(table_[pending.leaf]).entries[pending.slot];
    context_.platform.flush(&entry, sizeof(entry), "phast.many.entry"_site);
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
      PERDURE_ASSERT(
          P, "phast.D1",
          context_.platform.persisted(&leaf_of(desc).entries[pending.slot], sizeof(Entry)));
      if (pending.step == Step::fill) {  // LP(insert)
        desc.set_fingerprint(pending.slot, pending.probe->fingerprint);
      } else if (pending.step == Step::clear) {
        desc.set_fingerprint(pending.slot, 0);
      }
    } else {
      result = fail(StatusCode::poisoned);
    }
    desc.search.stripes.release(stripe_of(*pending.probe));
  }
  [[gnu::always_inline]] void clean_up(const Pending& pending) {
    if (pending.step == Pending::Step::clear && table_[pending.leaf].visible() == 0) {
      this->try_unlink(pending.leaf);
    }
  }

 private:
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
