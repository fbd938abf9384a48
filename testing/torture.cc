// perdure-torture: kills real processes and counts what they lost. Prints one line; exit status 1
// if an acknowledged operation was lost, 2 for a mistake in the arguments.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "testing/sites.h"
#include "testing/torture_runner.h"

namespace {

constexpr const char* kUsage =
    "perdure-torture [--cycles N] [--mode plain|lossy] [--keys bytes|integer] [--threads 1..8]\n"
    "                [--path DIR] [--seed S] [--mutant SITE:op] [--work-us N] [--create-every N]\n"
    "                [--verbose] [--list-sites]\n"
    "A mutant needs --mode lossy; ops: drop_flush drop_fence first_line_only all_but_last "
    "drop_sync\n";

[[noreturn]] void usage(const std::string& what) {
  std::fprintf(stderr, "%s\n%s", what.c_str(), kUsage);
  std::exit(2);
}

std::uint64_t number(const char* text, std::uint64_t min, std::uint64_t max) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < min || value > max) {
    usage(std::string("not a number from ") + std::to_string(min) + " to " + std::to_string(max) +
          ": " + text);
  }
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace perdure::testing;
  TortureOptions options;
  options.path = "/dev/shm";
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help") {
      std::printf("%s", kUsage);
      return 0;
    }
    if (flag == "--verbose") {
      options.verbose = true;
      continue;
    }
    if (flag == "--list-sites") {
      for (const SiteInfo* site : all_sites()) {
        for (const Mutant mutant : mutants_of(*site)) {
          std::printf("%s:%s\n", site->name, mutant_name(mutant));
        }
      }
      return 0;
    }
    if (i + 1 == argc) usage("no value for " + flag);
    const char* value = argv[++i];
    if (flag == "--cycles") {
      options.cycles = number(value, 1, 1'000'000'000);
    } else if (flag == "--mode") {
      options.mode = value;
    } else if (flag == "--keys") {
      options.keys = value;
    } else if (flag == "--threads") {
      options.threads = static_cast<std::uint32_t>(number(value, 1, 8));
    } else if (flag == "--path") {
      options.path = value;
    } else if (flag == "--seed") {
      options.seed = number(value, 0, ~0ULL);
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
  if (options.mode != "plain" && options.mode != "lossy") usage("unknown mode " + options.mode);
  if (options.keys != "bytes" && options.keys != "integer") usage("unknown keys " + options.keys);
  if (!options.mutant.empty() && (options.mode != "lossy" || !set_mutant(options.mutant))) {
    usage("no such mutant in this mode: " + options.mutant);
  }
  const TortureReport report =
      run_torture(options, options.mode == "plain" ? plain_target() : lossy_target());
  std::printf("%s\n", report.summary(options).c_str());
  if (report.ok()) return 0;
  std::printf("%s\n", report.failure.c_str());
  return 1;
}
