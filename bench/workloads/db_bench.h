// The names of db_bench, the benchmark of LevelDB and RocksDB, that `--workload` takes beside its
// own. A name means one of the workloads here, with keys in the order that db_bench gives them. The
// options must give that order: a name changes none of them. docs/design/benchmark.md lists the
// names of db_bench that have no counterpart.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bench/workloads/data.h"
#include "bench/workloads/real_keys.h"
#include "bench/workloads/work.h"

namespace perdure::bench {

std::optional<Workload> db_bench_workload(std::string_view name) noexcept;

// All names, separated by spaces.
std::string db_bench_names();

// Fails if a name in the list of workloads means another order of keys than the options give.
Result<void> check_db_bench(std::string_view list, Distribution distribution,
                            const std::optional<RealKeys>& keys);

}  // namespace perdure::bench
