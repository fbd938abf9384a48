// Scheduler: runs simulated threads one at a time and chooses at every step which one continues.
//
// WHAT  Each thread is a fiber. SimPlatform calls the scheduler before every persistent access,
//   latch and atomic operation; there a Strategy may switch to another thread. Memory is
//   sequentially consistent. The concurrent tests under ThreadSanitizer cover reordering by real
//   processors.
// WAITING  A thread that pauses (a taken latch, a held stripe) yields at once. It is a candidate
//   again only after another thread has changed something. If all threads wait, or pauses
//   accumulate without an operation ending, the schedule is stuck: deadlock or livelock.
// REPLAY  A schedule is the list of its switches that differ from the default: continue with the
//   running thread; if it waits or has ended, take the next. The list repeats it exactly.
//
// Thread safety: one Scheduler runs at a time in a process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "testing/schedule/fiber.h"
#include "testing/sim/sim_platform.h"

namespace perdure::testing {

inline constexpr std::uint32_t kNoThread = ~0U;

struct Switch {
  std::uint64_t step = 0;  // of the schedule, over all threads
  std::uint32_t to = 0;
};
using Script = std::vector<Switch>;
// Converts to "1@40+0@77", or "-" if empty; and back.
std::string to_text(const Script& script);
Script parse_script(std::string_view text);

// A moment at which another thread can be chosen: `current` is about to take the step.
struct Decision {
  std::uint64_t step = 0;
  std::uint32_t current = kNoThread;
  bool forced = false;           // current waits or has ended, or no thread has started
  std::uint32_t candidates = 0;  // a bit per thread, without current
  std::uint32_t live = 0;
  StepKind kind = StepKind::read;
  const char* site = nullptr;
  std::uint32_t fallback = 0;  // the choice of the default

  bool can_run(std::uint32_t thread) const { return (live >> thread & 1) != 0; }
};

class Strategy {
 public:
  Strategy() = default;
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  // Returns a live thread; `fallback` for the default.
  virtual std::uint32_t pick(const Decision& decision) = 0;
};

class Scheduler {
 public:
  static constexpr std::uint32_t kMaxThreads = 4;
  using Body = std::function<void()>;

  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Runs all bodies to their end. Returns false if the schedule is stuck; the objects on their
  // stacks are then abandoned.
  bool run(const std::vector<Body>& bodies, Strategy& strategy);

  // --- from a body ---
  std::uint32_t current() const { return current_; }
  // Runs the work on the caller's stack, where steps do not count.
  void outside(const std::function<void()>& work);
  // A step with a name of its own, for strategies that wait for it.
  void mark(const char* name);
  // An operation has ended: resets the count of pauses.
  void progress() { pauses_ = 0; }
  // Reads of the running thread are then no decision points.
  void set_coarse(bool coarse);

  std::uint64_t steps() const { return steps_; }
  const Script& switches() const { return switches_; }
  // The position of each thread when the schedule got stuck.
  std::string where() const;

 private:
  struct Thread {
    Fiber fiber;
    std::uint32_t slot = 0;  // what SimPlatform::thread_slot() returns
    bool coarse = false;
    const char* last_site = "";
    std::uint64_t steps = 0;
  };
  static void on_step(StepKind kind, const char* site);
  void step(StepKind kind, const char* site);
  void decide(Decision& decision);
  std::uint32_t next_of(std::uint32_t candidates) const;

  static constexpr std::uint64_t kMaxPauses = 5000;
  static constexpr std::uint64_t kMaxSteps = 1'000'000;
  static inline Scheduler* active_ = nullptr;

  std::vector<std::unique_ptr<Thread>> threads_;
  Strategy* strategy_ = nullptr;
  const std::function<void()>* work_ = nullptr;
  std::uint32_t current_ = kNoThread;
  std::uint32_t next_ = 0;
  std::uint32_t live_ = 0;
  std::uint32_t waiting_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t pauses_ = 0;
  bool stuck_ = false;
  Script switches_;
};

}  // namespace perdure::testing
