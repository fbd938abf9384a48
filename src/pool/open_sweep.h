// OpenSweep: the end of an open that goes on while the pool serves.
//
// WHAT  A map that restarts at once answers operations before its blocks are marked. One unit of
//   background work of the pool does the rest, in this order: it makes durable what a killed
//   process left (AfterKill), lets every such map mark what it reaches, a bounded part at a time,
//   and ends the heap's sweep, a few extents at a time. Maps that marked at open are not its
//   business.
// INVARIANTS
//   pool.W1  (C) Nothing is freed before every map of the pool has marked all that it reaches, and
//       not before what they read is durable: the order above. If a map cannot be enumerated, or a
//       step finds damage, nothing is freed until an open succeeds, and neither sync nor close
//       vouches for what is there: the pool stays unclean.
//   pool.W2  (DRAM) While heap.sweeping(), maps and mutators obey heap.I4.
//   pool.W3  mark_some() is called by one thread at a time, and not once the map is dropped.
// CASES
//   Killed, or power lost, in the middle   nothing was freed; the next open begins again. What step
//       3 freed is unreachable still: no reference to it is on the medium (pool.W1).
//   Closed in the middle                   as that, and closed cleanly.
//   Synced in the middle                   AfterKill settles everything first.
//   Checked                                Pool::check finishes the sweep, then holds the work.
//   A map is dropped meanwhile             Pool::drop finishes the sweep first: a map that nobody
//       walked may be damaged, and would free what is not its own.
//   A map is made meanwhile                its blocks lie in extents that were free at open; it is
//       not marked (Heap::mark).
//   Read-only, or not yet trusted          finish() on the opening thread; no background.
//   The pool is full                       an allocation calls finish() through the heap and waits;
//       from within a step of the sweep it answers false and the step's allocation pool_full.
// PROGRESS  A step is bounded. finish() waits for a step under way, and its caller may hold an
//   engine's latches: mark_some() may not wait for one that a thread inside Heap::allocate holds.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "heap/heap.h"
#include "perdure/status.h"
#include "platform/platform.h"
#include "pool/after_kill.h"
#include "pool/background.h"

namespace perdure {

template <Platform P>
class OpenSweep;

// A map that may mark while it serves.
class MarkingMap {
 public:
  // Marks (Heap::mark_serving) what about `budget` more of its references reach, in an epoch guard
  // of its own, waiting for no latch that is held across an allocation. True: there are more.
  // corruption: the sweep ends, and frees nothing.
  virtual Expected<bool> mark_some(std::uint64_t budget) noexcept {
    (void)budget;
    return false;
  }

  MarkingMap() = default;
  virtual ~MarkingMap() = default;
  MarkingMap(const MarkingMap&) = delete;
  MarkingMap& operator=(const MarkingMap&) = delete;

  // Why mark_some() gave up. While no step of the sweep runs.
  const Status& mark_failure() const noexcept { return failure_; }

 private:
  template <Platform P>
  friend class OpenSweep;
  MarkingMap* next_ = nullptr;
  Status failure_;
};

template <Platform P>
class OpenSweep final : public BackgroundWork<P> {
 public:
  OpenSweep(Heap<P>& heap, AfterKill<P>& after_kill, Background<P>& background) noexcept
      : heap_(heap), after_kill_(after_kill), background_(background) {}

  // Before begin(): a map whose recovery left its marks to mark_some().
  void add(MarkingMap& map) noexcept {
    PERDURE_ASSERT(P, "pool.W1", heap_.sweeping() && !served_);
    map.next_ = first_;
    first_ = &map;
  }
  bool has_maps() const noexcept { return first_ != nullptr; }
  // From here on the heap may serve. `complete`: every other map could be enumerated.
  void begin(bool complete) noexcept {
    complete_ = complete;
    heap_.set_sweep_helper(this,
                           [](void* self) { return static_cast<OpenSweep*>(self)->finish(); });
  }
  // Hands what is left to the background.
  void serve() noexcept {
    if (over() || served_) return;
    served_ = true;
    served_at_ = P::now_ns();
    background_.add(*this);
  }
  // Brings it to its end, on this thread or by waiting for another. False: it cannot, now; see
  // failure().
  bool finish() noexcept {
    if (over()) return true;
    if (served_) return background_.finish(*this) && over();
    while (run_some() == Step::more) {
    }
    return over();
  }
  bool over() const noexcept { return !heap_.sweeping(); }
  // Why it will not come to its end, or frees nothing. While no step runs.
  const Status& failure() const noexcept { return failure_; }

  Step run_some() noexcept override {
    if (over() || stuck_) return Step::rest;
    if (!after_kill_.done()) {
      return after_kill_.settle_some() ? Step::more : stop(StatusCode::poisoned);
    }
    if (first_ != nullptr) {
      auto more = mark_some(*first_);
      if (!more) {
        complete_ = false;
        failure_ = first_->failure_ = std::move(more.error());
        tell(failure_);
      }
      if (!more || !*more) first_ = first_->next_;
      return Step::more;
    }
    auto more = heap_.sweep_some(complete_, kExtents);
    if (!more) return stop(std::move(more.error()));
    if (*more) return Step::more;
    if (served_) {
      background_.log().say(LogLevel::info, "recovery beside the service ended after %.1f ms",
                            milliseconds(P::now_ns() - served_at_));
    }
    return Step::rest;
  }

 private:
  static constexpr std::uint64_t kMarks = 2048;  // references per step
  static constexpr std::uint64_t kExtents = 64;  // extents per step

  Expected<bool> mark_some(MarkingMap& map) noexcept {
    if constexpr (!P::kAsserts) {
      return map.mark_some(kMarks);
    } else {
      PERDURE_ASSERT(P, "pool.W3", !marking_);
      marking_ = true;
      auto more = map.mark_some(kMarks);
      marking_ = false;
      return more;
    }
  }
  Step stop(Status why) noexcept {
    failure_ = std::move(why);
    stuck_ = true;
    tell(failure_);
    return Step::rest;
  }
  void tell(const Status& why) const noexcept {
    const std::string_view text = why.message();
    background_.log().say(LogLevel::error,
                          "recovery beside the service stopped: %.*s; nothing is freed before an "
                          "open succeeds",
                          static_cast<int>(text.size()), text.data());
  }

  Heap<P>& heap_;
  AfterKill<P>& after_kill_;
  Background<P>& background_;
  MarkingMap* first_ = nullptr;
  Status failure_;
  bool complete_ = true;
  bool stuck_ = false;
  bool served_ = false;
  struct None {};
  [[no_unique_address]] std::conditional_t<P::kAsserts, bool, None> marking_{};
  std::uint64_t served_at_ = 0;
};

}  // namespace perdure
