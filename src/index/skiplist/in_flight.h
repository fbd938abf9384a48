// InFlight: the word that the one writer is changing, for lookups that may rest on it. In DRAM.
//
// INVARIANT  skiplist.I7: a word that decides what a lookup of a key returns (a link of level 0, a
//   value) is announced from before its store until after its fence. A thread that has seen a store
//   then finds it announced, or its fence is over. There is never more than one word.
// ORDERING  key before word (release); a reader loads word (acquire), then key. A reader may find
//   the word of one change and the key of the next. Then the first is fenced, and it has not seen
//   the second.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure::skiplist {

template <Platform P>
class alignas(64) InFlight {
 public:
  // For the writer, which holds the latch.
  void announce(std::uint64_t key, const std::uint64_t* word) {
    PERDURE_ASSERT(P, "skiplist.I7", any() == nullptr);
    key_.store(key, std::memory_order_relaxed);
    word_.store(word, std::memory_order_release);
  }
  void withdraw() { word_.store(nullptr, std::memory_order_release); }

  // Returns null if there is none.
  const std::uint64_t* any() const { return word_.load(std::memory_order_acquire); }
  // Returns null if no result about a key of this word rests on the word in flight.
  const std::uint64_t* about(std::uint64_t key) const {
    const std::uint64_t* word = any();
    if (word == nullptr || key_.load(std::memory_order_relaxed) == key) return word;
    return nullptr;
  }

 private:
  typename P::template Atomic<const std::uint64_t*> word_{nullptr};
  typename P::template Atomic<std::uint64_t> key_{0};
};

}  // namespace perdure::skiplist
