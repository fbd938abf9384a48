// Gate: a moment in which no mutation of the pool is under way.
//
// WHAT  One thread closes the gate, and waits until every mutation that has passed it has ended.
//   Until it opens the gate, mutations of other threads wait outside. Reads never wait. For reads
//   of several keys that must belong together (Pool::read_batch).
// INVARIANTS (DRAM)
//   gate.G1  Between close() and open() no other thread is in a mutation that has passed.
//   gate.G2  A thread waits at the gate in no guard, so that it holds back no reclamation. Nor does
//       it hold a latch that a mutation needs: the holder, and those that have passed, go on.
// OPERATIONS
//   passes  asked by a mutation, in its guard, before all else: one load of a word that seldom
//           changes. If it returns false, the mutation unpins, waits, pins and asks again.
//   close   stores the word, then a heavy fence, then reads the slots of all threads.
// ORDERING  holder_  stored (seq_cst), then heavy_fence(), then the slots are read. A mutation
//   stores into its slot, then light_fence(), then loads holder_ (acquire). So either the mutation
//   sees the closed gate, or the holder sees the mutation, and waits for its end. The end stores 0
//   into the slot (release): the holder sees all that the mutation did.
// NOT GATED  Steps of background work, and reclamation: they change no entry. compact(), and making
//   and dropping maps: Pool excludes them by a latch. rollback() beyond its first step: no other
//   operation may be in flight.
// PROGRESS  blocking, for mutations. close() waits for those under way. A thread that closes the
//   gate again and again lets those that wait pass in between.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure {

template <Platform P>
class EpochDomain;

template <Platform P>
class Gate {
 public:
  explicit Gate(EpochDomain<P>& domain) noexcept : domain_(domain) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Called in a MutationGuard.
  [[gnu::always_inline]] bool passes() const noexcept {
    return holder_.load(std::memory_order_acquire) == 0;
  }
  // Whether the calling thread has closed the gate. Its own mutations do not pass, nor may it wait,
  // unless it does a batch.
  bool held() const noexcept {
    return holder_.load(std::memory_order_relaxed) == P::thread_slot() + 1;
  }
  // From the first time that the gate was closed to a mutation, until it has passed.
  class [[nodiscard]] Waiting {
   public:
    explicit Waiting(Gate& gate) noexcept : gate_(gate) {
      gate_.waiting_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Waiting() { gate_.waiting_.fetch_sub(1, std::memory_order_relaxed); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    // Called outside any guard.
    void wait() const noexcept {
      PERDURE_ASSERT(P, "gate.G2", !gate_.domain_.pinned());
      for (unsigned spins = 0; !gate_.passes(); ++spins) P::pause(spins);
    }

   private:
    Gate& gate_;
  };

  // Whether the calling thread holds the gate and does a batch, whose mutations pass.
  bool does_batch() const noexcept { return batch_.load(std::memory_order_relaxed) && held(); }
  void set_batch(bool does) noexcept { batch_.store(does, std::memory_order_relaxed); }

  // The caller is in no guard. One thread at a time; others wait.
  void close() noexcept {
    latch_.lock();
    // Those that waited while another thread held the gate go first, if they are not too slow.
    for (unsigned spins = 0; spins < kTurn && waiting_.load(std::memory_order_relaxed) != 0;) {
      P::pause(spins++);
    }
    holder_.store(P::thread_slot() + 1, std::memory_order_seq_cst);
    for (unsigned spins = 0; !P::heavy_fence() && !P::full_light_fences(); ++spins) P::pause(spins);
    for (unsigned spins = 0; domain_.others_mutate(); ++spins) P::pause(spins);
    note_closed(true);
  }
  void open() noexcept {
    note_closed(false);
    holder_.store(0, std::memory_order_release);
    latch_.unlock();
  }
  // For an assertion: whether close() of another thread has returned, and open() has not been
  // called.
  bool closed_to_me() const noexcept {
    [[maybe_unused]] const typename P::Unobserved unobserved{};
    return closed_.load(std::memory_order_acquire) && !held();
  }

 private:
  static constexpr unsigned kTurn = 256;  // pauses

  void note_closed(bool closed) noexcept {
    if constexpr (P::kAsserts) {
      [[maybe_unused]] const typename P::Unobserved unobserved{};
      closed_.store(closed, std::memory_order_release);
    }
  }

  EpochDomain<P>& domain_;
  typename P::Latch latch_;
  typename P::template Atomic<std::uint32_t> holder_{0};  // its thread slot + 1; 0: open
  typename P::template Atomic<std::uint32_t> waiting_{0};
  typename P::template Atomic<bool> batch_{false};
  typename P::template Atomic<bool> closed_{false};  // for the assertion
};

// Closes the gate for a scope.
template <Platform P>
class [[nodiscard]] GateHold {
 public:
  explicit GateHold(EpochDomain<P>& domain) noexcept : gate_(domain.gate()) { gate_.close(); }
  ~GateHold() { gate_.open(); }
  GateHold(const GateHold&) = delete;
  GateHold& operator=(const GateHold&) = delete;

 private:
  Gate<P>& gate_;
};

}  // namespace perdure
