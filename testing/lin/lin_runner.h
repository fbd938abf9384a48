// Linearizability: runs whose histories are recorded (lin_history.h) for testing/lin/porcupine to
// judge.
//
// CONCURRENT  Threads use one pool through the public API, with every kind of call. Scans and
//   batches are recorded as one find per key, each over the whole call: they guarantee no more. If
//   the engine keeps versions, threads tag them, and read versions that any thread has just tagged
//   or is about to tag. A scan at a version is recorded as a read of each key at it. Threads also
//   trim. The recorder itself checks that a refused version may have been forgotten, and that a
//   version that was read had not been forgotten when the call began.
// CRASH       Processes are killed while several threads work on few keys, over the plain or the
//   lossy target of the torture, also with conditional calls and write_many(). They record into
//   memory shared with the parent: a result counts from the moment it left the process. Each
//   process first reads every key, also at versions of earlier processes.
// PLANTED     bugs that the checker must find: see Canary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perdure/options.h"
#include "testing/lin/lin_history.h"
#include "testing/torture/torture_runner.h"

namespace perdure::testing {

enum class Canary : std::uint8_t {
  none,
  stale_read,   // one find in 400 returns what this thread saw there before
  lost_update,  // one update in 100 is acknowledged but not made
  lost_erase,   // one erase in 100 is acknowledged but not made
  // For maps with versions, also in crash histories:
  late_read,  // one read at a version in 100 returns the present value
  early_tag,  // one tag in 20 is acknowledged with the version before
  // In concurrent histories; the recorder notices them:
  lost_trim,   // one trim in 4 is acknowledged but not made
  early_trim,  // one trim in 4 forgets more than it reports
};

struct LinOptions {
  std::uint64_t seed = 1;
  std::uint64_t ops = 100'000;  // recorded operations, over all threads
  std::uint32_t threads = 4;
  std::uint32_t keys = 24;
  bool ranges = false;  // keys come and go in waves: leaves split and are unlinked
  bool text_keys = false;
  bool text_values = false;
  Durability durability = Durability::process;
  Engine engine = Engine::phast;
  bool ordered = true;     // scans are recorded, too
  bool versioned = false;  // tags and reads at versions are recorded, too
  Canary canary = Canary::none;
  std::string describe() const;
};

struct LinRun {
  std::vector<HistoryOp> ops;
  bool divided = false;      // into leaves, or levels of a table; otherwise single nodes
  std::uint64_t grown = 0;   // leaves that were split, or tables made larger
  std::uint64_t shrunk = 0;  // leaves that were unlinked, or tables made smaller
  std::uint64_t trims = 0;
  std::uint64_t refused = 0;  // reads of versions that were trimmed
  std::string failure;        // errors found without the checker, such as a scan out of order
};

// Makes `pool` anew, and removes it afterwards.
LinRun run_concurrent(const LinOptions& options, const std::string& pool);

// Options drawn from the seed: a series covers every combination.
LinOptions lin_options(std::uint64_t seed);

struct LinCrashOptions {
  TortureOptions torture;  // mode, keys, mutant, threads, seed, path
  std::uint32_t keys = 12;
  std::uint32_t kills = 2;
  std::uint32_t ops_per_thread = 1000;  // at most, per process
  Canary canary = Canary::none;         // one of those for versions
};

struct LinCrashRun {
  std::vector<HistoryOp> ops;
  std::uint64_t kills = 0;
  std::uint64_t in_flight = 0;  // mutations that a kill interrupted
  std::string failure;
};

LinCrashRun run_crashed(const LinCrashOptions& options, const TortureOpen& open);

}  // namespace perdure::testing
