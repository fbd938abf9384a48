// HoleList: the ranges of a pool that were punched in its live image, and that its base still has.
//
// WHAT  A range is free when it is noted. A fold that begins later brings that into the base, and
//   when it has ended, the range means nothing there any more.
// INVARIANTS (DRAM)
//   holes.H1  A part of the pool that is free and punched, and of which is_new() is false, has been
//       so since before the last close(): what was used and punched again since was noted again.
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
  // If memory is short, nothing is punched in the base until the next close(), and the range only
  // when it is punched again.
  void note(std::uint64_t offset, std::uint64_t length) noexcept {
    LatchGuard guard(latch_);
    if (!new_.empty() && new_[new_.size() - 1].offset == offset + length) {  // as it goes
      Range& last = new_[new_.size() - 1];
      last = {offset, length + last.length};
    } else if (!new_.push_back({offset, length})) {
      lacks_one_ = true;
    }
  }
  bool is_new(std::uint64_t offset, std::uint64_t length) noexcept {
    LatchGuard guard(latch_);
    return lacks_one_ || std::any_of(new_.begin(), new_.end(), [&](const Range& range) {
             return range.offset < offset + length && offset < range.offset + range.length;
           });
  }
  // A fold begins.
  void close() noexcept {
    LatchGuard guard(latch_);
    lacks_one_ = false;
    if (closed_.empty()) return std::swap(closed_, new_);
    for (const Range& range : new_) (void)closed_.push_back(range);
    new_ = {};
  }
  // The fold has ended. Removes the ranges from before it, and calls f(offset, length) for each.
  template <class F>
  void take(F&& f) noexcept {
    Array<Range> ranges;
    {
      LatchGuard guard(latch_);
      std::swap(ranges, closed_);
    }
    for (const Range& range : ranges) f(range.offset, range.length);
  }

 private:
  struct Range {
    std::uint64_t offset = 0, length = 0;
  };

  typename P::Latch latch_;
  Array<Range> new_;  // since the last close()
  Array<Range> closed_;
  bool lacks_one_ = false;
};

}  // namespace perdure
