// Beside: the mutations of other threads while a batch in pieces is pending (pool/piece_batch.h).
//
// WHAT  They go one at a time, with the latch of Gate::go_beside(). Pinned, such a mutation finds
//   the batch as it stays until it unpins. If its key is in a piece that is still to be done, it
//   does that piece first. If it may insert, it makes sure that the leaf keeps its room for the
//   batch: batch.K2. Then it goes on as always, pinned within its own guard.
// PROGRESS  blocking, for a piece or a mutation at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "index/phast/batch_room.h"

namespace perdure::phast {

template <class T>
class Beside : public BatchRoom<T> {
  using Base = BatchRoom<T>;

 protected:
  using Base::context_, Base::enter, Base::entries_of, Base::find_slot, Base::has_leaf,
      Base::inner_, Base::make_room, Base::not_passed, Base::root_offset_, Base::table_,
      Base::with_room;
  using typename Base::Codec, typename Base::Desc, typename Base::P;

 public:
  using Base::Base, Base::kBytes, Base::kEntries;

  static constexpr bool kGoesBeside = true;

 protected:
  // Does a mutation of this key that begin_mutation() has refused as busy. `mutate`: takes its own
  // guard.
  template <class Mutate>
  [[gnu::always_inline]] Expected<bool> go_beside(const detail::Key& given, bool inserts,
                                                  Mutate&& mutate) {
    // Without the half that is ignored: the batch compares both.
    const detail::Key key =
        kBytes ? detail::Key{.bytes = given.bytes} : detail::Key{.word = given.word};
    Gate<P>& gate = context_.epochs.gate();
    const BesideHold<P> hold(gate);
    for (;;) {
      bool due = false;
      auto done = with_room([&]() -> Expected<bool> {
        MutationGuard<P> guard(context_.epochs);
        if (!guard.ok()) return fail(StatusCode::out_of_memory);
        if (!guard.pass_gate()) return fail(not_passed());
        const PendingBatch* batch = gate.pending();
        const bool meets = batch != nullptr && batch->names(root_offset_);
        due = meets && batch->is_due(root_offset_, key);
        if (due) return false;
        if (meets && inserts) {
          if (Status s = make_room_beside(*batch, key); !s.ok()) return fail(std::move(s));
        }
        return mutate();
      });
      if (!due) return done;
      // No thread ends the batch while this one is beside it.
      if (Status s = gate.pending()->finish(root_offset_, key); !s.ok()) return fail(std::move(s));
    }
  }

 private:
  // Room for one more entry, beside those that the batch will put into the leaf. The caller is
  // pinned, and no other thread inserts.
  Status make_room_beside(const PendingBatch& batch, const detail::Key& key) {
    if (!has_leaf({.key = key})) return {};
    const Probe own = Codec::probe(key);
    const std::uint32_t number = enter(own, inner_.locate_range(own)).number;
    Coming coming{.batch = batch, .desc = table_[number]};
    if (has_entry(coming, own)) return {};
    const std::size_t at = batch.first_put(root_offset_, key);
    std::size_t first = at;
    while (first > 0 && is_in(coming, first - 1)) --first;
    for (; first < at; ++first) add(coming, first);
    coming.inserts[coming.count++] = {.kind = MutationKind::put, .key = key};
    for (std::size_t i = at; is_in(coming, i); ++i) {
      const detail::Mutation& put = *batch.put(root_offset_, i);
      const bool same = put.key.word == key.word && put.key.bytes == key.bytes;
      if (same && batch.needs_room(root_offset_, i)) return {};  // it is the room of this key
      if (!same) add(coming, i);
    }
    if (entries_of(number) + coming.count <= kEntries) return {};
    BlockNeeds needs;
    const bool present[kEntries + 1] = {};
    std::uint64_t blocks[kEntries + 1] = {};
    std::size_t i = 0;
    return make_room(
        {{coming.inserts, coming.count}, {present, coming.count}, {blocks, coming.count}, needs},
        i);
  }
  // What will be inserted into a leaf.
  struct Coming {
    const PendingBatch& batch;
    const Desc& desc;
    std::size_t count = 0;
    detail::Mutation inserts[kEntries + 1] = {};
  };
  // Whether the put with this number lies in the leaf's range.
  bool is_in(const Coming& coming, std::size_t number) const {
    const detail::Mutation* put = coming.batch.put(root_offset_, number);
    if (put == nullptr) return false;
    const Probe probe = Codec::probe(put->key);
    return !coming.desc.below(probe) && !coming.desc.above(probe);
  }
  bool has_entry(const Coming& coming, const Probe& probe) const {
    std::uint64_t ignored = 0;
    return find_slot(coming.desc, probe, ignored) != kNoSlot;
  }
  void add(Coming& coming, std::size_t number) const {
    const detail::Mutation& put = *coming.batch.put(root_offset_, number);
    if (!coming.batch.needs_room(root_offset_, number) || !has_leaf(put) ||
        has_entry(coming, Codec::probe(put.key))) {
      return;
    }
    PERDURE_ASSERT(P, "batch.K2", coming.count <= kEntries);
    if (coming.count <= kEntries) coming.inserts[coming.count++] = put;
  }
};

}  // namespace perdure::phast
