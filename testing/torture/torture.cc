// perdure-torture: kills real processes and counts what they lost. Runs planted bugs first. Exit
// status 1 if an acknowledged operation was lost or a planted bug was not noticed, 2 for wrong
// arguments.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "testing/engines/engine_list.h"
#include "testing/mutants/mutants.h"
#include "testing/torture/torture_presets.h"

namespace {

using namespace perdure::testing;

constexpr const char* kUsage =
    "perdure-torture [--engine E] --preset figures|nightly [--dir DIR] [--disk DIR] [--seed S]\n"
    "  runs every mode, kind of keys and durability with 1 and 8 threads, in memory (--dir, "
    "default\n"
    "  /dev/shm) and on a disk (--disk, default the folder of this program)\n"
    "perdure-torture [--engine E] [--mode plain|lossless|lossy] [--keys bytes|integer]\n"
    "                [--durability process|emulated|power|buffered] [--threads 1..8] [--cycles N]\n"
    "                [--dir DIR] [--seed S] [--mutant SITE:op] [--early-ack] [--loose-versions]\n"
    "                [--work-us N] [--create-every N] [--verbose]\n"
    "  runs one pool's life, with at most one planted bug: --mutant; --early-ack acknowledges\n"
    "  operations before they are done; --loose-versions does so with tags\n"
    "perdure-torture --list-sites\n"
    "plain uses the public API; lossless and lossy use pool, heap and engine directly, and also\n"
    "kill at persist sites. A mutant needs --mode lossy; ops: drop_flush drop_fence\n"
    "first_line_only all_but_last drop_sync\n";

[[noreturn]] void usage(const std::string& what) {
  std::fprintf(stderr, "%s\n%s", what.c_str(), kUsage);
  std::exit(2);
}

std::uint64_t number(const std::string& text, std::uint64_t min, std::uint64_t max) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < min || value > max) {
    usage(std::string("not a number from ") + std::to_string(min) + " to " + std::to_string(max) +
          ": " + text);
  }
  return value;
}

perdure::Durability durability(const std::string& name) {
  using enum perdure::Durability;
  for (const auto value : {process, emulated, power, buffered}) {
    if (perdure::durability_name(value) == name) return value;
  }
  usage("unknown durability " + name);
}

int list_sites() {
  for (const SiteInfo* site : all_sites()) {
    for (const Mutant mutant : mutants_of(*site)) {
      std::printf("%s:%s\n", site->name, mutant_name(mutant));
    }
  }
  return 0;
}

struct Arguments {
  TortureOptions options;
  std::string preset;
  std::string disk = std::filesystem::read_symlink("/proc/self/exe").parent_path();
};

void take(Arguments& arguments, const std::string& flag, const std::string& value) {
  TortureOptions& options = arguments.options;
  if (flag == "--engine") {
    options.engine = value;
  } else if (flag == "--preset") {
    arguments.preset = value;
  } else if (flag == "--disk") {
    arguments.disk = value;
  } else if (flag == "--cycles") {
    options.cycles = number(value, 1, 1'000'000'000);
  } else if (flag == "--mode") {
    options.mode = value;
  } else if (flag == "--keys") {
    options.keys = value;
  } else if (flag == "--durability") {
    options.durability = durability(value);
  } else if (flag == "--threads") {
    options.threads = static_cast<std::uint32_t>(number(value, 1, 8));
  } else if (flag == "--dir") {
    options.path = value;
  } else if (flag == "--seed") {
    options.seed = number(value, 0, 1'000'000'000);
  } else if (flag == "--mutant") {
    options.mutant = value;
  } else if (flag == "--work-us") {
    options.max_work_us = static_cast<std::uint32_t>(number(value, 1, 10'000'000));
  } else if (flag == "--create-every") {
    options.create_every = static_cast<std::uint32_t>(number(value, 1, 1'000'000'000));
  } else {
    usage("unknown option " + flag);
  }
}

void validate(const Arguments& arguments) {
  const TortureOptions& options = arguments.options;
  const std::string& preset = arguments.preset;
  if (find_engine_under_test(options.engine) == nullptr) usage("no engine " + options.engine);
  if (!preset.empty() && preset != "figures" && preset != "nightly") {
    usage("unknown preset " + preset);
  }
  if (options.mode != "plain" && options.mode != "lossy" && options.mode != "lossless") {
    usage("unknown mode " + options.mode);
  }
  if (options.loose_versions && !keeps_versions(find_engine_under_test(options.engine)->engine)) {
    usage("--loose-versions needs an engine that keeps versions, not " + options.engine);
  }
  if (options.keys != "bytes" && options.keys != "integer") usage("unknown keys " + options.keys);
  if (options.mode == "lossy" && options.durability == perdure::Durability::process) {
    usage("--durability process promises nothing that the lossy mode could test");
  }
  if (options.mode != "plain" && options.durability == perdure::Durability::buffered) {
    usage("--durability buffered is for --mode plain");
  }
  if (!options.mutant.empty() && (options.mode != "lossy" || !set_mutant(options.mutant))) {
    usage("no such mutant in this mode: " + options.mutant);
  }
  for (const std::string& folder : {options.path, arguments.disk}) {
    if (access(folder.c_str(), W_OK) != 0) usage("no folder to write to: " + folder);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  TortureOptions& options = arguments.options;
  options.path = "/dev/shm";
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help") {
      std::printf("%s", kUsage);
      return 0;
    }
    if (flag == "--list-sites") return list_sites();
    if (flag == "--verbose") {
      options.verbose = true;
    } else if (flag == "--early-ack") {
      options.early_ack = true;
    } else if (flag == "--loose-versions") {
      options.loose_versions = true;
    } else if (i + 1 == argc) {
      usage("no value for " + flag);
    } else {
      take(arguments, flag, argv[++i]);
    }
  }
  validate(arguments);
  TortureTotals totals;
  const bool planted = !options.mutant.empty() || options.early_ack || options.loose_versions;
  if (!planted && !run_canaries(options, totals)) {
    std::printf("a planted bug was not noticed: the other runs would prove nothing\n");
    return 1;
  }
  const bool ok =
      arguments.preset.empty()
          ? run_one(options, totals)
          : run_matrix(options, options.path, arguments.disk,
                       arguments.preset == "nightly" ? Preset::nightly : Preset::figures, totals);
  std::printf("%s", totals.lines(options.engine).c_str());
  return ok ? 0 : 1;
}
