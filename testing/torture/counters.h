// Counters: threads of processes that are killed add to shared counters, as fetch_add() does. Each
// addition counts once or, if a kill interrupted it, at most once.
//
// A cycle: the parent forks. The child opens the pool (recovery) and reports every counter. Then
//   each of its threads adds 1 to one counter after the other, in an order drawn from the seed,
//   until a SIGKILL. It logs each addition before it begins, and what it returned.
// JUDGED  A counter has grown since the last report by the additions that were acknowledged, and at
//   most by those in flight besides. The results of the acknowledged ones are distinct, and lie
//   between the two reports.
// PLANTED  an addition that is not atomic: a find, then an update.
//
// Thread safety: run_counters forks; call it from a process with one thread.
#pragma once

#include <cstdint>
#include <string>

#include "testing/torture/torture_runner.h"

namespace perdure::testing {

struct CountersReport {
  std::uint64_t kills = 0;
  std::uint64_t additions = 0;  // acknowledged
  std::uint64_t in_flight = 0;  // interrupted by a kill
  double seconds = 0;
  std::string failure;  // the first one
  bool ok() const { return failure.empty(); }
  std::string summary(const TortureOptions& options) const;
};

// Of the options it uses engine, mode, keys, path, durability, cycles, seed, threads and
// max_work_us. `torn`: the planted bug.
CountersReport run_counters(const TortureOptions& options, const TortureOpen& open,
                            bool torn = false);

}  // namespace perdure::testing
