// WorkThread: a thread that ends when it has had nothing to do for a while, and is there again when
// there is something.
//
// WHAT  The body loops: it reads seen(), looks for work, and waits. If there was none for long
//   enough, it calls end(), and returns if that is true.
// INVARIANTS (DRAM)
//   work.W1  After wake() has returned true, the body looks for work once more: either it has not
//       ended and is signalled, or it begins anew.
// LIMITS  A new thread has the affinity and the priority of the one that calls wake().
// Thread safety: any thread may call wake(), and one stop().
#pragma once

#include <atomic>
#include <cstdint>

#include "perdure/function_ref.h"
#include "platform/platform.h"
#include "platform/timed_event.h"

namespace perdure {

template <class P>
class WorkThread {
 public:
  // `body` must stay valid.
  explicit WorkThread(FunctionRef<void()> body) noexcept : body_(body) {}
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // False: the system refuses a thread, or stop() was called.
  bool wake() noexcept {
    LatchGuard guard(latch_);
    event_.signal();
    if (alive_ || stopped()) return alive_;
    thread_.join();  // it has ended, or is about to return
    return alive_ = thread_.start(body_);
  }
  // The body is asked to return, and has done so when this returns. Then it is never there again.
  void stop() noexcept {
    {
      LatchGuard guard(latch_);
      stopped_.store(true, std::memory_order_release);
      event_.signal();
    }
    thread_.join();
    LatchGuard guard(latch_);
    alive_ = false;
  }

  // --- the body ---
  bool stopped() const noexcept { return stopped_.load(std::memory_order_acquire); }
  std::uint32_t seen() const noexcept { return event_.seen(); }
  // Returns after a wake() since seen(), or after `ns`, or before.
  void wait(std::uint32_t seen, std::uint64_t ns) noexcept { event_.wait(seen, ns); }
  // Whether there was no wake() since seen(). Then the body must return.
  bool end(std::uint32_t seen) noexcept {
    LatchGuard guard(latch_);
    if (event_.seen() != seen) return false;
    alive_ = false;
    return true;
  }

 private:
  const FunctionRef<void()> body_;
  typename P::Latch latch_;
  bool alive_ = false;  // under latch_
  std::atomic<bool> stopped_{false};
  TimedEvent event_;
  typename P::Thread thread_;
};

}  // namespace perdure
