// perdure-guard interleave: each scenario has a line, and the totals are name=value lines.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "testing/crash/children.h"
#include "testing/guard/guard.h"
#include "testing/sim/sites.h"

namespace perdure::testing {
namespace {

constexpr std::uint32_t kPctDepth = 3;

// The results of a scenario's process, in memory that outlives it.
struct Result {
  bool ended;
  std::uint64_t schedules, points, truncated, images, violations;
  char text[2000];
};

void run(const Race& race, const Arguments& arguments, Result& result) {
  InterleaveOptions options = options_of(race, arguments.engine);
  options.seed = arguments.seed;
  Interleaver interleaver(race.subjects, options);
  const std::uint32_t schedules = arguments.preset == "nightly" ? 50'000 : 25'000;
  const InterleaveReport report =
      race.exhaustive() ? interleaver.exhaustive(2) : interleaver.pct(schedules, kPctDepth);
  result.schedules = report.schedules;
  result.points = report.points;
  result.truncated = report.truncated;
  result.images = report.images;
  result.violations = report.violations;
  std::string text = report.summary();
  if (!report.ok()) text += "\n" + report.failures.front();
  std::snprintf(result.text, sizeof(result.text), "%s", text.c_str());
  result.ended = true;
}

// Runs each scenario in its own process, because a schedule may end it and a process has one
// scheduler.
void run_all(const RaceList& races, const Arguments& arguments, Result* results) {
  const auto body = [&](std::size_t i) {
    run(races[i], arguments, results[i]);
    return true;
  };
  in_children(races.size(), arguments.jobs, body, [&](std::size_t i, bool) {
    Result& result = results[i];
    if (!result.ended) {
      result.violations = 1;
      std::snprintf(result.text, sizeof(result.text), "%s: its process died",
                    races[i].name.c_str());
    }
    std::printf("%s\n", result.text);
  });
}

// Returns the name of the first scenario with a violation, or "". Runs those of two threads with
// one preemption, or those of three under random schedules, which use another strategy.
std::string first_red(const RaceList& races, const Arguments& arguments, bool random) {
  constexpr std::uint64_t kSchedules = 500;
  for (const Race& race : races) {
    if (race.exhaustive() == random) continue;
    InterleaveOptions options = options_of(race, arguments.engine);
    options.quiet = true;
    options.seed = arguments.seed;
    Interleaver interleaver(race.subjects, options);
    const InterleaveReport report =
        random ? interleaver.pct(kSchedules, kPctDepth) : interleaver.exhaustive(1);
    if (!report.ok()) return race.name;
  }
  return "";
}

// Plants a missing fence that only another thread can notice, and latches that cannot be taken.
bool run_canaries(const RaceList& races, const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  bool seen = true;
  const auto canary = [&](const char* what, bool random = false) {
    const std::string red = first_red(races, arguments, random);
    std::printf("canary %s%s: %s %s\n", what, random ? " under random schedules" : "",
                red.empty() ? "NOT SEEN" : "red in", red.c_str());
    seen = seen && !red.empty();
  };
  const std::string mutant = arguments.row().race_mutant;
  if (!set_mutant(mutant)) wrong("no such site: " + mutant);
  canary(mutant.c_str());
  canary(mutant.c_str(), true);
  find_site(mutant.substr(0, mutant.rfind(':')))->mutant = Mutant::none;
  if (arguments.row().byte_latches) {
    SimPlatform::latches_stuck = true;
    canary("latches that cannot be set");
    SimPlatform::latches_stuck = false;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%s.interleave_canary_seconds=%.1f\n", arguments.engine.c_str(), seconds.count());
  return seen;
}

// Returns true if there was no violation.
bool print_totals(const RaceList& races, const Result* results, const std::string& engine) {
  std::uint64_t exhaustive = 0, pct = 0, fewest = ~0ULL, schedules = 0, points = 0, images = 0;
  std::uint64_t violations = 0, truncated = 0;
  for (std::size_t i = 0; i < races.size(); ++i) {
    ++(races[i].exhaustive() ? exhaustive : pct);
    if (!races[i].exhaustive()) fewest = std::min(fewest, results[i].schedules);
    schedules += results[i].schedules;
    points += results[i].points;
    images += results[i].images;
    violations += results[i].violations;
    truncated += results[i].truncated;
  }
  const auto line = [&](const char* name, std::uint64_t value) {
    std::printf("%s.%s=%llu\n", engine.c_str(), name, static_cast<unsigned long long>(value));
  };
  line("schedules", schedules);
  line("exhaustive_scenarios", exhaustive);
  line("pct_scenarios", pct);
  line("pct_schedules_min", pct == 0 ? 0 : fewest);
  line("schedule_crash_points", points);
  line("schedule_images", images);
  line("schedule_truncated_epochs", truncated);
  line("schedule_violations", violations);
  return violations == 0;
}

int interleave(const Arguments& arguments) {
  RaceList races = arguments.row().races();
  if (arguments.list) {
    for (const Race& race : races) {
      std::printf("%s\t%zu threads\n", race.name.c_str(), race.threads.size());
    }
    return 0;
  }
  const bool planted = !arguments.mutant.empty();
  if (std::getenv("PERDURE_REPLAY") == nullptr && !planted && !run_canaries(races, arguments)) {
    std::printf("a planted race was not noticed: the other runs would prove nothing\n");
    return 1;
  }
  std::erase_if(
      races, [&](const Race& race) { return race.name.find(arguments.only) == std::string::npos; });
  if (races.empty()) wrong("no scenario has this in its name: " + arguments.only);
  auto* results = shared_array<Result>(races.size());
  run_all(races, arguments, results);
  return print_totals(races, results, arguments.engine) ? 0 : 1;
}

}  // namespace

Command interleave_command() {
  static Arguments arguments;
  return {
      .name = "interleave",
      .summary = "runs an engine's races under a scheduler, with crash points inside",
      .details =
          "Two threads run under every schedule with two preemptions, three under random\n"
          "priorities (PCT). Planted races come first. PERDURE_REPLAY in the environment runs the\n"
          "schedule that it names.\n",
      .options =
          {engine_option(arguments.engine),
           choice("--preset", "figures|nightly", arguments.preset,
                  "figures (default): 25,000 PCT schedules of each scenario with three threads;\n"
                  "nightly: 50,000"),
           text("--only", "TEXT", arguments.only, "scenarios whose name contains TEXT"),
           jobs_option(arguments.jobs),
           number("--seed", arguments.seed, "of the random priorities; default: 1"),
           mutant_option(arguments.mutant, "breaks this write-back or fence; the run must fail"),
           flag("--list", arguments.list, "lists the scenarios")},
      .run = [] { return interleave(arguments); },
      .canaries = {"--only UpsertAndFindThere --mutant phast.help.entry:drop_fence"},
      .smoke = "--only UpsertAndFindThere"};
}

}  // namespace perdure::testing
