#include "testing/crash/explorer.h"

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace perdure::testing {

namespace {

std::uint64_t hash_of(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const char c : text) hash = combine(hash, static_cast<unsigned char>(c));
  return hash;
}

std::uint64_t hash_of(const Model& model) {
  std::uint64_t hash = model.size();
  for (const auto& [key, value] : model) {
    hash = combine(combine(hash, std::hash<std::string>()(key)), std::hash<std::string>()(value));
  }
  return hash;
}

// The replay line, in memory that a signal handler can read. It may be shared with another process.
char current_context[2048];
char* shown_context = nullptr;
std::size_t shown_bytes = 0;

const char* describe_current() { return current_context; }

void on_signal(int number) {
  const char* what = number == SIGPROF ? "\nexplorer: it hangs\n" : "\nexplorer: it crashed\n";
  // A failing write cannot be handled here.
  if (write(2, what, std::strlen(what)) < 0 ||
      write(2, current_context, std::strlen(current_context)) < 0 || write(2, "\n", 1) < 0) {
    _exit(3);
  }
  std::signal(number == SIGPROF ? SIGABRT : number, SIG_DFL);
  std::raise(number == SIGPROF ? SIGABRT : number);
}

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF};

// Processor time of this process: figures must not depend on other load.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// In processor time, because a stopped process does not hang.
void set_timer(unsigned seconds) {
  const itimerval timer{{0, 0}, {static_cast<time_t>(seconds), 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

}  // namespace

void show_context_in(char* memory, std::size_t bytes) {
  shown_context = memory;
  shown_bytes = bytes;
}

std::uint64_t Explorer::Expectation::hash() const {
  std::uint64_t hash = created ? 1 : 0;
  for (const Model& model : candidates) hash = combine(hash, hash_of(model));
  return hash;
}

// The boot id until the power fails.
constexpr std::uint64_t kFirstBoot = 1;

// The state of one recorded run: the workload's, or one that starts after a crash.
struct Explorer::Run {
  SimMemory& memory;
  SimMemory& scratch;
  int depth = 1;
  std::string path = {};  // of the image that it started from; empty for the workload
  EnumerationLimits limits = {};
  std::unique_ptr<Subject> subject = {};
  Expectation expected = {};
  std::uint64_t expectation_hash = 0;
  std::uint64_t boot = kFirstBoot;
  std::uint64_t points = 0;  // judged points
  std::uint64_t fences = 0;  // fences, for sampling
  bool last = false;         // whether this is the workload's last operation
  std::uint64_t seen_changes = ~0ULL;
  std::uint64_t seen_expectation = ~0ULL;
  // State at the last point, judged or not.
  std::uint64_t passed_changes = ~0ULL;
  std::uint64_t passed_expectation = ~0ULL;
  bool skipped = false;  // and counted as skipped
  std::string doing = {};
  const char* site = "";
};

std::string ExploreReport::summary() const {
  char text[512];
  std::snprintf(
      text, sizeof(text),
      "%s: %llu images (%llu verdicts, %llu after a second crash, %llu after a third, "
      "%llu kills), %llu operations (%llu refused), "
      "%llu crash points (%llu exhaustive, %llu truncated, %llu bounded; %llu skipped), "
      "%zu sites, %llu violations, "
      "%.1f s, %.0f verdicts/s",
      name.c_str(), static_cast<unsigned long long>(images),
      static_cast<unsigned long long>(verdicts), static_cast<unsigned long long>(second_images),
      static_cast<unsigned long long>(third_images), static_cast<unsigned long long>(kill_runs),
      static_cast<unsigned long long>(operations), static_cast<unsigned long long>(refused),
      static_cast<unsigned long long>(points), static_cast<unsigned long long>(points - truncated),
      static_cast<unsigned long long>(truncated), static_cast<unsigned long long>(bounded),
      static_cast<unsigned long long>(skipped), sites_crossed.size(),
      static_cast<unsigned long long>(violations), seconds,
      static_cast<double>(verdicts) / std::max(seconds, 1e-9));
  return text;
}

void ExploreReport::add(const ExploreReport& other) {
  images += other.images;
  verdicts += other.verdicts;
  second_images += other.second_images;
  third_images += other.third_images;
  second_runs += other.second_runs;
  kill_runs += other.kill_runs;
  points += other.points;
  truncated += other.truncated;
  bounded += other.bounded;
  skipped += other.skipped;
  operations += other.operations;
  refused += other.refused;
  violations += other.violations;
  leaks += other.leaks;
  unexplained_lines += other.unexplained_lines;
  seconds += other.seconds;
  sites_crossed.insert(other.sites_crossed.begin(), other.sites_crossed.end());
  for (int i = 0; i < 3; ++i) hashes[i].insert(other.hashes[i].begin(), other.hashes[i].end());
  failures.insert(failures.end(), other.failures.begin(), other.failures.end());
}

Explorer::Explorer(SubjectFactory factory, OpSource source, ExploreOptions options)
    : factory_(std::move(factory)),
      source_(std::move(source)),
      options_(std::move(options)),
      scratch_(std::make_unique<SimMemory>(options_.capacity)) {
  if (const char* replay = std::getenv("PERDURE_REPLAY"); replay != nullptr) {
    const std::string prefix = options_.name + ":" + std::to_string(options_.seed) + ":";
    // The replay is for another explorer: judge nothing here.
    replay_ = std::string_view(replay).starts_with(prefix) ? replay + prefix.size() : "none";
  }
  if (const char* san = std::getenv("PERDURE_SAN"); san != nullptr && *san == '1') shrink();
  for (const int number : kSignals) std::signal(number, on_signal);
  SimPlatform::describe_context = describe_current;
}

// Sanitized builds are slow, and their purpose is not rare images.
void Explorer::shrink() {
  options_.limits = {
      .product = std::min<std::uint64_t>(options_.limits.product, 12), .random = 2, .sampled = 6};
  options_.second_limits = {.product = 2, .random = 1, .sampled = 2};
  options_.battery = std::min(options_.battery, 12U);
  options_.second_in *= 4;
  options_.kill_in *= 4;
  options_.third_in *= 4;
}

Explorer::~Explorer() {
  set_timer(0);
  for (const int number : kSignals) std::signal(number, SIG_DFL);
  SimPlatform::describe_context = nullptr;
}

bool Explorer::done() const {
  return report_.violations >= options_.max_failures || report_.images >= options_.max_images;
}
bool Explorer::wanted(const std::string& path) const { return replay_.empty() || replay_ == path; }
bool Explorer::on_the_way(const std::string& path) const {
  return replay_.empty() || replay_.starts_with(path + ".");
}

ExploreReport Explorer::run(const std::vector<Op>& workload) { return run_all({workload}); }

ExploreReport Explorer::run_all(const std::vector<std::vector<Op>>& workloads) {
  const double start = processor_seconds();
  report_ = {};
  report_.name = options_.name;
  for (std::size_t i = 0; i < workloads.size() && !done(); ++i) {
    const std::string path = workloads.size() == 1 ? std::string() : "w" + std::to_string(i);
    if (path.empty() || on_the_way(path)) run_one(workloads[i], path);
  }
  report_.seconds = processor_seconds() - start;
  return std::move(report_);
}

void Explorer::run_one(const std::vector<Op>& workload, const std::string& path) {
  const ScopedWorld world;
  SimPlatform::seed(options_.seed);
  SimMemory memory(options_.capacity);
  if (options_.disk_limit != 0) memory.set_disk_limit(options_.disk_limit);
  memory.set_tear_partial_copies(options_.tear_partial_copies);
  Run run{.memory = memory, .scratch = *scratch_, .path = path, .limits = options_.limits};
  memory.before_fence = [&](const SiteInfo& site) { crash_point(run, site.name, false); };
  if (options_.store_points)
    memory.after_store = [&] { crash_point(run, "the next store", false); };
  create(run);
  for (std::size_t i = 0; i < workload.size() && !done(); ++i) {
    run.doing = "operation " + std::to_string(i + 1) + " of " + std::to_string(workload.size()) +
                ", " + describe(workload[i]);
    run.last = i + 1 == workload.size();
    operate(run, workload[i]);
    ++report_.operations;
  }
  if (options_.close_at_end && !done()) {
    run.doing = "close and reopen";
    reopen(run);
  }
  const std::uint64_t unexplained = memory.unexplained_lines();
  report_.unexplained_lines += unexplained;
  if (unexplained != 0) {
    fail("", std::to_string(unexplained) +
                 " lines were written past the platform, so their crash states are unknown");
  }
  if (memory.hole_stores() != 0) fail("", "stores into space that is not backed by the medium");
  memory.set_mode(SimMode::frozen);
  run.subject.reset();
}

// Call it after every change of the expectation.
void Explorer::expect(Run& run) { run.expectation_hash = run.expected.hash(); }

void Explorer::create(Run& run) {
  run.doing = "create";
  run.expected = {.candidates = {Model{}}, .created = false};
  expect(run);
  run.subject = factory_();
  const bool recorded = options_.explore_create && options_.prepare.empty();
  if (!recorded) run.memory.set_mode(SimMode::plain);
  if (const Status s = run.subject->create(run.memory); !s.ok()) {
    fail("", "create: " + std::string(s.message()));
    return;
  }
  run.expected.created = true;
  expect(run);
  if (recorded) crash_point(run, "created", true);
  run.doing = "first open";
  run.subject = factory_();
  if (const Status s = run.subject->open(run.memory, run.boot); !s.ok()) {
    fail("", "first open: " + std::string(s.message()));
  }
  for (const Op& op : options_.prepare) {
    const bool expected = apply_to(run.expected.candidates.front(), op);
    const auto result = run.subject->apply(op);
    if (!result || *result != expected) return fail("", "preparing: " + describe(op));
  }
  expect(run);
  if (!recorded) {
    run.memory.settle();
    run.memory.set_mode(SimMode::recording);
  }
  crash_point(run, "opened", true);
}

void Explorer::operate(Run& run, const Op& op) {
  if (op.kind == OpKind::reopen || op.kind == OpKind::resize) {
    reopen(run, op.kind == OpKind::resize);
    return;
  }
  set_context(run, run.path, nullptr);
  Model after = run.expected.candidates.front();
  for (Model& outcome : outcomes(after, op)) run.expected.candidates.push_back(std::move(outcome));
  const bool expected = apply_to(after, op);
  run.memory.mark_recent();
  expect(run);
  const auto result = run.subject->apply(op);
  if (!result && result.error() == StatusCode::pool_full) {
    run.expected.candidates.resize(1);  // the operation had no effect
    if (run.depth == 1) ++report_.refused;
  } else if (!result) {
    fail("", run.doing + ": " + std::string(result.error().message()));
    return;
  } else {
    if (*result != expected) {
      fail("", run.doing + (expected ? " returned false" : " returned true"));
      return;
    }
    run.expected.candidates = {std::move(after)};
  }
  expect(run);
  crash_point(run, "acknowledged", true);
}

void Explorer::reopen(Run& run, bool resizes) {
  set_context(run, run.path, nullptr);
  if (const Status s = run.subject->close(); !s.ok()) {
    fail("", "close: " + std::string(s.message()));
    return;
  }
  crash_point(run, "closed", true);
  run.subject = factory_();
  if (resizes) {
    if (const Status s = run.subject->resize(run.memory, run.boot); !s.ok()) {
      fail("", "resize: " + std::string(s.message()));
      return;
    }
    crash_point(run, "resized", true);
    run.subject = factory_();
  }
  if (const Status s = run.subject->open(run.memory, run.boot); !s.ok()) {
    fail("", "reopen: " + std::string(s.message()));
    return;
  }
  if (const std::string wrong = compare(*run.subject, run.expected.candidates.front());
      !wrong.empty()) {
    fail("", "after close and reopen: " + wrong);
  }
  crash_point(run, "reopened", true);
}

// `acknowledged`: the operation has returned.
void Explorer::crash_point(Run& run, std::string_view where, bool acknowledged) {
  if (done()) return;
  // The images of this point, or of an equal earlier one, cross the site that comes next.
  const std::uint32_t every = run.depth == 1 ? options_.points_in : options_.second_points_in;
  const bool sampled_out = every > 1 && run.fences++ % every != 0 && !(run.last && acknowledged);
  if (!acknowledged && !sampled_out) {
    if (find_site(where) != nullptr) report_.sites_crossed.insert(std::string(where));
    for (const SiteInfo* site : run.memory.awaited_sites())
      report_.sites_crossed.insert(site->name);
  }
  const bool passed =
      run.memory.changes() == run.passed_changes && run.expectation_hash == run.passed_expectation;
  run.passed_changes = run.memory.changes();
  run.passed_expectation = run.expectation_hash;
  if (!passed) run.skipped = false;
  if (sampled_out) {
    if (!passed) ++report_.skipped;
    run.skipped |= !passed;
    return;
  }
  const bool unchanged = run.memory.changes() == run.seen_changes;
  if (unchanged && run.seen_expectation == run.expectation_hash) return;
  run.seen_changes = run.memory.changes();
  run.seen_expectation = run.expectation_hash;
  if (run.skipped) --report_.skipped;  // nothing has changed since: this judges it after all
  run.skipped = false;
  ++run.points;
  ++report_.points;
  const ScopedWorld world;  // recoveries must leave no trace in the run
  const std::string where_text(where);
  run.site = where_text.c_str();
  const std::string path = run.path + (run.path.empty() ? "p" : ".p") + std::to_string(run.points);
  judge_images(run, path);
  const std::string kill = path + ".k";
  if (starts_run(run, path, true) && on_the_way(kill)) second_run(run, nullptr, kill);
  set_context(run, run.path, nullptr);
  run.site = "";
}

// Whether another recorded run starts from this image or kill.
bool Explorer::starts_run(const Run& run, const std::string& path, bool kill) const {
  const std::uint32_t every = run.depth == 1 ? (kill ? options_.kill_in : options_.second_in)
                                             : (run.depth == 2 ? options_.third_in : 0);
  return every != 0 && run.expected.created && !done() && hash_of(path, options_.seed) % every == 0;
}

void Explorer::judge_images(Run& run, const std::string& path) {
  auto pending = run.memory.pending();
  // Counts every subset of a torn line, if they are few.
  std::uint64_t states = run.memory.size_pending() ? 2 : 1;
  std::uint64_t listed = states;
  for (const PendingLine& line : pending) {
    listed = std::min(listed * line.choices.size(), run.limits.product + 1);
    states = std::min(states * line.states, run.limits.product + 1);
  }
  const bool every_subset = listed < states && states <= run.limits.product;
  if (every_subset) pending = run.memory.pending(true);
  const Enumeration todo = enumerate(run.memory, pending, run.limits, hash_of(path, options_.seed));
  if (!todo.exhaustive || (listed < states && !every_subset)) ++report_.truncated;
  if (todo.bounded) ++report_.bounded;
  for (std::size_t i = 0; i < todo.combinations.size() && !done(); ++i) {
    const Combination& c = todo.combinations[i];
    const CrashImage image = run.memory.image(pending, c.choice, c.new_size, c.punched, c.new_name);
    if (!verdicts_.insert(combine(image.hash, run.expectation_hash)).second) continue;
    const std::string here = path + ".i" + std::to_string(i);
    if (wanted(here)) {
      judge(run, image, here);
      ++report_.verdicts;
      if (run.depth == 2) ++report_.second_images;
      if (run.depth == 3) ++report_.third_images;
      report_.hashes[run.depth - 1].insert(image.hash);
      if (images_.insert(image.hash).second) ++report_.images;
    }
    if (image.named && starts_run(run, here, false) && on_the_way(here)) {
      second_run(run, &image, here);
    }
  }
}

// Sets the context that a failure, crash or hang reports, and starts the clock.
void Explorer::set_context(const Run& run, const std::string& path, const CrashImage* image) {
  context_ = options_.name + ", seed " + std::to_string(options_.seed) + ", " + run.doing;
  if (image != nullptr) {
    context_ += std::string(", before ") + run.site + ", " + std::to_string(image->lines.size()) +
                " pending lines written back:";
    for (std::size_t i = 0; i < image->lines.size() && i < 12; ++i) {
      context_ += " " + std::to_string(std::uint64_t{image->lines[i]} * kLine);
    }
  }
  const std::string replay =
      options_.name + ":" + std::to_string(options_.seed) + ":" + (path.empty() ? "p0" : path);
  context_ += "\n  replay: PERDURE_REPLAY='" + replay + "' " + program_invocation_name;
  std::snprintf(current_context, sizeof(current_context), "%s", context_.c_str());
  if (shown_context != nullptr) {
    std::snprintf(shown_context, shown_bytes, "%s", context_.c_str());
  }
  set_timer(options_.verdict_seconds);
}

void Explorer::judge(Run& run, const CrashImage& image, const std::string& path) {
  set_context(run, path, &image);
  std::string wrong;
  if (!image.named) {
    if (run.expected.created) wrong = "the pool's file has no name";
  } else {
    run.scratch.load_image(run.memory, image);
    // Seeded by the path: a replay then runs the same battery.
    // On a page medium, a file that has its name is a pool.
    const bool created = run.expected.created || run.memory.medium() == SimMedium::page;
    wrong =
        verdict(run.scratch, run.expected, created, hash_of(path, options_.seed) | (1ULL << 63));
  }
  set_timer(0);
  if (!wrong.empty()) fail(path, wrong + "\n  " + context_);
}

// Records a process that starts after the crash. If `image` is null, the old process was killed and
// the machine went on: its stores are visible and still pending.
void Explorer::second_run(Run& run, const CrashImage* image, const std::string& path) {
  SimMemory memory(options_.capacity);
  SimMemory scratch(options_.capacity);
  memory.set_tear_partial_copies(options_.tear_partial_copies);
  Run second{.memory = memory,
             .scratch = scratch,
             .depth = run.depth + 1,
             .path = path,
             .limits = options_.second_limits,
             .expected = run.expected,
             .boot = run.boot};
  if (image != nullptr) {
    memory.load_image(run.memory, *image);
    memory.settle();
    memory.set_mode(SimMode::recording);
    second.boot = hash_of(path, options_.seed) >> 1 | 2;
    ++report_.second_runs;
  } else {
    memory.load_killed(run.memory);
    ++report_.kill_runs;
  }
  expect(second);
  memory.before_fence = [&](const SiteInfo& site) { crash_point(second, site.name, false); };
  if (options_.store_points) {
    memory.after_store = [&] { crash_point(second, "the next store", false); };
  }
  second_operations(second, path);
  memory.set_mode(SimMode::frozen);
  second.subject.reset();
}

void Explorer::second_operations(Run& run, const std::string& path) {
  run.doing = "recovery of " + path;
  set_context(run, path, nullptr);
  run.subject = factory_();
  if (const Status s = run.subject->open(run.memory, run.boot); !s.ok()) {
    // the open may fail, with any error
    if (options_.process_mode && run.boot != kFirstBoot) return;
    fail(path, "second open: " + std::string(s.message()));
    return;
  }
  // This process has read the content. From here on it must survive.
  std::string wrong = "no candidate matches";
  for (const Model& candidate : run.expected.candidates) {
    wrong = compare(*run.subject, candidate);
    if (!wrong.empty()) continue;
    run.expected.candidates = {Model(candidate)};
    break;
  }
  if (!wrong.empty()) {
    fail(path, "after the second open: " + wrong);
    return;
  }
  expect(run);
  crash_point(run, "opened", true);
  Random random(hash_of(path, options_.seed));
  for (std::uint32_t i = 0; i < options_.second_ops && !done(); ++i) {
    const Op op = source_(random);
    if (op.kind == OpKind::reopen && !options_.second_reopens) continue;
    run.doing =
        "recovery of " + path + ", then operation " + std::to_string(i + 1) + ", " + describe(op);
    operate(run, op);
  }
}

void Explorer::fail(const std::string& path, const std::string& what) {
  if (!replay_.empty() && !path.empty() && !wanted(path)) return;
  ++report_.violations;
  if (what.find(" leaked") != std::string::npos) ++report_.leaks;
  std::string text = options_.name + (path.empty() ? "" : " " + path) + ": " + what;
  if (path.empty()) {
    text += "\n  seed " + std::to_string(options_.seed) + "; no power failure was needed";
  }
  std::fprintf(stderr, "explorer: %s\n", text.c_str());
  report_.failures.push_back(std::move(text));
}

}  // namespace perdure::testing
