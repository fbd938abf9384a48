// Fiber: a second stack in this thread, for the scheduler's simulated threads.
//
// WHAT  resume() runs the body until it suspends itself or ends; suspend() goes back to whoever
//   resumed it. ucontext underneath, and the sanitizers are told of every switch.
// An unfinished fiber may be destroyed or started anew: what lies on its stack is abandoned.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace perdure::testing {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void start(std::function<void()> body);
  void resume();
  // From inside the fiber that runs.
  void suspend();
  bool finished() const { return finished_; }

 private:
  static void enter(unsigned high, unsigned low);
  void run();
  void switch_in();
  void release_sanitizer();

  static constexpr std::size_t kStack = std::size_t{512} << 10;
  void* memory_;  // a guard page, then the stack
  ucontext_t inside_{};
  ucontext_t outside_{};
  std::function<void()> body_;
  bool finished_ = true;
  // For the sanitizers: the other side's stack or fiber.
  [[maybe_unused]] void* shadow_ = nullptr;
  [[maybe_unused]] const void* outside_stack_ = nullptr;
  [[maybe_unused]] std::size_t outside_size_ = 0;
  [[maybe_unused]] void* tsan_inside_ = nullptr;
  [[maybe_unused]] void* tsan_outside_ = nullptr;
};

}  // namespace perdure::testing
