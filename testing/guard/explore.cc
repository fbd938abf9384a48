// perdure-guard explore: prints one name=value line per figure; see docs/design/testing.md.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "testing/crash/explore_runner.h"
#include "testing/crash/explored.h"
#include "testing/crash/heap_scenarios.h"
#include "testing/engines/engine_list.h"
#include "testing/guard/guard.h"
#include "testing/sim/sites.h"

namespace perdure::testing {
namespace {

struct Options : Arguments {
  std::string parts = "heap,pool,engine";
  std::string replay;

  Preset depth() const { return *parse_preset(preset); }
};

struct Part {
  std::string name;  // prefix of its figures
  std::vector<std::string> sites;
  std::vector<Exploration> explorations;
  std::vector<NamedInterleaving> interleavings = {};
  bool scenarios = false;
  std::vector<PlantedMutant> canaries = {};
  double canary_seconds = -1;  // of the slowest
  PartReport report = {};
};

// The number of images that a preset requires of each part, and the number after a second crash.
struct Bars {
  std::uint64_t images;
  std::uint64_t second;
};
Bars bars_of(Preset preset) {
  if (preset == Preset::nightly) return {1'000'000, 100'000};
  if (preset == Preset::figures) return {20'000, 5'000};
  return {2'000, 500};
}

constexpr double kCanarySeconds = 10;

std::string full_name(const Options& options, const Part& part, const std::string& name) {
  return options.preset + "." + part.name + "." + name;
}

std::vector<Part> parts_of(const Options& options) {
  const EngineUnderTest* engine = find_engine_under_test(options.engine);
  std::vector<Part> parts;
  for (const std::string& name : split(options.parts, ',')) {
    if (name == "heap") {
      parts.push_back({.name = "heap",
                       .sites = {"heap.", "reclaim."},
                       .explorations = heap_explorations(options.depth()),
                       .scenarios = true,
                       .canaries = heap_canaries()});
    } else if (name == "pool") {
      parts.push_back({.name = "pool",
                       .sites = {"pool.", "storage."},
                       .explorations = pool_explorations(*engine, options.depth()),
                       .canaries = pool_canaries(*engine)});
    } else if (name == "engine") {
      parts.push_back({.name = engine->name(),
                       .sites = {engine->name() + "."},
                       .explorations = engine_explorations(*engine, options.depth()),
                       .interleavings = engine->interleavings(),
                       .canaries = engine_canaries(*engine)});
    } else {
      wrong("no such part: " + name);
    }
  }
  return parts;
}

// Runs two threads in one interleaving after another, for the sites that only a second thread
// reaches.
ExploreReport interleave(const NamedInterleaving& scenario, const std::string& name) {
  const InterleaveReport found = scenario.run(name, false);
  ExploreReport report{.name = name, .verdicts = found.verdicts, .points = found.points};
  report.truncated = found.truncated;
  report.violations = found.violations;
  report.seconds = found.seconds;
  report.sites_crossed = found.sites_crossed;
  report.failures = found.failures;
  return report;
}

ExploreReport scenarios(const std::string& name) {
  ExploreReport report{.name = name};
  for (const HeapScenario& scenario : heap_scenarios()) {
    const std::string wrong = scenario.run();
    if (wrong.empty()) continue;
    ++report.violations;
    report.failures.push_back(name + ", " + scenario.name + ": " + wrong);
  }
  return report;
}

// Whether a planted bug is noticed in time. A harness that cannot fail proves nothing.
bool is_red(const Options& options, Part& part, const PlantedMutant& canary) {
  const std::string name = full_name(options, part, canary.exploration.name);
  const auto start = std::chrono::steady_clock::now();
  const bool red = fails_in_child(
      [&] {
        if (!set_mutant(canary.mutant)) return true;
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
          if (!run_exploration(canary.exploration, name, seed).ok()) return false;
        }
        return true;
      },
      static_cast<unsigned>(2 * kCanarySeconds));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  part.canary_seconds = std::max(part.canary_seconds, seconds);
  if (red && seconds < kCanarySeconds) return true;
  std::fprintf(stderr, "%s: the planted bug %s was not noticed within %.0f s\n", part.name.c_str(),
               canary.mutant.c_str(), kCanarySeconds);
  return false;
}

// Shows progress on a terminal.
class Progress {
 public:
  void show(const std::vector<Part>& parts, const std::string& doing) {
    if (isatty(2) == 0) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    std::string line;
    for (const Part& part : parts) {
      line += part.name + " " + std::to_string(part.report.crash_images()) + "+" +
              std::to_string(part.report.second_crash_images()) + "  ";
    }
    std::fprintf(stderr, "\r%5.0f s  %s%s\033[K",
                 std::chrono::duration<double>(now - start_).count(), line.c_str(), doing.c_str());
  }
  ~Progress() {
    if (isatty(2) != 0) std::fprintf(stderr, "\r\033[K");
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = {};
};

// Runs every exploration once. Then it repeats the random ones with other seeds for the parts that
// lack images.
class Jobs {
 public:
  Jobs(const Options& options, std::vector<Part>& parts) : options_(options), parts_(parts) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      Part& part = parts[p];
      if (part.scenarios && wanted("scenarios")) {
        const std::string name = full_name(options, part, "scenarios");
        first_.push_back({name, p, [name] { return scenarios(name); }});
      }
      for (const NamedInterleaving& scenario : part.interleavings) {
        const std::string name = std::string("interleaving.") + scenario.name;
        if (!wanted(name)) continue;
        const std::string full = full_name(options, part, name);
        first_.push_back({full, p, [&scenario, full] { return interleave(scenario, full); }});
      }
      for (const Exploration& e : part.explorations) {
        if (wanted(e.name)) first_.push_back(job(p, e, options.seed));
      }
    }
  }
  const std::vector<Job>& first() const { return first_; }

  bool next(Job& out) {
    if (at_ < first_.size()) {
      out = first_[at_++];
      return true;
    }
    if (!options_.only.empty()) return false;
    // The part that is furthest from its bar.
    std::size_t poorest = parts_.size();
    double least = 1;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (reached(p) >= least || !repeatable(p)) continue;
      least = reached(p);
      poorest = p;
    }
    if (poorest == parts_.size()) return false;
    out = again(poorest);
    return true;
  }

 private:
  bool wanted(const std::string& name) const { return name.find(options_.only) != name.npos; }
  Job job(std::size_t part, const Exploration& e, std::uint64_t seed) const {
    const std::string name = full_name(options_, parts_[part], e.name);
    return {name, part, [&e, name, seed] { return run_exploration(e, name, seed); }};
  }
  double reached(std::size_t part) const {
    const Bars bars = bars_of(options_.depth());
    const PartReport& report = parts_[part].report;
    if (report.violations != 0) return 1;  // the verdict is known
    return std::min(
        static_cast<double>(report.crash_images()) / static_cast<double>(bars.images),
        static_cast<double>(report.second_crash_images()) / static_cast<double>(bars.second));
  }
  bool repeatable(std::size_t part) const {
    return std::ranges::any_of(parts_[part].explorations, &Exploration::repeated);
  }
  Job again(std::size_t part) {
    const auto& all = parts_[part].explorations;
    cursors_.resize(parts_.size());
    for (;;) {
      const std::uint64_t turn = cursors_[part]++;
      const Exploration& e = all[turn % all.size()];
      if (e.repeated) return job(part, e, options_.seed + 1 + turn / all.size());
    }
  }

  const Options& options_;
  std::vector<Part>& parts_;
  std::vector<Job> first_;
  std::size_t at_ = 0;
  std::vector<std::uint64_t> cursors_;
};

// Judges one image again, in this process.
int replay(const Options& options, std::vector<Part>& parts) {
  const std::size_t colon = options.replay.find(':');
  const std::size_t second = options.replay.find(':', colon + 1);
  if (colon == std::string::npos || second == std::string::npos) wrong("not NAME:SEED:PATH");
  Options of_name = options;
  of_name.preset = options.replay.substr(0, options.replay.find('.'));
  if (!parse_preset(of_name.preset)) wrong("no such exploration: " + options.replay);
  of_name.seed = std::strtoull(options.replay.c_str() + colon + 1, nullptr, 10);
  parts = parts_of(of_name);
  setenv("PERDURE_REPLAY", options.replay.c_str(), 1);
  const Jobs jobs(of_name, parts);
  for (const Job& job : jobs.first()) {
    if (job.name != options.replay.substr(0, colon)) continue;
    const ExploreReport report = job.run();
    std::printf("%s: %llu images judged, %llu violations\n", job.name.c_str(),
                static_cast<unsigned long long>(report.verdicts),
                static_cast<unsigned long long>(report.violations));
    if (report.verdicts == 0 && report.ok()) wrong("no image has this path");
    return report.ok() ? 0 : 1;
  }
  wrong("no such exploration: " + options.replay);
}

void print(const Part& part, const char* figure, std::uint64_t value) {
  std::printf("%s.%s=%llu\n", part.name.c_str(), figure, static_cast<unsigned long long>(value));
}

// Counts the part's sites, and lists those that no crash crossed.
std::uint64_t sites_of(const Part& part, const std::set<std::string>& crossed,
                       std::vector<std::string>& missing) {
  std::uint64_t count = 0;
  for (const SiteInfo* site : all_sites()) {
    if (!site->flushes && !site->fences && !site->syncs) continue;
    const bool ours = std::ranges::any_of(part.sites, [&](const std::string& prefix) {
      return std::string_view(site->name).starts_with(prefix);
    });
    if (!ours) continue;
    ++count;
    if (!crossed.contains(site->name)) missing.emplace_back(site->name);
  }
  return count;
}

bool print_figures(const Options& options, const std::vector<Part>& parts) {
  std::set<std::string> crossed;
  for (const Part& part : parts) {
    crossed.insert(part.report.sites_crossed.begin(), part.report.sites_crossed.end());
  }
  const Bars bars = bars_of(options.depth());
  bool good = true;
  for (const Part& part : parts) {
    const PartReport& report = part.report;
    std::vector<std::string> missing;
    const std::uint64_t sites = sites_of(part, crossed, missing);
    for (const std::string& failure : report.failures) {
      std::fprintf(stderr, "%s\n", failure.c_str());
    }
    good = good && report.violations == 0 && report.leaks == 0;
    print(part, "crash_images", report.crash_images());
    print(part, "second_crash_images", report.second_crash_images());
    print(part, "third_crash_images", report.third_crash_images());
    print(part, "crash_points", report.points);
    print(part, "truncated_epochs", report.truncated);
    print(part, "bounded_epochs", report.bounded);
    print(part, "skipped_points", report.skipped);
    print(part, "kills", report.kills);
    print(part, "violations", report.violations);
    print(part, "leaks", report.leaks);
    print(part, "sites", sites);
    print(part, "sites_crossed", sites - missing.size());
    print(part, "cpu_seconds", static_cast<std::uint64_t>(report.seconds));
    std::printf("%s.canary_seconds=%.2f\n", part.name.c_str(), part.canary_seconds);
    if (!options.only.empty()) continue;
    for (const std::string& site : missing) {
      std::fprintf(stderr, "%s: no crash crossed %s\n", part.name.c_str(), site.c_str());
    }
    const bool enough =
        report.crash_images() >= bars.images && report.second_crash_images() >= bars.second;
    if (!enough && report.violations == 0) {
      std::fprintf(stderr, "%s: too few images: the preset requires %llu and %llu\n",
                   part.name.c_str(), static_cast<unsigned long long>(bars.images),
                   static_cast<unsigned long long>(bars.second));
    }
    good = good && missing.empty() && enough;
  }
  return good;
}

int run(const Options& options, std::vector<Part>& parts) {
  for (Part& part : parts) {
    for (const PlantedMutant& canary : part.canaries) {
      if (options.mutant.empty() && !is_red(options, part, canary)) return 1;
    }
  }
  Jobs jobs(options, parts);
  {
    Progress progress;
    const bool verbose = std::getenv("PERDURE_VERBOSE") != nullptr;
    run_batches(
        options.jobs, [&](Job& job) { return jobs.next(job); },
        [&](const Job& job, const ExploreReport& report) {
          if (verbose) std::fprintf(stderr, "%s\n", report.summary().c_str());
          parts[job.part].report.add(report);
          progress.show(parts, job.name);
        });
  }
  return print_figures(options, parts) ? 0 : 1;
}

int explore(Options& options) {
  const char* line = std::getenv("PERDURE_REPLAY");
  if (line != nullptr && options.replay.empty()) options.replay = line;
  std::vector<Part> parts = parts_of(options);
  if (options.list) {
    const Jobs jobs(options, parts);
    for (const Job& job : jobs.first()) std::printf("%s\n", job.name.c_str());
    return 0;
  }
  if (options.replay.empty()) return run(options, parts);
  return replay(options, parts);
}

}  // namespace

Command explore_command() {
  static Options options;
  options.preset = "fast";
  return {
      .name = "explore",
      .summary = "crashes heap, pool and an engine at every point, and judges every image",
      .details =
          "Prints figures. A leak, a site that no crash crossed, and fewer images than the preset\n"
          "requires are wrong, too. PERDURE_REPLAY in the environment does what --replay does.\n",
      .options =
          {engine_option(options.engine),
           text("--part", "PART[,PART]", options.parts, "of heap, pool, engine; default: all"),
           choice("--preset", "fast|figures|nightly", options.preset,
                  "fast (default): about half a minute; figures: for each part 20,000 images and\n"
                  "5,000 after a second crash, in minutes; nightly: 1,000,000 and 100,000"),
           number("--seed", options.seed, "of the first round of random workloads; default: 1"),
           jobs_option(options.jobs),
           text("--only", "TEXT", options.only,
                "runs explorations whose name contains TEXT once, without required numbers"),
           mutant_option(options.mutant, "breaks this write-back or fence; the run must fail"),
           flag("--list", options.list, "lists the names of the explorations"),
           text("--replay", "NAME:SEED:PATH", options.replay,
                "judges one image, given as in the line that a failure prints")},
      .run = [] { return explore(options); },
      .canaries = {"--part engine --only words --mutant phast.update.value:drop_flush"},
      .smoke = "--part engine --only page"};
}

}  // namespace perdure::testing
