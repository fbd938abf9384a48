// Torture: child processes that work on a pool until a SIGKILL, and a parent that knows what they
// must have left behind.
//
// A cycle: fork; the child opens the pool (recovery), verifies every key, reports how the
// operations that
//   were in flight at the last kill came out, then works with several threads, noting each
//   operation in shared memory before it starts and after it is acknowledged; the parent kills it.
//   Kills fall into work, recovery, verification and creation. The pool ages over the cycles and is
//   made anew now and then.
// MODES  plain: the public API over a file; what was stored survives a kill, so this tests
// recovery, not
//   write-backs. lossy: PoolCore over LossyPlatform; only what was written back survives.
//
// Thread safety: run_torture forks; call it from a process with one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "perdure/status.h"

namespace perdure::testing {

// One opened pool with one map, in the child.
class TortureTarget {
 public:
  virtual ~TortureTarget() = default;
  virtual Expected<bool> upsert(const std::string& key, const std::string& value) = 0;
  virtual Expected<bool> insert(const std::string& key, const std::string& value) = 0;
  virtual Expected<bool> update(const std::string& key, const std::string& value) = 0;
  virtual Expected<bool> erase(const std::string& key) = 0;
  virtual Expected<bool> find(const std::string& key, std::string& value) = 0;
  // Counts entries by a scan and runs check(); a message if something is wrong.
  virtual std::string check(std::uint64_t& entries) = 0;
  virtual Status close() = 0;
};

struct TortureOptions {
  std::string mode = "lossy";  // or "plain"
  std::string keys = "bytes";  // or "integer"; values follow
  std::string path;            // folder for the pool
  std::string mutant;          // SITE:op, set in the children
  std::uint64_t cycles = 100;
  std::uint64_t seed = 1;
  std::uint32_t threads = 2;  // 1..8
  std::uint32_t keys_per_thread = 150;
  std::uint32_t max_work_us = 3000;  // of work before a kill
  std::uint32_t stall_one_in = 0;    // lossy: LossyPlatform::stall_one_in
  std::uint32_t create_every = 40;   // cycles until the pool is made anew
  bool verbose = false;
};

struct TortureReport {
  std::uint64_t kills = 0;
  std::uint64_t kills_in_recovery = 0;
  std::uint64_t kills_in_create = 0;
  std::uint64_t acknowledged = 0;
  std::uint64_t in_flight = 0;  // operations that a kill interrupted
  std::uint64_t lost = 0;       // cycles whose verification failed
  std::string failure;          // the first one
  bool ok() const { return lost == 0; }
  std::string summary(const TortureOptions& options) const;
};

// Opens or creates the pool of a child; null and a status if that fails.
using TortureOpen = std::function<Expected<std::unique_ptr<TortureTarget>>(
    const TortureOptions& options, const std::string& file)>;

TortureReport run_torture(const TortureOptions& options, const TortureOpen& open);

// The two modes. The lossy one shares a journal with its children: call it once per run, in the
// parent.
TortureOpen lossy_target();
TortureOpen plain_target();

}  // namespace perdure::testing
