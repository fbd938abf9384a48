// Move: moves records out of the extents that the heap has set aside (heap/thin.h), so that
// Pool::compact() can give these back. Responsible for phast.I3 and phast.I5 of such moves.
//
// WHAT  A step visits some leaves from left to right. It copies the records of a leaf that lie in
//   such extents, with one fence for all of them. Then each entry gets the word of its copy, as an
//   update by a record would give it, and the old record is retired. The value stays the same, so a
//   move has no linearization point: an operation beside it finds the one record or the other.
// WHY IT IS SAFE  The copy is durable before an entry names it (phast.I3). The word is replaced
//   under the stripe of the key (phast.I5), only if the slot is visible and still has the word that
//   was copied. The thread is pinned since it read that word, so the old block was not reused
//   meanwhile: the same word is the same record. Nothing in a record changes but a word value,
//   which is compared again. A split holds all stripes until moved entries are durably zero in the
//   old leaf, so the word of a moved entry cannot differ between two leaves (phast.I6).
// CRASHES  The entry names the old record or the copy, whole both; the sweep frees the other one.
//   The old record is retired after the fence of the word. A copy is byte by byte, with its
//   checksum: a damaged record stays damaged.
// NOT MOVED  The record of key 0, leaves and separators.
// PROGRESS  As an update: it waits for the stripe of a key, and at the gate. Without room, or while
//   a reader holds back what was freed, the map is left as it is.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "index/phast/batch_latch.h"

namespace perdure::phast {

template <class T>
class Move : public BatchLatch<T> {
  using Base = BatchLatch<T>;

 public:
  using Base::Base, Base::kBytes, Base::kEntries;

  // Moves the records of some leaves. One thread at a time.
  [[gnu::noinline]] Expected<bool> compact_some() override {
    if (!records() || (!at_.begun && !context_.heap.set_aside())) return false;
    at_.begun = true;
    Status s;
    bool more = true;
    {
      MutationGuard<P> guard(context_.epochs);
      s = begin_mutation(guard, true);
      for (std::uint32_t i = 0; s.ok() && more && i < kLeavesInStep; ++i) {
        const std::uint32_t number = enter(at_.position, {inner_.locate(at_.position)}).number;
        s = move_from(number);
        if (s.ok()) more = pass(table_[number]);
      }
    }
    if (s.ok() && more) return true;
    at_ = {};
    // What was moved is moved; the rest stays where it is.
    if (!s.ok() && s != StatusCode::pool_full && s != StatusCode::out_of_memory)
      return fail(std::move(s));
    return false;
  }

 protected:
  using Base::begin_mutation, Base::context_, Base::enter, Base::inner_, Base::leaf_of,
      Base::persist, Base::prefetch_leaf, Base::prefetch_record, Base::record_at, Base::records,
      Base::table_;
  using typename Base::Codec, typename Base::Desc, typename Base::Entry, typename Base::Leaf,
      typename Base::P;

 private:
  static constexpr std::uint32_t kLeavesInStep = 32;

  struct Moved {
    std::uint64_t word = 0;    // what the entry had when its record was copied
    std::uint64_t value = 0;   // of the record's first line
    std::uint64_t record = 0;  // the copy
    std::uint8_t slot = 0;
    std::uint8_t fingerprint = 0;
  };

  // Where the next step begins. The text of a separator is a copy: the leaf may go between steps.
  struct Place {
    bool begun = false;
    Probe position = {};
    std::unique_ptr<char[]> text;
  };

  // Moves the position behind a leaf. False: it was the last one, or memory is short. Another
  // thread may change the bound meanwhile. Leaves that are passed over then keep their records.
  bool pass(const Desc& desc) {
    if constexpr (kBytes) {
      if (const Separator<P>* s = desc.separators.bound.load(std::memory_order_acquire)) {
        const std::string_view bound = s->view();
        at_.text.reset(new (std::nothrow) char[bound.size() + 1]);
        if (at_.text == nullptr) return false;
        if (!bound.empty()) std::memcpy(at_.text.get(), bound.data(), bound.size());
        const std::string_view text(at_.text.get(), bound.size());
        at_.position = {.word = Codec::probe({.bytes = text}).word, .bytes = text, .after = true};
        return true;
      }
    }
    const std::uint64_t bound = desc.bound.load(std::memory_order_acquire);
    at_.position = {.word = bound + 1};
    return bound != ~std::uint64_t{0};
  }

  // The records of one leaf. The caller is pinned.
  Status move_from(std::uint32_t number) {
    Desc& desc = table_[number];
    Moved moved[kEntries];
    std::uint32_t count = 0;
    Status s = copy_records(desc, moved, count);
    if (count == 0) return s;
    if (!context_.platform.fence("phast.move.record"_site)) return StatusCode::poisoned;
    for (const Moved& one : std::span(moved, count)) {
      if (context_.platform.poisoned()) return StatusCode::poisoned;
      if (!name_copy(desc, one)) context_.heap.discard(one.record);
    }
    return s;
  }
  // Copies what lies in extents that are set aside. After an error, `count` were copied.
  [[gnu::noinline]] Status copy_records(const Desc& desc, Moved* moved, std::uint32_t& count) {
    P& platform = context_.platform;
    const Leaf& leaf = leaf_of(desc);
    std::uint64_t found = 0;
    for (std::uint64_t m = desc.visible(); m != 0; m &= m - 1) {
      const auto slot = static_cast<std::uint32_t>(std::countr_zero(m));
      const std::uint64_t word = platform.load(leaf.entries[slot].value);
      const std::uint64_t offset = word & kOffsetMask;
      if (!context_.heap.contains(offset, sizeof(RecordPrefix)) || !context_.heap.is_aside(offset))
        continue;
      prefetch_record(word);
      found |= 1ULL << slot;
    }
    for (; found != 0; found &= found - 1) {
      const auto slot = static_cast<std::uint8_t>(std::countr_zero(found));
      Moved& one = moved[count];
      one = {.word = platform.load(leaf.entries[slot].value),
             .slot = slot,
             .fingerprint = P::load_byte(desc.search.fingerprints[slot])};
      const std::uint64_t offset = one.word & kOffsetMask;
      if (one.fingerprint == 0 || !context_.heap.contains(offset, sizeof(RecordPrefix))) continue;
      const RecordPrefix* prefix = record_at(one.word);
      const auto record = RecordView::read(platform, prefix);
      // check() reports such a record.
      if (!record.plausible(context_.heap.block_bytes(offset))) continue;
      const std::size_t bytes = record.size();
      auto block = context_.heap.allocate(bytes, BlockKind::plain);
      if (!block) return std::move(block.error());
      auto* copy = context_.heap.template at<RecordPrefix>(*block);
      platform.copy(copy + 1, prefix + 1, bytes - sizeof(RecordPrefix));
      one.value = platform.load(prefix->value);
      platform.store(copy->value, one.value);
      platform.store(copy->state, platform.load(prefix->state));  // last, as in RecordView::write
      platform.flush(copy, bytes, "phast.move.record"_site);
      one.record = *block;
      ++count;
    }
    return {};
  }
  // Lets the entry name the copy. False: the entry has changed.
  [[gnu::noinline]] bool name_copy(Desc& desc, const Moved& one) {
    P& platform = context_.platform;
    const unsigned stripe = one.fingerprint % P::ByteLatches::kCount;
    for (unsigned spins = 0;;) {
      std::uint32_t word = desc.search.stripes.load();
      if ((word >> 8 * stripe & 0xFF) != 0) {
        P::pause(spins++);
      } else if (desc.search.stripes.compare_exchange(word, word | kHeld << 8 * stripe)) {
        break;
      }
    }
    Entry& entry = leaf_of(desc).entries[one.slot];
    // A word value in a record is replaced in place, under this stripe.
    const bool same = desc.linked() && !platform.poisoned() &&
                      P::load_byte(desc.search.fingerprints[one.slot]) == one.fingerprint &&
                      platform.load(entry.value) == one.word &&
                      platform.load(record_at(one.word)->value) == one.value;
    bool durable = false;
    if (same) {
      PERDURE_ASSERT(P, "phast.I3",
                     platform.persisted(record_at(one.record),
                                        RecordView::read(platform, record_at(one.record)).size()));
      platform.store(entry.value, one.record | (one.word & ~kOffsetMask));
      durable = persist(&entry.value, 8, "phast.move.entry"_site);
      PERDURE_ASSERT(P, "phast.I4", !durable || platform.persisted(&entry.value, 8));
      if (durable) context_.heap.retire(one.word & kOffsetMask, "phast.move.retire"_site);
    }
    desc.search.stripes.release(stripe);
    return same;  // the pool is poisoned if it is not durable: the next open frees the other one
  }

  Place at_;
};

}  // namespace perdure::phast
