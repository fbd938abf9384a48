// Linearizability: runs whose histories are recorded (lin_history.h), for testing/porcupine to
// judge.
//
// CONCURRENT  threads over one pool of the public API, with every kind of call. Scans and batches
//   are recorded as one find per key, each over the whole call: that is what is promised of them.
//   Where versions are kept, threads tag them, and read those that they or others have just tagged,
//   or are about to; a scan at a version is recorded as a read of each key at it. They trim, too:
//   the recorder itself sees to it that what is refused may have been forgotten by then, and what
//   is answered had not been when the call began.
// CRASH       processes that are killed while they work on few keys from several threads, over the
//   plain or the lossy target of the torture. They record into memory shared with the parent, so an
//   answer counts from the moment it left the process. Each process reads every key first, also at
//   versions of those before it.
// PLANTED     bugs that the checker has to find: see Canary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perdure/options.h"
#include "testing/lin_history.h"
#include "testing/torture_runner.h"

namespace perdure::testing {

enum class Canary : std::uint8_t {
  none,
  stale_read,   // one find in 400 answers what this thread saw there before
  lost_update,  // one update in 100 is acknowledged and not made
  lost_erase,   // one erase in 100 likewise
  // Where versions are kept, also in crash histories:
  late_read,  // one read at a version in 100 answers the present
  early_tag,  // one tag in 20 is acknowledged with the version before
  // In concurrent ones, seen by the recorder:
  lost_trim,   // one trim in 4 is acknowledged and not made
  early_trim,  // one trim in 4 forgets more than it says
};

struct LinOptions {
  std::uint64_t seed = 1;
  std::uint64_t ops = 100'000;  // recorded, over all threads
  std::uint32_t threads = 4;
  std::uint32_t keys = 24;
  bool ranges = false;  // keys come and go in waves, so that leaves split and are unlinked
  bool text_keys = false;
  bool text_values = false;
  Durability durability = Durability::process;
  Engine engine = Engine::phast;
  bool ordered = true;     // scans are recorded, too
  bool versioned = false;  // tags and reads at versions likewise
  Canary canary = Canary::none;
  std::string describe() const;
};

struct LinRun {
  std::vector<HistoryOp> ops;
  bool divided = false;      // into leaves, or levels of a table; else into single nodes
  std::uint64_t grown = 0;   // leaves that were split, or tables made larger
  std::uint64_t shrunk = 0;  // leaves that were unlinked, or tables made smaller
  std::uint64_t trims = 0;
  std::uint64_t refused = 0;  // reads of versions that were trimmed
  std::string failure;        // what is wrong without a checker: an error, or a scan out of order
};

// `pool` is made anew and removed.
LinRun run_concurrent(const LinOptions& options, const std::string& pool);

// Options drawn from the seed, so that a series covers every combination.
LinOptions lin_options(std::uint64_t seed);

struct LinCrashOptions {
  TortureOptions torture;  // mode, keys, mutant, threads, seed, path
  std::uint32_t keys = 12;
  std::uint32_t kills = 2;
  std::uint32_t ops_per_thread = 1000;  // of one process, at most
  Canary canary = Canary::none;         // of versions
};

struct LinCrashRun {
  std::vector<HistoryOp> ops;
  std::uint64_t kills = 0;
  std::uint64_t in_flight = 0;  // mutations that a kill interrupted
  std::string failure;
};

LinCrashRun run_crashed(const LinCrashOptions& options, const TortureOpen& open);

}  // namespace perdure::testing
