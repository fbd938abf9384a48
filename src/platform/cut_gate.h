// CutGate: stops all stores to a pool for some microseconds, so that one thread sees the pool as it
// is between two stores.
//
// WHAT  Writers announce every store to the pool: enter, store, leave. One thread cuts. It waits
//   until each store that had begun has ended (next_round), or closes the gate: then no store
//   begins (shut, open). What it reads between shut() and an open() that returns true is the pool
//   at one moment.
//   If nothing is stored for long, it can leave the gate shut (sleep): the next writer calls a
//   watch, and opens the gate. So nothing is stored that the watch does not know of.
// LAYOUT  DRAM. A word `state`: odd while the gate is shut, and it never falls, but for the bit
//   that says that it sleeps. A line per thread slot with a word `storing`: odd while the thread
//   stores, 0 before its first store.
// INVARIANTS
//   cut.G1  From a shut() that returned `done` until the gate opens, no thread is between enter()
//       and leave().
//   cut.G2  Every store that entered before next_round() has left when next_round() returns `done`.
//       Every store that enters later gets a larger number from enter().
//   cut.G3  open() returns true only if the gate has been shut since shut().
//   cut.G4  From a sleep() that returned true until the gate opens, no thread is between enter()
//       and leave(), and before a writer opens it, the watch was called.
// OPERATIONS
//   enter       storing odd, light fence, state. If that is odd: storing even, wait, again.
//   leave       storing even (release)
//   next_round  state + 2, heavy fence, then see each word even or changed
//   shut        state + 1, heavy fence, the same. If a thread does not leave within the limit, the
//               gate opens again, and shut() returns `busy`.
//   open        compare-and-swap of the state that shut() set. Any writer that has waited for its
//               limit does the same. So a thread that cuts and loses its core stops no writer for
//               longer, and open() then returns false: what was read since shut() is not of one
//               moment.
//   sleep       compare-and-swap of the state that shut() set: the bit is added. A writer that
//               finds it does not wait: it calls the watch, and then opens the gate by another one.
//   wake        the same compare-and-swap, by a thread that cuts
//   count       a figure of the lines that the thread has noted; the watch hears of each kMany
// ORDERING
//   enter() stores `storing`, passes a light fence and loads `state`; the thread that cuts stores
//   `state`, passes a heavy fence and loads `storing`. So one of them sees the other (G1, G2).
//   `storing` even is a release store, and it is loaded with acquire: the stores before it are
//   visible to the thread that cuts. open() is a release, and enter() loads with acquire.
//   A slot counts from join() on, which comes before the first `storing` that is odd. Threads that
//   join raise `used` in turn; the thread that cuts reads it behind its heavy fence.
// RECOVERY  none: after a crash no thread is inside.
// PROGRESS  A writer waits at most for its limit each time that the gate is shut; a cut shuts it at
//   most as often as its limit of tries, with pauses in between. The thread that cuts waits for
//   writers at most for its limits, and then opens the gate. So a writer that stops inside (it has
//   lost its core, or it waits for a page) delays the cut, and other writers for these limits only.
//   Readers never wait.
#pragma once

#include <atomic>  // memory orders
#include <cstdint>
#include <memory>
#include <new>

#include "platform/platform.h"

namespace perdure {

struct CutLimits {
  std::uint64_t writer_ns = 100'000;   // a writer opens the gate after that
  std::uint64_t shut_ns = 30'000;      // shut() gives up. The copies have what is left
  std::uint64_t round_ns = 2'000'000;  // next_round() gives up
  std::uint32_t tries = 16;            // a cut gives up
};

enum class CutStep : std::uint8_t {
  done,
  busy,     // a thread has not left within the limit
  refused,  // the system refused the heavy fence
  damaged,  // the pool is poisoned, or the log of dirty lines is damaged
};

class GateWatch {
 public:
  // The gate sleeps, and a store is about to begin. Any thread, perhaps several at once, in a
  // mutation.
  virtual void on_wake() noexcept = 0;
  // A thread has noted CutGate::kMany lines more. Any thread, inside a store: it must not wait.
  virtual void on_many() noexcept = 0;

 protected:
  ~GateWatch() = default;
};

// What a thread may still change (cut/cut_pace.h).
struct ThreadAccount {
  std::uint64_t at_ns = 0;
  std::int64_t paid = 0;  // lines of all that it has noted
};

template <class P>
class CutGate {
 public:
  struct alignas(kOwnLine) Slot {
    typename P::template Atomic<std::uint64_t> storing{0};
    // For StoreTracker. The thread that cuts sets `ring`; the rest is of the thread alone.
    typename P::template Atomic<typename P::template Atomic<std::uint64_t>*> ring{nullptr};
    std::uint64_t at = 0;                 // in the ring
    std::uint64_t line = 0;               // the last that the thread has noted
    std::uint64_t round = 0;              // in which it did
    std::atomic<std::uint64_t> lines{0};  // that it has noted; a figure, which orders nothing
    ThreadAccount account;                // for CutStream
  };

  static constexpr std::uint64_t kFirstRound = 2;
  static constexpr std::uint64_t kMany = 8192;  // lines

  explicit CutGate(CutLimits limits = {}) noexcept : limits_(limits) {}
  // Makes the slots. Returns false if memory is short.
  bool make(std::uint32_t slots = kMaxThreadSlots) noexcept {
    slots_.reset(new (std::nothrow) Slot[slots]);
    return slots_ != nullptr;
  }

  // --- writers ---
  Slot& slot(std::uint32_t number) const noexcept { return slots_[number]; }
  // Whether the slot has never entered. Then call join() before enter().
  static bool fresh(const Slot& slot) noexcept {
    return slot.storing.load(std::memory_order_relaxed) == 0;
  }
  void join(std::uint32_t number) noexcept;
  // Returns the number of the round.
  [[gnu::always_inline]] std::uint64_t enter(Slot& slot) noexcept {
    announce(slot);
    std::uint64_t state = state_.load(std::memory_order_acquire);
    if (is_shut(state)) [[unlikely]]
      state = wait(slot, state);
    return state;
  }
  [[gnu::always_inline]] static void leave(Slot& slot) noexcept {
    if (!P::runs("cut.gate.announce"_site)) return;
    slot.storing.store((slot.storing.load(std::memory_order_relaxed) | 1) + 1,
                       std::memory_order_release);
  }

  // It must stay valid. Before sleep().
  void set_watch(GateWatch& watch) noexcept { watch_ = &watch; }
  bool sleeps() const noexcept { return is_asleep(state_.load(std::memory_order_seq_cst)); }
  // Opens the gate, if it sleeps, without a call of the watch.
  void wake() noexcept { wake_from(state_.load(std::memory_order_seq_cst)); }
  // The thread has noted so many lines.
  [[gnu::always_inline]] void count(Slot& slot, std::uint64_t lines) noexcept {
    const std::uint64_t before = slot.lines.load(std::memory_order_relaxed);
    slot.lines.store(before + lines, std::memory_order_relaxed);
    if (before / kMany != (before + lines) / kMany && watch_ != nullptr) [[unlikely]]
      watch_->on_many();
  }

  // --- the thread that cuts; one at a time, while the gate does not sleep ---
  CutStep next_round() noexcept {
    state_.store(state_.load(std::memory_order_relaxed) + 2, std::memory_order_seq_cst);
    return await(limits_.round_ns);
  }
  CutStep shut() noexcept {
    const std::uint64_t open = state_.load(std::memory_order_relaxed);
    shut_ = open + (P::runs("cut.gate.shut"_site) ? 1 : 2);
    state_.store(shut_, std::memory_order_seq_cst);
    const CutStep step = await(limits_.shut_ns);
    if (step != CutStep::done) (void)this->open();
    return step;
  }
  // False: a writer has opened the gate.
  [[nodiscard]] bool open() noexcept {
    if (!is_shut(shut_)) return true;  // a mutant
    std::uint64_t expected = shut_;
    return state_.compare_exchange_strong(expected, shut_ + 1, std::memory_order_seq_cst) ||
           !P::runs("cut.gate.void"_site);
  }
  // After shut(), instead of open(). False: a writer has opened the gate.
  [[nodiscard]] bool sleep() noexcept {
    std::uint64_t expected = shut_;
    return state_.compare_exchange_strong(expected, shut_ | kAsleep, std::memory_order_seq_cst);
  }
  const CutLimits& limits() const noexcept { return limits_; }
  // The slot of the thread that had not left its store when await() last gave up, and since when
  // it has been in that store. Of the thread that cuts.
  struct Holder {
    std::uint32_t slot = 0;
    std::uint64_t storing = 0;
    std::uint64_t since_ns = 0;
  };
  const Holder& holder() const noexcept { return holder_; }
  // Whether it is in that store still.
  bool holds() const noexcept {
    return holder_.since_ns != 0 &&
           slots_[holder_.slot].storing.load(std::memory_order_relaxed) == holder_.storing;
  }
  // Slots from here on have never stored.
  std::uint32_t slots_used() const noexcept { return used_.load(std::memory_order_seq_cst); }

 private:
  static constexpr std::uint64_t kAsleep = std::uint64_t{1} << 63;
  static bool is_shut(std::uint64_t state) noexcept { return (state & 1) != 0; }
  static bool is_asleep(std::uint64_t state) noexcept { return (state & kAsleep) != 0; }
  void wake_from(std::uint64_t state) noexcept {
    if (!is_asleep(state)) return;
    (void)state_.compare_exchange_strong(state, (state & ~kAsleep) + 1, std::memory_order_seq_cst);
  }
  static void announce(Slot& slot) noexcept {
    if (P::runs("cut.gate.announce"_site)) {
      // Odd, whatever it was: a signal handler may have jumped out of a store.
      slot.storing.store((slot.storing.load(std::memory_order_relaxed) + 1) | 1,
                         std::memory_order_release);
    }
    P::light_fence();
  }
  [[gnu::noinline]] std::uint64_t wait(Slot& slot, std::uint64_t seen) noexcept;
  CutStep await(std::uint64_t limit_ns) noexcept;
  CutStep busy_with(std::uint32_t slot, std::uint64_t storing) noexcept;

  alignas(kOwnLine) typename P::template Atomic<std::uint64_t> state_{kFirstRound};
  alignas(kOwnLine) typename P::template Atomic<std::uint32_t> used_{0};
  std::unique_ptr<Slot[]> slots_;
  CutLimits limits_;
  GateWatch* watch_ = nullptr;
  std::uint64_t shut_ = 0;  // what shut() has set
  Holder holder_;
};

template <class P>
void CutGate<P>::join(std::uint32_t number) noexcept {
  std::uint32_t used = used_.load(std::memory_order_relaxed);
  while (used <= number &&
         !used_.compare_exchange_strong(used, number + 1, std::memory_order_seq_cst)) {
  }
  slots_[number].account.at_ns = P::now_ns();
  slots_[number].storing.store(2, std::memory_order_relaxed);
}

template <class P>
std::uint64_t CutGate<P>::wait(Slot& slot, std::uint64_t seen) noexcept {
  if (!P::runs("cut.gate.wait"_site)) return seen;
  for (;;) {
    leave(slot);
    if (is_asleep(seen)) {
      if (P::runs("cut.gate.watch"_site)) watch_->on_wake();
      wake_from(seen);
    }
    const std::uint64_t begin = P::now_ns();
    for (unsigned spins = 0; state_.load(std::memory_order_relaxed) == seen; P::pause(++spins)) {
      if (P::now_ns() - begin < limits_.writer_ns) continue;
      std::uint64_t expected = seen;
      (void)state_.compare_exchange_strong(expected, seen + 1, std::memory_order_seq_cst);
      break;
    }
    announce(slot);
    const std::uint64_t state = state_.load(std::memory_order_acquire);
    if (!is_shut(state)) return state;
    seen = state;
  }
}

// The slot of a thread that has stopped in a store has the same word each time. Others may be in a
// store, too, when the limit has come.
template <class P>
CutStep CutGate<P>::busy_with(std::uint32_t slot, std::uint64_t storing) noexcept {
  if (!holds()) holder_ = {.slot = slot, .storing = storing, .since_ns = P::now_ns()};
  return CutStep::busy;
}

template <class P>
CutStep CutGate<P>::await(std::uint64_t limit_ns) noexcept {
  if (!P::heavy_fence() && !P::full_light_fences()) return CutStep::refused;
  if (!P::runs("cut.gate.await"_site)) return CutStep::done;
  const std::uint64_t begin = P::now_ns();
  const std::uint32_t used = slots_used();
  for (std::uint32_t i = 0; i < used; ++i) {
    const std::uint64_t seen = slots_[i].storing.load(std::memory_order_acquire);
    if ((seen & 1) == 0) continue;
    for (unsigned spins = 0; slots_[i].storing.load(std::memory_order_acquire) == seen;) {
      P::pause(++spins);
      if (P::now_ns() - begin >= limit_ns) return busy_with(i, seen);
    }
  }
  return CutStep::done;
}

}  // namespace perdure
