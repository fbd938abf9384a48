// perdure-mutants: breaks every site of pool, heap and an engine in every way that applies, and
// says which of that the tests notice. Prints a line per mutant, a table by operator, and
// ENGINE.name=value lines. Exit status 1: one survives without an argument, an argument is wrong, a
// bug of others is not seen, or a planted bug is not.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "testing/mutants.h"

namespace {

using namespace perdure::testing;

constexpr const char* kUsage =
    "perdure-mutants [--engine E] [--seeds N] [--jobs N] [--only TEXT] [--list]\n"
    "  --engine E   phast by default\n"
    "  --seeds N    explorations with this many seeds each, 2 by default\n"
    "  --jobs N     child processes, one per core by default\n"
    "  --only TEXT  mutants whose SITE:op contains it\n"
    "  --list       only says which mutants apply\n"
    "PERDURE_VERBOSE=1 shows what a mutant says on its way down.\n";

struct Arguments {
  std::string engine = "phast";
  std::string only;
  std::uint32_t seeds = 2;
  unsigned jobs = std::max(std::thread::hardware_concurrency(), 1U);
  bool list = false;
};

[[noreturn]] void usage(const std::string& what) {
  std::fprintf(stderr, "%s\n%s", what.c_str(), kUsage);
  std::exit(2);
}

std::uint32_t number(const std::string& text) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value == 0) usage("not a number: " + text);
  return static_cast<std::uint32_t>(value);
}

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
    } else if (flag == "--only") {
      arguments.only = value;
    } else if (flag == "--seeds") {
      arguments.seeds = number(value);
    } else if (flag == "--jobs") {
      arguments.jobs = number(value);
    } else {
      usage("unknown option " + flag);
    }
  }
  return arguments;
}

const Argument* argument_for(const std::string& mutant) {
  for (const Argument& argument : arguments()) {
    if (mutant == argument.mutant) return &argument;
  }
  return nullptr;
}

void print(const MutantResult& result) {
  std::printf("%-52s %-9s %7.2f s %s\n", result.name.c_str(), result.killed ? "killed" : "survived",
              result.seconds, result.by.c_str());
  std::fflush(stdout);
}

struct Tally {
  int total = 0, killed = 0, argued = 0;
  double seconds = 0, slowest = 0;  // to kill
};

class Report {
 public:
  explicit Report(const Arguments& arguments) : arguments_(arguments) {}

  void fail(const std::string& what) {
    std::printf("WRONG: %s\n", what.c_str());
    failed_ = true;
  }
  int status() const { return failed_ ? 1 : 0; }
  void figure(const char* name, double value) const {
    std::printf("%s.%s=%.*f\n", arguments_.engine.c_str(), name,
                value == static_cast<double>(static_cast<long long>(value)) ? 0 : 1, value);
  }

  // A write-back that another one hides must be reported as a survivor, a missing one as killed.
  void planted(MutantRunner& runner) {
    double seconds = 0;
    const auto results =
        runner.run({"planted.write.again:drop_flush", "planted.write.again:drop_fence",
                    "planted.write.first:drop_flush planted.write.again:drop_flush"});
    for (const MutantResult& result : results) seconds = std::max(seconds, result.seconds);
    if (results[0].killed || results[1].killed) fail("a redundant write-back is taken for needed");
    if (!results[2].killed) fail("a missing write-back is not noticed");
    figure("mutants_planted_seconds", seconds);
  }

  void mutants(const std::vector<MutantResult>& results) {
    for (const MutantResult& result : results) {
      const Argument* argument = argument_for(result.name);
      Tally& tally = tallies_[result.name.substr(result.name.rfind(':') + 1)];
      ++tally.total;
      if (result.killed) {
        ++tally.killed;
        tally.seconds += result.seconds;
        tally.slowest = std::max(tally.slowest, result.seconds);
        if (argument != nullptr) fail(result.name + " is killed; its argument is wrong");
      } else if (argument != nullptr) {
        ++tally.argued;
      } else {
        fail(result.name + " survives");
      }
      killed_[result.name] = result.killed;
    }
  }

  // Without what it names, an argued mutant must be seen.
  void arguments(MutantRunner& runner) {
    std::vector<MutantNames> both;
    for (const Argument& argument : perdure::testing::arguments()) {
      if (!killed_.contains(argument.mutant)) continue;
      both.push_back(std::string(argument.mutant) + " " + argument.unless);
    }
    std::printf("\nargued, each together with what makes it redundant:\n");
    for (const MutantResult& result : runner.run(both, &print)) {
      if (!result.killed) fail(result.name + " survive together: the argument does not hold");
    }
    for (const Argument& argument : perdure::testing::arguments()) {
      if (killed_.contains(argument.mutant)) {
        std::printf("%s: %s\n", argument.mutant, argument.why);
      }
    }
  }

  void historical() {
    int total = 0, killed = 0, inapplicable = 0;
    std::printf("\nbugs of others:\n");
    for (const HistoricalBug& bug : historical_bugs()) {
      if (bug.mutant == nullptr) {
        ++inapplicable;
        std::printf("%-32s %-44s %s\n", bug.origin, "no such mechanism", bug.what);
        continue;
      }
      const auto found = killed_.find(bug.mutant);
      ++total;
      if (found == killed_.end()) {
        fail(std::string(bug.origin) + ": there is no mutant " + bug.mutant);
        continue;
      }
      killed += found->second ? 1 : 0;
      if (!found->second) fail(std::string(bug.origin) + " as " + bug.mutant + " is not noticed");
      std::printf("%-32s %-44s %s\n", bug.origin, bug.mutant, bug.what);
    }
    figure("historical_bugs", total);
    figure("historical_bugs_killed", killed);
    figure("historical_bugs_inapplicable", inapplicable);
  }

  void totals() {
    Tally sum;
    std::printf("\n%-16s %6s %6s %6s  %s\n", "operator", "killed", "argued", "total",
                "time to kill: mean, slowest");
    for (const auto& [name, tally] : tallies_) {
      std::printf("%-16s %6d %6d %6d  %.2f s, %.2f s\n", name.c_str(), tally.killed, tally.argued,
                  tally.total, tally.seconds / std::max(tally.killed, 1), tally.slowest);
      sum.total += tally.total;
      sum.killed += tally.killed;
      sum.argued += tally.argued;
    }
    figure("mutants", sum.total);
    figure("mutants_killed", sum.killed);
    figure("mutants_argued", sum.argued);
  }

 private:
  const Arguments& arguments_;
  std::map<std::string, Tally> tallies_;
  std::map<std::string, bool> killed_;
  bool failed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  MutantRunner runner(trials(arguments.engine, arguments.seeds), arguments.jobs);
  if (trials(arguments.engine, 1).empty()) usage("no trials for the engine " + arguments.engine);
  Report report(arguments);
  if (const std::string wrong = runner.baseline(); !wrong.empty()) {
    report.fail("red without a mutant: " + wrong);
    return 1;
  }
  report.figure("mutants_baseline_seconds", runner.baseline_seconds());
  for (const SiteInfo* site : all_sites()) {
    if (belongs_to(site->name, arguments.engine) && !reached(*site)) {
      report.fail(std::string(site->name) + " is never reached");
    }
  }
  std::vector<MutantNames> names;
  for (const MutantNames& name : applicable_mutants(arguments.engine)) {
    if (name.find(arguments.only) != std::string::npos) names.push_back(name);
  }
  if (arguments.list) {
    for (const MutantNames& name : names) std::printf("%s\n", name.c_str());
    return report.status();
  }
  report.planted(runner);
  report.mutants(runner.run(names, &print));
  report.arguments(runner);
  if (arguments.only.empty()) report.historical();
  report.totals();
  return report.status();
}
