// SIGBUS, SIGINT and SIGTERM. Handlers touch nothing but static storage and write(2).
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>

#include "commands.h"

namespace perdure::cli {

namespace {

constexpr std::size_t kMaxMessage = 4096 + 256;
char bus_message[kMaxMessage] = "";
std::size_t bus_message_size = 0;
// Lock-free, so that a handler may set it; read by all threads.
std::atomic<bool> interrupt_seen = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_bus_error(int) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, bus_message, bus_message_size);
  _exit(exit_failure);
}

void on_interrupt(int) { interrupt_seen.store(true, std::memory_order_relaxed); }

void install(int signal, void (*handler)(int), int flags) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void watch_bus_errors(const std::string& path) {
  const std::string message = "perdure: " + path.substr(0, 4000) +
                              ": the file became shorter or its medium failed while it was in use "
                              "(SIGBUS); restore a copy of it, or run perdure check on it\n";
  bus_message_size = std::min(message.size(), kMaxMessage);
  std::memcpy(bus_message, message.data(), bus_message_size);
  install(SIGBUS, on_bus_error, 0);
}

void catch_interrupts() {
  // No SA_RESTART: a read that waits for input has to come back.
  install(SIGINT, on_interrupt, static_cast<int>(SA_RESETHAND));
  install(SIGTERM, on_interrupt, static_cast<int>(SA_RESETHAND));
}

bool interrupted() noexcept { return interrupt_seen.load(std::memory_order_relaxed); }

}  // namespace perdure::cli
