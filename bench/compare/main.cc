// perdure-compare: runs the same generated work through the same driver over perdure and foreign
// engines. It also prints the rows in which perdure is slower.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "bench/compare/foreign.h"
#include "bench/harness/calibrate.h"
#include "bench/harness/options.h"
#include "bench/harness/perdure_subject.h"
#include "bench/harness/report.h"
#include "bench/harness/run.h"

namespace perdure::bench {
namespace {

int complain(const Failure& failure) {
  fmt::print(stderr, "perdure-compare: {}\n", failure.message);
  return failure.exit_status;
}

struct Foreign {
  std::string_view name;
  std::unique_ptr<Subject> (*make)(const ForeignOptions&);
  bool syncs = false;  // can make each change durable
};
constexpr Foreign kForeign[] = {
    {"absl_btree", make_absl_btree_subject},
    {"absl_flat", make_absl_flat_subject},
    {"art_olc", make_art_olc_subject},
    {"boost_flat", make_boost_flat_subject},
    {"btree_olc", make_btree_olc_subject},
    {"leveldb", make_leveldb_subject, true},
    {"leveldb_tuned", make_leveldb_tuned_subject, true},
    {"libcuckoo", make_libcuckoo_subject},
    {"lmdb", make_lmdb_subject, true},
    {"lmdb_int", make_lmdb_int_subject, true},
    {"pmemobj", make_pmemobj_subject},
    {"redis", make_redis_subject, true},
    {"rocksdb", make_rocksdb_subject, true},
    {"rocksdb_tuned", make_rocksdb_tuned_subject, true},
    {"sqlite", make_sqlite_subject, true},
    {"sqlite_tuned", make_sqlite_tuned_subject, true},
    {"sqlite_wal", make_sqlite_wal_subject, true},
    {"std_map", make_std_map_subject},
    {"tbb", make_tbb_subject},
    {"null", make_null_subject},
};

std::vector<std::string_view> foreign_names() {
  std::vector<std::string_view> names;
  for (const Foreign& foreign : kForeign) names.push_back(foreign.name);
  return names;
}

// Fails if changes shall be durable and an engine cannot make them so.
Result<void> check_sync(const BenchOptions& options) {
  for (const std::string& name : options.engines) {
    const auto* found = std::ranges::find(kForeign, name, &Foreign::name);
    if (options.sync && found != std::end(kForeign) && !found->syncs) {
      return failure(
          kExitUsage,
          fmt::format("--sync: {} cannot make a change durable on a disk; leave one of them out",
                      name));
    }
  }
  return {};
}

std::unique_ptr<Subject> make_subject(const std::string& name, const BenchOptions& options) {
  if (const auto engine = engine_named(name)) {
    PerdureOptions of_engine = perdure_options(options, *engine);
    of_engine.needs_order = false;  // its row has no scans; rows of other engines may
    return make_perdure_subject(of_engine);
  }
  const ForeignOptions foreign{.path = options.path,
                               .key = options.key,
                               .value = options.value,
                               .threads = options.work.threads,
                               .max_size = options.max_size,
                               .sync = options.sync,
                               .capacity = options.capacity};
  const auto* found = std::ranges::find(kForeign, name, &Foreign::name);  // checked before
  return found->make(foreign);
}

// libpmem and malloc read their settings from the environment before main(): the first process
// sets them and executes the program once more.
//   PMEM_IS_PMEM_FORCE   libpmem executes write-backs on any memory, as durability `emulated` does
//   GLIBC_TUNABLES       malloc asks for huge pages, as perdure does for its pools
void restart_with_settings(char** argv) {
  constexpr const char* kDone = "PERDURE_COMPARE_RESTARTED";
  if (std::getenv(kDone) != nullptr) return;
  ::setenv(kDone, "1", 1);
  ::setenv("PMEM_IS_PMEM_FORCE", "1", 0);
  ::setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 0);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  ::execv(self.c_str(), argv);  // if it fails, the run goes on without the settings
}

int compare(int argc, char** argv) {
  auto parsed = parse_options(Program::compare, argc, argv, foreign_names());
  if (!parsed) return complain(parsed.error());
  if (!*parsed) return 0;  // help
  const BenchOptions& options = **parsed;
  if (auto checked = check_sync(options); !checked) return complain(checked.error());
  Progress progress(!options.json && ::isatty(STDERR_FILENO) != 0);

  std::optional<Calibration> calibration;
  if (options.calibrate) {
    auto measured = calibrate(options.path, progress);
    if (!measured) return complain(measured.error());
    calibration = *measured;
  }
  std::vector<RunResult> results;
  int status = 0;
  for (const std::string& name : options.engines) {
    if (options.workloads.empty()) break;  // only calibration was asked for
    const std::unique_ptr<Subject> subject = make_subject(name, options);
    auto result = run_subject(*subject, options, progress);
    if (!result) return complain(result.error());
    result->calibration = calibration;
    // The null engine finds nothing by design.
    if (name != "null") status = std::max(status, judge_result(*result));
    results.push_back(std::move(*result));
  }
  if (options.json) {
    nlohmann::ordered_json json = {
        {"calibration", calibration ? to_json(*calibration) : nlohmann::ordered_json()},
        {"runs", nlohmann::ordered_json::array()}};
    for (const RunResult& result : results) json["runs"].push_back(to_json(result, options));
    fmt::print("{}\n", json.dump(2));
  } else {
    if (calibration) fmt::print("{}", calibration_text(*calibration));
    fmt::print("{}", comparison(results, options));
  }
  std::fflush(stdout);
  return status;
}

}  // namespace
}  // namespace perdure::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  perdure::bench::restart_with_settings(argv);
  try {
    return perdure::bench::compare(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perdure-compare: %s\n", error.what());
    return perdure::bench::kExitIo;
  }
}
