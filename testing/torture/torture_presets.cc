#include "testing/torture/torture_presets.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "testing/engines/engine_list.h"
#include "testing/torture/counters.h"
#include "testing/torture/torture_log.h"

namespace perdure::testing {

namespace {

constexpr std::uint64_t kCanaryKills = 300;             // a few seconds
constexpr std::uint64_t kCounterKills[] = {200, 2000};  // of a mode and kind of keys

struct Life {
  const char* mode;
  bool disk;
  Durability durability;
  std::uint64_t cycles[2];  // figures, nightly
};
// Each runs with both kinds of keys, with 1 and with 8 threads.
constexpr Life kLives[] = {
    {"lossy", false, Durability::power, {130, 2520}},
    {"lossy", true, Durability::power, {30, 300}},
    {"plain", false, Durability::process, {20, 300}},
    {"plain", false, Durability::emulated, {20, 300}},
    {"plain", true, Durability::process, {30, 200}},
    {"plain", true, Durability::emulated, {15, 200}},
    {"plain", true, Durability::power, {15, 150}},
    {"plain", true, Durability::buffered, {15, 150}},
    {"lossless", false, Durability::process, {20, 200}},
    {"lossless", false, Durability::emulated, {30, 300}},
    {"lossless", true, Durability::emulated, {15, 200}},
};

bool run_counters_in_all_modes(const TortureOptions& options, const std::string& memory,
                               Preset preset, TortureTotals& totals) {
  bool ok = true;
  for (const char* mode : {"lossy", "plain", "lossless"}) {
    for (const char* keys : {"integer", "bytes"}) {
      TortureOptions one = options;
      one.mode = mode;
      one.keys = keys;
      one.path = memory;
      one.durability = Durability::emulated;
      one.cycles = kCounterKills[preset == Preset::nightly ? 1 : 0];
      one.threads = kTortureThreads;
      const CountersReport report = run_counters(one, target_of(one));
      totals.counter_kills += report.kills;
      totals.counter_additions += report.additions;
      totals.counter_transfers += report.transfers;
      totals.lost += report.ok() ? 0 : 1;
      std::printf("%s\n", report.summary(one).c_str());
      if (!report.ok()) std::printf("LOST: %s\n", report.failure.c_str());
      ok = ok && report.ok();
    }
  }
  return ok;
}

bool in_memory(const std::string& file_system) {
  return file_system == "tmpfs" || file_system == "ramfs" || file_system == "hugetlbfs";
}

}  // namespace

std::string file_system_of(const std::string& folder) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(folder.c_str(), nullptr),
                                                         &std::free);
  const std::string path = (real != nullptr ? std::string(real.get()) : folder) + "/";
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line, type = "unknown";
  std::size_t longest = 0;
  while (std::getline(mounts, line)) {
    // 36 35 98:0 /root /mount/point options .. - type source options
    std::istringstream fields(line);
    std::string word, point;
    for (int i = 0; i < 5; ++i) fields >> (i == 4 ? point : word);
    while (fields >> word && word != "-") {
    }
    fields >> word;
    if (!point.ends_with('/')) point += '/';
    if (path.starts_with(point) && point.size() >= longest) {
      longest = point.size();
      type = word;
    }
  }
  return type;
}

void TortureTotals::add(const TortureOptions& options, const TortureReport& report) {
  (options.mode == "lossy" ? lossy_kills : plain_kills) += report.kills;
  const std::string file_system = file_system_of(options.path);
  if (!in_memory(file_system)) disk_kills[file_system] += report.kills;
  for (std::size_t i = 0; i < kKillPlaces; ++i) kills_in[i] += report.kills_in[i];
  sites.insert(report.sites.begin(), report.sites.end());
  acknowledged += report.acknowledged;
  together += report.together;
  together_in_flight += report.together_in_flight;
  conditional += report.conditional;
  lost += report.lost;
  tags += report.tags;
  trims += report.trims;
  rollbacks += report.rollbacks;
  reads_at_versions += report.reads_at_versions;
  versions_verified += report.versions_verified;
}

std::string TortureTotals::lines(const std::string& engine) const {
  std::string text;
  const auto line = [&](const std::string& name, std::uint64_t value) {
    text += engine + "." + name + "=" + std::to_string(value) + "\n";
  };
  line("lossy_kills", lossy_kills);
  line("plain_kills", plain_kills);
  if (disk_kills.empty()) line("ext4_kills", 0);
  for (const auto& [file_system, kills] : disk_kills) line(file_system + "_kills", kills);
  for (std::size_t i = 0; i < kKillPlaces; ++i) {
    line(std::string("kills_in_") + kill_name(static_cast<KillWhen>(i)), kills_in[i]);
  }
  line("kill_sites", kill_sites(engine).size());
  line("kill_sites_hit", sites.size());
  line("torture_operations", acknowledged);
  line("torture_together", together);
  line("torture_together_in_flight", together_in_flight);
  line("torture_conditional", conditional);
  line("counter_kills", counter_kills);
  line("counter_additions", counter_additions);
  line("counter_transfers", counter_transfers);
  line("lost_acks", lost);
  const EngineUnderTest* row = find_engine_under_test(engine);
  line("keeps_versions", row != nullptr && keeps_versions(row->engine) ? 1 : 0);
  line("torture_tags", tags);
  line("torture_trims", trims);
  line("torture_rollbacks", rollbacks);
  line("torture_reads_at_versions", reads_at_versions);
  line("versions_verified", versions_verified);
  char seconds[64];
  std::snprintf(seconds, sizeof(seconds), "%.1f", canary_seconds);
  return text + engine + ".torture_canary_seconds=" + seconds + "\n";
}

bool run_canaries(const TortureOptions& options, TortureTotals& totals) {
  const EngineUnderTest& row = *find_engine_under_test(options.engine);
  const auto noticed = [&](const char* mode, const char* what, TortureOptions planted) {
    planted.engine = options.engine;
    planted.mode = mode;
    planted.keys = "integer";
    planted.path = options.path;
    planted.cycles = kCanaryKills;
    planted.seed = options.seed;
    planted.create_every = 40;
    const TortureReport report = run_torture(planted, target_of(planted));
    totals.canary_seconds += report.seconds;
    std::printf("canary %s, %s: %s after %llu kills, %.2f s: %s\n", mode, what,
                report.ok() ? "NOT SEEN" : "red", static_cast<unsigned long long>(report.kills),
                report.seconds, report.failure.c_str());
    return !report.ok();
  };
  const char* const mutant = row.planted_bug("integer");
  bool ok = noticed("lossy", mutant, {.mutant = mutant});
  for (const char* mode : {"plain", "lossless"}) {
    ok = ok && noticed(mode, "acknowledged early", {.early_ack = true});
  }
  for (const char* mode : {"lossy", "plain", "lossless"}) {
    if (!keeps_versions(row.engine)) continue;
    ok = ok && noticed(mode, "tags acknowledged early", {.loose_versions = true, .threads = 1});
  }
  TortureOptions counters = options;
  counters.mode = "plain";
  counters.keys = "integer";
  counters.threads = kTortureThreads;
  counters.cycles = kCanaryKills;
  const auto torn = [&](Torn what, const char* name) {
    const CountersReport report = run_counters(counters, target_of(counters), what);
    std::printf("canary plain, torn %s: %s after %llu kills, %.2f s: %s\n", name,
                report.ok() ? "NOT SEEN" : "red", static_cast<unsigned long long>(report.kills),
                report.seconds, report.failure.c_str());
    return !report.ok();
  };
  const bool additions = torn(Torn::additions, "additions");
  return torn(Torn::transfers, "transfers") && additions && ok;
}

bool run_one(const TortureOptions& options, TortureTotals& totals) {
  const TortureReport report = run_torture(options, target_of(options));
  totals.add(options, report);
  std::printf("%s\n", report.summary(options).c_str());
  if (!report.ok()) std::printf("LOST: %s\n", report.failure.c_str());
  std::fflush(stdout);
  return report.ok();
}

bool run_matrix(const TortureOptions& options, const std::string& memory, const std::string& disk,
                Preset preset, TortureTotals& totals) {
  bool ok = true;
  std::uint64_t number = 0;
  for (const Life& life : kLives) {
    for (const char* keys : {"integer", "bytes"}) {
      for (const std::uint32_t threads : {1U, 8U}) {
        TortureOptions one = options;
        one.mode = life.mode;
        one.keys = keys;
        one.path = life.disk ? disk : memory;
        one.durability = life.durability;
        one.cycles = life.cycles[preset == Preset::nightly ? 1 : 0];
        one.seed = options.seed * 1000 + number++;
        one.threads = threads;
        ok = run_one(one, totals) && ok;
      }
    }
  }
  return run_counters_in_all_modes(options, memory, preset, totals) && ok;
}

}  // namespace perdure::testing
