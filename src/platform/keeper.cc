#include "platform/keeper.h"

#include <unistd.h>

#include <algorithm>
#include <new>

namespace perdure {

Keeper* Keeper::of_process() noexcept {
  static std::atomic<Keeper*> current{nullptr};  // it lives as long as the process
  Keeper* seen = current.load(std::memory_order_acquire);
  const std::int64_t process = ::getpid();
  while (seen == nullptr || seen->process_ != process) {
    Keeper* const own = new (std::nothrow) Keeper(process, seen);
    if (own == nullptr) return nullptr;
    if (current.compare_exchange_strong(seen, own, std::memory_order_acq_rel)) return own;
    delete own;
  }
  return seen;
}

bool Keeper::add(Kept& object, std::uint64_t first_ns) noexcept {
  LatchGuard turn(turns_);
  const bool runs = first_ != nullptr;  // keeper.K2
  {
    LatchGuard guard(list_latch_);
    object.tend_at_ns = RealPlatform::now_ns() + first_ns;
    object.next_kept = first_;
    first_ = &object;
  }
  if (runs) {
    event_.signal();
    return true;
  }
  stopped_.store(false, std::memory_order_relaxed);
  if (thread_.start(body_)) return true;
  unlink(object);
  return false;
}

void Keeper::remove(Kept& object) noexcept {
  LatchGuard turn(turns_);
  unlink(object);
  if (first_ != nullptr) return;
  stopped_.store(true, std::memory_order_release);
  event_.signal();
  thread_.join();
}

void Keeper::unlink(Kept& object) noexcept {
  LatchGuard guard(list_latch_);
  Kept** place = &first_;
  while (*place != &object) place = &(*place)->next_kept;
  *place = object.next_kept;
}

void Keeper::poke() noexcept {
  poked_.store(true, std::memory_order_release);
  event_.signal();
}

std::uint64_t Keeper::tend_due() noexcept {
  LatchGuard guard(list_latch_);
  const bool all = poked_.exchange(false, std::memory_order_acquire);
  std::uint64_t next = UINT64_MAX;
  for (Kept* object = first_; object != nullptr; object = object->next_kept) {
    const std::uint64_t now = RealPlatform::now_ns();
    if (all || now >= object->tend_at_ns) object->tend_at_ns = now + object->tend();
    next = std::min(next, object->tend_at_ns);
  }
  const std::uint64_t now = RealPlatform::now_ns();
  return next - std::min(next, now);
}

void Keeper::run() noexcept {
  constexpr std::uint64_t kMost = 60'000'000'000;
  while (!stopped_.load(std::memory_order_acquire)) {
    const std::uint32_t seen = event_.seen();
    const std::uint64_t ns = tend_due();
    if (!stopped_.load(std::memory_order_acquire)) event_.wait(seen, std::min(ns, kMost));
  }
}

}  // namespace perdure
