#include "testing/explorer.h"

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace perdure::testing {

namespace {

std::uint64_t combine(std::uint64_t a, std::uint64_t b) {
  return Random(a * 0x9E3779B97F4A7C15ULL + b).next();
}
std::uint64_t hash_of(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const char c : text) hash = combine(hash, static_cast<unsigned char>(c));
  return hash;
}

// The replay line, where a signal handler can read it.
char current_context[2048];

const char* describe_current() { return current_context; }

void on_signal(int number) {
  const char* what = number == SIGPROF ? "\nexplorer: it hangs\n" : "\nexplorer: it crashed\n";
  // Nothing can be done about a failing write here.
  if (write(2, what, std::strlen(what)) < 0 ||
      write(2, current_context, std::strlen(current_context)) < 0 || write(2, "\n", 1) < 0) {
    _exit(3);
  }
  std::signal(number == SIGPROF ? SIGABRT : number, SIG_DFL);
  std::raise(number == SIGPROF ? SIGABRT : number);
}

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF};
constexpr unsigned kVerdictSeconds = 60;

// Of processor time: a process that is stopped does not hang.
void set_timer(unsigned seconds) {
  const itimerval timer{{0, 0}, {static_cast<time_t>(seconds), 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

}  // namespace

// Everything that belongs to one recorded run: the workload's, or one that starts after a crash.
struct Explorer::Run {
  SimMemory& memory;
  SimMemory& scratch;
  int depth = 1;
  std::string path = {};  // of what it started from; empty for the workload
  EnumerationLimits limits = {};
  std::unique_ptr<Subject> subject = {};
  Expectation expected = {};
  std::uint64_t expectation_id = 0;  // changes with the expectation
  std::uint64_t boot = 1;
  std::uint64_t points = 0;
  std::uint64_t seen_changes = ~0ULL;
  std::uint64_t seen_expectation = ~0ULL;
  std::string doing = {};
  const char* site = "";
};

std::string ExploreReport::summary() const {
  char text[512];
  std::snprintf(text, sizeof(text),
                "%s: %llu images (%llu verdicts, %llu after a second crash, %llu kills), "
                "%llu crash points (%llu exhaustive, %llu truncated), %zu sites, %llu violations, "
                "%.1f s, %.0f verdicts/s",
                name.c_str(), static_cast<unsigned long long>(images),
                static_cast<unsigned long long>(verdicts),
                static_cast<unsigned long long>(second_images),
                static_cast<unsigned long long>(kill_runs), static_cast<unsigned long long>(points),
                static_cast<unsigned long long>(points - truncated),
                static_cast<unsigned long long>(truncated), sites_crossed.size(),
                static_cast<unsigned long long>(violations), seconds,
                static_cast<double>(verdicts) / std::max(seconds, 1e-9));
  return text;
}

void ExploreReport::add(const ExploreReport& other) {
  images += other.images;
  verdicts += other.verdicts;
  second_images += other.second_images;
  second_runs += other.second_runs;
  kill_runs += other.kill_runs;
  points += other.points;
  truncated += other.truncated;
  operations += other.operations;
  violations += other.violations;
  unexplained_lines += other.unexplained_lines;
  seconds += other.seconds;
  sites_crossed.insert(other.sites_crossed.begin(), other.sites_crossed.end());
  failures.insert(failures.end(), other.failures.begin(), other.failures.end());
}

Explorer::Explorer(SubjectFactory factory, OpSource source, ExploreOptions options)
    : factory_(std::move(factory)),
      source_(std::move(source)),
      options_(std::move(options)),
      scratch_(std::make_unique<SimMemory>(options_.capacity)) {
  if (const char* replay = std::getenv("PERDURE_REPLAY"); replay != nullptr) {
    const std::string prefix = options_.name + ":" + std::to_string(options_.seed) + ":";
    // Another explorer is meant: judge nothing here.
    replay_ = std::string_view(replay).starts_with(prefix) ? replay + prefix.size() : "none";
  }
  if (const char* san = std::getenv("PERDURE_SAN"); san != nullptr && *san == '1') shrink();
  for (const int number : kSignals) std::signal(number, on_signal);
  SimPlatform::describe_context = describe_current;
}

// Sanitized builds are slow, and look for other things than rare images.
void Explorer::shrink() {
  options_.limits = {
      .product = std::min<std::uint64_t>(options_.limits.product, 12), .random = 2, .sampled = 10};
  options_.second_limits = {.product = 2, .random = 1, .sampled = 2};
  options_.battery = std::min(options_.battery, 12U);
  options_.second_in *= 4;
  options_.kill_in *= 4;
}

Explorer::~Explorer() {
  set_timer(0);
  for (const int number : kSignals) std::signal(number, SIG_DFL);
  SimPlatform::describe_context = nullptr;
}

bool Explorer::done() const {
  return report_.violations >= options_.max_failures || images_.size() >= options_.max_images;
}
bool Explorer::wanted(const std::string& path) const { return replay_.empty() || replay_ == path; }
bool Explorer::on_the_way(const std::string& path) const {
  return replay_.empty() || replay_.starts_with(path + ".");
}

ExploreReport Explorer::run(const std::vector<Op>& workload) {
  const auto start = std::chrono::steady_clock::now();
  const ScopedWorld world;
  SimPlatform::seed(options_.seed);
  report_ = {};
  report_.name = options_.name;
  SimMemory memory(options_.capacity);
  if (options_.disk_limit != 0) memory.set_disk_limit(options_.disk_limit);
  memory.set_tear_partial_copies(options_.tear_partial_copies);
  Run run{.memory = memory, .scratch = *scratch_, .limits = options_.limits};
  memory.before_fence = [&](const SiteInfo& site) { crash_point(run, site.name, false); };
  create(run);
  for (std::size_t i = 0; i < workload.size() && !done(); ++i) {
    run.doing = "operation " + std::to_string(i + 1) + " of " + std::to_string(workload.size()) +
                ", " + describe(workload[i]);
    operate(run, workload[i]);
    ++report_.operations;
  }
  if (options_.close_at_end && !done()) {
    run.doing = "close and reopen";
    reopen(run);
  }
  report_.unexplained_lines = memory.unexplained_lines();
  if (report_.unexplained_lines != 0) {
    fail("", std::to_string(report_.unexplained_lines) +
                 " lines were written past the platform, so their crash states are unknown");
  }
  if (memory.hole_stores() != 0) fail("", "stores into space that is not backed by the medium");
  memory.set_mode(SimMode::frozen);
  run.subject.reset();
  report_.images = images_.size();
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report_;
}

void Explorer::create(Run& run) {
  run.doing = "create";
  run.expected = {.candidates = {Model{}}, .created = false};
  run.subject = factory_();
  if (!options_.explore_create) run.memory.set_mode(SimMode::plain);
  if (const Status s = run.subject->create(run.memory); !s.ok()) {
    fail("", "create: " + std::string(s.message()));
    return;
  }
  run.expected.created = true;
  ++run.expectation_id;
  if (options_.explore_create) crash_point(run, "created", true);
  run.doing = "first open";
  run.subject = factory_();
  if (const Status s = run.subject->open(run.memory, run.boot); !s.ok()) {
    fail("", "first open: " + std::string(s.message()));
  }
  if (!options_.explore_create) {
    run.memory.settle();
    run.memory.set_mode(SimMode::recording);
  }
  crash_point(run, "opened", true);
}

void Explorer::operate(Run& run, const Op& op) {
  if (op.kind == OpKind::reopen) {
    reopen(run);
    return;
  }
  Model after = run.expected.candidates.front();
  const bool expected = apply_to(after, op);
  run.memory.mark_recent();
  if (after != run.expected.candidates.front()) run.expected.candidates.push_back(after);
  ++run.expectation_id;
  const auto answer = run.subject->apply(op);
  if (!answer && answer.error() == StatusCode::pool_full) {
    run.expected.candidates.resize(1);  // it did not happen
  } else if (!answer) {
    fail("", run.doing + ": " + std::string(answer.error().message()));
    return;
  } else {
    if (*answer != expected) {
      fail("", run.doing + (expected ? " answered no" : " answered yes"));
      return;
    }
    run.expected.candidates = {std::move(after)};
  }
  ++run.expectation_id;
  crash_point(run, "acknowledged", true);
}

void Explorer::reopen(Run& run) {
  if (const Status s = run.subject->close(); !s.ok()) {
    fail("", "close: " + std::string(s.message()));
    return;
  }
  crash_point(run, "closed", true);
  run.subject = factory_();
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

// `acknowledged`: control is with the caller, not inside an operation.
void Explorer::crash_point(Run& run, std::string_view where, bool acknowledged) {
  if (done()) return;
  const bool unchanged = run.memory.changes() == run.seen_changes;
  if (unchanged && run.seen_expectation == run.expectation_id) return;
  run.seen_changes = run.memory.changes();
  run.seen_expectation = run.expectation_id;
  ++run.points;
  ++report_.points;
  if (!acknowledged) report_.sites_crossed.insert(std::string(where));
  const ScopedWorld world;  // recoveries leave no trace in the run
  const std::string where_text(where);
  run.site = where_text.c_str();
  const std::string path = run.path + (run.path.empty() ? "p" : ".p") + std::to_string(run.points);
  judge_images(run, path);
  if (run.depth == 1 && options_.kill_in != 0 && !done() && run.expected.created &&
      hash_of(path, options_.seed) % options_.kill_in == 0) {
    const std::string kill = path + ".k";
    if (on_the_way(kill)) second_run(run, nullptr, kill);
  }
  run.site = "";
}

void Explorer::judge_images(Run& run, const std::string& path) {
  const auto pending = run.memory.pending();
  const Enumeration todo = enumerate(run.memory, pending, run.limits, hash_of(path, options_.seed));
  if (!todo.exhaustive) ++report_.truncated;
  for (std::size_t i = 0; i < todo.combinations.size() && !done(); ++i) {
    const Combination& c = todo.combinations[i];
    const CrashImage image = run.memory.image(pending, c.choice, c.new_size, c.punched);
    const std::uint64_t hash =
        combine(combine(image.hash, run.expectation_id), hash_of(run.path, 0));
    if (!verdicts_.insert(hash).second) continue;
    images_.insert(image.hash);
    const std::string here = path + ".i" + std::to_string(i);
    if (wanted(here)) {
      judge(run, image, here);
      ++report_.verdicts;
      if (run.depth > 1) ++report_.second_images;
    }
    if (run.depth == 1 && options_.second_in != 0 && run.expected.created && !done() &&
        hash_of(here, options_.seed) % options_.second_in == 0 && on_the_way(here)) {
      second_run(run, &image, here);
    }
  }
}

void Explorer::judge(Run& run, const CrashImage& image, const std::string& path) {
  context_ = options_.name + ", seed " + std::to_string(options_.seed) + ", " + run.doing +
             ", before " + run.site + ", " + std::to_string(image.lines.size()) +
             " pending lines written back:";
  for (std::size_t i = 0; i < image.lines.size() && i < 12; ++i) {
    context_ += " " + std::to_string(std::uint64_t{image.lines[i]} * kLine);
  }
  context_ += "\n  replay: PERDURE_REPLAY='" + options_.name + ":" + std::to_string(options_.seed) +
              ":" + path + "' " + program_invocation_name;
  std::snprintf(current_context, sizeof(current_context), "%s", context_.c_str());
  set_timer(kVerdictSeconds);
  run.scratch.load_image(run.memory, image);
  // From the path, so that a replay takes the same battery.
  const std::string wrong =
      verdict(run.scratch, run.expected, hash_of(path, options_.seed) | (1ULL << 63));
  set_timer(0);
  if (!wrong.empty()) fail(path, wrong + "\n  " + context_);
}

std::string Explorer::verdict(SimMemory& memory, const Expectation& expected, std::uint64_t seed) {
  const auto violations_of = [](Subject& subject) -> std::string {
    std::vector<std::string> violations;
    subject.check(violations);
    return violations.empty() ? "" : "check: " + violations.front();
  };
  SimPlatform::seed(seed);
  Model model;
  {
    const auto subject = factory_();
    const Status opened = subject->open(memory, seed);
    if (!opened.ok()) {
      if (!expected.created) return {};
      if (options_.process_mode) return {};  // refused, in whatever words
      return "open: " + std::string(opened.message());
    }
    if (std::string wrong = violations_of(*subject); !wrong.empty()) return wrong;
    std::string first_wrong;
    bool right = false;
    for (const Model& candidate : expected.candidates) {
      const std::string wrong = compare(*subject, candidate);
      right = wrong.empty();
      if (right) {
        model = candidate;
        break;
      }
      first_wrong += (first_wrong.empty() ? "" : "; or: ") + wrong;
    }
    if (!right) return first_wrong;
    if (std::string wrong = battery(*subject, model, seed); !wrong.empty()) return wrong;
    if (std::string wrong = compare(*subject, model); !wrong.empty()) {
      return "after further operations: " + wrong;
    }
    if (std::string wrong = violations_of(*subject); !wrong.empty()) {
      return "after further operations: " + wrong;
    }
    if (const Status s = subject->close(); !s.ok()) return "close: " + std::string(s.message());
    if (memory.hole_stores() != 0) return "stores into space that is not backed by the medium";
  }
  const auto subject = factory_();
  if (const Status s = subject->open(memory, seed); !s.ok()) {
    return "reopen: " + std::string(s.message());
  }
  if (std::string wrong = violations_of(*subject); !wrong.empty()) return "reopened: " + wrong;
  if (std::string wrong = compare(*subject, model); !wrong.empty()) return "reopened: " + wrong;
  memory.set_mode(SimMode::frozen);  // nothing is to be gained from closing it again
  return {};
}

std::string Explorer::battery(Subject& subject, Model& model, std::uint64_t seed) {
  Random random(seed);
  for (std::uint32_t i = 0; i < options_.battery; ++i) {
    const Op op = source_(random);
    if (op.kind == OpKind::reopen) continue;
    Model after;
    const bool single = op.kind <= OpKind::find;
    // One key changes at most, unless a whole map goes.
    const auto before = model.find(op.key);
    const bool had = before != model.end();
    const std::string old = had ? before->second : std::string();
    if (!single) after = model;
    const bool expected = apply_to(single ? model : after, op);
    const auto answer = subject.apply(op);
    if (!answer && answer.error() == StatusCode::pool_full) {
      if (single && had) model[op.key] = old;
      if (single && !had) model.erase(op.key);
      continue;
    }
    if (!answer) {
      return "further operation " + describe(op) + ": " + std::string(answer.error().message());
    }
    if (*answer != expected) {
      return "further operation " + describe(op) + (expected ? " answered no" : " answered yes");
    }
    if (!single) model = std::move(after);
    std::string value;
    if (!single) continue;
    const auto found = subject.lookup(op.key, value);
    const auto it = model.find(op.key);
    if (!found || *found != (it != model.end()) || (*found && value != it->second)) {
      return "lookup after further operation " + describe(op);
    }
  }
  return {};
}

// A process that starts after the crash, recorded in its turn. `image` null: the old process was
// killed and the machine goes on, so what it stored is visible and still pending.
void Explorer::second_run(Run& run, const CrashImage* image, const std::string& path) {
  SimMemory memory(options_.capacity);
  SimMemory scratch(options_.capacity);
  memory.set_tear_partial_copies(options_.tear_partial_copies);
  Run second{.memory = memory,
             .scratch = scratch,
             .depth = 2,
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
  memory.before_fence = [&](const SiteInfo& site) { crash_point(second, site.name, false); };
  second_operations(second, path);
  memory.set_mode(SimMode::frozen);
  second.subject.reset();
}

void Explorer::second_operations(Run& run, const std::string& path) {
  run.doing = "recovery of " + path;
  run.subject = factory_();
  if (const Status s = run.subject->open(run.memory, run.boot); !s.ok()) {
    if (options_.process_mode && s == StatusCode::untrusted) return;
    fail(path, "second open: " + std::string(s.message()));
    return;
  }
  // What this process reads is seen: from here on it must survive.
  std::string wrong = "nothing fits";
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
  ++run.expectation_id;
  crash_point(run, "opened", true);
  Random random(hash_of(path, options_.seed));
  for (std::uint32_t i = 0; i < options_.second_ops && !done(); ++i) {
    const Op op = source_(random);
    if (op.kind == OpKind::reopen) continue;
    run.doing =
        "recovery of " + path + ", then operation " + std::to_string(i + 1) + ", " + describe(op);
    operate(run, op);
  }
}

void Explorer::fail(const std::string& path, const std::string& what) {
  if (!replay_.empty() && !path.empty() && !wanted(path)) return;
  ++report_.violations;
  std::string text = options_.name + (path.empty() ? "" : " " + path) + ": " + what;
  if (path.empty()) {
    text += "\n  seed " + std::to_string(options_.seed) + "; no power failure was needed";
  }
  std::fprintf(stderr, "explorer: %s\n", text.c_str());
  report_.failures.push_back(std::move(text));
}

std::vector<Op> random_workload(const OpSource& source, std::uint64_t seed, std::size_t n) {
  Random random(seed);
  std::vector<Op> ops;
  for (std::size_t i = 0; i < n; ++i) ops.push_back(source(random));
  return ops;
}

bool fails_in_child(const std::function<bool()>& body, unsigned seconds) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    alarm(seconds);
    // What a mutant prints on its way down is of interest only to who asks.
    if (std::getenv("PERDURE_VERBOSE") == nullptr &&
        std::freopen("/dev/null", "w", stderr) == nullptr) {
      _exit(2);
    }
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

}  // namespace perdure::testing
