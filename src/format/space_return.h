// SpaceReturn: gives free space of a pool back to the file system.
//
// WHAT  Blocks that are freed leave free extents, whose space the file keeps for what is allocated
//   next. If much was freed (heap.note_idle), background work punches holes, from the end of the
//   file, until a reserve is left: allocation begins at the start. So a large value that is
//   replaced again and again, or a map that breathes, gets no new space from the system each time.
//   Only runs of kLeastRun or more go: others are worth no hole. compact() takes all of them.
// INVARIANTS  Those of compact(): an extent is punched while it is free, which its word says
//   durably (heap.I1).
// PROGRESS  A step looks at some thousand extents, and punches at most kPiece, under the latch of
//   the extents. A thread that has only lost its core within an operation gets a moment to end it:
//   nothing may be freed later. If a reader holds limbo for longer, nothing is free yet; what is
//   freed later wakes it again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "background/background.h"
#include "heap/heap.h"

namespace perdure {

template <class Core, class P>
class SpaceReturn final : public BackgroundWork<P> {
 public:
  static constexpr std::uint64_t kLeastReserve = std::uint64_t{32} << 20;
  static constexpr std::uint64_t kReservePart = 8;  // of what is assigned
  static constexpr std::uint64_t kLeastRun = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kPiece = std::uint64_t{8} << 20;

  explicit SpaceReturn(Core& core) : core_(core) {}

  // Much was freed. Any thread.
  void wake(Background<P>& background) {
    if (added_.exchange(true, std::memory_order_acq_rel)) return background.wake(*this);
    background.add(*this);
  }
  Step run_some() override {
    if (refused_ || !core_.serves()) return Step::rest;
    return excess_ >= kLeastRun ? punch() : count();
  }

 private:
  using Space = typename Heap<P>::Space;

  Step count() {
    if (space_.end == 0 && !drained()) return Step::more;
    if (core_.heap().count_some(space_)) return Step::more;
    const Space all = std::exchange(space_, {});
    const std::uint64_t reserve = std::max(kLeastReserve, all.assigned / kReservePart);
    excess_ = all.idle > reserve ? all.idle - reserve : 0;
    end_ = all.end;
    return excess_ >= kLeastRun ? Step::more : Step::rest;
  }
  // Tries it once. True also if a reader has been waited for long enough.
  bool drained() {
    EpochDomain<P>& epochs = core_.epochs();
    const std::uint64_t now = P::now_ns();
    if (drain_until_ns_ == 0) {
      drain_until_ns_ = now + epochs.kBriefPatienceNs;
      drained_at_ = epochs.after_drain();
    }
    if (!epochs.drain(drained_at_) && now < drain_until_ns_) {
      P::pause(63);  // gives the core away
      return false;
    }
    drain_until_ns_ = 0;
    return true;
  }
  // An error that is not for good ends this round; compact() returns it.
  Step punch() {
    auto given = core_.heap().punch_last(end_, std::min(excess_, kPiece), kLeastRun);
    if (given) excess_ -= std::min(excess_, *given);
    if (!given || end_ == 0) excess_ = 0;
    refused_ = !given && given.error() == StatusCode::unsupported;
    return excess_ >= kLeastRun ? Step::more : Step::rest;
  }

  Core& core_;
  typename P::template Atomic<bool> added_{false};
  // Of the one step at a time:
  std::uint64_t drain_until_ns_ = 0;  // 0: no drain is under way
  std::uint64_t drained_at_ = 0;      // the epoch that it must reach
  Space space_;                       // as far as it is counted
  std::uint64_t excess_ = 0;          // bytes to give back yet
  std::uint64_t end_ = 0;             // extent: what lies behind it was looked at
  bool refused_ = false;
};

}  // namespace perdure
