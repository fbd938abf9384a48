#include "testing/mutants/mutants.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "testing/crash/children.h"

namespace perdure::testing {

namespace {

constexpr std::size_t kMaxSites = 512;
// In processor time: a busy machine must not kill a trial.
constexpr rlim_t kTrialSeconds = 120;
// By the clock, for a trial that waits for ever: many times what a busy machine takes.
constexpr unsigned kTrialPatience = 1200;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Hides the output of a failing mutant, unless PERDURE_VERBOSE is set.
void silence() {
  if (std::getenv("PERDURE_VERBOSE") == nullptr &&
      std::freopen("/dev/null", "w", stderr) == nullptr) {
    _exit(2);
  }
}

// Limits the time from now on. A mutant that makes a trial loop for ever counts as noticed.
void limit_time() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const rlim_t end =
      kTrialSeconds + static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
  const rlimit limit{end, RLIM_INFINITY};
  setrlimit(RLIMIT_CPU, &limit);
  alarm(kTrialPatience);
}

struct Counted {
  std::uint64_t flushes, multi_line, ordered, fences, syncs, asks;
};
struct Row {
  double seconds;
  char wrong[2000];
  Counted sites[kMaxSites];
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}
std::string site_of(const std::string& mutant) { return mutant.substr(0, mutant.rfind(':')); }

}  // namespace

MutantRunner::MutantRunner(std::vector<Trial> trials, unsigned jobs)
    : trials_(std::move(trials)),
      jobs_(std::max(jobs, 1U)),
      sites_(all_sites()),
      reached_(trials_.size()) {
  if (sites_.size() > kMaxSites) {
    std::fprintf(stderr, "mutants: too many sites\n");
    std::exit(2);
  }
}

std::string MutantRunner::baseline(Range range) {
  const double start = now();
  std::vector<std::size_t> unknown;
  for (std::size_t i = range.first; i < range.last; ++i) {
    if (reached_[i].sites.empty()) unknown.push_back(i);
  }
  auto* rows = shared_array<Row>(unknown.size());
  std::string wrong;
  const auto body = [&](std::size_t i) {
    limit_time();
    reset_site_counts();
    const double began = now();
    const std::string what = trials_[unknown[i]].run();
    rows[i].seconds = now() - began;
    std::snprintf(rows[i].wrong, sizeof(rows[i].wrong), "%s", what.c_str());
    for (std::size_t s = 0; s < sites_.size(); ++s) {
      const SiteInfo& site = *sites_[s];
      rows[i].sites[s] = {site.flush_count, site.multi_line_count, site.ordered_count,
                          site.fence_count, site.sync_count,       site.ask_count};
    }
    return what.empty();
  };
  in_children(unknown.size(), jobs_, body, [&](std::size_t i, bool ok) {
    const char* what = rows[i].wrong[0] == '\0' ? "it crashed or hung" : rows[i].wrong;
    if (!ok && wrong.empty()) wrong = trials_[unknown[i]].name + ": " + what;
  });
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    Reached& reached = reached_[unknown[i]];
    reached.seconds = rows[i].seconds;
    for (std::size_t s = 0; s < sites_.size(); ++s) {
      const Counted& counted = rows[i].sites[s];
      sites_[s]->flush_count += counted.flushes;
      sites_[s]->multi_line_count += counted.multi_line;
      sites_[s]->ordered_count += counted.ordered;
      sites_[s]->fence_count += counted.fences;
      sites_[s]->sync_count += counted.syncs;
      sites_[s]->ask_count += counted.asks;
      reached.sites.push_back(counted.flushes + counted.fences + counted.syncs + counted.asks > 0);
    }
  }
  munmap(rows, std::max<std::size_t>(unknown.size(), 1) * sizeof(Row));
  baseline_seconds_ += now() - start;
  return wrong;
}

// Trials that reach a site of the mutant, quick ones first. The mutant changes nothing in the
// others.
std::vector<std::size_t> MutantRunner::trials_for(Range range, const MutantNames& name) const {
  std::vector<std::size_t> out;
  const std::vector<std::string> mutants = words_of(name);
  for (std::size_t i = range.first; i < range.last; ++i) {
    for (std::size_t s = 0; s < sites_.size(); ++s) {
      if (reached_[i].sites[s] && std::ranges::any_of(mutants, [&](const std::string& mutant) {
            return site_of(mutant) == sites_[s]->name;
          })) {
        out.push_back(i);
        break;
      }
    }
  }
  // Not stable_sort: its buffer is deprecated in libstdc++ 12, and clang warns.
  std::ranges::sort(out, {}, [&](std::size_t i) { return std::pair(reached_[i].seconds, i); });
  return out;
}

std::vector<MutantResult> MutantRunner::run(Range range, const std::vector<MutantNames>& names,
                                            Done done) {
  struct State {
    double began;
    std::uint32_t trial;
    char settled_by[200];
  };
  auto* states = shared_array<State>(names.size());
  std::vector<MutantResult> results(names.size());
  const auto body = [&](std::size_t i) {
    silence();
    states[i].began = now();
    for (const std::string& mutant : words_of(names[i])) {
      if (!set_mutant(mutant)) _exit(0);  // an unknown mutant survives, which is an error
    }
    for (const std::size_t t : trials_for(range, names[i])) {
      states[i].trial = static_cast<std::uint32_t>(t);
      limit_time();
      if (!trials_[t].run().empty()) return false;
    }
    std::set<std::string> settled;
    for (const std::string& mutant : words_of(names[i])) {
      settled.merge(std::set<std::string>(find_site(site_of(mutant))->settled_by));
    }
    std::string text;
    for (const std::string& site : settled) text += (text.empty() ? "" : " ") + site;
    std::snprintf(states[i].settled_by, sizeof(states[i].settled_by), "%s", text.c_str());
    return true;
  };
  in_children(names.size(), jobs_, body, [&](std::size_t i, bool green) {
    results[i] = {.name = names[i],
                  .killed = !green,
                  .by = green ? "" : trials_[states[i].trial].name,
                  .seconds = now() - states[i].began,
                  .settled_by = states[i].settled_by};
    if (done != nullptr) done(results[i]);
  });
  munmap(states, std::max<std::size_t>(names.size(), 1) * sizeof(State));
  return results;
}

MutantResult MutantRunner::search(const MutantNames& name, std::string& wrong) {
  constexpr std::size_t kAtOnce = 8;
  MutantResult result{.name = name};
  for (std::size_t first = 0; first < trials_.size() && !result.killed;) {
    const Range range{first, std::max(searched_, std::min(first + kAtOnce, trials_.size()))};
    if (wrong = baseline(range); !wrong.empty()) break;
    searched_ = range.last;
    result = run(range, {name}, nullptr).front();
    first = range.last;
  }
  return result;
}

bool belongs_to(std::string_view site, std::string_view engine) {
  for (const std::string_view part : {"heap", "reclaim", "pool", "storage"}) {
    if (site.starts_with(part) && site[part.size()] == '.') return true;
  }
  return site.starts_with(engine) && site[engine.size()] == '.';
}

std::vector<MutantNames> applicable_mutants(std::string_view engine) {
  std::vector<MutantNames> out;
  for (const SiteInfo* site : all_sites()) {
    if (!belongs_to(site->name, engine)) continue;
    for (const Mutant mutant : mutants_of(*site)) {
      out.push_back(std::string(site->name) + ":" + mutant_name(mutant));
    }
  }
  return out;
}

}  // namespace perdure::testing
