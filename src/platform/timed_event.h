// TimedEvent: what a thread waits for that has something to do after a while in any case.
//
// Thread safety: any number of threads may signal; one waits.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace perdure {

class TimedEvent {
 public:
  // Read it before looking for work: a signal in between ends the wait.
  std::uint32_t seen() const noexcept { return word_.load(std::memory_order_acquire); }
  void signal() noexcept {
    word_.fetch_add(1, std::memory_order_release);
    (void)::syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  // Returns after a signal since seen(), or after `ns`, or before.
  void wait(std::uint32_t seen, std::uint64_t ns) noexcept {
    const timespec timeout{.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                           .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
    (void)::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
  }

 private:
  std::atomic<std::uint32_t> word_{0};
};
static_assert(sizeof(TimedEvent) == sizeof(std::uint32_t));

}  // namespace perdure
