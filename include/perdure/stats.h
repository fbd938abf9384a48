// What a pool, a map and a check report about themselves. Counts and bytes unless said otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perdure/options.h"

namespace perdure {

// How the medium under the file was classified at open.
enum class Medium : std::uint8_t {
  page = 1,      // page cache over a block device: power-safe by msync only
  volatile_ram,  // tmpfs, hugetlbfs, ramfs: gone with the machine
  cache_line,    // DAX, flush-on-fail does not cover CPU caches
  eadr,          // DAX, CPU caches are flushed by the platform on power loss
  network,       // NFS, FUSE and the like: refused for `power`
};
const char* medium_name(Medium medium) noexcept;

// One key kind and value kind per map, fixed at creation. On media: never renumber.
enum class KeyKind : std::uint8_t { integer = 1, bytes = 2, array = 3 };
enum class ValueKind : std::uint8_t { word = 1, bytes = 2, array = 3 };

struct MapInfo {
  std::string name;
  Engine engine = Engine::phast;
  std::uint32_t engine_version = 0;
  KeyKind key_kind = KeyKind::bytes;
  ValueKind value_kind = ValueKind::bytes;
  bool is_signed = false;        // integer keys order as signed numbers
  std::uint8_t key_bytes = 0;    // size of the type of integer keys: 1, 2, 4, 8; of arrays
  std::uint8_t value_bytes = 0;  // size of the type of word values: 1 to 8; of arrays: 9 to 15
};

struct PoolInfo {
  std::string path;
  std::string uuid;
  std::uint32_t format_version = 0;
  std::uint64_t compatible_features = 0;    // a bit each; of a pool that newer builds have used
  std::uint64_t incompatible_features = 0;  // those that this build knows; others are refused
  std::uint64_t file_bytes = 0;
  std::uint64_t max_bytes = 0;
  std::uint64_t extent_bytes = 0;
  std::string filesystem;  // name of the file system type
  Medium medium = Medium::page;
  Durability durability = Durability::process;    // of this open, or of the last one
  Durability weakest_mode = Durability::process;  // since the last full write-back
  std::string flush_instruction;  // "clwb", "clflushopt", "clflush", "msync", "none"
  bool clean = false;             // closed properly (of an open pool: by its last owner)
  bool synced = false;            // written back whole, and nothing stored since: a copy is trusted
  bool trusted = true;            // may be served without `accept_untrusted`
  std::string trust_note;         // why not, in words
  bool in_use = false;            // a process holds it, maybe this one
  std::int64_t owner_pid = 0;
  std::string owner_host;
  std::vector<MapInfo> maps;
};

// One level of a table, the newest first.
struct LevelStats {
  std::uint64_t slots = 0;
  std::uint64_t entries = 0;
};

// A growth or a shrink of a table.
struct ResizeStats {
  std::uint64_t begin_ns = 0;  // since the map was opened, or made
  std::uint64_t end_ns = 0;    // 0: it goes on
  std::uint64_t slots_before = 0;
  std::uint64_t slots_after = 0;
  std::uint64_t entries = 0;  // stored when it began
  std::uint64_t buckets = 0;  // rehashed
  std::uint64_t moved = 0;    // entries
  bool shrink = false;
};

// Figures of structures that an engine does not have are 0, or empty.
struct MapStats {
  std::string name;
  Engine engine = Engine::phast;
  std::uint64_t entries = 0;  // exact while nobody changes the map
  double load_factor = 0;     // entries / slots
  std::uint64_t height = 0;   // levels walked by a lookup, leaf included
  std::uint64_t leaves = 0;
  std::uint64_t inner_nodes = 0;
  std::uint64_t pm_bytes = 0;          // blocks the map can reach, records included
  std::uint64_t dram_bytes = 0;        // index structures in DRAM
  std::uint64_t scan_order_bytes = 0;  // part of dram_bytes: sorted orders of scanned leaves
  std::uint64_t splits = 0;            // since open
  std::uint64_t merges = 0;            // leaves unlinked since open
  std::vector<LevelStats> levels;
  static constexpr std::size_t kMaxResizes = 64;
  std::vector<ResizeStats> resizes;  // since open, the last kMaxResizes of them, in order
  bool partial = false;  // of what could be read of a damaged map, or of one that was changing
};

struct PoolStats {
  std::uint64_t file_bytes = 0;
  std::uint64_t assigned_bytes = 0;   // extents in use
  std::uint64_t free_bytes = 0;       // extents free inside the file
  std::uint64_t allocated_bytes = 0;  // blocks handed out, by class size
  std::uint64_t punched_bytes = 0;    // free extents given back to the file system
  double fragmentation = 0;           // 1 - allocated / assigned
  std::uint64_t heap_dram_bytes = 0;
  std::uint64_t limbo_blocks = 0;  // unlinked, waiting for readers to move on
  std::uint64_t epoch = 0;
  std::uint64_t stalled_readers = 0;  // threads that keep an old epoch pinned
  std::uint64_t recovery_ns = 0;      // what the last open spent on recovery
  std::vector<MapStats> maps;
};

// What `check` found. No violations: every invariant of the format and the engines holds.
struct CheckReport {
  std::uint64_t objects = 0;  // leaves, records and roots looked at
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  // of what was looked at
  std::uint64_t leaked_blocks = 0;
  std::uint64_t violation_count = 0;
  // The first of them, each one line; fewer where DRAM is short.
  static constexpr std::size_t kMaxViolations = 100;
  std::vector<std::string> violations;

  bool ok() const noexcept { return violation_count == 0; }
  std::string_view first() const noexcept {
    if (violations.empty()) return ok() ? "" : kNoMemory;
    return violations.front();
  }
  static constexpr std::string_view kNoMemory = "(no memory to say what)";
};

// Persistence work counted per thread; see perdure::thread_counters().
struct Counters {
  std::uint64_t flushes = 0;        // cache-line (or page) write-backs issued
  std::uint64_t fences = 0;         // store fences (or msync batches)
  std::uint64_t written_lines = 0;  // distinct consecutive persistent lines stored to
  std::uint64_t allocations = 0;    // heap blocks handed out
};

}  // namespace perdure
