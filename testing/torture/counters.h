// Counters: threads of processes that are killed add to shared counters and accounts, as
// fetch_add() does, and move numbers from account to account by batches. Each of these steps counts
// once or, if a kill interrupted it, at most once.
//
// A cycle: the parent forks. The child opens the pool (recovery) and reports every counter and
//   account. Then each of its threads does one step after the other, drawn from the seed, until a
//   SIGKILL. It logs each step before it begins, and what it returned.
// JUDGED  A counter has grown since the last report by the additions that were acknowledged, and at
//   most by those in flight besides. The results of the acknowledged ones are distinct, and lie
//   between the two reports. The accounts have the acknowledged additions and transfers, and some
//   of those in flight, each of them wholly: one choice of these explains all accounts.
// PLANTED  an addition that is not atomic: a find, then an update; a transfer by two puts.
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
  std::uint64_t transfers = 0;  // acknowledged
  std::uint64_t in_flight = 0;  // interrupted by a kill
  double seconds = 0;
  std::string failure;  // the first one
  bool ok() const { return failure.empty(); }
  std::string summary(const TortureOptions& options) const;
};

enum class Torn : std::uint8_t { none, additions, transfers };

// Of the options it uses engine, mode, keys, path, durability, cycles, seed, threads and
// max_work_us. `torn`: the planted bug.
CountersReport run_counters(const TortureOptions& options, const TortureOpen& open,
                            Torn torn = Torn::none);

}  // namespace perdure::testing
