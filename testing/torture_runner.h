// Torture: child processes that work on a pool until a SIGKILL, and a parent that knows what they
// must have left behind.
//
// A cycle: fork; the child opens the pool (recovery), verifies every key, reports how the
//   operations that were in flight at the last kill came out, then works with several threads. Each
//   operation is in a log of the parent before it starts, and its answer before the next one
//   starts. The pool ages over the cycles, its keys becoming more, and is made anew every so often.
// KILLS  in create, in recovery (every 5th cycle), in work, in growth, beside sync and compact, in
//   a clean close. By the clock; with a target that knows its persist sites also at the nth call of
//   one of them.
// VERSIONS  Where the engine keeps them, threads also tag, read a version that they have tagged and
//   trim, and now and then a process rolls back before its threads begin. Every process verifies
//   all versions that are not trimmed, also those of processes before the last: a sample of the
//   keys, of some versions every key (torture_model.h). Reads of trimmed ones must be refused.
// MODES  plain: the public API over a file; what was stored survives a kill, so this tests
//   recovery, not write-backs. lossless: PoolCore and the engine over a shared map, killed at
//   persist sites; the same holds. lossy: the same over LossyPlatform; only what was written back
//   survives, as after a power failure.
//
// Thread safety: run_torture forks; call it from a process with one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "perdure/options.h"
#include "perdure/status.h"
#include "perdure/versioned_map.h"
#include "testing/sites.h"

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
  // Counts the entries and runs check(); a message if something is wrong.
  virtual std::string check(std::uint64_t& entries) = 0;
  virtual Status sync() = 0;
  virtual Status compact() = 0;
  virtual Status close() = 0;

  // --- engines that keep versions; the others answer `unsupported` ---
  virtual bool keeps_versions() const { return false; }
  virtual Expected<std::uint64_t> tag() { return fail(StatusCode::unsupported); }
  virtual VersionRange versions() { return {}; }
  // invalid_argument if the version cannot be read.
  virtual Expected<bool> find_at(const std::string& /*key*/, std::uint64_t /*version*/,
                                 std::string& /*value*/) {
    return fail(StatusCode::unsupported);
  }
  using VisitEntry = std::function<void(std::string_view key, std::string_view value)>;
  virtual Expected<void> scan_at(std::uint64_t /*version*/, const VisitEntry& /*visit*/) {
    return fail(StatusCode::unsupported);
  }
  using Text = std::optional<std::string>;  // nothing: the key was absent
  using VisitVersion = std::function<void(std::uint64_t version, const Text& value)>;
  virtual Expected<void> history(const std::string& /*key*/, const VisitVersion& /*visit*/) {
    return fail(StatusCode::unsupported);
  }
  using VisitDifference =
      std::function<void(std::string_view key, const Text& before, const Text& after)>;
  virtual Expected<void> diff(std::uint64_t /*from*/, std::uint64_t /*to*/,
                              const VisitDifference& /*visit*/) {
    return fail(StatusCode::unsupported);
  }
  virtual Expected<std::uint64_t> trim(std::uint64_t /*version*/) {
    return fail(StatusCode::unsupported);
  }
  virtual Status rollback(std::uint64_t /*version*/) { return StatusCode::unsupported; }
};

struct TortureOptions {
  std::string engine = "phast";
  std::string mode = "lossy";                     // or "plain", "lossless"
  std::string keys = "bytes";                     // or "integer"; values follow
  std::string path;                               // folder for the pool
  std::string mutant;                             // SITE:op, set in the children
  Durability durability = Durability::automatic;  // of a lossy or lossless pool: then `power`
  bool early_ack = false;       // planted: an operation is acknowledged before it is done
  bool loose_versions = false;  // planted: a tag is, and the thread's next operation is in it, too
  std::uint64_t cycles = 100;
  std::uint64_t seed = 1;
  std::uint32_t threads = 2;  // 1..8
  std::uint32_t keys_per_thread = 150;
  std::uint32_t more_keys = 4;       // per cycle and thread
  std::uint32_t max_work_us = 3000;  // of work before a kill
  std::uint32_t stall_one_in = 0;    // lossy: LossyPlatform::stall_one_in
  std::uint32_t create_every = 200;  // cycles until the pool is made anew
  bool verbose = false;
};

// Where a kill fell.
enum class KillWhen : std::uint8_t { create, recovery, verify, work, growth, upkeep, close };
inline constexpr std::size_t kKillPlaces = 7;
const char* kill_name(KillWhen when);

struct TortureReport {
  std::uint64_t kills = 0;
  std::array<std::uint64_t, kKillPlaces> kills_in = {};
  std::uint64_t kills_at_sites = 0;
  std::set<std::string> sites;  // that a kill ended in
  std::uint64_t acknowledged = 0;
  std::uint64_t in_flight = 0;  // operations that a kill interrupted
  std::uint64_t grown = 0;      // bytes that the file grew by
  std::uint64_t lost = 0;       // cycles whose verification failed
  // Of engines that keep versions: what was acknowledged, and how often a process has verified a
  // version.
  bool keeps_versions = false;
  std::uint64_t tags = 0, trims = 0, rollbacks = 0, reads_at_versions = 0, versions_verified = 0;
  double seconds = 0;
  std::string failure;  // the first one
  bool ok() const { return lost == 0; }
  std::uint64_t in(KillWhen when) const { return kills_in[static_cast<std::size_t>(when)]; }
  std::string summary(const TortureOptions& options) const;
};

// Opens or creates the pool of a child; null and a status if that fails.
using TortureOpen = std::function<Expected<std::unique_ptr<TortureTarget>>(
    const TortureOptions& options, const std::string& file)>;

TortureReport run_torture(const TortureOptions& options, const TortureOpen& open);

// The persist sites at which a kill can be asked for.
std::vector<const SiteInfo*> kill_sites(const std::string& engine);

// The targets, by options.engine (testing/engine_list.h). The lossy one is the lossless one too. It
// shares a journal with its children: call it once per run, in the parent.
TortureOpen lossy_target();
TortureOpen plain_target();
TortureOpen target_of(const TortureOptions& options);

}  // namespace perdure::testing
