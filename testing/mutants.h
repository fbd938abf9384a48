// Mutants: does a trial go red when one write-back, fence, sync, step or checksum of the library is
// broken? Every site with every operator that applies (sites.h), in child processes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "testing/sites.h"
#include "testing/trials.h"

namespace perdure::testing {

struct EngineUnderTest;  // testing/engine_list.h

// Several mutants at once, "SITE:op SITE:op".
using MutantNames = std::string;

// What came of one set of mutants.
struct MutantResult {
  MutantNames name;
  bool killed = false;
  std::string by;          // the trial that went red
  double seconds = 0;      // until it did, or until all trials were green
  std::string settled_by;  // sites that made durable what the mutant left, one after the other
};

class MutantRunner {
 public:
  // `jobs` children at a time.
  MutantRunner(std::vector<Trial> trials, unsigned jobs);

  // Every trial once without a mutant: must be green. Counts who reaches which site, which decides
  // which operators apply and which trials a mutant has to survive. Answers what is wrong.
  std::string baseline() { return baseline({0, trials_.size()}); }
  double baseline_seconds() const { return baseline_seconds_; }
  // Each until the first trial that goes red, quick ones first. Report order is that of `names`;
  // `done` is called as they end.
  using Done = void (*)(const MutantResult&);
  std::vector<MutantResult> run(const std::vector<MutantNames>& names, Done done = nullptr) {
    return run({0, trials_.size()}, names, done);
  }
  // One by itself; of the baseline no more than a search has come to yet. `wrong`: what is red
  // without it.
  MutantResult search(const MutantNames& name, std::string& wrong);

 private:
  struct Range {
    std::size_t first, last;  // trials, without the last
  };
  struct Reached {
    double seconds = 0;
    std::vector<bool> sites;  // by place in all_sites(); empty if the trial was not run yet
  };
  std::string baseline(Range range);
  std::vector<MutantResult> run(Range range, const std::vector<MutantNames>& names, Done done);
  std::vector<std::size_t> trials_for(Range range, const MutantNames& name) const;

  std::vector<Trial> trials_;
  unsigned jobs_;
  std::vector<SiteInfo*> sites_;
  std::vector<Reached> reached_;
  std::size_t searched_ = 0;  // trials that a search has come to
  double baseline_seconds_ = 0;
};

// A pool, heap, reclamation or storage site, or one of the engine.
bool belongs_to(std::string_view site, std::string_view engine);
// Every operator that applies to a site of the engine, after a baseline.
std::vector<MutantNames> applicable_mutants(std::string_view engine);

// A mutant that survives because something else makes durable what it leaves. Re-checked in every
// run: it survives, and what it left was made durable at these sites and nowhere else.
struct Argument {
  const char* mutant;
  const char* settled_by;  // sites in the order of their names, separated by spaces
  const char* why;
};
// Those of pool and heap, and the engine's.
std::vector<Argument> arguments(const EngineUnderTest& engine);

// A bug that a published structure or library had, and the mutant that puts it into ours.
struct HistoricalBug {
  const char* origin;
  const char* mutant;  // null: we have no such mechanism
  const char* what;    // the bug, or why it does not apply
};
// Likewise.
std::vector<HistoricalBug> historical_bugs(const EngineUnderTest& engine);

}  // namespace perdure::testing
