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
// ORDERING  word_  set (seq_cst), then heavy_fence(), then the slots are read. A mutation
//   stores into its slot, then light_fence(), then loads word_ (acquire). So either the mutation
//   sees the closed gate, or the holder sees the mutation, and waits for its end. The end stores 0
//   into the slot (release): the holder sees all that the mutation did.
// BRAKE   The owner of the pool can slow mutations down, or refuse them (Brake). While the brake is
//   on, a mutation asks it before it goes on, and waits as at a closed gate. Nothing depends on
//   when a thread sees that the brake was put on. The mutations of a batch, whose thread has closed
//   the gate, wait for the brake, too, but it cannot refuse them.
// PENDING   A batch in pieces (pool/piece_batch.h) closes the gate for each of its steps, and is
//   pending in between. Mutations then ask it what they may do (index/pending_batch.h); those in a
//   map of the batch go one at a time, beside it.
//   gate.G3  Who sees a pending batch, pinned as a mutation or with the latch of go_beside(), sees
//            it until it unpins, or releases the latch.
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
class PendingBatch;

class Brake {
 public:
  // Whether a mutation may go on now; `batch`: of a batch, for which all others wait.
  virtual bool lets(bool batch) noexcept = 0;
  // Returns when that may have changed. The caller is in no guard.
  virtual void wait() noexcept = 0;
  // Not ok: every mutation fails with this error.
  virtual Status refusal() noexcept = 0;

 protected:
  ~Brake() = default;
};

template <Platform P>
class Gate {
 public:
  explicit Gate(EpochDomain<P>& domain) noexcept : domain_(domain) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Called in a MutationGuard.
  [[gnu::always_inline]] bool passes() const noexcept {
    return word_.load(std::memory_order_acquire) == 0;
  }
  // Whether the calling thread has closed the gate. Its own mutations do not pass, nor may it wait,
  // unless it does a batch.
  bool held() const noexcept {
    return (word_.load(std::memory_order_relaxed) & kHolder) == P::thread_slot() + 1;
  }

  // --- the brake ---
  // It must stay valid. Before threads use the pool.
  void set_brake(Brake& brake) noexcept { brake_ = &brake; }
  // On: mutations ask the brake. Any thread.
  void put_brake(bool on) noexcept {
    if (on) {
      word_.fetch_or(kBraked, std::memory_order_release);
    } else {
      word_.fetch_and(~kBraked, std::memory_order_release);
    }
  }
  bool braked() const noexcept { return (word_.load(std::memory_order_acquire) & kBraked) != 0; }
  Status refusal() const noexcept { return braked() ? brake_->refusal() : Status(); }
  // Whether no thread has closed the gate. The brake may be on.
  bool only_braked() const noexcept {
    return (word_.load(std::memory_order_acquire) & kHolder) == 0;
  }
  // As passes(), and if no thread has closed the gate, the brake decides, if it is on.
  bool lets_pass() const noexcept {
    const std::uint32_t word = word_.load(std::memory_order_acquire);
    return (word & kHolder) == 0 && ((word & kBraked) == 0 || brake_->lets(false));
  }
  // For a mutation of the batch that holds the gate: whether the brake makes it wait.
  bool slows_batch() const noexcept { return braked() && refusal().ok() && !brake_->lets(true); }
  void wait_for_brake() noexcept { brake_->wait(); }
  // For its record. The caller is in no guard.
  void slow_record() noexcept {
    while (slows_batch()) brake_->wait();
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
      for (unsigned spins = 0;; ++spins) {
        const std::uint32_t word = gate_.word_.load(std::memory_order_acquire);
        if ((word & kHolder) != 0) {
          P::pause(spins);
        } else if ((word & kBraked) != 0) {
          return gate_.brake_->wait();
        } else {
          return;
        }
      }
    }

   private:
    Gate& gate_;
  };

  // Whether the calling thread holds the gate and does a batch, whose mutations pass.
  bool does_batch() const noexcept { return batch_.load(std::memory_order_relaxed) && held(); }
  void set_batch(bool does) noexcept { batch_.store(does, std::memory_order_relaxed); }

  // --- a batch in pieces ---
  // Null if there is none. The caller is pinned as a mutation, or beside it, or holds the gate.
  PendingBatch* pending() const noexcept { return pending_.load(std::memory_order_relaxed); }
  // The caller has closed the gate. Null: the batch has ended; no thread is beside it then.
  void set_pending(PendingBatch* batch) noexcept {
    PERDURE_ASSERT(P, "gate.G3", held() && (batch != nullptr || beside()));
    pending_.store(batch, std::memory_order_relaxed);
    if (batch != nullptr) {
      word_.fetch_or(kPending, std::memory_order_release);
    } else {
      word_.fetch_and(~kPending, std::memory_order_release);
    }
  }
  // Waits for its turn to go beside the pending batch. The caller is in no guard. `ends`: it ends
  // the batch, and goes before those that still come.
  void go_beside(bool ends) noexcept {
    PERDURE_ASSERT(P, "gate.G2", !domain_.in_guard());
    if (ends) {
      ending_.store(true, std::memory_order_relaxed);
    } else {
      for (unsigned spins = 0; ending_.load(std::memory_order_relaxed); ++spins) P::pause(spins);
    }
    beside_latch_.lock();
    beside_.store(P::thread_slot() + 1, std::memory_order_relaxed);
  }
  void leave_beside(bool ends) noexcept {
    beside_.store(0, std::memory_order_relaxed);
    beside_latch_.unlock();
    if (ends) ending_.store(false, std::memory_order_relaxed);
  }
  // Whether the calling thread is beside.
  bool beside() const noexcept {
    return beside_.load(std::memory_order_relaxed) == P::thread_slot() + 1;
  }

  // The caller is in no guard. One thread at a time; others wait.
  void close() noexcept {
    if (beside()) {
      const Waiting waiting(*this);
      latch_.lock();
    } else {
      // Those that waited while another thread held the gate go first, if they are not too slow.
      for (unsigned spins = 0; spins < kTurn && waiting_.load(std::memory_order_relaxed) != 0;) {
        P::pause(spins++);
      }
      latch_.lock();
    }
    word_.fetch_or(P::thread_slot() + 1, std::memory_order_seq_cst);
    for (unsigned spins = 0; !P::heavy_fence() && !P::full_light_fences(); ++spins) P::pause(spins);
    for (unsigned spins = 0; domain_.others_mutate(); ++spins) P::pause(spins);
    note_closed(true);
  }
  void open() noexcept {
    note_closed(false);
    word_.fetch_and(~kHolder, std::memory_order_release);
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
  static constexpr std::uint32_t kBraked = std::uint32_t{1} << 31;
  static constexpr std::uint32_t kPending = std::uint32_t{1} << 30;
  static constexpr std::uint32_t kHolder = kPending - 1;

  void note_closed(bool closed) noexcept {
    if constexpr (P::kAsserts) {
      [[maybe_unused]] const typename P::Unobserved unobserved{};
      closed_.store(closed, std::memory_order_release);
    }
  }

  EpochDomain<P>& domain_;
  typename P::Latch latch_;
  // The holder's thread slot + 1; 0: open. Whether the brake is on, and a batch is pending.
  typename P::template Atomic<std::uint32_t> word_{0};
  typename P::template Atomic<std::uint32_t> waiting_{0};
  typename P::template Atomic<bool> batch_{false};
  typename P::template Atomic<bool> closed_{false};  // for the assertion
  Brake* brake_ = nullptr;
  typename P::template Atomic<PendingBatch*> pending_{nullptr};
  typename P::Latch beside_latch_;
  typename P::template Atomic<std::uint32_t> beside_{0};  // the thread slot + 1; 0: no thread
  typename P::template Atomic<bool> ending_{false};
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

// Goes beside the pending batch for a scope.
template <Platform P>
class [[nodiscard]] BesideHold {
 public:
  explicit BesideHold(Gate<P>& gate, bool ends = false) noexcept : gate_(gate), ends_(ends) {
    gate_.go_beside(ends_);
  }
  ~BesideHold() { gate_.leave_beside(ends_); }
  BesideHold(const BesideHold&) = delete;
  BesideHold& operator=(const BesideHold&) = delete;

 private:
  Gate<P>& gate_;
  const bool ends_;
};

}  // namespace perdure
