// SpaceReturn: gives free space of a pool back to the file system.
//
// WHAT  Blocks that are freed leave free extents, whose space the file keeps for what is allocated
//   next. If much was freed (heap.note_idle), background work punches holes, from the end of the
//   file, until a reserve is left: allocation begins at the start. So a large value that is
//   replaced again and again, or a map that breathes, gets no new space from the system each time.
//   Only runs of kLeastRun or more go: others are worth no hole. compact() takes all of them.
// INVARIANTS  Those of compact(): an extent is punched while it is free, which its word says
//   durably (heap.I1).
// PROGRESS  A step punches at most kPiece under the latch of the extents. If a reader holds limbo,
//   nothing is free yet; what is freed later wakes this again.
#pragma once

#include <algorithm>
#include <cstdint>

#include "background/background.h"

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
    if (excess_ == 0) begin();
    auto given = core_.heap().punch_last(end_, std::min(excess_, kPiece), kLeastRun);
    refused_ = !given.has_value();  // the file system cannot, or the disk fails: compact() says it
    if (!given) return Step::rest;
    excess_ = *given == 0 ? 0 : excess_ - std::min(excess_, *given);
    return excess_ != 0 ? Step::more : Step::rest;
  }

 private:
  void begin() {
    core_.epochs().drain_all();
    const auto space = core_.heap().space();
    const std::uint64_t reserve = std::max(kLeastReserve, space.assigned / kReservePart);
    excess_ = space.idle > reserve ? space.idle - reserve : 0;
    end_ = space.end;
  }

  Core& core_;
  typename P::template Atomic<bool> added_{false};
  // Of the one step at a time:
  std::uint64_t excess_ = 0;  // bytes to give back yet
  std::uint64_t end_ = 0;     // extent: what lies behind it was looked at
  bool refused_ = false;
};

}  // namespace perdure
