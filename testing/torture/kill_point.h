// KillPoint: ends the process with SIGKILL inside a persist site.
//
// LossyPlatform calls reached() before every write-back, and before and after every fence and sync.
//
// Thread safety: call arm() while no other thread uses the pool; reached() from any thread.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "testing/sim/sites.h"

namespace perdure::testing {

class KillPoint {
 public:
  // Kills at the nth call from now on of the site, or of any site if it is null; 0: never. `note`
  // is memory that outlives the process and receives the site of the kill.
  static void arm(const SiteInfo* site, std::uint64_t nth,
                  std::atomic<const SiteInfo*>* note) noexcept {
    site_ = site;
    note_ = note;
    left_.store(nth, std::memory_order_release);
  }
  // Calls since the start of the process.
  static std::uint64_t calls() noexcept { return calls_.load(std::memory_order_relaxed); }

  static void reached(const SiteInfo& site) noexcept {
    calls_.fetch_add(1, std::memory_order_relaxed);
    if (left_.load(std::memory_order_acquire) == 0) [[likely]]
      return;
    if (site_ != nullptr && site_ != &site) return;
    std::uint64_t left = left_.load(std::memory_order_relaxed);
    while (left != 0 && !left_.compare_exchange_weak(left, left - 1)) {
    }
    if (left != 1) return;
    note_->store(&site);
    kill(getpid(), SIGKILL);
  }

 private:
  static inline const SiteInfo* site_ = nullptr;
  static inline std::atomic<const SiteInfo*>* note_ = nullptr;
  static inline std::atomic<std::uint64_t> left_{0};
  static inline std::atomic<std::uint64_t> calls_{0};
};

}  // namespace perdure::testing
