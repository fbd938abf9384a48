// What perdure-torture runs: one pool's life, or a preset's matrix of them, after planted bugs.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "testing/explored.h"
#include "testing/torture_runner.h"

namespace perdure::testing {

// The type of the file system that holds the folder, as the kernel calls it; "unknown".
std::string file_system_of(const std::string& folder);

struct TortureTotals {
  std::uint64_t lossy_kills = 0;
  std::uint64_t plain_kills = 0;                    // the lossless ones are among them
  std::map<std::string, std::uint64_t> disk_kills;  // by file system; not tmpfs, whatever the mode
  std::array<std::uint64_t, kKillPlaces> kills_in = {};
  std::set<std::string> sites;
  std::uint64_t acknowledged = 0;
  std::uint64_t lost = 0;  // pools that lost something
  std::uint64_t tags = 0, trims = 0, rollbacks = 0, reads_at_versions = 0, versions_verified = 0;
  double canary_seconds = 0;

  void add(const TortureOptions& options, const TortureReport& report);
  // engine.name=value lines.
  std::string lines(const std::string& engine) const;
};

// The planted bugs: a missing write-back in lossy mode, an acknowledgement before the operation in
// plain and lossless mode; of engines that keep versions, before the tag in every mode. False if
// one of them was not noticed in 300 kills.
bool run_canaries(const TortureOptions& options, TortureTotals& totals);
// One pool's life, reported on stdout.
bool run_one(const TortureOptions& options, TortureTotals& totals);
// All of modes, folders, threads, keys and durabilities; `memory` is a folder in memory, `disk` one
// that is not.
bool run_matrix(const TortureOptions& options, const std::string& memory, const std::string& disk,
                Preset preset, TortureTotals& totals);

}  // namespace perdure::testing
