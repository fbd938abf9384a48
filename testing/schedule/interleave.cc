// perdure-interleave: runs an engine's races under the scheduler: two threads under every schedule
// with two preemptions, three under random priorities (PCT), with crash points inside. It runs
// planted races first. Exit status 1 if a schedule has a violation or a planted race was not
// noticed, 2 for wrong arguments.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <thread>

#include "testing/engines/engine_list.h"
#include "testing/sim/sites.h"

namespace {

using namespace perdure::testing;

constexpr const char* kUsage =
    "perdure-interleave [--engine E] [--preset figures|nightly] [--only PART] [--jobs N]\n"
    "                   [--seed S] [--list]\n"
    "figures: 25,000 PCT schedules of each scenario with three threads; nightly: 50,000. Both run\n"
    "all schedules with two preemptions of each scenario with two threads. --only: scenarios\n"
    "whose name contains PART. PERDURE_REPLAY in the environment runs the schedule it names.\n";
constexpr std::uint32_t kPctDepth = 3;

[[noreturn]] void usage(const std::string& what) {
  std::fprintf(stderr, "%s\n%s", what.c_str(), kUsage);
  std::exit(2);
}

struct Arguments {
  std::string engine = "phast";
  std::string only;
  std::uint32_t pct = 25'000;
  std::uint64_t seed = 1;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  bool list = false;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help") {
      std::printf("%s", kUsage);
      std::exit(0);
    }
    if (flag == "--list") {
      arguments.list = true;
      continue;
    }
    if (i + 1 == argc) usage("no value for " + flag);
    const std::string value = argv[++i];
    if (flag == "--engine") {
      arguments.engine = value;
    } else if (flag == "--preset" && (value == "figures" || value == "nightly")) {
      arguments.pct = value == "nightly" ? 50'000 : 25'000;
    } else if (flag == "--only") {
      arguments.only = value;
    } else if (flag == "--jobs") {
      arguments.jobs = static_cast<unsigned>(std::clamp(std::atoi(value.c_str()), 1, 64));
    } else if (flag == "--seed") {
      arguments.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else {
      usage("unknown option " + flag + " " + value);
    }
  }
  if (find_engine_under_test(arguments.engine) == nullptr) usage("no engine " + arguments.engine);
  return arguments;
}

// The results of a scenario's process, in memory that outlives it.
struct Result {
  bool ended;
  std::uint64_t schedules, points, truncated, images, verdicts, violations;
  char text[2000];
};

void run(const Race& race, const Arguments& arguments, Result& result) {
  InterleaveOptions options = options_of(race, arguments.engine);
  options.seed = arguments.seed;
  Interleaver interleaver(race.subjects, options);
  const InterleaveReport report =
      race.exhaustive() ? interleaver.exhaustive(2) : interleaver.pct(arguments.pct, kPctDepth);
  result.schedules = report.schedules;
  result.points = report.points;
  result.truncated = report.truncated;
  result.images = report.images;
  result.verdicts = report.verdicts;
  result.violations = report.violations;
  std::string text = report.summary();
  if (!report.ok()) text += "\n" + report.failures.front();
  std::snprintf(result.text, sizeof(result.text), "%s", text.c_str());
  result.ended = true;
}

// Runs each scenario in its own process, because a schedule may end it and a process has one
// scheduler.
void run_all(const RaceList& races, const Arguments& arguments, Result* results) {
  std::map<pid_t, std::size_t> running;
  for (std::size_t next = 0; next < races.size() || !running.empty();) {
    if (next < races.size() && running.size() < arguments.jobs) {
      std::fflush(nullptr);
      const pid_t pid = fork();
      if (pid < 0) std::abort();
      if (pid == 0) {
        run(races[next], arguments, results[next]);
        _exit(0);
      }
      running[pid] = next++;
      continue;
    }
    int status = 0;
    const pid_t pid = wait(&status);
    if (pid < 0 && errno == EINTR) continue;
    Result& result = results[running.at(pid)];
    if (!result.ended) {
      result.violations = 1;
      std::snprintf(result.text, sizeof(result.text), "%s: its process died with status %d",
                    races[running.at(pid)].name.c_str(), status);
    }
    std::printf("%s\n", result.text);
    running.erase(pid);
  }
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
  const EngineUnderTest& row = *find_engine_under_test(arguments.engine);
  const std::string mutant = row.race_mutant;
  if (!set_mutant(mutant)) usage("no such site: " + mutant);
  canary(mutant.c_str());
  canary(mutant.c_str(), true);
  find_site(mutant.substr(0, mutant.rfind(':')))->mutant = Mutant::none;
  if (row.byte_latches) {
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

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  RaceList races = find_engine_under_test(arguments.engine)->races();
  if (arguments.list) {
    for (const Race& race : races) {
      std::printf("%s\t%zu threads\n", race.name.c_str(), race.threads.size());
    }
    return 0;
  }
  if (std::getenv("PERDURE_REPLAY") == nullptr && !run_canaries(races, arguments)) {
    std::printf("a planted race was not noticed: the other runs would prove nothing\n");
    return 1;
  }
  std::erase_if(
      races, [&](const Race& race) { return race.name.find(arguments.only) == std::string::npos; });
  if (races.empty()) usage("no scenario has this in its name: " + arguments.only);
  void* memory = mmap(nullptr, races.size() * sizeof(Result), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  auto* results = static_cast<Result*>(memory);
  run_all(races, arguments, results);
  return print_totals(races, results, arguments.engine) ? 0 : 1;
}
