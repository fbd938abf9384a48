// Keeper: one thread of the process for objects that would else have a thread each that does
// nothing.
//
// WHAT  What is added to the keeper is tended: from time to time, and soon after poke().
// INVARIANTS (DRAM)
//   keeper.K1  tend() of an object is called only between its add() and the return of its
//       remove(), and by one thread at a time.
//   keeper.K2  While an object is there, so is the thread.
//   keeper.K3  The thread has ended when the remove() of the last object returns: a program may
//       unload the library then.
// FORK  A child has a keeper of its own. What its parent has added is not tended there, and the
//   child must not remove it.
// Thread safety: any thread, but add() and remove() not from tend().
#pragma once

#include <atomic>
#include <cstdint>

#include "perdure/function_ref.h"
#include "platform/real_platform.h"
#include "platform/timed_event.h"

namespace perdure {

class Kept {
 public:
  // Returns after how many nanoseconds it is to be called again.
  virtual std::uint64_t tend() noexcept = 0;

  // Of the keeper alone.
  Kept* next_kept = nullptr;
  std::uint64_t tend_at_ns = 0;

 protected:
  ~Kept() = default;
};

class Keeper {
 public:
  // Null: memory is short.
  static Keeper* of_process() noexcept;

  // The object is tended after so many nanoseconds. Returns false if the system refuses the thread.
  bool add(Kept& object, std::uint64_t first_ns) noexcept;
  void remove(Kept& object) noexcept;
  // All are tended soon. It waits for no other call.
  void poke() noexcept;

 private:
  using Latch = RealPlatform::Latch;
  struct Body {
    Keeper* keeper;
    void operator()() const { keeper->run(); }
  };

  Keeper(std::int64_t process, Keeper* before) noexcept : process_(process), before_(before) {}
  void run() noexcept;
  // Returns in how many nanoseconds the next one is due.
  std::uint64_t tend_due() noexcept;
  void unlink(Kept& object) noexcept;

  const std::int64_t process_;
  // Of the parent: otherwise a tool would take it for lost.
  [[maybe_unused]] Keeper* const before_;
  Latch turns_;       // of add() and remove(); before list_latch_
  Latch list_latch_;  // of the list, and of every tend()
  Kept* first_ = nullptr;
  TimedEvent event_;
  std::atomic<bool> poked_{false};
  std::atomic<bool> stopped_{false};
  Body body_{this};
  RealPlatform::Thread thread_;
};

}  // namespace perdure
