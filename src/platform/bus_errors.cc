#include "platform/bus_errors.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>

#include "platform/real_platform.h"

namespace perdure {

namespace {

// `state` is stored last and cleared first, so a handler that sees it also sees its range.
struct Mapping {
  std::atomic<MappingState*> state{nullptr};
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

Mapping mappings[kMaxBusMappings];
RealPlatform::Latch latch;  // guards changes of `mappings`; the handler never takes it
bool installed = false;
struct sigaction before;  // the handler of other SIGBUS signals

// Returns whether the address lies in a registered mapping and can be used from now on.
bool replace_lost_pages(std::uintptr_t address) noexcept {
  for (Mapping& mapping : mappings) {
    MappingState* state = mapping.state.load(std::memory_order_acquire);
    if (state == nullptr) continue;
    const std::uintptr_t end = mapping.end.load(std::memory_order_relaxed);
    if (address < mapping.begin.load(std::memory_order_relaxed) || address >= end) continue;
    // Marks first: a thread that continues must see the failure.
    state->lost.store(true, std::memory_order_relaxed);
    state->poisoned.store(true, std::memory_order_relaxed);
    if (auto call = state->on_lost.load(std::memory_order_acquire)) call(state->argument);
    const std::uintptr_t page = address & ~(kPage - 1);
    return mmap(reinterpret_cast<void*>(page), end - page, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  return false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool handled = replace_lost_pages(reinterpret_cast<std::uintptr_t>(info->si_addr));
  errno = error;
  if (handled) return;
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    return before.sa_handler(signal);
  }
  ::signal(signal,
           SIG_DFL);  // the access is repeated and ends the process, as without this handler
}

// Requires the latch.
bool install() noexcept {
  if (installed) return true;
  // No thread of a child of fork could release the latch.
  static const int once = pthread_atfork(nullptr, nullptr, [] { latch.unlock(); });
  (void)once;
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  installed = sigaction(SIGBUS, nullptr, &before) == 0 && sigaction(SIGBUS, &action, nullptr) == 0;
  return installed;
}

template <class F>
void forget(F&& is_meant) noexcept {
  LatchGuard guard(latch);
  for (Mapping& mapping : mappings) {
    if (is_meant(mapping)) mapping.state.store(nullptr, std::memory_order_release);
  }
}

}  // namespace

bool watch_bus_errors(const void* base, std::size_t bytes, MappingState& state) noexcept {
  LatchGuard guard(latch);
  if (!install()) return false;
  for (Mapping& mapping : mappings) {
    if (mapping.state.load(std::memory_order_relaxed) != nullptr) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(base);
    mapping.begin.store(begin, std::memory_order_relaxed);
    mapping.end.store(begin + bytes, std::memory_order_relaxed);
    mapping.state.store(&state, std::memory_order_release);
    return true;
  }
  return false;
}

void ignore_bus_errors(const void* base) noexcept {
  forget([base](const Mapping& mapping) {
    return mapping.begin.load(std::memory_order_relaxed) == reinterpret_cast<std::uintptr_t>(base);
  });
}

void ignore_bus_errors_of(const MappingState& state) noexcept {
  forget([&state](const Mapping& mapping) {
    return mapping.state.load(std::memory_order_relaxed) == &state;
  });
}

}  // namespace perdure
