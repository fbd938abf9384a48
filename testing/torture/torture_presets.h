// The runs of perdure-guard torture: one pool's life, or a preset's matrix, after planted bugs.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "testing/crash/explored.h"
#include "testing/torture/torture_runner.h"

namespace perdure::testing {

// The type of the file system that holds the folder, by the kernel's name; or "unknown".
std::string file_system_of(const std::string& folder);

struct TortureTotals {
  std::uint64_t lossy_kills = 0;
  std::uint64_t plain_kills = 0;                    // includes the lossless ones
  std::map<std::string, std::uint64_t> disk_kills;  // by file system, in any mode; without tmpfs
  std::array<std::uint64_t, kKillPlaces> kills_in = {};
  std::set<std::string> sites;
  std::uint64_t acknowledged = 0;
  std::uint64_t together = 0, together_in_flight = 0;  // mutations of write_many()
  std::uint64_t conditional = 0;
  std::uint64_t lost = 0;  // pools that lost something
  std::uint64_t tags = 0, trims = 0, rollbacks = 0, reads_at_versions = 0, versions_verified = 0;
  std::uint64_t counter_kills = 0, counter_additions = 0, counter_transfers = 0;
  double canary_seconds = 0;

  void add(const TortureOptions& options, const TortureReport& report);
  // Formats engine.name=value lines.
  std::string lines(const std::string& engine) const;
};

// The planted bugs: a missing write-back in lossy mode; an acknowledgement before the operation in
// plain and lossless mode; with versions, an acknowledgement before the tag in every mode; an
// addition that is not atomic. Returns false if one of them was not noticed in 300 kills.
bool run_canaries(const TortureOptions& options, TortureTotals& totals);
// Runs one pool's life and prints its report.
bool run_one(const TortureOptions& options, TortureTotals& totals);
// Runs all combinations of modes, folders, threads, keys and durabilities, and counters in all
// modes. `memory` is a folder in memory, `disk` one that is not.
bool run_matrix(const TortureOptions& options, const std::string& memory, const std::string& disk,
                Preset preset, TortureTotals& totals);

}  // namespace perdure::testing
