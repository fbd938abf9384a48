#include "bench/harness/cleanup.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstring>

namespace perdure::bench {
namespace {

std::array<char, PATH_MAX> file = {};
std::atomic<bool> armed{false};

// Async-signal-safe: unlinks the file, then raises the signal again with its default action
// (SA_RESETHAND).
void on_signal(int number) {
  if (armed.load()) ::unlink(file.data());
  ::raise(number);
}

}  // namespace

void remove_on_signal(const std::string& path) {
  armed.store(false);
  if (path.empty() || path.size() >= file.size()) return;
  std::memcpy(file.data(), path.c_str(), path.size() + 1);
  armed.store(true);
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
}

}  // namespace perdure::bench
