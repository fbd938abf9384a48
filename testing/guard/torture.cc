// perdure-guard torture: each life of a pool has a line, and the totals are name=value lines.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "testing/engines/engine_list.h"
#include "testing/guard/guard.h"
#include "testing/mutants/mutants.h"
#include "testing/torture/torture_presets.h"

namespace perdure::testing {
namespace {

constexpr const char* kDetails =
    "With --preset it runs every mode, kind of keys and durability with 1 and 8 threads, in\n"
    "memory and on a disk. Without, it runs one pool's life, with at most one planted fault.\n"
    "Planted faults come first, unless the options plant one. Mode plain uses the public API;\n"
    "lossless and lossy use pool, heap and engine directly, and also kill at persist sites.\n";

struct TortureArguments {
  TortureOptions options;
  std::string durability;
  std::string preset;
  std::string disk = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  bool list = false;
};

Durability durability_of(const std::string& name) {
  for (const auto value : {Durability::process, Durability::emulated, Durability::power}) {
    if (durability_name(value) == name) return value;
  }
  return Durability::buffered;
}

void validate(const TortureArguments& arguments) {
  const TortureOptions& options = arguments.options;
  if (options.loose_versions && !keeps_versions(find_engine_under_test(options.engine)->engine)) {
    wrong("--loose-versions needs an engine that keeps versions, not " + options.engine);
  }
  if (options.mode == "lossy" && options.durability == Durability::process) {
    wrong("--durability process promises nothing that the lossy mode could test");
  }
  if (options.mode != "plain" && options.durability == Durability::buffered) {
    wrong("--durability buffered is for --mode plain");
  }
  if (!options.mutant.empty() && options.mode != "lossy") wrong("--mutant is for --mode lossy");
  for (const std::string& folder : {options.path, arguments.disk}) {
    if (access(folder.c_str(), W_OK) != 0) wrong("no folder to write to: " + folder);
  }
}

int torture(TortureArguments& arguments) {
  TortureOptions& options = arguments.options;
  if (arguments.list) {
    for (const SiteInfo* site : all_sites()) {
      for (const Mutant mutant : mutants_of(*site)) {
        std::printf("%s:%s\n", site->name, mutant_name(mutant));
      }
    }
    return 0;
  }
  if (!arguments.durability.empty()) options.durability = durability_of(arguments.durability);
  validate(arguments);
  TortureTotals totals;
  const bool planted = !options.mutant.empty() || options.early_ack || options.loose_versions;
  if (!planted && !run_canaries(options, totals)) {
    std::printf("a planted bug was not noticed: the other runs would prove nothing\n");
    return 1;
  }
  const std::string& preset = arguments.preset;
  const bool ok = preset.empty() ? run_one(options, totals)
                                 : run_matrix(options, options.path, arguments.disk,
                                              *parse_preset(preset), totals);
  std::printf("%s", totals.lines(options.engine).c_str());
  return ok ? 0 : 1;
}

}  // namespace

Command torture_command() {
  static TortureArguments arguments;
  TortureOptions& options = arguments.options;
  options.path = "/dev/shm";
  return {
      .name = "torture",
      .summary = "kills real processes, and counts what they lost",
      .details = kDetails,
      .options =
          {engine_option(options.engine),
           choice("--preset", "figures|nightly", arguments.preset, "the length of all lives"),
           text("--dir", "DIR", options.path, "folder of pools in memory; default: /dev/shm"),
           text("--disk", "DIR", arguments.disk, "on a disk; default: the folder of this program"),
           number("--seed", options.seed, "of the workload and of the plan; default: 1"),
           choice("--mode", "plain|lossless|lossy", options.mode, "default: lossy"),
           choice("--keys", "bytes|integer", options.keys, "default: bytes"),
           choice("--durability", "process|emulated|power|buffered", arguments.durability,
                  "default: process in mode plain, or power"),
           number("--threads", options.threads, "default: 2", 1, 8),
           number("--cycles", options.cycles, "kills of this life; default: 100", 1),
           number("--work-us", options.max_work_us, "most microseconds before a kill", 1),
           number("--create-every", options.create_every, "cycles until a pool is made anew", 1),
           mutant_option(options.mutant, "breaks this write-back, fence or sync; in mode lossy"),
           flag("--early-ack", options.early_ack, "acknowledges operations before they are done"),
           flag("--loose-versions", options.loose_versions, "does so with tags"),
           flag("--verbose", options.verbose, "prints every cycle"),
           flag("--list", arguments.list, "lists the mutants")},
      .run = [] { return torture(arguments); },
      .canaries = {"--mode plain --early-ack", "--mode plain --early-ack --durability buffered",
                   "--engine pskiplist --mode plain --loose-versions",
                   "--keys integer --mutant phast.insert.entry:drop_flush"},
      .smoke = "--cycles 15"};
}

}  // namespace perdure::testing
