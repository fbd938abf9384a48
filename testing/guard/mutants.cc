// perdure-guard mutants: breaks every site in every way that applies, and reports which mutants the
// trials notice.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "testing/engines/engine_list.h"
#include "testing/guard/guard.h"
#include "testing/mutants/mutants.h"

namespace perdure::testing {
namespace {

struct Options : Arguments {
  std::string trials;
  std::uint32_t seeds = 0;  // 0: those of the preset
};

void print(const MutantResult& result) {
  const std::string how =
      result.killed ? "killed   " + result.by : "survived, settled by " + result.settled_by;
  std::printf("%-52s %7.2f s %s\n", result.name.c_str(), result.seconds, how.c_str());
  std::fflush(stdout);
}

struct Tally {
  int total = 0, killed = 0, argued = 0;
  double seconds = 0, slowest = 0;  // until a trial noticed it
};

class Report {
 public:
  explicit Report(const EngineUnderTest& engine) : engine_(engine) {}

  void fail(const std::string& what) {
    std::printf("WRONG: %s\n", what.c_str());
    failed_ = true;
  }
  int status() const { return failed_ ? 1 : 0; }
  void figure(const char* name, double value) const {
    std::printf("%s.%s=%.*f\n", engine_.name().c_str(), name,
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
    figure("mutants_canary_seconds", seconds);
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
        std::printf("argued: %s: %s\n", argument->mutant, argument->why);
        if (result.settled_by != argument->settled_by) {
          fail(result.name + " is settled by \"" + result.settled_by + "\", its argument says \"" +
               argument->settled_by + "\"");
        }
      } else {
        fail(result.name + " survives");
      }
      killed_[result.name] = result.killed;
      Tally& part = parts_[part_of(result.name)];
      ++part.total;
      part.killed += result.killed ? 1 : 0;
      part.argued += !result.killed && argument != nullptr ? 1 : 0;
    }
  }

  void historical() {
    int total = 0, killed = 0, inapplicable = 0;
    std::printf("\npublished bugs:\n");
    for (const HistoricalBug& bug : historical_bugs(engine_)) {
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
    figure("mutants_survived", sum.total - sum.killed - sum.argued);
    for (const auto& [part, tally] : parts_) {
      if (part == engine_.name()) continue;  // counted with the others in the sums above
      std::printf("%s.mutants=%d\n%s.mutants_killed=%d\n%s.mutants_argued=%d\n", part.c_str(),
                  tally.total, part.c_str(), tally.killed, part.c_str(), tally.argued);
    }
  }

 private:
  const Argument* argument_for(const std::string& mutant) const {
    const auto found = std::ranges::find(argued_, mutant, &Argument::mutant);
    return found == argued_.end() ? nullptr : &*found;
  }

  const EngineUnderTest& engine_;
  const std::vector<Argument> argued_ = arguments(engine_);
  // The owner of the site: "heap", "pool" or the engine.
  std::string part_of(const std::string& mutant) const {
    if (mutant.starts_with("heap.") || mutant.starts_with("reclaim.")) return "heap";
    return mutant.starts_with(engine_.name() + ".") ? engine_.name() : "pool";
  }

  std::map<std::string, Tally> tallies_;
  std::map<std::string, Tally> parts_;
  std::map<std::string, bool> killed_;
  bool failed_ = false;
};

// The trials whose name contains the text, and the one that every run breaks.
std::vector<Trial> chosen_trials(const Options& options) {
  const std::uint32_t of_preset = options.preset == "nightly" ? 2 : 1;
  std::vector<Trial> chosen = trials(options.row(), options.seeds != 0 ? options.seeds : of_preset);
  std::erase_if(chosen, [&](const Trial& trial) {
    return trial.name.find(options.trials) == std::string::npos && trial.name != "written_twice";
  });
  return chosen;
}

int mutants(const Options& options) {
  for (SiteInfo* site : all_sites()) site->mutant = Mutant::none;  // the runner plants it
  MutantRunner runner(chosen_trials(options), options.jobs);
  Report report(options.row());
  if (const std::string wrong = runner.baseline(); !wrong.empty()) {
    report.fail("red without a mutant: " + wrong);
    return 1;
  }
  report.figure("mutants_baseline_seconds", runner.baseline_seconds());
  for (const SiteInfo* site : all_sites()) {
    if (!options.trials.empty() || !belongs_to(site->name, options.engine)) continue;
    if (!reached(*site)) report.fail(std::string(site->name) + " is never reached");
  }
  std::vector<MutantNames> names;
  if (!options.mutant.empty()) names.push_back(options.mutant);
  for (const MutantNames& name : applicable_mutants(options.engine)) {
    if (options.mutant.empty() && name.find(options.only) != name.npos) names.push_back(name);
  }
  if (options.list) {
    for (const MutantNames& name : names) std::printf("%s\n", name.c_str());
    return report.status();
  }
  if (options.mutant.empty()) report.planted(runner);
  report.mutants(runner.run(names, &print));
  if (options.only.empty() && options.mutant.empty()) report.historical();
  report.totals();
  return report.status();
}

}  // namespace

Command mutants_command() {
  static Options options;
  return {.name = "mutants",
          .summary = "breaks what pool, heap and an engine rely on; a test must notice each mutant",
          .details =
              "Prints a line per mutant, a table by operator, and name=value lines. A mutant that\n"
              "survives without an argument, an argument that does not hold, and a published or "
              "planted\n"
              "bug that is not noticed are wrong. PERDURE_VERBOSE=1 shows the output of failing\n"
              "mutants.\n",
          .options = {engine_option(options.engine),
                      choice("--preset", "figures|nightly", options.preset,
                             "figures (default): one seed; nightly: two"),
                      number("--seeds", options.seeds, "seeds of each exploration", 1),
                      jobs_option(options.jobs),
                      text("--only", "TEXT", options.only, "mutants whose SITE:op contains TEXT"),
                      mutant_option(options.mutant, "only this one"),
                      text("--trials", "TEXT", options.trials, "trials whose name contains TEXT"),
                      flag("--list", options.list, "lists the mutants that apply")},
          .run = [] { return mutants(options); },
          // This write-back is redundant, so no trial can notice that it is left out.
          .canaries = {"--trials written_twice --mutant planted.write.again:drop_flush"},
          .smoke = "--trials results_beside_writers --only phast.update.value:drop_flush"};
}

}  // namespace perdure::testing
