// The phases of redb's comparison with other stores (its lmdb_benchmark), in their order: keys of
// 24 random bytes, values of 150. With 5 million records every phase has as many operations as
// redb's. docs/benchmarks.md says what differs.
//
// Every value that a phase reads is compared. After each phase that changes the store a scan reads
// it, untimed: it must have as many entries as it should, with these keys, in order.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "bench/compare/bulk/store.h"

namespace perdure::bench {

// How much the phases do. Fewer records make all of it smaller.
struct BulkCounts {
  explicit BulkCounts(std::uint64_t records);

  std::uint64_t records;  // of the bulk load
  std::uint64_t singles;
  std::uint64_t batches = 100;
  std::uint64_t batch;  // puts of a batch
  std::uint64_t unsynced;
  std::uint64_t reads;
  std::uint64_t scans;
  std::uint64_t pops;
  std::uint64_t sorted;
};

enum class Unit : std::uint8_t { rate, seconds, bytes };
struct BulkRow {
  std::string_view name;
  std::string_view commits;  // whether a transaction that has returned survives a power failure
  Unit unit = Unit::rate;
};
// The rows of a result.
inline constexpr std::array kBulkRows = {
    BulkRow{"bulk load", "durable"},
    BulkRow{"individual writes", "durable"},
    BulkRow{"batch writes", "durable"},
    BulkRow{"nosync writes", "not durable"},
    BulkRow{"len()", ""},
    BulkRow{"random reads", ""},
    BulkRow{"random reads, again", ""},
    BulkRow{"random range reads", ""},
    BulkRow{"random range reads, again", ""},
    BulkRow{"random reads, 4 threads", ""},
    BulkRow{"random reads, 8 threads", ""},
    BulkRow{"removals", "durable"},
    BulkRow{"retain", "durable"},
    BulkRow{"extract_if", "durable"},
    BulkRow{"pop", "commit not timed"},
    BulkRow{"files, MiB", "", Unit::bytes},
    BulkRow{"compaction, s", "", Unit::seconds},
    BulkRow{"files when compacted, MiB", "", Unit::bytes},
    BulkRow{"files when closed, MiB", "", Unit::bytes},
    BulkRow{"sorted inserts", "durable"},
    BulkRow{"memory at its peak, MiB", "", Unit::bytes},
};
// In the order of the rows: operations a second, seconds, or bytes.
using BulkFigures = std::array<double, kBulkRows.size()>;

// Runs all phases on a store that is not open. The folder is the store's. Ends the process if the
// store fails, or if it has or returns anything that it should not.
BulkFigures run_bulk(BulkStore& store, const std::filesystem::path& folder,
                     const BulkCounts& counts);

}  // namespace perdure::bench
