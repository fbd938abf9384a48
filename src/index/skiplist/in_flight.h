// InFlight: the word that the holder of a stripe is changing, for lookups that may rest on it. In
// DRAM.
//
// INVARIANT  skiplist.I7: a word that decides what a lookup returns (a link of level 0, a value) is
//   announced from before its store until after its fence. A thread that has seen a store then
//   finds it announced, or its fence is over. A stripe has never more than one word.
//   The word is announced at the node that results rest on: a value at its node; the link of an
//   insert at the new node; the link of an erase at the node before the one that goes.
// ORDERING  place before word (release); a reader loads word (acquire), then place. A reader may
//   find the word of one change and the place of the next. Then the first is fenced, and it has not
//   seen the second.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure::skiplist {

template <Platform P>
class InFlight {
 public:
  // For the holder of the stripe. `place`: of the node that results rest on.
  void announce(std::uint64_t place, const std::uint64_t* word) {
    PERDURE_ASSERT(P, "skiplist.I7", any() == nullptr);
    place_.store(place, std::memory_order_relaxed);
    word_.store(word, std::memory_order_release);
  }
  void withdraw() { word_.store(nullptr, std::memory_order_release); }

  // Returns null if there is none.
  const std::uint64_t* any() const { return word_.load(std::memory_order_acquire); }
  // Returns null if no result that rests on this node rests on the word in flight.
  const std::uint64_t* about(std::uint64_t place) const {
    const std::uint64_t* word = any();
    if (word == nullptr || place_.load(std::memory_order_relaxed) == place) return word;
    return nullptr;
  }

 private:
  typename P::template Atomic<const std::uint64_t*> word_{nullptr};
  typename P::template Atomic<std::uint64_t> place_{0};
};

}  // namespace perdure::skiplist
