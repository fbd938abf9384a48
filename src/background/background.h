// Background: work of a pool that no operation waits for: a sweep that goes on while the pool
// serves, a rehash, a shrink.
//
// WHAT  Units of work, each a bounded step at a time, on up to kMaxBackgroundThreads threads of the
//   pool. The first unit that registers starts the threads: a pool whose engines have none never
//   has a thread. A unit that registers at open continues what the last process left.
// INVARIANTS (DRAM only; what a step stores is the unit's own crash argument)
//   pool.B1  At most as many threads are inside run_some() of a unit as the width it was added
//       with: 1, unless it says more.
//   pool.B2  wake() is never lost: after it the unit's next step begins later than the wake.
//   pool.B3  After remove(unit) no step of it runs or begins; after stop() no step of any. While a
//       BackgroundHold lives none runs or begins.
//   pool.B4  After a step that returned `blocked`, another one follows once space is freed, also if
//       that was between the step's failed allocation and its return.
// ORDERING
//   wakes, rested  A unit is due while wakes != rested. A step counts the wakes before it begins;
//                  `rest` makes that count `rested`, then looks at wakes again. wake() adds to
//                  wakes, then looks at rested: one of the two sees the other (both seq_cst), so
//                  either the unit stays due or the waker signals.
//   freed, blocked the same between space_freed() and a step that returns blocked.
//   signal         read before a thread looks for work and waited for after it: a signal in
//                  between ends the park.
//   latch          everything else; taken last, also by threads that hold latches of the heap.
// WITHOUT A THREAD  (background_threads 0, or the system refuses one) callers of run_some() run the
//   steps: Pool::run_background(), and mutations, which engines begin with help(). Work that is not
//   done at close goes on at the next open. Under SimPlatform there is never a thread: tests and
//   schedulers call run_some().
// PROGRESS  blocking; one latch, held for a walk over the units, never over a step. remove(),
//   finish() and a hold wait for steps under way: a step must not wait for a thread that calls
//   them. A step may finish() another unit if that one never waits for its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "perdure/options.h"
#include "platform/platform.h"
#include "util/log.h"

namespace perdure {

template <Platform P>
class Background;

// The result of a step.
enum class Step : std::uint8_t {
  more,     // there is more to do
  rest,     // nothing is left until the unit is woken
  blocked,  // it needs space that the pool does not have: until some is freed, or a wake
};

// A unit of work. Lives from add() to remove(); its owner is an engine instance or part of a pool.
template <Platform P>
class BackgroundWork {
 public:
  static constexpr std::uint32_t kMaxWidth = kMaxBackgroundThreads * 2;  // helpers included

  BackgroundWork() = default;
  virtual ~BackgroundWork() = default;
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  // One step of some milliseconds at most. The calling thread is in no epoch guard. The step
  // fences what it has stored before it returns. With a width of more than 1, as many threads may
  // be in it at once.
  virtual Step run_some() = 0;

 private:
  friend class Background<P>;
  using Count = typename P::template Atomic<std::uint64_t>;

  // Under the service's latch:
  BackgroundWork* next_ = nullptr;
  std::uint32_t width_ = 1;
  std::uint32_t inside_ = 0;
  std::uint32_t runners_[kMaxWidth] = {};  // thread slots, the first `inside_` of them
  bool blocked_ = false;
  // Changed by wake() too:
  Count wakes_{0};
  Count rested_{0};
};

template <Platform P>
class Background {
 public:
  using Work = BackgroundWork<P>;

  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() { stop(); }

  // The number of its own threads, at most kMaxBackgroundThreads. Before the first add().
  void set_threads(std::uint32_t threads) {
    wanted_ = std::min(threads, kMaxBackgroundThreads);
    driven_.store(wanted_ == 0, std::memory_order_relaxed);
  }

  // The pool's log. It must stay valid. Before the first add().
  void set_log(const Log& log) { log_ = &log; }
  const Log& log() const { return *log_; }

  // Registers a unit, due at once; up to `width` threads may be inside it. The first unit starts
  // the threads.
  void add(Work& work, std::uint32_t width = 1) {
    bool start = false;
    {
      LatchGuard guard(latch_);
      PERDURE_ASSERT(P, "pool.B1", work.inside_ == 0);
      work.next_ = first_;
      first_ = &work;
      work.width_ = std::clamp(width, 1U, Work::kMaxWidth);
      work.wakes_.fetch_add(1, std::memory_order_seq_cst);
      start = wanted_ != 0 && !tried_ && !stopped_.load(std::memory_order_relaxed);
      tried_ = tried_ || start;
    }
    if (start) start_threads();
    signal();
  }

  // For a unit whose owner ends. Waits for steps under way; must not be called from a step of it.
  void remove(Work& work) {
    {
      LatchGuard guard(latch_);
      Work** link = &first_;
      while (*link != nullptr && *link != &work) link = &(*link)->next_;
      if (*link == nullptr) return;
      *link = work.next_;
      if (cursor_ == &work) cursor_ = work.next_;
    }
    for (unsigned spins = 0; inside(work) != 0;) P::pause(spins++);
    LatchGuard guard(latch_);
    set_blocked(work, false);
  }

  // There is more to do. Any thread, also from within a step.
  void wake(Work& work) {
    const std::uint64_t before = work.wakes_.fetch_add(1, std::memory_order_seq_cst);
    if (before == work.rested_.load(std::memory_order_seq_cst)) signal();
  }

  // Memory of the pool was freed: blocked units are due again. Any thread; cheap if there are none.
  void space_freed() {
    freed_.fetch_add(1, std::memory_order_seq_cst);
    if (blocked_.load(std::memory_order_seq_cst) == 0) return;
    {
      LatchGuard guard(latch_);
      for (Work* work = first_; work != nullptr; work = work->next_) {
        if (!work->blocked_) continue;
        set_blocked(*work, false);
        work->wakes_.fetch_add(1, std::memory_order_seq_cst);
      }
    }
    signal();
  }

  // Runs a step of one unit that is due, in turn, on the calling thread. False: nothing is left to
  // do, or other threads do it.
  bool run_some() {
    const std::uint32_t self = P::thread_slot();  // may wait for one: not under the latch
    Taken taken;
    {
      LatchGuard guard(latch_);
      if (may_run(self)) taken = take_next(self);
    }
    if (taken.work == nullptr) return false;
    run(taken);
    return true;
  }

  // Runs a step of this unit on the calling thread, whether there are threads or not. False: the
  // unit rests or is blocked, it has no room, this thread is in one of its steps, or nothing may
  // run.
  bool help(Work& work) {
    const std::uint32_t self = P::thread_slot();
    Taken taken;
    {
      LatchGuard guard(latch_);
      if (may_run(self) && has_room(work) && due(work) && !is_inside(work, self)) {
        taken = take(work, self);
      }
    }
    if (taken.work == nullptr) return false;
    run(taken);
    return true;
  }

  // Runs this unit on the calling thread until it rests, for an operation that needs its result.
  // False: the unit is blocked, the caller is in a step of it or holds the background, or the
  // background was stopped.
  bool finish(Work& work) {
    const std::uint32_t self = P::thread_slot();
    for (unsigned spins = 0;;) {
      Taken taken;
      {
        LatchGuard guard(latch_);
        if (stopped_.load(std::memory_order_relaxed) || is_inside(work, self) ||
            (holds_ != 0 && holder_ == self)) {
          return false;
        }
        if (!due(work) && work.inside_ == 0) return !work.blocked_;
        if (may_run(self) && due(work) && has_room(work)) taken = take(work, self);
      }
      if (taken.work != nullptr) {
        run(taken);
      } else {
        P::pause(spins++);
      }
    }
  }

  // Returns when every unit rests or is blocked. Endless if other threads keep waking them.
  void settle() {
    for (unsigned spins = 0; !at_rest();) {
      if (!run_some()) P::pause(spins++);
    }
  }

  // Whether no unit is due and none runs. A step that begins later sees all that came before the
  // call.
  bool at_rest() {
    LatchGuard guard(latch_);
    if (stopped_.load(std::memory_order_relaxed)) return true;
    for (Work* work = first_; work != nullptr; work = work->next_) {
      if (work->inside_ != 0 || due(*work)) return false;
    }
    return true;
  }

  // For the beginning of a mutation: runs a step if there are no threads.
  void help() {
    if (driven()) [[unlikely]]
      (void)run_some();
  }
  // Whether there are no threads.
  bool driven() const { return driven_.load(std::memory_order_relaxed); }

  // Ends the threads, each after its present step, and waits for steps on other threads; nothing
  // runs afterwards. Idempotent. Must not be called from a step.
  void stop() {
    if (abandoned_) return;
    {
      LatchGuard guard(latch_);
      stopped_.store(true, std::memory_order_release);
    }
    signal();
    for (std::uint32_t i = 0; i < started_; ++i) threads_[i].join();
    started_ = 0;
    for (unsigned spins = 0; running() != 0;) P::pause(spins++);
  }
  // A child of fork has no such threads and may have inherited a latch that is held.
  void abandon() { abandoned_ = true; }

 private:
  template <Platform>
  friend class BackgroundHold;

  struct Loop {
    Background* service;
    void operator()() const { service->serve(); }
  };
  // A unit that this thread has entered, and the counts before its step.
  struct Taken {
    Work* work = nullptr;
    std::uint64_t wakes = 0;
    std::uint64_t freed = 0;
  };

  void start_threads() {
    while (started_ < wanted_ && threads_[started_].start(loop_)) ++started_;
    if (started_ == wanted_) return;
    if (started_ == 0) driven_.store(true, std::memory_order_relaxed);
    log_->say(LogLevel::warning, "the system refused %u of %u background threads%s",
              wanted_ - started_, wanted_,
              started_ == 0 ? "; mutations and Pool::run_background do their work" : "");
  }
  void serve() {
    while (!stopped_.load(std::memory_order_acquire)) {
      const std::uint32_t seen = signal_.load(std::memory_order_acquire);
      if (stopped_.load(std::memory_order_acquire)) return;
      if (!run_some()) P::park(signal_, seen);
    }
  }
  void signal() {
    signal_.fetch_add(1, std::memory_order_release);
    P::unpark(signal_);
  }

  // --- the latch is held ---
  static bool due(const Work& work) {
    return work.wakes_.load(std::memory_order_seq_cst) !=
           work.rested_.load(std::memory_order_seq_cst);
  }
  static bool has_room(const Work& work) { return work.inside_ < work.width_; }
  static bool is_inside(const Work& work, std::uint32_t self) {
    return std::find(work.runners_, work.runners_ + work.inside_, self) !=
           work.runners_ + work.inside_;
  }
  // A hold waits for the steps under way, and those may need a step of another unit.
  bool may_run(std::uint32_t self) const {
    if (stopped_.load(std::memory_order_relaxed)) return false;
    return holds_ == 0 || is_in_step(self);
  }
  bool is_in_step(std::uint32_t self) const {
    for (const Work* work = first_; work != nullptr; work = work->next_) {
      if (is_inside(*work, self)) return true;
    }
    return false;
  }
  // The next unit in turn that is due and has room for this thread, entered.
  Taken take_next(std::uint32_t self) {
    Work* const begin = cursor_ != nullptr ? cursor_ : first_;
    for (Work* work = begin; work != nullptr;) {
      Work* const next = work->next_ != nullptr ? work->next_ : first_;
      if (has_room(*work) && due(*work) && !is_inside(*work, self)) {
        cursor_ = next;
        return take(*work, self);
      }
      if (next == begin) break;
      work = next;
    }
    return {};
  }
  Taken take(Work& work, std::uint32_t self) {
    work.runners_[work.inside_++] = self;
    ++running_;
    set_blocked(work, false);
    // Read before the step: a wake or a free during it counts again (pool.B2, pool.B4).
    return {&work, work.wakes_.load(std::memory_order_seq_cst),
            freed_.load(std::memory_order_seq_cst)};
  }
  void set_blocked(Work& work, bool blocked) {
    if (work.blocked_ == blocked) return;
    PERDURE_ASSERT(P, "pool.B4", blocked || blocked_.load(std::memory_order_relaxed) != 0);
    work.blocked_ = blocked;
    blocked_.fetch_add(blocked ? 1 : ~std::uint32_t{0}, std::memory_order_seq_cst);
  }
  // The unit has handled all wakes before the step that is over.
  static void rest(Work& work, std::uint64_t wakes) {
    if (work.rested_.load(std::memory_order_relaxed) < wakes) {
      work.rested_.store(wakes, std::memory_order_seq_cst);
    }
  }
  void leave(const Taken& taken, Step step) {
    Work& work = *taken.work;
    const std::uint32_t self = P::thread_slot();
    PERDURE_ASSERT(P, "pool.B1", work.inside_ <= work.width_ && is_inside(work, self));
    --running_;
    *std::find(work.runners_, work.runners_ + work.inside_, self) = work.runners_[work.inside_ - 1];
    --work.inside_;
    if (step == Step::rest) rest(work, taken.wakes);
    if (step == Step::blocked) {
      set_blocked(work, true);
      if (freed_.load(std::memory_order_seq_cst) == taken.freed) {
        rest(work, taken.wakes);
      } else {
        set_blocked(work, false);
        step = Step::more;
      }
    }
    // Another thread's step may have returned `rest` meanwhile, or will: it does not know what this
    // one has left.
    if (step == Step::more && (work.inside_ != 0 || !due(work))) {
      work.wakes_.fetch_add(1, std::memory_order_seq_cst);
    }
  }

  void run(const Taken& taken) {
    const Step step = taken.work->run_some();
    bool again = false;
    {
      LatchGuard guard(latch_);
      leave(taken, step);
      again = due(*taken.work);  // the unit may be gone once the latch is released
    }
    // A step may have hidden the unit from a thread that then went to sleep.
    if (again && !driven()) signal();
  }
  std::uint32_t inside(const Work& work) {
    LatchGuard guard(latch_);
    return work.inside_;
  }
  std::uint32_t running() {
    LatchGuard guard(latch_);
    return running_;
  }

  void hold() {
    const std::uint32_t self = P::thread_slot();
    {
      LatchGuard guard(latch_);
      PERDURE_ASSERT(P, "pool.B3", !is_in_step(self));
      ++holds_;
      holder_ = self;
    }
    for (unsigned spins = 0; running() != 0;) P::pause(spins++);
  }
  void release() {
    bool waits = false;
    {
      LatchGuard guard(latch_);
      PERDURE_ASSERT(P, "pool.B3", running_ == 0);
      --holds_;
      for (Work* work = first_; work != nullptr; work = work->next_) waits |= due(*work);
    }
    // For a thread that was refused a step meanwhile. Most holds are short, and none was.
    if (waits) signal();
  }

  typename P::Latch latch_;
  Work* first_ = nullptr;
  Work* cursor_ = nullptr;     // the next in turn; null: the first
  std::uint32_t running_ = 0;  // steps under way
  std::uint32_t holds_ = 0;
  std::uint32_t holder_ = 0;
  typename P::template Atomic<std::uint64_t> freed_{0};
  typename P::template Atomic<std::uint32_t> blocked_{0};  // units
  typename P::template Atomic<std::uint32_t> signal_{0};
  typename P::template Atomic<bool> stopped_{false};
  typename P::template Atomic<bool> driven_{false};
  typename P::Thread threads_[kMaxBackgroundThreads];
  Loop loop_{this};
  const Log* log_ = &kSilent;
  std::uint32_t wanted_ = 1;
  std::uint32_t started_ = 0;
  bool tried_ = false;
  bool abandoned_ = false;
};

// Scope in which no step of any unit runs or begins: the pool does not change unless a caller
// stores. One at a time, not from within a step. Units that are blocked or due stay so.
template <Platform P>
class [[nodiscard]] BackgroundHold {
 public:
  explicit BackgroundHold(Background<P>& background) : background_(background) {
    background_.hold();
  }
  ~BackgroundHold() { background_.release(); }
  BackgroundHold(const BackgroundHold&) = delete;
  BackgroundHold& operator=(const BackgroundHold&) = delete;

 private:
  Background<P>& background_;
};

}  // namespace perdure
