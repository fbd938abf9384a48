// Fiber: a second stack in this thread, for the scheduler's simulated threads.
//
// WHAT resume() runs the body until it suspends itself or ends. suspend() returns to the caller of
// resume(). It uses ucontext and tells the sanitizers of every switch. An unfinished fiber may be
// destroyed or started anew: the objects on its stack are abandoned.
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
  // Call it inside the running fiber.
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
  // For the sanitizers: the stack or fiber of the other side.
  [[maybe_unused]] void* shadow_ = nullptr;
  [[maybe_unused]] const void* outside_stack_ = nullptr;
  [[maybe_unused]] std::size_t outside_size_ = 0;
  [[maybe_unused]] void* tsan_inside_ = nullptr;
  [[maybe_unused]] void* tsan_outside_ = nullptr;
};

}  // namespace perdure::testing
