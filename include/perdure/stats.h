// The results of info(), stats() and check(). Numbers are counts, or bytes where the name ends in
// _bytes, unless a comment gives another unit.
// Thread safety: these are values; distinct objects may be used from distinct threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perdure/options.h"

namespace perdure {

// The class of the medium under the file, determined at open.
enum class Medium : std::uint8_t {
  page = 1,      // page cache over a block device: durable by msync only
  volatile_ram,  // tmpfs, hugetlbfs, ramfs: lost with the machine
  cache_line,    // DAX: durable by write-back of cache lines
  eadr,          // DAX, and the machine saves the CPU caches on a power loss
  network,       // NFS, FUSE and the like; `power` is refused
};
// "unknown" for a value that is none of these.
const char* medium_name(Medium medium) noexcept;

// A map has one kind of keys and one of values, fixed at creation. On media: never renumber.
enum class KeyKind : std::uint8_t { integer = 1, bytes = 2, array = 3 };
// The kind of values; see KeyKind.
enum class ValueKind : std::uint8_t { word = 1, bytes = 2, array = 3 };

// A map as the root directory of the pool describes it.
struct MapInfo {
  std::string name;
  Engine engine = Engine::phast;
  std::uint32_t engine_version = 0;  // of the engine's format on media
  KeyKind key_kind = KeyKind::bytes;
  ValueKind value_kind = ValueKind::bytes;
  bool is_signed = false;        // integer keys order as signed numbers
  std::uint8_t key_bytes = 0;    // integer keys: 1, 2, 4 or 8; array keys: 1 to 16; otherwise 0
  std::uint8_t value_bytes = 0;  // word values: 1 to 8; array values: 9 to 15; otherwise 0
};

// A live image that an open has set aside, because it did not belong to the pool's file, or could
// not be trusted. With that file as it was then it may be all that is left of something. destroy()
// of its path removes it.
struct AsideImage {
  std::string path;
  std::uint64_t durable_unix_ns = 0;  // of its last durable cut, as PoolInfo::durable_unix_ns
};

// The result of Pool::info() (a pool that is open here) and of Pool::inspect() (any file).
struct PoolInfo {
  std::string path;
  std::string uuid;
  std::uint32_t format_version = 0;
  // Bits. A build opens a pool with unknown compatible features; it refuses unknown incompatible
  // ones.
  std::uint64_t compatible_features = 0;
  std::uint64_t incompatible_features = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t max_bytes = 0;
  std::uint64_t extent_bytes = 0;
  std::string filesystem;  // type of the file system
  Medium medium = Medium::page;
  Durability durability = Durability::process;  // info(): of this open; inspect(): of the last open
  Durability weakest_mode = Durability::process;  // of any store since the last full write-back
  std::string flush_instruction;  // "clwb", "clflushopt", "clflush", "msync"; on aarch64
                                  // "dc cvap", "dc cvac"; "none" from inspect()
  // inspect(): whether the last owner closed the pool; false while it is open. info(): whether the
  // owner before this open closed it.
  bool clean = false;
  // True if the whole file is written back and nothing was stored since. A copy is then trusted.
  bool synced = false;
  bool trusted = true;         // an open serves it without `accept_untrusted`
  std::string trust_note;      // inspect() only: why it is not trusted, in words
  bool in_use = false;         // a process owns it, perhaps this one; info() of a reader: it did
  std::int64_t owner_pid = 0;  // of the present or last owner
  std::string owner_host;      // the same; may be empty
  // Path of the live image of a `buffered` pool that is open, or was left open; else empty.
  std::string live_image;
  // Of such a pool: a power failure now would undo nothing that had been acknowledged by then
  // (nanoseconds since 1970, by the clock of the machine); 0: not known.
  std::uint64_t durable_unix_ns = 0;
  // inspect() only: live images that an open did not use, the newest first.
  std::vector<AsideImage> aside_images;
  std::vector<MapInfo> maps;
};

// One level of a hash table.
struct LevelStats {
  std::uint64_t slots = 0;
  std::uint64_t entries = 0;
};

// A growth or a shrink of a hash table.
struct ResizeStats {
  std::uint64_t begin_ns = 0;  // nanoseconds since the map was opened or created
  std::uint64_t end_ns = 0;    // the same unit; 0: it is not finished
  std::uint64_t slots_before = 0;
  std::uint64_t slots_after = 0;
  std::uint64_t entries = 0;  // in the table when the resize began
  std::uint64_t buckets = 0;  // that were rehashed so far
  std::uint64_t moved = 0;    // entries that were moved so far
  bool shrink = false;
};

// The numbers of one map. Those of structures that its engine does not have are 0.
struct MapFigures {
  Engine engine = Engine::phast;
  std::uint64_t entries = 0;  // exact if no thread changes the map meanwhile
  double load_factor = 0;     // entries / slots
  std::uint64_t height = 0;   // levels that a lookup walks, with the leaf
  std::uint64_t leaves = 0;
  std::uint64_t inner_nodes = 0;
  std::uint64_t pm_bytes = 0;    // in the file: blocks that the map can reach, with its records
  std::uint64_t dram_bytes = 0;  // of structures in DRAM
  // Part of dram_bytes: the sorted orders of leaves that were scanned.
  std::uint64_t scan_order_bytes = 0;
  std::uint64_t splits = 0;  // of leaves, since open
  std::uint64_t merges = 0;  // of leaves that became empty, since open
  // True if the figures cover a part only: the map is damaged, was changing, or DRAM was short.
  bool partial = false;
};

// The figures of one map.
struct MapStats : MapFigures {
  std::string name;
  std::vector<LevelStats> levels;  // of a hash table, the newest first
  static constexpr std::size_t kMaxResizes = 64;
  std::vector<ResizeStats> resizes;  // the last kMaxResizes since open, oldest first
};

// The result of Pool::stats().
struct PoolStats {
  std::uint64_t file_bytes = 0;       // of the pool; the file may already be longer, for growth
  std::uint64_t disk_bytes = 0;       // that the file takes on the medium, without its holes
  std::uint64_t used_bytes = 0;       // headers, tables and extents in use; full at max_bytes
  std::uint64_t max_bytes = 0;        // that the file may grow to
  std::uint64_t assigned_bytes = 0;   // in extents that are in use
  std::uint64_t free_bytes = 0;       // in extents that are free inside the file
  std::uint64_t allocated_bytes = 0;  // in allocated blocks, each rounded up to its size class
  std::uint64_t punched_bytes = 0;    // in free extents, given back to the system since the open
  double fragmentation = 0;           // 1 - allocated_bytes / assigned_bytes
  std::uint64_t heap_dram_bytes = 0;
  std::uint64_t limbo_blocks = 0;  // unlinked blocks that wait for readers before they are reused
  std::uint64_t epoch = 0;         // of memory reclamation; it rises while readers move on
  std::uint64_t stalled_readers = 0;  // threads in a callback that keep blocks from being reused
  std::uint64_t recovery_ns = 0;      // nanoseconds that the open took
  // Of durability `buffered`; 0 otherwise.
  std::uint64_t lag_ns = 0;     // nanoseconds; what a power failure now would undo is not older
  std::uint64_t cuts = 0;       // since the open; with those that had nothing to write
  std::uint64_t log_bytes = 0;  // that the log took on the disk at the last cut
  std::uint64_t log_written_bytes = 0;  // from the open to the last cut
  // Mutations wait while so much of the log is needed (BufferedOptions::log_bytes).
  std::uint64_t log_bound_bytes = 0;
  std::uint64_t folds = 0;               // of the log into the pool's file, since the open
  std::uint64_t fold_written_bytes = 0;  // to the pool's file by them
  // Of the pool's parts in its live image: those that were stored to since it was made, and those
  // by which the pool has grown.
  std::uint64_t live_bytes = 0;
  std::uint64_t longest_stop_ns = 0;  // the longest time that a cut has stopped all stores
  // The log cannot be written since then (nanoseconds since 1970); 0: it can. See resume_log().
  std::uint64_t log_failed_unix_ns = 0;
  // The system's number of a thread that has been in one store for a second (a debugger may have
  // stopped it), so that no cut can be made; 0: none. Mutations go on, sync() waits.
  std::uint64_t stopped_thread = 0;
  std::vector<MapStats> maps;
};

// The numbers of a check. Without violations, every invariant of the format and of the engines
// holds.
struct CheckFigures {
  std::uint64_t objects = 0;  // leaves, records and root blocks that were checked
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  // of the checked objects
  std::uint64_t leaked_blocks = 0;
  std::uint64_t violation_count = 0;

  // True if there is no violation.
  bool ok() const noexcept { return violation_count == 0; }
};

// The result of Pool::check().
struct CheckReport : CheckFigures {
  // The first violations, one line each; fewer if DRAM was short.
  static constexpr std::size_t kMaxViolations = 100;
  std::vector<std::string> violations;

  // The first violation, "" if there is none. Valid as long as this object.
  std::string_view first() const noexcept {
    if (violations.empty()) return ok() ? "" : kNoMemory;
    return violations.front();
  }
  static constexpr std::string_view kNoMemory = "(no memory to say what)";
};

// The persistence work of one thread; see perdure::thread_counters().
struct Counters {
  std::uint64_t flushes = 0;  // write-backs of cache lines, or of pages
  std::uint64_t fences = 0;   // store fences, or batches of msync
  // Lines of persistent memory that were stored to. Consecutive stores to one line count once.
  std::uint64_t written_lines = 0;
  std::uint64_t allocations = 0;  // blocks allocated from the heap
};

}  // namespace perdure
