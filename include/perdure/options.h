// Options: plain structs with defaults, validated once when a pool or map is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace perdure {

constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30; }

// The index design behind a map. On media: never renumber.
enum class Engine : std::uint16_t {
  phast = 1,      // ordered; persistent leaves, inner nodes in DRAM
  level = 2,      // hash; two levels in persistent memory, grows and shrinks in place
  clevel = 3,     // hash; all persistent, rehashed in the background, restarts at once
  as = 4,         // ordered; skiplist, all persistent, restarts at once
  ascs = 5,       // ordered; skiplist, only its lowest level written back
  pskiplist = 6,  // ordered, multi-version; histories persistent, index in DRAM
};

// What a returned mutation has survived. On media: never renumber. See docs/durability.md.
enum class Durability : std::uint8_t {
  automatic = 0,  // that of the last open; for a new pool `power` on DAX, `process` elsewhere
  process = 1,    // any kill of the process; stores only, no flush, no fence
  power = 2,      // power loss too; write-back and fence (msync on page media)
  emulated = 3,   // the code path of `power` on ordinary memory: for tests and benchmarks
};

// Limits, checked at the API and documented in docs/guide.md.
inline constexpr std::uint64_t kMaxKeyBytes = 65535;
inline constexpr std::uint64_t kMaxValueBytes = 1_GiB;
inline constexpr std::uint64_t kMaxArrayKeyBytes = 16;
inline constexpr std::uint64_t kLeastArrayValueBytes = 9;  // shorter ones are words
inline constexpr std::uint64_t kMaxArrayValueBytes = 15;
inline constexpr std::uint64_t kMaxMapNameBytes = 31;
inline constexpr std::uint64_t kMinPoolSize = 1_MiB;
inline constexpr std::uint64_t kMaxPoolSize = 4096_GiB;
inline constexpr std::uint32_t kMaxBackgroundThreads = 16;  // of a pool

// Whether an open may make what it names: a pool's file, or a map.
enum class OpenMode : std::uint8_t {
  open_or_create,  // opens it, or creates it if it is absent
  existing,        // fails with `not_found` if it is absent
  create_new,      // fails with `exists` if it is present
  // As `existing`, and nothing is ever written. A pool is opened without the lock, so also while
  // another process has it: inconsistent reads are retried, and a map that stays inconsistent
  // returns `corruption`. A map is read-only if its pool is: invalid_argument in another pool.
  read_only,
};

enum class LogLevel : std::uint8_t {
  info,     // the pool did something that takes time: recovered, resized a table, synced
  warning,  // it goes on with less: no thread, no huge pages, no growth, an untrusted pool accepted
  error,    // it no longer serves, or serves without something: poisoned, damage found
};

struct PoolOptions {
  // Behaviour.
  OpenMode mode = OpenMode::open_or_create;
  // Installs a handler of SIGBUS for the process, once, which passes on what is not the library's.
  // When the file is then cut short under us, or its medium fails, the pool is `poisoned`: every
  // call answers an error, and what a callback was shown by a call that fails may be zeros. Without
  // it the kernel ends the process. Best effort: at most 256 such pools at a time.
  bool handle_sigbus = false;
  // Without effect unless the mode is read_only. Opens a pool that is damaged: check() reports what
  // is wrong, stats() what can be read. Damaged maps return `corruption`.
  bool allow_damage = false;
  bool accept_untrusted = false;  // serve an untrusted pool after a full check has passed
  Durability durability = Durability::automatic;
  std::uint64_t max_size = 64_GiB;  // bytes the file may grow to; fixed at creation
  // Called with one line that names the file, for what an operator wants to know; never by a
  // lookup, nor by a mutation that has nothing unusual to do. Null: nothing is told. Any thread
  // may call it, several at once, with locks of the pool held: it must return soon, must not call
  // into the pool, must not throw. `message` ends with the call.
  void (*log)(void* context, LogLevel level, std::string_view message) = nullptr;
  void* log_context = nullptr;
  // Performance.
  std::uint32_t recovery_threads = 0;  // 0: one per core
  // Threads of the pool, at most kMaxBackgroundThreads, started when there is work: a rehash, a
  // sweep after a restart at once, a large pool's next growth. 0: none, Pool::run_background() and
  // mutations do it, as where the system refuses the threads. More than one help where a table of
  // `level` is rehashed while several threads insert; `clevel` is rehashed by one.
  std::uint32_t background_threads = 1;
  std::uint32_t write_latency_ns = 0;  // `emulated` only: added after each write-back
};

struct PhastOptions {
  // 2^k partitions by key prefix, 0 to 16; kAuto: as MapOptions::capacity needs, 7 without one.
  static constexpr std::uint32_t kAuto = ~0U;
  std::uint32_t partition_bits = kAuto;
  std::uint32_t partition_shift = ~0U;  // lowest key bit of the prefix; ~0: the topmost bits
};

struct LevelOptions {
  std::uint64_t buckets = 0;  // of the top level, a power of two; 0: 32. It never has fewer
  bool auto_shrink = true;    // when it is less than a quarter full
};

struct MapOptions {
  // nullopt: an existing map keeps its engine; a new one gets `pskiplist` if it is opened with
  // versioned_map(), `phast` otherwise. An existing map of another engine: invalid_argument.
  std::optional<Engine> engine = {};
  OpenMode mode = OpenMode::open_or_create;
  // The rest is for a new map. Expected entry count (0: unknown): a sizing hint, not a limit.
  std::uint64_t capacity = 0;
  PhastOptions phast = {};
  LevelOptions level = {};
};

struct CloseOptions {
  bool sync = true;  // write the whole file back, so that the next boot trusts it
  // False, for a process that only reads: if the recovery of a killed pool still goes on in the
  // background (clevel, as), close leaves it to the next open and returns at once. The file is then
  // what another kill would leave: everything acknowledged is in it, and it stays unclean.
  bool finish_recovery = true;
};

struct CheckOptions {
  // Without: structure. Headers, root directory, extent table, of every map its chains of leaves or
  // its levels with their image in DRAM, blocks that are leaked or reached twice. Deep: every byte.
  // Also every key (in its place, found by a lookup, fingerprint) and the checksum of every record
  // or item.
  bool deep = false;
  // Called by the checking thread now and then: bytes looked at, bytes to look at in all.
  void (*progress)(void* context, std::uint64_t done, std::uint64_t total) = nullptr;
  void* progress_context = nullptr;
};

// Names as the command line prints and takes them.
std::string_view engine_name(Engine engine) noexcept;
std::optional<Engine> engine_named(std::string_view name) noexcept;  // nullopt: not in this build
std::string_view durability_name(Durability durability) noexcept;
std::string_view log_level_name(LogLevel level) noexcept;

}  // namespace perdure
