// Mutants: checks that a trial fails when one write-back, fence, sync, step or checksum of the
// library is broken. Runs every site with every operator that applies in child processes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "testing/mutants/trials.h"
#include "testing/sim/sites.h"

namespace perdure::testing {

struct EngineUnderTest;  // testing/engines/engine_list.h

// The mutants that apply to a site, by its uses and counts:
//   drop_flush, delay_flush        it writes back
//   drop_fence                     it fences
//   first_line_only, all_but_last  a write-back had more than one line; otherwise nothing changes
//   publish_first                  it writes back and fences: a store may be published next
//   any_order                      relies_on_order(), and a line written back had pending stores
//                                  that have an order
//   drop_sync, skip_step, skip_check  it syncs, is a step, is a checksum
std::vector<Mutant> mutants_of(const SiteInfo& site);
// Whether the site's protocol needs the order of stores to one line, by the design documents.
bool relies_on_order(std::string_view site);

// Several mutants at once, "SITE:op SITE:op".
using MutantNames = std::string;

// The result of one set of mutants.
struct MutantResult {
  MutantNames name;
  bool killed = false;
  std::string by;          // the trial that failed
  double seconds = 0;      // until a trial failed, or until all had passed
  std::string settled_by;  // sites that later made durable what the mutant had left
};

class MutantRunner {
 public:
  // Runs `jobs` children at a time.
  MutantRunner(std::vector<Trial> trials, unsigned jobs);

  // Runs every trial once without a mutant; all must pass. Counts which trial reaches which site.
  // That decides which operators apply, and which trials a mutant must survive. Returns what is
  // wrong.
  std::string baseline() { return baseline({0, trials_.size()}); }
  double baseline_seconds() const { return baseline_seconds_; }
  // Runs each mutant until the first trial that fails, quick trials first. The report has the order
  // of `names`; `done` is called as they end.
  using Done = void (*)(const MutantResult&);
  std::vector<MutantResult> run(const std::vector<MutantNames>& names, Done done = nullptr) {
    return run({0, trials_.size()}, names, done);
  }
  // Runs one mutant. Extends the baseline only as far as the search gets. `wrong` receives a trial
  // that fails without the mutant.
  MutantResult search(const MutantNames& name, std::string& wrong);

 private:
  struct Range {
    std::size_t first, last;  // trials [first, last)
  };
  struct Reached {
    double seconds = 0;
    std::vector<bool> sites;  // by index in all_sites(); empty if the trial has not run yet
  };
  std::string baseline(Range range);
  std::vector<MutantResult> run(Range range, const std::vector<MutantNames>& names, Done done);
  std::vector<std::size_t> trials_for(Range range, const MutantNames& name) const;

  std::vector<Trial> trials_;
  unsigned jobs_;
  std::vector<SiteInfo*> sites_;
  std::vector<Reached> reached_;
  std::size_t searched_ = 0;  // trials that a search has reached
  double baseline_seconds_ = 0;
};

// Whether it is a site of pool, heap, reclamation or storage, or of the engine.
bool belongs_to(std::string_view site, std::string_view engine);
// Every operator that applies to a site of the engine. Call it after a baseline.
std::vector<MutantNames> applicable_mutants(std::string_view engine);

// A mutant that survives because other sites make durable what it leaves. Every run checks this
// again: the mutant survives, and exactly these sites made it durable.
struct Argument {
  const char* mutant;
  const char* settled_by;  // in the order of their names, separated by spaces
  const char* why;
};
// The arguments of pool and heap, and the engine's.
std::vector<Argument> arguments(const EngineUnderTest& engine);

// A bug of a published structure or library, and the mutant that plants it here.
struct HistoricalBug {
  const char* origin;
  const char* mutant;  // null: there is no such mechanism here
  const char* what;    // the bug, or why it does not apply
};
// The bugs of pool and heap, and the engine's.
std::vector<HistoricalBug> historical_bugs(const EngineUnderTest& engine);

}  // namespace perdure::testing
