// EntryCount: how many entries a map has, for size().
//
// WHAT  What the map had when it was opened, plus what each thread has added since. A thread adds
//   in a line of its own, without a locked instruction (docs/decisions/0006), inside the guard of
//   its mutation.
// INVARIANT (DRAM)  With no mutation in a guard, known() implies that sum() is the number of
//   entries.
// OPERATIONS
//   add    O(1). The first of a thread may allocate a piece, for 16 threads.
//   sum    O(threads that have ever used the map)
//   start  by recovery, or with the gate closed: no thread is in the guard of a mutation. A thread
//          that has left its guard has released what it added, and the gate has acquired it.
// ORDERING  A line has one writer. The next thread of its slot comes after the one that ended.
// PROGRESS  wait-free. Without memory for a piece the threads share one number.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

#include "platform/platform.h"

namespace perdure {

template <Platform P>
class EntryCount {
 public:
  EntryCount() = default;
  EntryCount(const EntryCount&) = delete;
  EntryCount& operator=(const EntryCount&) = delete;
  ~EntryCount() {
    for (auto& piece : pieces_) std::free(piece.load(std::memory_order_acquire));
  }

  [[gnu::always_inline]] void add(std::int64_t n) noexcept {
    [[maybe_unused]] const typename P::Unobserved unobserved{};
    const std::uint32_t slot = P::thread_slot();
    Piece* piece = pieces_[slot / kThreads].load(std::memory_order_acquire);
    if (piece == nullptr) [[unlikely]]
      piece = make(slot / kThreads);
    if (piece == nullptr) [[unlikely]] {
      shared_.fetch_add(n, std::memory_order_relaxed);
      return;
    }
    Sum& own = piece->lines[slot % kThreads].sum;
    own.store(own.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  bool known() const noexcept { return known_.load(std::memory_order_acquire); }
  std::uint64_t sum() const noexcept {
    const std::int64_t n = start_.load(std::memory_order_relaxed) + added();
    return n < 0 ? 0 : static_cast<std::uint64_t>(n);  // while mutations are under way
  }
  void start(std::uint64_t entries) noexcept {
    start_.store(static_cast<std::int64_t>(entries) - added(), std::memory_order_relaxed);
    known_.store(true, std::memory_order_release);
  }
  void forget() noexcept { known_.store(false, std::memory_order_relaxed); }

 private:
  using Sum = typename P::template Atomic<std::int64_t>;
  static constexpr std::uint32_t kThreads = 16;
  struct alignas(64) Line {
    Sum sum{0};
  };
  struct Piece {
    Line lines[kThreads];
  };

  [[gnu::noinline, gnu::cold]] Piece* make(std::uint32_t number) noexcept {
    void* memory = std::aligned_alloc(alignof(Piece), sizeof(Piece));
    if (memory == nullptr) return nullptr;
    auto* fresh = new (memory) Piece;
    Piece* there = nullptr;
    if (pieces_[number].compare_exchange_strong(there, fresh)) return fresh;
    std::free(memory);
    return there;
  }
  std::int64_t added() const noexcept {
    [[maybe_unused]] const typename P::Unobserved unobserved{};
    std::int64_t sum = shared_.load(std::memory_order_relaxed);
    for (const auto& pointer : pieces_) {
      const Piece* piece = pointer.load(std::memory_order_acquire);
      if (piece == nullptr) continue;
      for (const Line& line : piece->lines) sum += line.sum.load(std::memory_order_relaxed);
    }
    return sum;
  }

  typename P::template Atomic<Piece*> pieces_[kMaxThreadSlots / kThreads] = {};
  Sum shared_{0};
  Sum start_{0};
  typename P::template Atomic<bool> known_{false};
};

}  // namespace perdure
