// Driver: runs the phases of a benchmark over a Subject and reads everything back.
//
// The operations of a phase and their keys exist before the clock starts. The threads start before
// it too, wait, and are released together. Each has a contiguous block of the operations. The clock
// stops when the last thread is done.
//
// New keys that come in order (KeySpace::in_order) have a counter, which is part of the measured
// time: each key goes to the next thread that inserts. A thread that falls behind would otherwise
// insert between keys that are long present.
//
// In every 4096 operations the last 256 are clocked one by one for the percentiles, and their
// results are checked. The others run without a clock between them, because reading it keeps a
// processor from starting the next operation's misses early. `seconds` is their rate times all
// operations. With `clock_all` every operation is clocked, and the longest one of a phase is found.
// The time of an empty interval between two readings is subtracted from each latency. For
// read_batch the unit of latency is the batch; everything else counts single keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/harness/histogram.h"
#include "bench/harness/progress.h"
#include "bench/harness/subject.h"
#include "bench/workloads/keys.h"
#include "bench/workloads/ledger.h"
#include "bench/workloads/work.h"
#include "perdure/stats.h"

namespace perdure::bench {

inline constexpr std::size_t kBlock = 4096;  // in operations
inline constexpr std::size_t kSampleEvery = 16;

struct PhaseResult {
  std::string name;
  std::uint64_t operations = 0;  // for snapshots: the keys that they visit
  double seconds = 0;            // of the slowest thread, without clocked operations
  double wall_seconds = 0;       // from the release of the threads to the end of the last one
  Histogram latency;
  std::optional<Counters> counters;  // sum over all threads
  std::uint64_t missing = 0;         // keys not found with their value although present
  std::uint64_t unexpected = 0;      // keys found, or refused as existing, although absent

  double mops() const noexcept {
    return seconds > 0 ? static_cast<double>(operations) / seconds / 1e6 : 0;
  }
};

struct DriverOptions {
  bool clock_all = false;
  bool dependent = false;  // see result_chain.h; every phase except `load`
};

class Driver {
 public:
  Driver(Subject& subject, const KeySpace& keys, const ValueCodec& values, Progress& progress,
         const DriverOptions& options = {});

  // Runs the phase, which WorkMaker made for the state in `ledger`.
  Result<PhaseResult> run(const Phase& phase, const Ledger& ledger);
  // Reads back every key that must be present, with its value and generation. Returns how many are
  // missing. It is not timed.
  Result<std::uint64_t> read_back(const Ledger& ledger, std::uint32_t threads);

 private:
  Subject& subject_;
  const KeySpace& keys_;
  const ValueCodec& values_;
  Progress& progress_;
  std::size_t sample_every_;
  bool dependent_;
  std::uint64_t interval_ns_ = 0;  // between two readings of the clock with nothing in between
};

}  // namespace perdure::bench
