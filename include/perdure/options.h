// Options: plain structs with defaults. They are validated once, when a pool or a map is opened; an
// option out of range fails with invalid_argument.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace perdure {

// Sizes in bytes: 4_GiB.
constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30; }

// The index design of a map. docs/engines.md compares them. On media: never renumber.
enum class Engine : std::uint16_t {
  phast = 1,      // ordered; persistent leaves, inner nodes in DRAM
  level = 2,      // hash; two levels in persistent memory, grows and shrinks in place
  clevel = 3,     // hash; all persistent, rehashed in the background, restarts at once
  as = 4,         // ordered; skiplist, all persistent, restarts at once
  ascs = 5,       // ordered; skiplist, only its lowest level written back
  pskiplist = 6,  // ordered, multi-version; histories persistent, index in DRAM
};

// Which failures cannot undo the effect of a call once it has returned. On media: never renumber.
// See docs/durability.md.
enum class Durability : std::uint8_t {
  // The mode of the last open; its name is "auto". A new pool: `power` on DAX, `buffered` on a
  // file system that is known to be of a local disk, `process` elsewhere, and where the system
  // refuses what `buffered` needs.
  automatic = 0,
  process = 1,  // a kill of the process; costs stores only, no write-back and no fence
  power = 2,    // also a power loss; costs write-back and fence (msync on a disk)
  // Guarantees as `process` and costs as `power`: for tests and benchmarks.
  emulated = 3,
  // A kill of the process; and after a power loss the pool is as it was at one moment (a cut), at
  // most about BufferedOptions::interval_ms before. On any disk; costs little more than `process`.
  buffered = 4,
};

// Limits in bytes, checked by the calls and documented in docs/guide.md.
inline constexpr std::uint64_t kMaxKeyBytes = 65535;
inline constexpr std::uint64_t kMaxValueBytes = 1_GiB;
inline constexpr std::uint64_t kMaxArrayKeyBytes = 16;
inline constexpr std::uint64_t kLeastArrayValueBytes = 9;  // shorter ones are words
inline constexpr std::uint64_t kMaxArrayValueBytes = 15;
inline constexpr std::uint64_t kMaxMapNameBytes = 31;
inline constexpr std::uint64_t kMinPoolSize = 1_MiB;
inline constexpr std::uint64_t kMaxPoolSize = 4096_GiB;
inline constexpr std::uint32_t kMaxBackgroundThreads = 16;  // of a pool

// Whether an open may create the pool or the map that it names.
enum class OpenMode : std::uint8_t {
  open_or_create,  // opens it, or creates it if it is absent
  existing,        // fails with `not_found` if it is absent
  create_new,      // fails with `exists` if it is present
  // As `existing`, and nothing is written. What is seen is the pool at one moment, and stays so.
  // - No process has the pool: any number of readers share it. An owner gets `busy` meanwhile.
  // - Another process has it in durability `buffered`: the pool as it was at its last durable cut.
  //   The open copies it, which takes memory as large as the pool and its log, and O(pool) time.
  //   The owner goes on. An open that comes later sees a later cut.
  // - Another process has it in another durability: `busy`.
  // A map can be opened read-only only in a pool that is read-only; otherwise invalid_argument.
  read_only,
};

// How urgent a line of the log is; see PoolOptions::log.
enum class LogLevel : std::uint8_t {
  // A long operation ended: a recovery, a resize of a table, a sync. Memory is not interleaved.
  info,
  // The pool continues with less (no thread, no huge pages, no growth), or it accepted an untrusted
  // file.
  warning,
  error,  // the pool is poisoned, or a part of it is damaged and not served
};

// What happens if the disk takes the cuts of a `buffered` pool too slowly.
enum class OnLag : std::uint8_t {
  // Mutations wait while a cut is being written and the last durable one is older than two
  // intervals and the time that it took, of which 100 ms count at most. Those of threads that have
  // changed more than their share wait before: for the next cut, once as much has changed since the
  // last one as the disk takes in an interval.
  throttle,
  report,  // the lag grows: PoolStats::lag_ns. Mutations wait only for the bound of the log
};

// What happens to mutations of a `buffered` pool after its log could not be written.
enum class OnLogFailure : std::uint8_t {
  refuse,  // they fail with `io` until the log can be written: see Pool::resume_log()
  serve,   // they go on; a power failure loses everything since the last durable cut
};

// Of a pool with durability `buffered`. No effect on other pools. docs/durability.md.
struct BufferedOptions {
  // Milliseconds between two cuts; 1 to 3,600,000. A cut also comes when a caller waits for one,
  // for each piece of a fold, and when much has changed (OnLag::throttle, log_bytes). With
  // PoolOptions::background_threads = 0 a mutation makes the cut that is due, and a piece of a
  // fold, before it goes on; so do sync(), wait_durable() and run_background(). A program that
  // calls none of them makes no cuts.
  std::uint32_t interval_ms = 100;
  OnLag on_lag = OnLag::throttle;
  OnLogFailure on_log_failure = OnLogFailure::refuse;
  // Bound of the log, in bytes; at least 32 MiB. 0: 1 GiB, or a quarter of a larger pool. The log
  // is folded into the pool's file in the background before it is as long. If the disk is too slow
  // for that, mutations wait, those of a batch, too, and first those of the threads that change
  // most. If more changes within an interval, a cut is made early. A longer log makes folds rarer,
  // and an open after a power failure slower.
  std::uint64_t log_bytes = 0;
  // Bytes of the log that stay on the disk after they are folded, beside log_bytes, so that
  // Pool::backup() can add them to a backup from before. An open after a kill reads them, too. They
  // are used again if the disk has no space for the log.
  std::uint64_t keep_log_bytes = 0;
  // The folder of the live image, for instance "/dev/shm": then its changes do not go to the disk
  // as well. It must exist and keep its files until the machine goes down. "": beside the pool.
  // After a kill the live image is used where it is.
  std::string_view memory_directory = {};
};

// The options of Pool::open().
struct PoolOptions {
  // Behaviour.
  OpenMode mode = OpenMode::open_or_create;
  // Milliseconds that an open waits while it fails with `busy`, because this or another process has
  // the pool; 0: it does not wait. It tries again every 50 ms, or less often, so of several that
  // wait any may come first.
  std::uint32_t open_timeout_ms = 0;
  // Installs one handler of SIGBUS for the process; it passes other SIGBUS signals on. If another
  // process cuts the file short, or its medium fails, the pool becomes `poisoned`: every call, also
  // the open, returns an error, and a callback of a call that fails may have seen zeros. Without
  // the handler the kernel ends the process. Best effort: at most 256 mappings at a time. A
  // `buffered` pool has three, others have one.
  bool handle_sigbus = false;
  // Has an effect only with OpenMode::read_only. Opens a pool that is damaged: check() reports the
  // damage, stats() what can be read, and salvage() reads the entries that are whole. Damaged maps
  // return `corruption`.
  bool allow_damage = false;
  // If the pool is untrusted, verifies everything and serves it if there is no violation; otherwise
  // the open fails with `corruption`. No check can tell what is missing. A `buffered` pool whose
  // live image is missing or cannot be used is served as it was at its last durable cut. No effect
  // on other pools.
  bool accept_untrusted = false;
  // A mode that is stated here stays for later opens with `automatic`, also if it is a weaker one.
  // So a service that needs `power` states it at every open. An open that enters `power` first
  // syncs the file.
  Durability durability = Durability::automatic;
  BufferedOptions buffered = {};
  std::uint64_t max_size = 64_GiB;  // bytes that a new pool may grow to; Pool::resize raises it
  // Called with one line for an operator, which begins with the file's path. Null: no log. No
  // lookup calls it, and no mutation unless something unusual happens. Any thread may call it,
  // several at once, with locks of the pool held. So it must return soon, must not call into the
  // pool and must not throw. `message` ends with the call.
  void (*log)(void* context, LogLevel level, std::string_view message) = nullptr;
  void* log_context = nullptr;
  // Performance.
  std::uint32_t recovery_threads = 0;  // threads of recovery and close; 0: one per core
  // How many threads the pool runs in background, at most kMaxBackgroundThreads. They start with
  // the first work that can come: a rehash, a sweep after a restart at once, the next growth of a
  // pool of 64 MiB or more. With 0, or if the system refuses threads, Pool::run_background() and
  // mutations do this work. More than one thread helps only if several threads insert while a table
  // of `level` or `clevel` is rehashed.
  std::uint32_t background_threads = 1;
  std::uint32_t write_latency_ns = 0;  // nanoseconds to wait after each write-back; `emulated` only
  // For machines with several memory nodes (NUMA). Without it, most of a pool lies on the node of
  // the thread that grows it. With it, new pages of a file on tmpfs come from all nodes that the
  // process may use, in turn. So do the large tables in DRAM, of all pools of the process while
  // this one is open. Pages that exist stay where they are. The policy of the file stays until the
  // file is deleted. No effect on other files. What the system refuses is logged, and is no error.
  bool interleave = false;
};

// Options of a new map of engine `phast`.
struct PhastOptions {
  // The map has 2^partition_bits partitions by key prefix; 0 to 16. kAuto: as many bits as
  // MapOptions::capacity makes useful, at most 7, and 4 if the capacity is unknown.
  static constexpr std::uint32_t kAuto = ~0U;
  std::uint32_t partition_bits = kAuto;
  // The lowest key bit of the prefix; ~0: the prefix is the topmost bits. A key whose prefix would
  // be 2^partition_bits or more is in the last partition. The key is the word that the index orders
  // by: the first 8 bytes of a byte string, big-endian, and a signed integer with its sign bit
  // flipped. So a smaller shift helps unsigned keys only: signed ones all get the last partition.
  std::uint32_t partition_shift = ~0U;
};

// Options of a new map of engine `level`.
struct LevelOptions {
  std::uint64_t buckets = 0;  // of the top level, a power of two, 2 or more; 0: 32. A lower bound
  bool auto_shrink = true;    // shrink when less than a quarter of the slots is used
};

// The options of Pool::map() and the calls like it.
struct MapOptions {
  // nullopt: an existing map keeps its engine; a new one gets `pskiplist` if versioned_map() opens
  // it, otherwise `phast`. If an existing map has another engine than this one, the open fails with
  // invalid_argument.
  std::optional<Engine> engine = {};
  OpenMode mode = OpenMode::open_or_create;
  // The fields below apply to a new map only. `capacity`: the expected number of entries, a hint
  // and not a limit; 0: unknown.
  std::uint64_t capacity = 0;
  PhastOptions phast = {};
  LevelOptions level = {};
};

// The options of Pool::close().
struct CloseOptions {
  bool sync = true;  // write the whole file back, so that it is trusted after a reboot
  // False is for a process that only reads. If the recovery of a killed pool (clevel, as) still
  // runs in the background, close() then leaves it to the next open and returns at once. The file
  // is as another kill would leave it: it contains everything acknowledged, and stays unclean.
  bool finish_recovery = true;
};

// The options of Pool::check().
struct CheckOptions {
  // False: verifies the structure: headers, root directory, extent table, the leaves or levels of
  // each map against their image in DRAM, and that no block is leaked or reached twice. True: reads
  // every byte, and verifies also each key (its place, its fingerprint, a lookup) and the checksum
  // of each record or item.
  bool deep = false;
  // If not null: the thread that called check() calls it now and then, with the number of bytes
  // checked and the number of bytes to check in all. `done` never exceeds `total`. Locks of the
  // pool are held, so it must return soon, must not call into the pool and must not throw.
  void (*progress)(void* context, std::uint64_t done, std::uint64_t total) = nullptr;
  void* progress_context = nullptr;
};

// The names that the command line prints and takes. A value that has no name, or an engine that
// this build does not have, is "unknown". engine_named() returns nullopt for a name of neither.
std::string_view engine_name(Engine engine) noexcept;
std::optional<Engine> engine_named(std::string_view name) noexcept;
std::string_view durability_name(Durability durability) noexcept;
std::string_view log_level_name(LogLevel level) noexcept;

}  // namespace perdure
