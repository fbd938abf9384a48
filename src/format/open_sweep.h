// OpenSweep: the end of an open that goes on while the pool serves.
//
// WHAT  A map that restarts at once serves operations before its blocks are marked. One unit of
//   background work of the pool does the rest, in this order: it reads the extent table
//   (heap/table.h), makes durable what a killed process left (AfterKill), lets every such map mark
//   what it reaches, a bounded part at a time, and ends the heap's sweep, a few extents at a time.
//   Maps that marked at open need none of it.
// INVARIANTS
//   pool.W1  (C) Nothing is freed before every map of the pool has marked all that it reaches, and
//       not before all that they read is durable: the order above. If a map cannot be enumerated,
//       or a step finds damage, nothing is freed until an open succeeds, and neither sync nor close
//       vouches for the content: the pool stays unclean.
//   pool.W2  (DRAM) While heap.sweeping(), maps and mutators obey heap.I4.
//   pool.W3  mark_some() is called by one thread at a time, and not once the map is dropped.
// CASES
//   Killed, or power lost, in the middle   the next open begins again. Nothing was freed before
//       the last step; blocks that it freed stay unreachable: the medium has no reference to them
//       (W1).
//   Closed in the middle                   as that, and closed cleanly. The table is read first.
//   Synced in the middle                   the table is read, and AfterKill settles everything.
//   The extent table is damaged            as if a map could not be walked: the pool serves on,
//       nothing is freed, check() reports it, and sync and close return it.
//   Checked                                Pool::check finishes the sweep, then holds the work.
//   A map is dropped meanwhile             Pool::drop finishes the sweep first: a map that was not
//       walked may be damaged, and would free blocks that are not its own.
//   A map is made meanwhile                its blocks lie in extents that were free at open; they
//       are not marked (Heap::mark).
//   Read-only, or not yet trusted          finish() on the opening thread; no background.
//   The pool is full                       an allocation calls finish() through the heap and waits.
//       Within a step of the sweep finish() returns false, and the allocation fails with pool_full.
// PROGRESS  A step is bounded. finish() waits for a step under way, and its caller may hold an
//   engine's latches: mark_some() must not wait for one that a thread inside Heap::allocate holds.
#pragma once

#include <cstdint>
#include <utility>

#include "background/background.h"
#include "format/after_kill.h"
#include "heap/heap.h"
#include "perdure/status.h"
#include "platform/platform.h"

namespace perdure {

template <Platform P>
class OpenSweep;

// A map that may mark while it serves.
class MarkingMap {
 public:
  // Marks (Heap::mark_serving) what about `budget` more of its references reach. Takes an epoch
  // guard of its own, and waits for no latch that is held across an allocation. True: there are
  // more. corruption: the sweep ends, and frees nothing.
  virtual Expected<bool> mark_some(std::uint64_t budget) {
    (void)budget;
    return false;
  }

  MarkingMap() = default;
  virtual ~MarkingMap() = default;
  MarkingMap(const MarkingMap&) = delete;
  MarkingMap& operator=(const MarkingMap&) = delete;

  // Why mark_some() failed. Call it while no step of the sweep runs.
  const Status& mark_failure() const { return failure_; }

 private:
  template <Platform P>
  friend class OpenSweep;
  MarkingMap* next_ = nullptr;
  const char* name_ = "";
  Status failure_;
};

template <Platform P>
class OpenSweep final : public BackgroundWork<P> {
 public:
  OpenSweep(Heap<P>& heap, AfterKill<P>& after_kill, Background<P>& background)
      : heap_(heap), after_kill_(after_kill), background_(background) {}

  // Adds a map whose recovery left its marks to mark_some(). Before begin(). `name`, for messages,
  // must stay valid.
  void add(MarkingMap& map, const char* name = "") {
    PERDURE_ASSERT(P, "pool.W1", heap_.sweeping() && !served_);
    map.name_ = name;
    map.next_ = first_;
    first_ = &map;
  }
  bool has_maps() const { return first_ != nullptr; }
  // From now on the heap may serve. `complete`: every other map could be enumerated.
  void begin(bool complete) {
    complete_ = complete;
    begun_ = true;
  }
  // Adds the rest of the sweep to the background.
  void serve() {
    if (over() || served_) return;
    served_ = true;
    served_at_ = P::now_ns();
    background_.add(*this);
  }
  // Ends the sweep, on this thread or by waiting for another. False: it cannot, now; see
  // failure().
  bool finish() {
    if (over()) return true;
    if (served_) return background_.finish(*this) && over();
    while (run_some() == Step::more) {
    }
    return over();
  }
  // finish() for an allocation. False: the heap does not serve yet.
  bool help() { return begun_ && finish(); }
  bool over() const { return !heap_.sweeping(); }
  // Why the sweep will not end, or frees nothing. Call it while no step runs.
  const Status& failure() const { return failure_; }

  Step run_some() override {
    if (over() || stuck_) return Step::rest;
    if (!heap_.table_read()) {
      auto more = heap_.read_some();
      return more ? Step::more : stop(std::move(more.error()));
    }
    if (!after_kill_.done()) {
      return after_kill_.settle_some() ? Step::more : stop(StatusCode::poisoned);
    }
    if (first_ != nullptr) {
      auto more = mark_some(*first_);
      if (!more) {
        complete_ = false;
        failure_ = first_->failure_ = of_map(*first_, std::move(more.error()));
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

  Expected<bool> mark_some(MarkingMap& map) {
    PERDURE_ASSERT(P, "pool.W3", !marking_);
    marking_ = true;
    auto more = map.mark_some(kMarks);
    marking_ = false;
    return more;
  }
  // The failure with the map's name in front.
  static Status of_map(const MarkingMap& map, Status why) {
    if (*map.name_ == '\0') return why;
    const std::string_view text = why.message();
    return Status::format(why.code(), "map %s: %.*s", map.name_, static_cast<int>(text.size()),
                          text.data());
  }
  Step stop(Status why) {
    failure_ = std::move(why);
    stuck_ = true;
    tell(failure_);
    return Step::rest;
  }
  void tell(const Status& why) const {
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
  bool begun_ = false;
  bool served_ = false;
  bool marking_ = false;  // a map is inside mark_some()
  std::uint64_t served_at_ = 0;
};

}  // namespace perdure
