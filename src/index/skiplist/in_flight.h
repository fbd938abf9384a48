// InFlight: which word the one writer is changing, for lookups that may rest on it. In DRAM.
//
// INVARIANT  skiplist.I7: a word that decides what a lookup of a key returns (a link of level 0, a
//   value) is announced from before its store until after its fence. So a thread that has seen a
//   store finds it announced afterwards, or its fence is over; and there is never more than one.
// ORDERING  key before word (release); a reader loads word (acquire), then key. A reader that finds
//   the word of one change and the key of the next: the first is fenced, the second was not seen.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure::skiplist {

template <Platform P>
class alignas(64) InFlight {
 public:
  // By the writer, which holds the latch.
  void announce(std::uint64_t key, const std::uint64_t* word) noexcept {
    PERDURE_ASSERT(P, "skiplist.I7", any() == nullptr);
    key_.store(key, std::memory_order_relaxed);
    word_.store(word, std::memory_order_release);
  }
  void withdraw() noexcept { word_.store(nullptr, std::memory_order_release); }

  // Null: none.
  const std::uint64_t* any() const noexcept { return word_.load(std::memory_order_acquire); }
  // Null: none that an answer about a key of this word rests on.
  const std::uint64_t* about(std::uint64_t key) const noexcept {
    const std::uint64_t* word = any();
    if (word == nullptr || key_.load(std::memory_order_relaxed) == key) return word;
    return nullptr;
  }

 private:
  typename P::template Atomic<const std::uint64_t*> word_{nullptr};
  typename P::template Atomic<std::uint64_t> key_{0};
};

}  // namespace perdure::skiplist
