// perdure-guard lin: testing/lin/porcupine checks whether the histories are linearizable. Exit
// status 1 only if a run itself failed.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "testing/engines/engine_list.h"
#include "testing/guard/guard.h"
#include "testing/lin/lin_runner.h"

namespace perdure::testing {
namespace {

// The mistakes that --canary plants in the recording.
struct NamedCanary {
  const char* name;
  Canary canary;
  bool of_versions;
  bool by_recorder = false;  // the recorder notices it, not the checker
};
constexpr NamedCanary kCanaries[] = {
    {"stale_read", Canary::stale_read, false},     {"lost_update", Canary::lost_update, false},
    {"lost_erase", Canary::lost_erase, false},     {"late_read", Canary::late_read, true},
    {"early_tag", Canary::early_tag, true},        {"lost_trim", Canary::lost_trim, true, true},
    {"early_trim", Canary::early_trim, true, true}};

struct Options : Arguments {
  std::uint64_t histories = 0;
  std::uint64_t crashes = 0;
  std::uint64_t ops = 100'000;
  std::string out = ".";
  std::string pool = "/dev/shm";
  Canary canary = Canary::none;
  bool canaries = false;
  bool planted = false;

  bool versioned() const { return keeps_versions(row().engine); }
};

// Returns whether the run itself succeeded.
bool save(const std::string& name, const std::string& what, const std::vector<HistoryOp>& ops,
          const std::string& failure) {
  if (!failure.empty()) std::printf("%s: %s: %s\n", name.c_str(), what.c_str(), failure.c_str());
  const Status s = write_history(name, ops);
  if (!s.ok()) std::printf("%s\n", std::string(s.message()).c_str());
  return failure.empty() && s.ok();
}

// Totals of the histories of one kind.
struct Totals {
  std::uint64_t ops = 0;
  std::uint64_t tags = 0;
  std::uint64_t version_reads = 0;
  std::uint64_t failures = 0;

  void add(const std::vector<HistoryOp>& history, bool ok) {
    ops += history.size();
    tags += count_of(history, HistoryKind::tag);
    version_reads += count_of(history, HistoryKind::find_at);
    failures += ok ? 0 : 1;
  }
  // `more`: figures of this kind of history only.
  void print(const char* kind, std::uint64_t count, bool versioned, const std::string& more) const {
    std::printf(
        "%s=%llu operations=%llu versioned=%d tags=%llu version_reads=%llu %s "
        "failures=%llu\n",
        kind, static_cast<unsigned long long>(count), static_cast<unsigned long long>(ops),
        versioned ? 1 : 0, static_cast<unsigned long long>(tags),
        static_cast<unsigned long long>(version_reads), more.c_str(),
        static_cast<unsigned long long>(failures));
  }
};

std::uint64_t record_concurrent(const Options& arguments) {
  const std::string pool = arguments.pool + "/lin-" + std::to_string(getpid()) + ".perdure";
  Totals totals;
  std::uint64_t grown = 0;
  std::uint64_t shrunk = 0;
  std::uint64_t trims = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t i = 0; i < arguments.histories; ++i) {
    LinOptions options = lin_options(arguments.seed + i);
    options.ops = arguments.ops;
    options.canary = arguments.canary;
    options.engine = arguments.row().engine;
    options.ordered = arguments.row().ordered;
    options.versioned = arguments.versioned();
    LinRun run = run_concurrent(options, pool);
    // A hash table may keep its size when keys are erased. A list of nodes has no size. A map that
    // keeps versions does not show changes either.
    const bool shows = run.divided && !options.versioned;
    const bool changed = !shows || (run.grown != 0 && (run.shrunk != 0 || !options.ordered));
    if (options.ranges && !changed && run.failure.empty()) {
      run.failure = "the map did not split and shrink, although keys come and go in waves";
    }
    grown += run.grown;
    shrunk += run.shrunk;
    trims += run.trims;
    refused += run.refused;
    const std::string name = arguments.out + "/run-" + std::to_string(options.seed) + ".lin";
    totals.add(run.ops, save(name, options.describe(), run.ops, run.failure));
  }
  totals.print("concurrent", arguments.histories, arguments.versioned(),
               "grown=" + std::to_string(grown) + " shrunk=" + std::to_string(shrunk) + " trims=" +
                   std::to_string(trims) + " reads_of_trimmed=" + std::to_string(refused));
  return totals.failures;
}

std::uint64_t record_crashes(const Options& arguments) {
  const TortureOpen plain = plain_target();
  const TortureOpen lossy = lossy_target();
  Totals totals;
  std::uint64_t kills = 0;
  std::uint64_t in_flight = 0;
  for (std::uint64_t i = 0; i < arguments.crashes; ++i) {
    const std::uint64_t seed = arguments.seed + i;
    const bool is_lossy = (seed & 1) != 0 || !arguments.mutant.empty();
    LinCrashOptions options{.torture = {.engine = arguments.engine,
                                        .mode = is_lossy ? "lossy" : "plain",
                                        .keys = (seed & 2) != 0 ? "bytes" : "integer",
                                        .path = arguments.pool,
                                        .mutant = arguments.mutant,
                                        .seed = seed,
                                        .threads = 2 + static_cast<std::uint32_t>(seed / 4 % 7),
                                        .max_work_us = is_lossy ? 1'500U : 400U,
                                        .stall_one_in = (seed & 4) != 0 ? 8U : 0U},
                            .keys = 4 + static_cast<std::uint32_t>(seed % 3) * 14,
                            .kills = 1 + static_cast<std::uint32_t>(seed / 3 % 3),
                            .canary = arguments.canary};
    const LinCrashRun run = run_crashed(options, is_lossy ? lossy : plain);
    kills += run.kills;
    in_flight += run.in_flight;
    const std::string name = arguments.out + "/crash-" + std::to_string(seed) + ".lin";
    // The pool itself may notice a mutant, too. The checker then judges the operations until then.
    totals.add(run.ops, save(name, options.torture.mode, run.ops, run.failure));
  }
  totals.print("crashed", arguments.crashes, arguments.versioned(),
               "kills=" + std::to_string(kills) + " in_flight=" + std::to_string(in_flight));
  return totals.failures;
}

void print_planted(const Options& arguments) {
  for (const NamedCanary& one : kCanaries) {
    if (one.by_recorder || (one.of_versions && !arguments.versioned())) continue;
    if (arguments.canaries) std::printf("%s\n", one.name);
    if (arguments.planted && one.of_versions) std::printf("--canary %s\n", one.name);
  }
  if (!arguments.planted) return;
  for (const char* keys : {"integer", "bytes"}) {
    std::printf("--mutant %s\n", arguments.row().planted_bug(keys));
  }
  if (arguments.row().version_mutant != nullptr) {
    std::printf("--mutant %s\n", arguments.row().version_mutant);
  }
}

int lin(const Options& arguments) {
  if (arguments.canaries || arguments.planted) {
    print_planted(arguments);
    return 0;
  }
  if (arguments.histories + arguments.crashes == 0) wrong("nothing to do");
  std::uint64_t failures = 0;
  if (arguments.histories != 0) failures += record_concurrent(arguments);
  if (arguments.crashes != 0) failures += record_crashes(arguments);
  return failures == 0 ? 0 : 1;
}

Option canary_option(Canary& out) {
  return {"--canary", "NAME", "plants this mistake in the recording",
          [&out](const std::string& name) {
            const auto* found = std::ranges::find(kCanaries, name, &NamedCanary::name);
            if (found == std::end(kCanaries)) wrong("no canary " + name);
            out = found->canary;
          }};
}

}  // namespace

Command lin_command() {
  static Options arguments;
  return {
      .name = "lin",
      .summary = "records histories of concurrent and of killed runs, for scripts/lin.sh to judge",
      .details =
          "Prints the number of recorded operations. History number i has seed S+i, which decides\n"
          "threads, keys, types and durability. Crash histories alternate between the plain and\n"
          "the lossy target; a mutant makes them all lossy.\n",
      .options = {engine_option(arguments.engine),
                  number("--histories", arguments.histories, "histories of concurrent runs"),
                  number("--crashes", arguments.crashes, "histories of killed runs"),
                  number("--ops", arguments.ops, "operations of a concurrent run; default: 100000"),
                  number("--seed", arguments.seed, "S; default: 1"),
                  text("--out", "DIR", arguments.out, "folder of the histories; default: this one"),
                  text("--pool", "DIR", arguments.pool, "folder of the pools; default: /dev/shm"),
                  canary_option(arguments.canary),
                  mutant_option(arguments.mutant,
                                "breaks this write-back or fence in the crash histories"),
                  flag("--canaries", arguments.canaries,
                       "lists the mistakes that the engine's concurrent histories must show"),
                  flag("--planted", arguments.planted,
                       "lists the options, a line each, that some crash histories must show")},
      .run = [] { return lin(arguments); },
      // Of those that the recorder notices itself. scripts/lin.sh plants the others.
      .canaries = {"--engine pskiplist --histories 4 --ops 20000 --canary lost_trim",
                   "--engine pskiplist --histories 4 --ops 20000 --canary early_trim"},
      .smoke = "--engine pskiplist --histories 2 --ops 5000 --crashes 4"};
}

}  // namespace perdure::testing
