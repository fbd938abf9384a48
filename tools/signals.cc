// Handlers of SIGINT and SIGTERM.
#include <atomic>
#include <csignal>

#include "commands.h"

namespace perdure::cli {

namespace {

// Lock-free, so that a handler may set it. All threads read it.
std::atomic<bool> interrupt_seen = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int) { interrupt_seen.store(true, std::memory_order_relaxed); }

void install(int signal, void (*handler)(int), int flags) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_interrupts() {
  // No SA_RESTART, because a read that waits for input must return.
  install(SIGINT, on_interrupt, static_cast<int>(SA_RESETHAND));
  install(SIGTERM, on_interrupt, static_cast<int>(SA_RESETHAND));
}

bool interrupted() noexcept { return interrupt_seen.load(std::memory_order_relaxed); }

}  // namespace perdure::cli
