#include "testing/schedule/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#ifdef PERDURE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef PERDURE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace perdure::testing {

namespace {
constexpr std::size_t kGuard = 4096;
}

Fiber::Fiber()
    : memory_(mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  if (memory_ == MAP_FAILED || mprotect(memory_, kGuard, PROT_NONE) != 0) {
    std::perror("fiber stack");
    std::abort();
  }
}

Fiber::~Fiber() {
  release_sanitizer();
  munmap(memory_, kGuard + kStack);
}

void Fiber::release_sanitizer() {
#ifdef PERDURE_TSAN
  if (tsan_inside_ != nullptr) __tsan_destroy_fiber(tsan_inside_);
  tsan_inside_ = nullptr;
#endif
}

void Fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  finished_ = false;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = static_cast<char*>(memory_) + kGuard;
  inside_.uc_stack.ss_size = kStack;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  release_sanitizer();
#ifdef PERDURE_TSAN
  tsan_inside_ = __tsan_create_fiber(0);
#endif
}

void Fiber::resume() {
#ifdef PERDURE_ASAN
  void* shadow = nullptr;
  __sanitizer_start_switch_fiber(&shadow, inside_.uc_stack.ss_sp, kStack);
#endif
#ifdef PERDURE_TSAN
  tsan_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_inside_, 0);
#endif
  swapcontext(&outside_, &inside_);
#ifdef PERDURE_ASAN
  __sanitizer_finish_switch_fiber(shadow, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#ifdef PERDURE_ASAN
  // A finished fiber's shadow stack is freed.
  __sanitizer_start_switch_fiber(finished_ ? nullptr : &shadow_, outside_stack_, outside_size_);
#endif
#ifdef PERDURE_TSAN
  __tsan_switch_to_fiber(tsan_outside_, 0);
#endif
  swapcontext(&inside_, &outside_);
  switch_in();
}

void Fiber::switch_in() {
#ifdef PERDURE_ASAN
  __sanitizer_finish_switch_fiber(shadow_, &outside_stack_, &outside_size_);
#endif
}

void Fiber::enter(unsigned high, unsigned low) {
  reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low)->run();
}

void Fiber::run() {
  shadow_ = nullptr;
  switch_in();
  body_();
  finished_ = true;
  suspend();
  std::abort();  // a finished fiber must not be resumed
}

}  // namespace perdure::testing
