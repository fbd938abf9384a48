// Stripe: the operations in flight on the keys of one stripe, and its last insert. In DRAM.
//
// A stripe has four latches of one byte each. A thread takes one before the stores that it
// announces, and releases it by a plain store after the fence (docs/decisions/0006). An insert,
// update or erase takes any of the last three that is free, so it never waits for one: if none is
// free, it joins the crowd, which is a counter. An erase with a condition takes the first latch,
// and waits until no update and no other erase is in flight. Those that come later wait for it.
// Inserts do not wait for it, and it does not wait for them.
//
// Of two inserts that have searched after the same last insert, one succeeds and the other searches
// again: each changes the word of the last insert by one compare-and-swap from what it was before
// the search (clevel.I3). The word never
// returns to a value while a thread is pinned that has loaded it there: an item becomes the last
// one once in its life, and forget() replaces it before its block is retired; what replaces it has
// a number of its own.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure::clevel {

template <Platform P>
class Stripe {
 public:
  // Returns whether an operation is in flight. `own` masks the caller's own latch.
  [[gnu::always_inline]] bool in_flight(std::uint32_t own) const {
    return (latches_.load() & ~own) != 0 || crowd_.load(std::memory_order_acquire) != 0;
  }
  // The mask of a place, for in_flight(). The crowd has none.
  static std::uint32_t own(unsigned place) {
    return place < P::ByteLatches::kCount ? 0xFFU << (8 * place) : 0;
  }

  // Returns the last insert: the offset of its item, if names_item().
  [[gnu::always_inline]] std::uint64_t last() const { return last_.load(); }
  static bool names_item(std::uint64_t last) { return last != 0 && last % 2 == 0; }
  // Returns whether the last insert may be in flight. The caller has loaded last() before. Its
  // thread has entered before it became the last one, and leaves after it has shown its item.
  [[gnu::always_inline]] bool inserting() const {
    return (latches_.load() & kAnyInserts) != 0 || crowd_.load(std::memory_order_acquire) != 0;
  }
  // Makes the insert of an item the last one, if `before` still is. The caller has entered.
  [[gnu::always_inline]] bool follow(std::uint64_t before, std::uint64_t item) {
    return last_.compare_exchange_strong(before, item);
  }
  // For an item that is dead and not retired yet. `odd`: a number that last() has never returned.
  void forget(std::uint64_t item, std::uint64_t odd) {
    (void)last_.compare_exchange_strong(item, odd);
  }

  // Begins an insert. Returns the argument for leave(). Waits for no thread.
  [[gnu::always_inline]] unsigned enter_insert() {
    unsigned place = 0;
    (void)try_take(kInserts, place);
    return place;
  }
  // Begins an update or an erase. Sets the argument for leave(). Returns false if another thread is
  // alone in the stripe.
  [[gnu::always_inline]] bool try_enter(unsigned& place) { return try_take(kChanges, place); }
  [[gnu::always_inline]] unsigned enter() {
    unsigned place = 0;
    for (unsigned spins = 0; !try_enter(place);) P::pause(spins++);
    return place;
  }
  // Begins an erase that no update or other erase of the stripe overlaps.
  unsigned enter_alone() {
    for (unsigned spins = 0;; P::pause(spins++)) {
      std::uint32_t word = latches_.load();
      if ((word & kFirst) == 0 && latches_.compare_exchange(word, word | kAlone)) break;
    }
    for (unsigned spins = 0; (latches_.load() & kAnyChanges) != 0 ||
                             crowd_.load(std::memory_order_acquire) % kInsertInCrowd != 0;) {
      P::pause(spins++);
    }
    return 0;
  }
  [[gnu::always_inline]] void leave(unsigned place) {
    if (place < P::ByteLatches::kCount) [[likely]]
      return latches_.release(place);
    crowd_.fetch_sub(place == kCrowd ? 1 : kInsertInCrowd, std::memory_order_release);
  }

 private:
  // As places. Smaller ones are latches.
  static constexpr unsigned kCrowd = P::ByteLatches::kCount;
  static constexpr unsigned kCrowdOfInserts = kCrowd + 1;
  // What a latch has.
  static constexpr std::uint32_t kAlone = 1;    // the first one only
  static constexpr std::uint32_t kChanges = 1;  // an update or an erase
  static constexpr std::uint32_t kInserts = 2;
  static constexpr std::uint32_t kFirst = 0xFF;
  static constexpr std::uint32_t kAnyChanges = 0x01010100;
  static constexpr std::uint32_t kAnyInserts = 0x02020200;
  static constexpr std::uint32_t kInsertInCrowd = 1U << 16;  // more than there are threads

  [[gnu::always_inline]] bool try_take(std::uint32_t mark, unsigned& place) {
    for (std::uint32_t word = latches_.load();;) {
      if (mark == kChanges && (word & kFirst) != 0) return false;
      unsigned i = 1;
      while (i < P::ByteLatches::kCount && (word >> (8 * i) & 0xFF) != 0) ++i;
      if (i == P::ByteLatches::kCount) {
        place = mark == kChanges ? kCrowd : kCrowdOfInserts;
        return join_crowd(place);
      }
      place = i;
      if (latches_.compare_exchange(word, word | mark << (8 * i))) return true;
    }
  }
  // enter_alone() marks its latch, then looks at the crowd. An update or erase raises the crowd,
  // then looks at the mark: one of the two sees the other, because both begin with a locked
  // instruction.
  [[gnu::noinline]] bool join_crowd(unsigned place) {
    if (place == kCrowdOfInserts) {
      crowd_.fetch_add(kInsertInCrowd, std::memory_order_seq_cst);
      return true;
    }
    crowd_.fetch_add(1, std::memory_order_seq_cst);
    if ((latches_.load() & kFirst) == 0) return true;
    crowd_.fetch_sub(1, std::memory_order_release);
    return false;
  }

  typename P::ByteLatches latches_;
  typename P::template Atomic<std::uint32_t> crowd_{0};  // inserts are in the upper half
  // 0, the offset of an item, or an odd number. Sequentially consistent: each thread has loaded it
  // before the slots, and others change it after their locked store into a slot.
  typename P::template Atomic<std::uint64_t> last_{0};
};
static_assert(kMaxThreadSlots < 1U << 16);

}  // namespace perdure::clevel
