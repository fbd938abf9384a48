// SharedCall: one call of membarrier(2) for all threads that need one at the same time.
//
// WHAT  A call interrupts each core that runs a thread of the process. A thread that needs one may
//   use the call of another thread, if that began after the thread came. As the sequence numbers of
//   grace periods in RCU: a thread notes the number of the last call that has begun; a call with a
//   larger number that has ended is enough. If no call is under way, the thread calls itself. If
//   one is, it is too old, but one that follows it serves all that wait. So any number of threads
//   that come during a call make one more.
// INVARIANT  run() returns true only if every thread of the process has executed a full fence
//   during this run(), the caller of run() included.
// ORDERING
//   begun_  Number n is taken by a read-modify-write, and call n follows it in the same thread.
//           The note is a load behind a full fence. If it returns less than n, it comes before the
//           read-modify-write in the order of begun_. So call n, from its first fence to its last,
//           comes after the fence of the note, and what the caller stored before run() is visible
//           behind every fence of call n. A note that passed the caller's stores would allow a call
//           that ended before them.
//   ended_  is raised (release) behind a call, and loaded (acquire): what a thread stored before
//           its fence of call n is visible to all that have seen n here. It never falls, so one
//           load tells that some call behind the note has ended. Which one does not matter.
//   A call that began before the note is of no use, although it may end after it: another thread's
//   fence may have come before the caller's store (tests/relacy/kernels_test takes such a call).
// PROGRESS  A thread waits for other calls no longer than Wait allows, all of them together. Then
//   it calls itself, and so do those behind it. A thread that is stopped between begun_ and ended_
//   therefore costs each thread that waits for it that time, once: the next call that ends is
//   larger, and from then on nothing is under way. The same in a child of fork, whose parent had a
//   call under way. If the system refuses the call, each thread that waits finds out by its own.
#pragma once

#include <atomic>  // memory orders
#include <cstdint>

#include "platform/platform.h"

namespace perdure {

// M has:
//   Atomic<T>      with read-modify-writes that are full fences (machine.h, M1)
//   full_fence()
//   call()         every thread of the process executes a full fence during it, unless it returns
//                  false
//   Wait           made at the begin of a wait. over() pauses, and returns true once the caller has
//                  waited about as long as a call takes
// `kBehind`: how far behind the note a call must begin. A test takes 0, which is wrong.
template <class M, std::uint64_t kBehind = 1>
class alignas(kOwnLine) SharedCall {
 public:
  [[nodiscard]] bool run() noexcept {
    M::full_fence();
    const std::uint64_t noted = begun_.load(std::memory_order_seq_cst);
    std::uint64_t last = noted;
    if (ended_.load(std::memory_order_acquire) < last || !begin(last)) {
      for (typename M::Wait wait;;) {
        const std::uint64_t ended = ended_.load(std::memory_order_acquire);
        if (ended >= noted + kBehind) return true;
        last = begun_.load(std::memory_order_relaxed);
        if ((ended >= last || wait.over()) && begin(last)) break;
      }
    }
    if (!M::call()) return false;
    end(last + 1);
    return true;
  }
  // The number of calls that have begun.
  std::uint64_t calls() const noexcept { return begun_.load(std::memory_order_relaxed); }

 private:
  // Takes the number behind `last`, unless another thread has.
  bool begin(std::uint64_t last) noexcept {
    return begun_.compare_exchange_strong(last, last + 1, std::memory_order_seq_cst);
  }
  void end(std::uint64_t number) noexcept {
    std::uint64_t ended = ended_.load(std::memory_order_relaxed);
    while (ended < number &&
           !ended_.compare_exchange_strong(ended, number, std::memory_order_seq_cst)) {
    }
  }

  typename M::template Atomic<std::uint64_t> begun_{0};
  typename M::template Atomic<std::uint64_t> ended_{0};  // the largest number of an ended call
};

}  // namespace perdure
