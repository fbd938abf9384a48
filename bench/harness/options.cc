#include "bench/harness/options.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>

#include "bench/workloads/db_bench.h"
#include "perdure/pool.h"

namespace perdure::bench {
namespace {

constexpr const char* kMemoryFolder = "/dev/shm";
constexpr std::uint64_t kMemoryWanted = 1_GiB;
constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint32_t kMaxIntervalMs = 3'600'000;  // as Pool::open() has it
constexpr std::array kDurabilities = {Durability::process, Durability::buffered, Durability::power,
                                      Durability::emulated};

constexpr const char* kBenchFooter = R"(
Every run starts with an empty pool, which is removed at the end. Without --workload, --calibrate
measures the machine only; with it, the calibration goes into the result.

EXAMPLES
  perdure bench --workload load,read,update,scan,delete --records 1M --durability emulated
  perdure bench --workload load,ycsb_a --key string:24 --value string:100 --threads 2 --json
  perdure bench --engine pskiplist --workload load,tag,read_version,history,snapshot
  perdure bench --calibrate --path /dev/shm/x.perdure

EXIT STATUS
  0 done   1 a key was missing or wrong   2 usage   3 cannot open or I/O error)";

constexpr const char* kCompareFooter = R"(
The same generated work through the same driver for every engine, one after the other.

EXAMPLE
  perdure-compare --engines phast,lmdb,rocksdb --workload load,read,delete --records 1M)";

// Free memory of the system.
std::uint64_t available_memory() noexcept {
  return static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// The options as CLI11 fills them in, before they are checked.
struct Raw {
  std::string engines;
  std::string workloads;
  std::string records = "1M";
  std::string operations;
  std::uint32_t threads = 1;
  std::uint64_t batch = 64;
  std::string distribution = "uniform";
  std::string key;
  std::string keys;
  std::string value = "u64";
  std::string durability = "auto";
  std::uint32_t write_latency_ns = 0;
  std::optional<std::uint32_t> interval_ms;
  bool sync = false;
  std::string path;
  std::string max_size = "64G";
  std::string capacity = "0";
  std::uint32_t recovery_threads = 0;
  std::uint32_t background_threads = 1;
  bool interleave = false;
  std::string touch = "0";
  bool clock_all = false;
  bool dependent = false;
  bool shared = false;
  std::uint64_t seed = 1;
  bool json = false;
  bool keep = false;
  bool calibrate = false;
  bool heap = false;
};

std::string built_engines() {
  std::string names;
  for (const EngineInfo& info : engines()) {
    names += (names.empty() ? "" : ", ") + std::string(info.name);
  }
  return names;
}

void declare(CLI::App& app, Program program, std::span<const std::string_view> foreign, Raw& raw) {
  if (program == Program::bench) {
    raw.engines = "phast";
    app.add_option("--engine", raw.engines, "engine (" + raw.engines + "): " + built_engines());
  } else {
    raw.engines = "phast,std_map,lmdb,rocksdb";
    app.add_option(
        "--engines", raw.engines,
        fmt::format("engines, of perdure and {} ({})", fmt::join(foreign, ", "), raw.engines));
  }
  app.add_option(
      "--workload", raw.workloads,
      "phases, which run in the given order: load insert read read_batch read_missing update "
      "modify delete insert_many update_many delete_many batch scan scan_mixed "
      "churn ycsb_a .. ycsb_f, separated by commas (load,insert,read,update,delete); for engines "
      "with versions also tag (insert, then tag) read_version history snapshot (one per "
      "thread; --operations counts keys); or these names of db_bench: " +
          db_bench_names());
  app.add_option("--records", raw.records, "keys that load inserts (1M)");
  app.add_option("--operations", raw.operations,
                 "operations of every other phase (same as --records)");
  app.add_option("--batch", raw.batch,
                 "operations in one call of insert_many, update_many, delete_many, batch (64)");
  app.add_option("--threads", raw.threads, "threads (1)");
  app.add_option("--distribution", raw.distribution,
                 "uniform, zipfian, latest, sequential or clustered (uniform)");
  app.add_option("--key", raw.key, "u64, string:LEN, or array:16 (u64)");
  app.add_option("--keys", raw.keys,
                 "keys as people have them, instead of random ones: ids, times, paths, urls, uuid, "
                 "words, or file:F for the lines of a file");
  app.add_option("--value", raw.value, "u64, string:LEN, or array:15 with --key array:16 (u64)");
  app.add_option("--durability", raw.durability,
                 "auto, process, buffered, power or emulated (auto)");
  app.add_option("--write-latency-ns", raw.write_latency_ns,
                 "with --durability emulated: ns added to each write-back (0)");
  app.add_option("--interval-ms", raw.interval_ms,
                 "with --durability buffered: ms between cuts, at most so much is lost (100)");
  app.add_flag("--sync", raw.sync,
               "make each change durable before the next operation begins: a power failure then "
               "costs nothing where the durability is more than process");
  app.add_option(
      "--path", raw.path,
      "file of the pool (perdure-bench.perdure in /dev/shm if 1 GiB is free there, else in "
      "the working directory)");
  app.add_option("--max-size", raw.max_size, "largest size of the pool (64G)");
  app.add_option(
      "--capacity", raw.capacity,
      "entries that the map is made for, such as 64K; beyond it the map grows (0: default)");
  app.add_option("--recovery-threads", raw.recovery_threads,
                 "threads that recover the pool at open (0: one per core)");
  app.add_option("--background-threads", raw.background_threads,
                 "threads that rehash and sweep beside the workload, at most 16 (1)");
  app.add_flag("--interleave", raw.interleave,
               "take new memory from all nodes of the machine in turn (NUMA)");
  app.add_option(
      "--touch", raw.touch,
      "write to this much memory once before the run, such as 8G: the first write to a page "
      "is slow in a virtual machine (0)");
  app.add_flag("--clock-all", raw.clock_all,
               "clock every operation, not one in 16: slower, but `max ns` is then exact");
  app.add_flag("--dependent", raw.dependent,
               "compute the key of an operation from the result of the one before: no two overlap; "
               "for insert read read_batch read_missing update delete");
  app.add_flag(
      "--shared", raw.shared,
      "each thread chooses from all keys, not from a part of its own; new keys and deletes "
      "stay distinct");
  app.add_option("--seed", raw.seed, "the same seed gives the same work (1)");
  app.add_flag("--json", raw.json, "print one JSON object");
  app.add_flag("--keep", raw.keep, "keep the pool after the run");
  app.add_flag("--calibrate", raw.calibrate, "measure the memory first (1 GiB beside --path)");
  app.add_flag("--heap", raw.heap,
               "measure only the heap: one allocate and one free; with "
               "--threads, also what the threads gain");
}

std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = list.find(',');
    parts.emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    list.remove_prefix(comma + 1);
  }
}

Result<void> check_engines(Program program, std::span<const std::string_view> foreign,
                           const std::vector<std::string>& engines) {
  if (program == Program::bench && engines.size() != 1) {
    return failure(kExitUsage, "--engine takes one engine; perdure-compare takes several");
  }
  for (const std::string& name : engines) {
    if (std::ranges::count(engines, name) > 1) {
      return failure(kExitUsage, fmt::format("engine '{}' is named twice", name));
    }
    if (std::ranges::find(foreign, name) != foreign.end() || engine_named(name)) continue;
    return failure(
        kExitUsage,
        fmt::format("unknown engine '{}'; known: {}{}{}", name, built_engines(),
                    foreign.empty() ? "; perdure-compare has engines of other libraries" : ", ",
                    fmt::join(foreign, ", ")));
  }
  return {};
}

// Fails before a pool is made if an engine keeps no versions.
Result<void> check_versions(const BenchOptions& options) {
  const auto workload = std::ranges::find_if(options.workloads, needs_versions);
  if (workload == options.workloads.end()) return {};
  std::string known;
  for (const EngineInfo& info : engines()) {
    if (info.versioned) known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  for (const std::string& name : options.engines) {
    const auto infos = engines();
    const auto info = std::ranges::find(infos, name, &EngineInfo::name);
    if (info != infos.end() && info->versioned) continue;
    return failure(kExitUsage, fmt::format("workload '{}': {} keeps no versions; use {}",
                                           workload_name(*workload), name, known));
  }
  return {};
}

std::string default_path() {
  struct statvfs shm{};
  const bool roomy = ::statvfs(kMemoryFolder, &shm) == 0 &&
                     std::uint64_t{shm.f_bavail} * shm.f_frsize >= kMemoryWanted;
  return std::string(roomy ? kMemoryFolder : ".") + "/perdure-bench.perdure";
}

// The file's keys must be enough for all phases.
Result<void> judge_keys(const Raw& raw, BenchOptions& options) {
  if (raw.keys.empty()) return {};
  if (!raw.key.empty()) {
    return failure(kExitUsage, fmt::format("--keys {} says what the keys are; leave out --key {}",
                                           raw.keys, raw.key));
  }
  const Distribution distribution = options.work.distribution;
  if (distribution == Distribution::sequential || distribution == Distribution::clustered) {
    return failure(kExitUsage,
                   fmt::format("--keys {} has an order of its own; leave out --distribution {}, or "
                               "use uniform, zipfian or latest",
                               raw.keys, distribution_name(distribution)));
  }
  if (std::ranges::any_of(options.workloads, is_ycsb)) {
    return failure(
        kExitUsage,
        fmt::format("ycsb workloads have their own keys; leave out --keys {}", raw.keys));
  }
  auto keys = make_real_keys(raw.keys, options.work.seed);
  if (!keys) return std::unexpected(keys.error());
  const std::uint64_t needed = new_keys(options.work, options.workloads);
  if (keys->most_keys() < needed) {
    return failure(
        kExitUsage,
        fmt::format("--keys {}: the file has {} distinct lines, but the workloads insert "
                    "{} keys; use a longer file, or lower --records and --operations",
                    raw.keys, keys->most_keys(), needed));
  }
  options.key = {.is_string = keys->is_string()};
  options.keys = *keys;
  return {};
}

Result<void> check_keys(const BenchOptions& options) {
  if (options.keys) return {};
  const KeyScheme scheme = key_scheme(options.work.distribution, options.workloads);
  if (scheme == KeyScheme::ycsb) {
    const Distribution distribution = options.work.distribution;
    if (distribution == Distribution::sequential || distribution == Distribution::clustered) {
      return failure(kExitUsage,
                     fmt::format("ycsb workloads have their own keys: leave out --distribution {}",
                                 distribution_name(distribution)));
    }
    if (options.key.is_string && options.key.length < kMaxYcsbKeyLength) {
      return failure(kExitUsage, fmt::format("YCSB's keys have up to {} characters: use --key "
                                             "string:{}, or u64",
                                             kMaxYcsbKeyLength, kMaxYcsbKeyLength));
    }
  }
  if (options.key.is_string && options.key.length < kMinKeyLength) {
    return failure(kExitUsage,
                   fmt::format("--key string:{}: fewer than {} characters cannot keep the "
                               "keys distinct",
                               options.key.length, kMinKeyLength));
  }
  if (options.key.is_string && options.key.length > kMaxKeyBytes) {
    return failure(kExitUsage, fmt::format("--key string:{}: keys have up to {} bytes",
                                           options.key.length, kMaxKeyBytes));
  }
  return {};
}

// Whether the next key can depend on the result of such an operation.
bool chains(Workload workload) noexcept {
  return workload == Workload::insert || workload == Workload::read ||
         workload == Workload::read_batch || workload == Workload::read_missing ||
         workload == Workload::update || workload == Workload::erase;
}

Result<void> check_dependent(const BenchOptions& options) {
  if (!options.dependent) return {};
  constexpr std::string_view kUse =
      "use it with insert, read, read_batch, read_missing, update or delete; load may stand before "
      "them and is not changed";
  for (const Workload workload : options.workloads) {
    if (workload == Workload::load || chains(workload)) continue;
    return failure(kExitUsage, fmt::format("--dependent is not possible with workload '{}'; {}",
                                           workload_name(workload), kUse));
  }
  if (options.heap || std::ranges::none_of(options.workloads, chains)) {
    return failure(kExitUsage, fmt::format("--dependent changes none of the workloads; {}", kUse));
  }
  return {};
}

Result<void> judge_work(const Raw& raw, BenchOptions& options) {
  const std::string fallback = raw.calibrate ? "" : "load,insert,read,update,delete";
  const std::string& list = raw.workloads.empty() ? fallback : raw.workloads;
  if (!list.empty()) {
    auto workloads = parse_workloads(list);
    if (!workloads) return std::unexpected(workloads.error());
    options.workloads = std::move(*workloads);
  }
  const auto records = parse_count(raw.records);
  const auto operations = raw.operations.empty() ? records : parse_count(raw.operations);
  if (!records)
    return failure(kExitUsage, "--records: '" + raw.records +
                                   "' is not a number such as 10M (suffixes K, M, G, T)");
  if (!operations)
    return failure(kExitUsage, "--operations: '" + raw.operations +
                                   "' is not a number such as 10M (suffixes K, M, G, T)");
  auto distribution = parse_distribution(raw.distribution);
  if (!distribution) return std::unexpected(distribution.error());
  options.work = {.records = *records,
                  .operations = *operations,
                  .threads = raw.threads,
                  .together = raw.batch,
                  .distribution = *distribution,
                  .shared = raw.shared,
                  .seed = raw.seed};
  if (raw.threads == 0 || raw.threads > kMaxThreads) {
    return failure(kExitUsage, fmt::format("--threads {}: use 1 to {}", raw.threads, kMaxThreads));
  }
  if (options.workloads.empty()) return {};
  return validate_work(options.work, options.workloads);
}

Result<void> judge_pool(const Raw& raw, BenchOptions& options) {
  const auto* durability = std::ranges::find(kDurabilities, raw.durability, durability_name);
  if (durability != kDurabilities.end()) {
    options.durability = *durability;
  } else if (raw.durability != "auto") {
    return failure(kExitUsage, "unknown durability '" + raw.durability +
                                   "'; known: auto process buffered power emulated");
  }
  if (raw.write_latency_ns != 0 && options.durability != Durability::emulated) {
    return failure(kExitUsage, "--write-latency-ns goes with --durability emulated only");
  }
  if (raw.interval_ms) {
    if (options.durability != Durability::buffered) {
      return failure(kExitUsage, "--interval-ms goes with --durability buffered; leave it out");
    }
    if (*raw.interval_ms == 0 || *raw.interval_ms > kMaxIntervalMs) {
      return failure(kExitUsage, fmt::format("--interval-ms {} is out of range; use 1 to {}",
                                             *raw.interval_ms, kMaxIntervalMs));
    }
    options.interval_ms = *raw.interval_ms;
  }
  options.sync = raw.sync;
  const auto max_size = parse_bytes(raw.max_size);
  if (!max_size || *max_size < kMinPoolSize || *max_size > kMaxPoolSize) {
    return failure(kExitUsage, fmt::format("--max-size {}: use 1M to 4096G", raw.max_size));
  }
  options.max_size = *max_size;
  const auto capacity = parse_count(raw.capacity);
  if (!capacity) {
    return failure(kExitUsage, "--capacity: '" + raw.capacity +
                                   "' is not a number such as 64K (suffixes K, M, G, T)");
  }
  options.capacity = *capacity;
  if (raw.background_threads > kMaxBackgroundThreads) {
    return failure(kExitUsage, fmt::format("--background-threads {}: use 0 to {}",
                                           raw.background_threads, kMaxBackgroundThreads));
  }
  options.background_threads = raw.background_threads;
  options.interleave = raw.interleave;
  options.recovery_threads = raw.recovery_threads;
  const auto touch = parse_bytes(raw.touch);
  if (!touch || *touch > available_memory()) {
    return failure(kExitUsage, fmt::format("--touch {}: use a size such as 8G, of at most {} MiB",
                                           raw.touch, available_memory() >> 20));
  }
  options.touch = *touch;
  options.clock_all = raw.clock_all;
  options.dependent = raw.dependent;
  return {};
}

Result<BenchOptions> judge(Program program, std::span<const std::string_view> foreign,
                           const Raw& raw) {
  BenchOptions options{.engines = split_list(raw.engines),
                       .write_latency_ns = raw.write_latency_ns,
                       .path = raw.path.empty() ? default_path() : raw.path,
                       .json = raw.json,
                       .keep = raw.keep,
                       .calibrate = raw.calibrate,
                       .heap = raw.heap};
  auto key = parse_data_kind(raw.key.empty() ? "u64" : raw.key);
  if (!key) return failure(kExitUsage, "--key: " + key.error().message);
  auto value = parse_data_kind(raw.value);
  if (!value) return failure(kExitUsage, "--value: " + value.error().message);
  options.key = *key;
  options.value = *value;
  if (key->is_array != value->is_array ||
      (key->is_array &&
       (key->length != kMaxArrayKeyBytes || value->length != kMaxArrayValueBytes))) {
    return failure(kExitUsage, "arrays are measured with --key array:16 --value array:15 only");
  }
  Result<void> checked = check_engines(program, foreign, options.engines);
  if (checked) checked = judge_work(raw, options);
  if (checked) checked = check_versions(options);
  if (checked) checked = judge_pool(raw, options);
  if (checked) checked = judge_keys(raw, options);
  if (checked) checked = check_db_bench(raw.workloads, options.work.distribution, options.keys);
  if (checked) checked = check_keys(options);
  if (checked) checked = check_dependent(options);
  if (!checked) return std::unexpected(checked.error());
  return options;
}

std::optional<std::uint64_t> parse_scaled(std::string_view text, std::uint64_t kilo) noexcept {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  if (suffix.empty()) return number;
  constexpr std::string_view kSuffixes = "KMGT";
  const std::size_t power =
      kSuffixes.find(static_cast<char>(std::toupper(static_cast<unsigned char>(suffix.front()))));
  if (power == std::string_view::npos) return std::nullopt;
  suffix.remove_prefix(1);
  if (!suffix.empty() && suffix != "iB" && suffix != "B") return std::nullopt;
  for (std::size_t i = 0; i <= power; ++i) {
    if (__builtin_mul_overflow(number, kilo, &number)) return std::nullopt;
  }
  return number;
}

}  // namespace

std::optional<std::uint64_t> parse_count(std::string_view text) noexcept {
  return parse_scaled(text, 1000);
}
std::optional<std::uint64_t> parse_bytes(std::string_view text) noexcept {
  return parse_scaled(text, 1024);
}

Result<std::optional<BenchOptions>> parse_options(Program program, int argc, char** argv,
                                                  std::span<const std::string_view> foreign) {
  const bool bench = program == Program::bench;
  CLI::App app(bench ? "Measures an engine and checks that it keeps what it was given."
                     : "Measures perdure and other engines under the same driver.",
               bench ? "perdure bench" : "perdure-compare");
  app.footer(bench ? kBenchFooter : kCompareFooter);
  Raw raw;
  declare(app, program, foreign, raw);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    app.exit(help);
    return std::nullopt;
  } catch (const CLI::ExtrasError&) {
    return failure(kExitUsage, app.remaining().front() + ": there is no such option");
  } catch (const CLI::ParseError& error) {
    return failure(kExitUsage, error.what());
  }
  auto options = judge(program, foreign, raw);
  if (!options) return std::unexpected(options.error());
  return std::move(*options);
}

}  // namespace perdure::bench
