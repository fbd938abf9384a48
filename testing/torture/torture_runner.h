// Torture: child processes work on a pool until a SIGKILL, and a parent knows what they must have
// left.
//
// A cycle: the parent forks. The child opens the pool (recovery), verifies every key and reports
//   the outcomes of the operations in flight at the last kill. Then it works with several threads.
//   The parent's log receives each operation before it starts, and its result before the next one
//   starts. The pool ages over the cycles, with a growing number of keys, and is made anew
//   periodically.
// KILLS  in create, in recovery (every 5th cycle), in work, in growth, beside sync and compact, in
//   a clean close. They come by the clock, or, with a target that knows its persist sites, at the
//   nth call of a site.
// CALLS  Threads share no keys. They put, insert, update, erase and find; they update and erase
//   keys on the condition that these have a certain value; and they call write_many(). Each
//   mutation of such a call that a kill interrupts has happened or not, by itself.
// VERSIONS  If the engine keeps versions, threads also tag, read a version that they have tagged,
//   and trim. Some processes roll back before their threads begin. Every process verifies all
//   versions that are not trimmed, including those of all earlier processes: a sample of the keys,
//   and for some versions every key (torture_model.h). Reads of trimmed ones must be refused.
// MODES  plain: the public API over a file. Stores survive a kill, and this tests recovery, not
//   write-backs. lossless: PoolCore and the engine over a shared map, killed at persist sites;
//   stores survive, too. lossy: the same over LossyPlatform. Only write-backs survive, as after a
//   power failure.
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
#include <vector>

#include "perdure/options.h"
#include "perdure/status.h"
#include "perdure/versioned_map.h"
#include "testing/sim/sites.h"

namespace perdure::testing {

// One opened pool with one map, in the child.
class TortureTarget {
 public:
  virtual ~TortureTarget() = default;
  virtual Expected<bool> upsert(const std::string& key, const std::string& value) = 0;
  virtual Expected<bool> insert(const std::string& key, const std::string& value) = 0;
  virtual Expected<bool> update(const std::string& key, const std::string& value) = 0;
  virtual Expected<bool> erase(const std::string& key) = 0;
  // An update and an erase of a key that has the value `expected`.
  virtual Expected<bool> update_if(const std::string& key, const std::string& expected,
                                   const std::string& value) = 0;
  virtual Expected<bool> erase_if(const std::string& key, const std::string& expected) = 0;
  // Calls done(i, result) in order, where `result` is what the single call would have returned.
  struct Write {
    MutationKind kind = MutationKind::put;
    std::string key = {};
    std::string value = {};
  };
  using Done = std::function<void(std::size_t i, const Expected<bool>& result)>;
  virtual void write_many(const std::vector<Write>& writes, const Done& done) = 0;
  // Commits a batch of puts and erases. False: a key is not as `required` would leave it.
  virtual Expected<bool> commit(const std::vector<Write>& required,
                                const std::vector<Write>& writes) = 0;
  virtual Expected<bool> find(const std::string& key, std::string& value) = 0;
  // Gives a counter what next() returns for its text, as Map::modify() does; a map of words adds 1
  // by fetch_add(), so next() must do the same. Returns the text from before; nullopt: the key was
  // absent, or its word was 0.
  using Text = std::optional<std::string>;
  using Next = std::function<std::string(const Text& before)>;
  virtual Expected<Text> modify(const std::string& key, const Next& next) = 0;
  // Counts the entries and runs check(). Returns a message if something is wrong.
  virtual std::string check(std::uint64_t& entries) = 0;
  virtual Status sync() = 0;
  virtual Status compact() = 0;
  virtual Status close() = 0;

  // --- engines that keep versions; others return `unsupported` ---
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
  std::string mode = "lossy";  // or "plain", "lossless"
  std::string keys = "bytes";  // or "integer"; values likewise
  std::string path;            // folder for the pool
  std::string mutant;          // SITE:op, set in the children
  // of a lossy or lossless pool: automatic means `power`; of a plain one `process`
  Durability durability = Durability::automatic;
  bool early_ack = false;  // planted: acknowledges an operation before it is done
  // planted: acknowledges a tag early; the thread's next operation is also in it
  bool loose_versions = false;
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

// The place of a kill.
enum class KillWhen : std::uint8_t { create, recovery, verify, work, growth, upkeep, close };
inline constexpr std::size_t kKillPlaces = 7;
const char* kill_name(KillWhen when);

struct TortureReport {
  std::uint64_t kills = 0;
  std::array<std::uint64_t, kKillPlaces> kills_in = {};
  std::uint64_t kills_at_sites = 0;
  std::set<std::string> sites;  // in which a kill ended
  std::uint64_t acknowledged = 0;
  std::uint64_t in_flight = 0;  // operations that a kill interrupted
  std::uint64_t together = 0;   // acknowledged mutations of calls of write_many()
  std::uint64_t together_in_flight = 0;
  std::uint64_t conditional = 0;  // acknowledged ones that had what was expected
  std::uint64_t grown = 0;        // bytes that the file grew by
  std::uint64_t lost = 0;         // cycles whose verification failed
  // For engines that keep versions: acknowledged operations, and the number of verifications of a
  // version.
  bool keeps_versions = false;
  std::uint64_t tags = 0, trims = 0, rollbacks = 0, reads_at_versions = 0, versions_verified = 0;
  double seconds = 0;
  std::string failure;  // the first one
  bool ok() const { return lost == 0; }
  std::uint64_t in(KillWhen when) const { return kills_in[static_cast<std::size_t>(when)]; }
  std::string summary(const TortureOptions& options) const;
};

// Opens or creates the pool of a child, or returns an error.
using TortureOpen = std::function<Expected<std::unique_ptr<TortureTarget>>(
    const TortureOptions& options, const std::string& file)>;

TortureReport run_torture(const TortureOptions& options, const TortureOpen& open);

// The persist sites at which a kill can be asked for.
std::vector<const SiteInfo*> kill_sites(const std::string& engine);

// The targets by options.engine (testing/engines/engine_list.h). The lossy one also serves as the
// lossless one. It shares a journal with its children: call it once per run, in the parent.
TortureOpen lossy_target();
TortureOpen plain_target();
TortureOpen target_of(const TortureOptions& options);

}  // namespace perdure::testing
