// Background: work of a pool that no operation waits for: a sweep that goes on while the pool
// serves, a rehash, a shrink.
//
// WHAT  Units of work, each a bounded step at a time, on one thread of the pool; it is started when
//   the first unit registers, so a pool whose engines have none never has a thread. A unit that
//   registers at open goes on with what the last process left.
// INVARIANTS (DRAM only; what a step stores is the unit's own crash argument)
//   B1  No two threads are inside run_some() of one unit.
//   B2  wake() is never lost: after it the unit's next step begins later than the wake.
//   B3  After remove(unit) no step of it runs or begins; after stop() no step of any.
// WITHOUT A THREAD  (background_threads 0, or the system refuses one) whoever calls run_some() runs
//   a step: Pool::run_background(), and mutations, which engines begin with help(). What is not
//   done at close goes on at the next open. Under SimPlatform there is never a thread: tests and
//   schedulers call run_some().
// PROGRESS  blocking; one latch, held for a walk over the units, never over a step. remove() and
//   finish() wait for a step under way, so a step may not wait for a thread that calls them.
#pragma once

#include <cstdint>

#include "platform/platform.h"

namespace perdure {

template <Platform P>
class Background;

// A unit of work. Lives from add() to remove(); its owner is an engine instance or part of a pool.
template <Platform P>
class BackgroundWork {
 public:
  BackgroundWork() = default;
  virtual ~BackgroundWork() = default;
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  // One step of at most about a millisecond, by a thread that is in no epoch guard of its own
  // making. Answers whether more is to be done; otherwise it rests until wake(). It fences what it
  // has stored before it returns.
  virtual bool run_some() noexcept = 0;

 private:
  friend class Background<P>;
  static constexpr std::uint32_t kNobody = ~0U;

  BackgroundWork* next_ = nullptr;  // under the service's latch
  std::uint32_t runner_ = kNobody;  // thread slot; under the latch
  typename P::template Atomic<bool> due_{false};
};

template <Platform P>
class Background {
 public:
  using Work = BackgroundWork<P>;

  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() { stop(); }

  // 0: no thread of its own. Before the first add().
  void set_threads(std::uint32_t threads) noexcept {
    threads_ = threads;
    driven_.store(threads == 0, std::memory_order_relaxed);
  }

  // Registers a unit, due at once. Starts the thread if it is the first.
  void add(Work& work) noexcept {
    bool start = false;
    {
      LatchGuard guard(latch_);
      work.next_ = first_;
      first_ = &work;
      work.due_.store(true, std::memory_order_relaxed);
      start = threads_ != 0 && !tried_ && !stopped_.load(std::memory_order_relaxed);
      tried_ = tried_ || start;
    }
    if (start && !thread_.start(loop_)) driven_.store(true, std::memory_order_relaxed);
    signal();
  }

  // The unit's owner is going. Waits for a step under way; not to be called from a step of it.
  void remove(Work& work) noexcept {
    {
      LatchGuard guard(latch_);
      Work** link = &first_;
      while (*link != nullptr && *link != &work) link = &(*link)->next_;
      if (*link == nullptr) return;
      *link = work.next_;
      if (cursor_ == &work) cursor_ = work.next_;
    }
    for (unsigned spins = 0; runner_of(work) != Work::kNobody;) P::pause(spins++);
  }

  // More is to be done. Any thread, also from within a step; cheap if it is known already.
  void wake(Work& work) noexcept {
    if (!work.due_.exchange(true, std::memory_order_acq_rel)) signal();
  }

  // Runs a step of one unit that is due, in turn, on the calling thread. False: nothing was left to
  // do, or others are doing it.
  bool run_some() noexcept {
    Work* work = nullptr;
    {
      LatchGuard guard(latch_);
      if (!stopped_.load(std::memory_order_relaxed)) work = take_next();
    }
    return work != nullptr && run(*work);
  }

  // Runs this unit on the calling thread until it rests; for an operation that cannot go on
  // without its result. False from within a step of the same unit, which cannot be waited for, and
  // after stop().
  bool finish(Work& work) noexcept {
    const std::uint32_t self = P::thread_slot();
    for (unsigned spins = 0;;) {
      bool taken = false;
      {
        LatchGuard guard(latch_);
        if (work.runner_ == self || stopped_.load(std::memory_order_relaxed)) return false;
        if (work.runner_ == Work::kNobody) {
          if (!work.due_.load(std::memory_order_acquire)) return true;
          take(work, self);
          taken = true;
        }
      }
      if (taken) {
        run(work);
      } else {
        P::pause(spins++);
      }
    }
  }

  // Returns when every unit rests. Endless if others keep waking them.
  void settle() noexcept {
    for (unsigned spins = 0; !at_rest();) {
      if (!run_some()) P::pause(spins++);
    }
  }

  // No unit is due and none is being run; whatever begins later sees what happened before the call.
  bool at_rest() noexcept {
    LatchGuard guard(latch_);
    if (stopped_.load(std::memory_order_relaxed)) return true;
    for (Work* work = first_; work != nullptr; work = work->next_) {
      if (work->runner_ != Work::kNobody || work->due_.load(std::memory_order_acquire)) {
        return false;
      }
    }
    return true;
  }

  // For the beginning of a mutation: a step, if no thread does the work.
  void help() noexcept {
    if (driven()) [[unlikely]]
      (void)run_some();
  }
  // No thread of its own does the work.
  bool driven() const noexcept { return driven_.load(std::memory_order_relaxed); }

  // Ends the thread after its present step; nothing runs afterwards. Idempotent.
  void stop() noexcept {
    if (abandoned_) return;
    {
      LatchGuard guard(latch_);
      stopped_.store(true, std::memory_order_release);
    }
    signal();
    thread_.join();
  }
  // A child of fork has no such thread and may have inherited a latch that is held.
  void abandon() noexcept { abandoned_ = true; }

 private:
  struct Loop {
    Background* service;
    void operator()() const noexcept { service->serve(); }
  };

  void serve() noexcept {
    while (!stopped_.load(std::memory_order_acquire)) {
      // Before the look for work: what is announced after it ends the park.
      const std::uint32_t seen = signal_.load(std::memory_order_acquire);
      if (stopped_.load(std::memory_order_acquire)) return;
      if (!run_some()) P::park(signal_, seen);
    }
  }
  void signal() noexcept {
    signal_.fetch_add(1, std::memory_order_release);
    P::unpark(signal_);
  }

  // Latch held: the next unit in turn that is due and that nobody runs, taken; or null.
  Work* take_next() noexcept {
    Work* const begin = cursor_ != nullptr ? cursor_ : first_;
    for (Work* work = begin; work != nullptr;) {
      Work* const next = work->next_ != nullptr ? work->next_ : first_;
      if (work->runner_ == Work::kNobody && work->due_.load(std::memory_order_acquire)) {
        cursor_ = next;
        take(*work, P::thread_slot());
        return work;
      }
      if (next == begin) return nullptr;
      work = next;
    }
    return nullptr;
  }
  static void take(Work& work, std::uint32_t runner) noexcept {
    work.runner_ = runner;
    // Before the step: what wakes it during the step is due again (B2).
    work.due_.exchange(false, std::memory_order_acq_rel);
  }
  bool run(Work& work) noexcept {
    const bool more = work.run_some();
    {
      LatchGuard guard(latch_);
      work.runner_ = Work::kNobody;
      if (more) work.due_.store(true, std::memory_order_release);
    }
    // A helper's step may have hidden the unit from the thread, which then went to sleep.
    if (more && !driven()) signal();
    return true;
  }
  std::uint32_t runner_of(const Work& work) noexcept {
    LatchGuard guard(latch_);
    return work.runner_;
  }

  typename P::Latch latch_;
  Work* first_ = nullptr;
  Work* cursor_ = nullptr;  // whose turn it is; null: the first one's
  typename P::template Atomic<std::uint32_t> signal_{0};
  typename P::template Atomic<bool> stopped_{false};
  typename P::template Atomic<bool> driven_{false};
  typename P::Thread thread_;
  Loop loop_{this};
  std::uint32_t threads_ = 1;
  bool tried_ = false;
  bool abandoned_ = false;
};

}  // namespace perdure
