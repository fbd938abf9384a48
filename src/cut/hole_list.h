// HoleList: the ranges of a pool that were punched in its live image, and that its base still has.
//
// WHAT  A range is free when it is noted. A fold that begins later brings that into the base, and
//   when it has ended, the range means nothing there any more.
// INVARIANTS (DRAM)
//   holes.H1  A part of the pool that is free and punched, and of which is_new() is false, was so
//       before the close() of the last fold that has ended: what was used and punched again since
//       was noted again.
// Thread safety: any thread. A range is noted, and asked for, under the latch under which the heap
//   punches it (extents.h): nothing comes between is_new() and what is done then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "platform/platform.h"
#include "util/containers.h"

namespace perdure {

template <Platform P>
class HoleList {
 public:
  // If memory is short, nothing is punched in the base until a later fold has ended, and the range
  // only when it is punched again.
  void note(std::uint64_t offset, std::uint64_t length) noexcept {
    LatchGuard guard(latch_);
    if (!new_.ranges.empty() && new_.ranges.back().offset == offset + length) {  // as it goes
      Range& last = new_.ranges.back();
      last = {offset, length + last.length};
    } else if (!new_.ranges.push_back({offset, length})) {
      new_.lacks_one = true;
    }
  }
  // Whether the base may have a part of the range from before it was punched.
  bool is_new(std::uint64_t offset, std::uint64_t length) noexcept {
    LatchGuard guard(latch_);
    return new_.meets(offset, length) || closed_.meets(offset, length);
  }
  // A fold begins.
  void close() noexcept {
    LatchGuard guard(latch_);
    closed_.lacks_one |= std::exchange(new_.lacks_one, false);
    if (closed_.ranges.empty()) return std::swap(closed_.ranges, new_.ranges);
    for (const Range& range : new_.ranges) closed_.lacks_one |= !closed_.ranges.push_back(range);
    new_.ranges = {};
  }
  // The fold has ended. Removes the ranges from before it, and calls f(offset, length) for each.
  template <class F>
  void take(F&& f) noexcept {
    Set taken;
    {
      LatchGuard guard(latch_);
      std::swap(taken, closed_);
    }
    for (const Range& range : taken.ranges) f(range.offset, range.length);
  }

 private:
  struct Range {
    std::uint64_t offset = 0, length = 0;
  };
  struct Set {
    Array<Range> ranges;
    bool lacks_one = false;

    bool meets(std::uint64_t offset, std::uint64_t length) const noexcept {
      return lacks_one || std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) {
               return range.offset < offset + length && offset < range.offset + range.length;
             });
    }
  };

  typename P::Latch latch_;
  Set new_;     // since the last close()
  Set closed_;  // before it: a fold is under way, or has failed
};

}  // namespace perdure
