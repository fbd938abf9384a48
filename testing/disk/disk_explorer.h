// The explorer of power failures of a disk: runs a scenario on a simulated file system, and before
// each call that changes it judges what a power failure could leave then.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "testing/disk/sim_files.h"

namespace perdure::disk {

struct DiskExploration {
  // If there are no more combinations than this, all are judged. Else: nothing reached the disk,
  // everything did, each state alone, all but each state, and `random` combinations.
  std::uint32_t all_below = 64;
  std::uint32_t random = 12;
  std::uint32_t alone = ~0U;  // of each state alone and of all but each, at most so many
  // Of the verdicts, one in so many is explored itself: the power fails again while it recovers. 0:
  // none.
  std::uint32_t second_failure = 0;
  std::uint64_t first_point = 0;  // those before it are not judged
  std::uint64_t seed = 1;
  std::string replay;  // judge only this image: DiskReport::first_failure begins with its name
};

// The image that PERDURE_REPLAY names, or nothing.
std::string replayed();

struct DiskReport {
  std::uint64_t points = 0;
  std::uint64_t images = 0;
  std::uint64_t second_images = 0;  // of failures during a recovery; they count in `images`, too
  std::uint64_t failures = 0;       // nothing is judged after the first
  std::string first_failure;        // "p12.i5: the message"
};

// `verdict` recovers from an image. Returns what is wrong, or nothing. It is called while
// `scenario` runs, so both can refer to what has been acknowledged.
DiskReport explore_disk(const DiskExploration& exploration,
                        const std::function<void(SimFileSystem&)>& scenario,
                        const std::function<std::string(SimFileSystem&)>& verdict);

}  // namespace perdure::disk
