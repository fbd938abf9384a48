// CutPace: which threads wait when they change more than the log of a pool takes.
//
// WHAT  It learns how many lines a second cuts take, on this disk, beside these threads. When there
//   is more to write than that (CutStream::Fill), the threads wait that have changed much. Each
//   thread has a share, and one that has not used its own goes on. So a thread that stores little
//   is not stopped by others that store much, and a cut does not take much longer than an interval.
// COSTS  A thread looks at its account only when it would have to wait.
// LIMITS  All shares together are half of what cuts take. A thread that was above its share has to
//   earn what it owes, eight seconds of its share at most, before it goes on beside others that
//   wait. The share of a thread slot that is not used is lost.
// Thread safety: one thread calls learn(); the rest is of any thread, each with its own account.
#pragma once

#include <algorithm>
#include <atomic>  // memory orders
#include <cstdint>

#include "cut/log_format.h"
#include "platform/cut_gate.h"
#include "platform/real_platform.h"

namespace perdure {

class CutPace {
 public:
  static constexpr std::uint64_t kLogged = kLine + sizeof(layout::Run);  // bytes of a line, at most
  static constexpr std::uint64_t kQuick = 400'000'000 / kLogged;  // lines a second, of a good disk

  // `rate`: lines a second, until cuts have shown it.
  explicit CutPace(std::uint64_t rate = kQuick) noexcept : lines_(rate / 4), rate_(rate) {}

  // A cut has taken so long, and so many lines were noted since the one before began. Some of them
  // are in that one already, so only sums over several cuts mean something.
  void learn(std::uint64_t lines, std::uint64_t ns) noexcept {
    if (lines < kLeast) return;  // the disk's own time for a sync is most of it
    lines_ += lines - lines_ / 4;
    us_ += ns / 1000 + 1 - us_ / 4;
    rate_.store(std::min(lines_ * 1'000'000 / us_, kMostRate), std::memory_order_relaxed);
  }
  // Lines that a cut takes in so long, at least a few.
  std::uint64_t lines_in(std::uint64_t ns) const noexcept {
    const std::uint64_t ms = std::min<std::uint64_t>(ns / 1'000'000, 3'600'000);
    return std::max(kLeast, rate() / 1000 * ms);
  }
  // Whether the calling thread, whose account it is, has lines left of its share. `threads`: that
  // have one.
  bool has_share(ThreadAccount& account, std::uint64_t noted, std::uint32_t threads,
                 std::uint64_t now_ns) const noexcept {
    const std::uint64_t each = rate() / 2 / std::max(threads, 1U);  // lines a second
    const std::uint64_t us = std::min((now_ns - account.at_ns) / 1000, kMostUs);
    account.at_ns = now_ns;
    // A share is not kept for long, nor is a debt.
    const auto lines = static_cast<std::int64_t>(noted);
    const auto second = static_cast<std::int64_t>(each);
    const auto earned = static_cast<std::int64_t>(each * us / 1'000'000);
    account.paid = std::clamp(account.paid + earned, lines - 8 * second, lines + second / 8);
    return account.paid > lines;
  }

 private:
  static constexpr std::uint64_t kLeast = 16'384;            // lines: a MiB of the log
  static constexpr std::uint64_t kMostRate = 1'000'000'000;  // lines a second
  static constexpr std::uint64_t kMostUs = 3'600'000'000;    // an hour

  std::uint64_t rate() const noexcept { return rate_.load(std::memory_order_relaxed); }

  std::uint64_t lines_, us_ = 250'000;        // of the last cuts
  RealPlatform::Atomic<std::uint64_t> rate_;  // lines a second
};

}  // namespace perdure
