// Tally: numbers of a map that its mutations raise and lower, counted by each thread in a line of
// its own. In DRAM.
//
// WHAT  Number kEntries is what the map has gained since it was opened. The other numbers are the
//   engine's. A thread adds by plain stores: a locked instruction would wait for the fence before
//   it (docs/decisions/0006).
// OPERATIONS
//   add, next  O(1). The first of a thread may allocate a piece, for 16 threads.
//   sum        O(threads that have ever used the map). Exact if no mutation is in its guard and the
//              caller has acquired what the guards released; of no one moment otherwise.
// ORDERING  A line has one writer. The next thread of its slot comes after the one that ended.
// PROGRESS  wait-free. Without memory for a piece the threads share one line.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "platform/platform.h"

namespace perdure {

template <Platform P>
class Tally {
 public:
  static constexpr unsigned kEntries = 0;
  static constexpr unsigned kNumbers = 4;

  Tally() = default;
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;
  ~Tally() {
    const std::uint32_t made = made_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
      std::free(pieces_[i].load(std::memory_order_acquire));
    }
  }

  // Adds the i-th argument to number i.
  template <std::same_as<std::int64_t>... N>
  [[gnu::always_inline]] void add(N... n) noexcept {
    static_assert(sizeof...(n) <= kNumbers);
    [[maybe_unused]] const typename P::Unobserved unobserved{};
    Line* line = own(P::thread_slot());
    const bool shared = line == nullptr;
    if (shared) [[unlikely]]
      line = &shared_;
    Number* number = line->numbers;
    ((n != 0 ? raise(*number, static_cast<std::uint64_t>(n), shared) : 0, ++number), ...);
  }
  // Adds 1 to a number. Returns what only this call returns: it rises by kTurn in a thread, and
  // starts below kTurn.
  static constexpr std::uint64_t kTurn = kMaxThreadSlots + 1;
  std::uint64_t next(unsigned number) noexcept {
    [[maybe_unused]] const typename P::Unobserved unobserved{};
    const std::uint32_t slot = P::thread_slot();
    Line* line = own(slot);
    const bool shared = line == nullptr;
    const std::uint64_t before = raise((shared ? shared_ : *line).numbers[number], 1, shared);
    return before * kTurn + (shared ? kMaxThreadSlots : slot);
  }
  std::int64_t sum(unsigned number) const noexcept {
    [[maybe_unused]] const typename P::Unobserved unobserved{};
    std::uint64_t sum = shared_.numbers[number].load(std::memory_order_relaxed);
    const std::uint32_t made = made_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
      const Piece* piece = pieces_[i].load(std::memory_order_acquire);
      if (piece == nullptr) continue;
      for (const Line& line : piece->lines) {
        sum += line.numbers[number].load(std::memory_order_relaxed);
      }
    }
    return static_cast<std::int64_t>(sum);
  }

 private:
  using Number = typename P::template Atomic<std::uint64_t>;  // a sum of checksums wraps
  static constexpr std::uint32_t kThreads = 16;
  struct alignas(64) Line {
    Number numbers[kNumbers] = {};
  };
  struct Piece {
    Line lines[kThreads];
  };

  // Returns null without memory.
  [[gnu::always_inline]] Line* own(std::uint32_t slot) noexcept {
    Piece* piece = pieces_[slot / kThreads].load(std::memory_order_acquire);
    if (piece == nullptr) [[unlikely]]
      piece = make(slot / kThreads);
    return piece != nullptr ? &piece->lines[slot % kThreads] : nullptr;
  }
  // Returns what the number was. Relaxed order: no thread concludes anything from a number about
  // other memory.
  [[gnu::always_inline]] static std::uint64_t raise(Number& number, std::uint64_t n,
                                                    bool shared) noexcept {
    if (shared) [[unlikely]]
      return number.fetch_add(n, std::memory_order_relaxed);
    const std::uint64_t before = number.load(std::memory_order_relaxed);
    number.store(before + n, std::memory_order_relaxed);
    return before;
  }
  [[gnu::noinline, gnu::cold]] Piece* make(std::uint32_t number) noexcept {
    void* memory = std::aligned_alloc(alignof(Piece), sizeof(Piece));
    if (memory == nullptr) return nullptr;
    auto* fresh = new (memory) Piece;
    std::uint32_t made = made_.load(std::memory_order_relaxed);
    while (made <= number &&
           !made_.compare_exchange_strong(made, number + 1, std::memory_order_acq_rel)) {
    }
    Piece* there = nullptr;
    if (pieces_[number].compare_exchange_strong(there, fresh)) return fresh;
    std::free(memory);
    return there;
  }

  typename P::template Atomic<Piece*> pieces_[kMaxThreadSlots / kThreads] = {};
  typename P::template Atomic<std::uint32_t> made_{0};  // no piece at or behind this number
  Line shared_;
};

}  // namespace perdure
