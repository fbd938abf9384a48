#include "testing/schedule/interleaver.h"

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace perdure::testing {

namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The running thread, in memory that signal handlers can read.
char current_context[1024];
const char* describe_current() { return current_context; }

constexpr unsigned kScheduleSeconds = 60;
// In processor time, because a stopped process does not hang.
void set_timer(unsigned seconds) {
  const itimerval timer{{0, 0}, {static_cast<time_t>(seconds), 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}
void on_timer(int) {
  if (write(2, current_context, std::strlen(current_context)) < 0) _exit(3);
  if (write(2, ": a set-up or recovery hangs\n", 29) < 0) _exit(3);
  std::abort();
}

}  // namespace

void InterleaveReport::add(InterleaveReport other) {
  name = std::move(other.name);
  schedules += other.schedules;
  steps = std::max(steps, other.steps);
  points += other.points;
  truncated += other.truncated;
  images += other.images;
  verdicts += other.verdicts;
  histories += other.histories;
  blocked += other.blocked;
  capped = capped || other.capped;
  violations += other.violations;
  seconds += other.seconds;
  sites_crossed.merge(other.sites_crossed);
  std::ranges::move(other.failures, std::back_inserter(failures));
  legs = std::move(other.legs);
}

std::string InterleaveReport::summary() const {
  char text[400];
  std::snprintf(text, sizeof(text),
                "%s: %llu schedules%s of up to %llu steps, %llu crash points (%llu truncated), "
                "%llu images, %llu verdicts, %llu histories, %llu violations, %.2f s",
                name.c_str(), static_cast<unsigned long long>(schedules), capped ? " (capped)" : "",
                static_cast<unsigned long long>(steps), static_cast<unsigned long long>(points),
                static_cast<unsigned long long>(truncated), static_cast<unsigned long long>(images),
                static_cast<unsigned long long>(verdicts),
                static_cast<unsigned long long>(histories),
                static_cast<unsigned long long>(violations), seconds);
  return text;
}

Interleaver::Interleaver(SubjectFactory factory, InterleaveOptions options)
    : factory_(std::move(factory)), options_(std::move(options)) {
  if (const char* replay = std::getenv("PERDURE_REPLAY"); replay != nullptr) {
    const std::string prefix = options_.name + ":" + std::to_string(options_.seed) + ":";
    const std::string text(replay);
    replaying_ = text.starts_with(prefix);
    skipped_ = !replaying_;
    if (replaying_) {
      const std::string path = text.substr(prefix.size());
      const std::size_t dot = path.find('.');
      replay_script_ = parse_script(path.substr(0, dot));
      if (dot != std::string::npos) replay_path_ = path.substr(dot + 1);
    }
  }
  SimPlatform::describe_context = describe_current;
  std::signal(SIGPROF, on_timer);
  prepare();
}

Interleaver::~Interleaver() {
  set_timer(0);
  std::signal(SIGPROF, SIG_DFL);
  SimPlatform::describe_context = nullptr;
}

// Makes the file that every schedule starts from, with its maps, and closes it.
void Interleaver::prepare() {
  const ScopedWorld world;
  SimPlatform::seed(options_.seed);
  base_ = std::make_unique<SimMemory>(options_.capacity);
  memory_ = std::make_unique<SimMemory>(options_.capacity);
  scratch_ = std::make_unique<SimMemory>(options_.capacity);
  base_->set_mode(SimMode::plain);
  report_.name = options_.name;
  Status s = factory_()->create(*base_);
  if (s.ok()) {
    const auto subject = factory_();
    s = subject->open(*base_, 1);
    if (s.ok()) s = subject->close();
  }
  if (!s.ok()) fail("", "create: " + std::string(s.message()));
  base_->settle();
  memory_->before_fence = [this](const SiteInfo& site) {
    if (scheduler_.current() == kNoThread) return;
    scheduler_.outside([&] { crash_point(site.name); });
  };
}

bool Interleaver::done() const {
  return report_.violations >= options_.max_failures || report_.schedules >= options_.max_schedules;
}

InterleaveReport Interleaver::exhaustive(std::uint32_t preemptions, std::uint32_t thin) {
  report_.seconds = -now_seconds();
  if (replaying_) run_replay();
  ScheduleTree tree(preemptions, thin, options_.seed);
  while (!replaying_ && !skipped_ && !tree.empty() && !done()) {
    auto [script, used] = tree.take();
    const std::uint64_t shared = script.empty() ? 0 : script.back().step;
    ScheduleTree::Branch branch(tree, std::move(script), used);
    run(branch, shared);
  }
  report_.capped = !tree.empty() && report_.schedules >= options_.max_schedules;
  return take_report();
}

InterleaveReport Interleaver::pct(std::uint32_t schedules, std::uint32_t depth) {
  report_.seconds = -now_seconds();
  if (replaying_) run_replay();
  for (std::uint32_t i = 0; i < schedules && !replaying_ && !skipped_ && !done(); ++i) {
    PctStrategy strategy(static_cast<std::uint32_t>(options_.threads.size()), depth,
                         std::max<std::uint64_t>(report_.steps, 100), combine(options_.seed, i));
    run(strategy);
  }
  return take_report();
}

InterleaveReport Interleaver::directed(const std::vector<Leg>& legs) {
  report_.seconds = -now_seconds();
  if (replaying_) run_replay();
  if (replaying_ || skipped_) return take_report();
  DirectedStrategy strategy(legs);
  run(strategy);
  report_.legs = strategy.ends();
  for (std::size_t i = 0; i < legs.size(); ++i) {
    const bool named = legs[i].until.kind != Until::Kind::done;
    if (named && strategy.ends()[i] != LegEnd::reached && report_.ok()) {
      fail("", "leg " + std::to_string(i) + " did not come to " + legs[i].until.site);
    }
  }
  return take_report();
}

InterleaveReport Interleaver::sweep(const std::vector<Leg>& before, std::uint32_t thread,
                                    const std::vector<Leg>& after) {
  report_.seconds = -now_seconds();
  if (replaying_) run_replay();
  bool more = !replaying_ && !skipped_;
  std::uint64_t shared = 0;
  for (std::uint64_t k = 0; more && !done(); ++k) {
    std::vector<Leg> legs = before;
    legs.push_back({thread, steps(k)});
    legs.insert(legs.end(), after.begin(), after.end());
    DirectedStrategy strategy(legs);
    run(strategy, shared);
    shared = strategy.left_at(before.size());
    report_.legs = strategy.ends();
    report_.blocked +=
        static_cast<std::uint64_t>(std::ranges::count(report_.legs, LegEnd::blocked));
    more = strategy.ends()[before.size()] == LegEnd::reached;
    for (std::size_t i = 0; i < before.size() && report_.ok(); ++i) {
      if (strategy.ends()[i] != LegEnd::reached) {
        fail("", "leg " + std::to_string(i) + " did not come to " + before[i].until.site);
      }
    }
  }
  return take_report();
}

void Interleaver::run_replay() {
  ScriptedStrategy strategy(replay_script_);
  run(strategy);
}

InterleaveReport Interleaver::take_report() {
  report_.seconds += now_seconds();
  report_.images = images_.size();
  report_.histories = histories_.size();
  return report_;
}

// --- one schedule ---

bool Interleaver::run(Strategy& strategy, std::uint64_t shared) {
  const ScopedWorld world;
  SimPlatform::seed(options_.seed);
  ++report_.schedules;
  point_ = 0;
  shared_ = shared;
  seen_changes_ = seen_history_ = ~0ULL;
  broken_.clear();
  set_timer(kScheduleSeconds);
  std::snprintf(current_context, sizeof(current_context), "%s, schedule %llu",
                options_.name.c_str(), static_cast<unsigned long long>(report_.schedules));
  if (!start()) return false;
  std::vector<Scheduler::Body> bodies;
  for (std::uint32_t t = 0; t < options_.threads.size(); ++t) {
    bodies.push_back([this, t] { body(t); });
  }
  const bool ended = scheduler_.run(bodies, strategy);
  report_.steps = std::max(report_.steps, scheduler_.steps());
  finish(ended);
  memory_->set_mode(SimMode::frozen);
  subject_.reset();
  return true;
}

bool Interleaver::start() {
  memory_->load_image(*base_, {.size = base_->size(), .lines = {}, .bytes = {}});
  subject_ = factory_();
  Status s = subject_->open(*memory_, 1);
  Model model;
  VersionModel versions;
  std::set<std::string> keys;
  for (const Op& op : options_.setup) {
    if (!s.ok()) break;
    if (op.kind == OpKind::reclaim) {
      subject_->reclaim();
      continue;
    }
    if (op.kind == OpKind::background) {
      subject_->background();
      continue;
    }
    if (op.kind == OpKind::reopen) {
      s = subject_->close();
      subject_ = factory_();
      if (s.ok()) s = subject_->open(*memory_, 1);
      continue;
    }
    if (op.kind == OpKind::scan || op.kind == OpKind::scan_back) {
      s = subject_->scan(op.kind == OpKind::scan_back, op.key, [](const auto&, const auto&) {});
      continue;
    }
    if (subject_->versions()) {
      std::string text;
      const bool asks = op.kind >= OpKind::tag;
      const auto result = asks ? subject_->ask(op, text) : subject_->call(op);
      if (!result) {
        s = Status(result.error().code());
      } else if (!versions.explains(op, {*result, text})) {
        fail("", "setup: " + describe(op));
        return false;
      }
      continue;
    }
    keys.insert(op.key);
    const bool expected = apply_to(model, op);
    const auto result = subject_->call(op);
    if (!result) {
      s = Status(result.error().code());
    } else if (*result != expected) {
      fail("", "setup: " + describe(op));
      return false;
    }
  }
  if (!s.ok()) {
    fail("", "setup: " + std::string(s.message()));
    return false;
  }
  for (const auto& thread : options_.threads) {
    for (const Op& op : thread) {
      if (op.kind <= OpKind::find) keys.insert(op.key);
      for (const Op& part : op.parts) keys.insert(part.key);
    }
  }
  if (subject_->versions()) {
    history_.reset(std::move(versions));
  } else {
    history_.reset(std::move(model), std::move(keys), subject_->ordered());
    history_.set_pieces(subject_->batches_in_pieces());
  }
  memory_->settle();
  memory_->set_mode(SimMode::recording);
  return true;
}

void Interleaver::body(std::uint32_t thread) {
  for (const Op& op : options_.threads[thread]) {
    scheduler_.mark("call");
    operate(thread, op);
    scheduler_.progress();
    if (!broken_.empty()) return;
    scheduler_.outside([this] { crash_point("return"); });
    scheduler_.mark("return");
  }
}

void Interleaver::operate(std::uint32_t thread, const Op& op) {
  if (op.kind == OpKind::reclaim) {
    scheduler_.set_coarse(true);  // reclaim() reads thousands of thread slots
    subject_->reclaim();
    scheduler_.set_coarse(false);
    return;
  }
  if (op.kind == OpKind::background) return subject_->background();
  if (op.kind == OpKind::compact) {
    const auto done = subject_->call(op);
    if (!done) broken_ = describe(op) + ": " + std::string(done.error().message());
    return;
  }
  if (op.kind == OpKind::scan || op.kind == OpKind::scan_back) return scan(thread, op);
  if (op.kind == OpKind::iterate || op.kind == OpKind::iterate_back) return iterate(thread, op);
  if (op.kind == OpKind::many) return write_many(thread, op);
  if (op.kind == OpKind::together) return read_together(thread, op);
  if (op.kind == OpKind::batch) return commit(thread, op);
  const std::size_t call = history_.call(thread, op);
  if (op.kind == OpKind::find || (subject_->versions() && op.kind >= OpKind::tag)) {
    std::string value;
    const auto found = subject_->ask(op, value);
    if (!found) {
      broken_ = describe(op) + ": " + std::string(found.error().message());
    } else {
      const bool has = *found || subject_->versions();
      history_.returned(call, *found, has ? std::optional(std::move(value)) : std::nullopt);
    }
    return;
  }
  const auto result = subject_->call(op);
  if (!result) {
    broken_ = describe(op) + ": " + std::string(result.error().message());
  } else {
    history_.returned(call, *result);
  }
}

// Each part is an operation of its own, from the call of write_many() until its result.
void Interleaver::write_many(std::uint32_t thread, const Op& op) {
  std::vector<std::size_t> calls;
  for (const Op& part : op.parts) calls.push_back(history_.call(thread, part));
  const Status s = subject_->write_many(
      op.parts, [&](std::size_t i, bool result) { history_.returned(calls[i], result); });
  if (!s.ok()) broken_ = describe(op) + ": " + std::string(s.message());
}

void Interleaver::commit(std::uint32_t thread, const Op& op) {
  const std::size_t first = history_.batch_call(thread, op);
  const auto done = subject_->call(op);
  if (!done) broken_ = describe(op) + ": " + std::string(done.error().message());
  if (done) history_.batch_returned(first);
}

void Interleaver::read_together(std::uint32_t thread, const Op& op) {
  const std::size_t call = history_.call(thread, op);
  std::vector<std::optional<std::string>> values(op.parts.size());
  const Status s = subject_->read_together(op.parts, values);
  if (!s.ok()) broken_ = describe(op) + ": " + std::string(s.message());
  if (s.ok()) history_.returned(call, std::move(values));
}

void Interleaver::scan(std::uint32_t thread, const Op& op) {
  const std::size_t scan = history_.scan_call(thread, op.kind == OpKind::scan_back, op.key);
  const Status s = subject_->scan(op.kind == OpKind::scan_back, op.key,
                                  [&](const std::string& key, const std::string& value) {
                                    history_.scan_deliver(scan, key, value);
                                    scheduler_.outside([this] { crash_point("delivery"); });
                                    scheduler_.mark("delivery");
                                  });
  if (!s.ok()) broken_ = describe(op) + ": " + std::string(s.message());
  if (s.ok()) history_.scan_end(scan);
}

// Records two scans that begin at once: the way back may deliver entries that the way there has
// read.
void Interleaver::iterate(std::uint32_t thread, const Op& op) {
  const bool reverse = op.kind == OpKind::iterate_back;
  const std::size_t there = history_.scan_call(thread, reverse, {});
  const std::size_t back = history_.scan_call(thread, !reverse, {});
  const auto deliver = [&](std::size_t scan) {
    return [this, scan](const std::string& key, const std::string& value) {
      history_.scan_deliver(scan, key, value);
      scheduler_.outside([this] { crash_point("delivery"); });
      scheduler_.mark("delivery");
    };
  };
  const auto turned = subject_->iterate(reverse, op.key, deliver(there), deliver(back));
  if (!turned) {
    broken_ = describe(op) + ": " + std::string(turned.error().message());
    return;
  }
  history_.scan_end(there, *turned);
  if (*turned) history_.scan_from(back, **turned);
  history_.scan_end(back);
}

void Interleaver::finish(bool ended) {
  if (!ended) return fail("", "stuck: deadlock or livelock\n" + scheduler_.where());
  if (!broken_.empty()) return fail("", broken_);
  crash_point("the end");
  if (done()) return;
  Contents contents;
  if (const Status s = subject_->contents(contents); !s.ok()) {
    return fail("", "contents: " + std::string(s.message()));
  }
  histories_.insert(history_.hash());
  const Model content(contents.begin(), contents.end());
  if (const std::string wrong = history_.judge(content); !wrong.empty()) return fail("", wrong);
  if (const std::string wrong = compare(*subject_, content); !wrong.empty()) {
    return fail("", "scan and lookups differ: " + wrong);
  }
  std::vector<std::string> violations;
  subject_->check(violations);
  if (!violations.empty()) return fail("", "check: " + violations.front());
  if (memory_->unexplained_lines() != 0) fail("", "lines were written past the platform");
}

// --- crash points ---

void Interleaver::crash_point(const char* where) {
  ++point_;
  if (!options_.crashes || done()) return;
  if (find_site(where) != nullptr) report_.sites_crossed.insert(where);
  for (const SiteInfo* site : memory_->awaited_sites()) report_.sites_crossed.insert(site->name);
  if (memory_->changes() == seen_changes_ && history_.hash() == seen_history_) return;
  seen_changes_ = memory_->changes();
  seen_history_ = history_.hash();
  ++report_.points;
  if (scheduler_.steps() < shared_) return;
  const ScopedWorld world;
  judge_images(where);
}

void Interleaver::judge_images(const char* where) {
  const auto pending = memory_->pending();
  const Enumeration todo =
      enumerate(*memory_, pending, options_.limits, combine(options_.seed, point_));
  if (!todo.exhaustive) ++report_.truncated;
  for (std::size_t i = 0; i < todo.combinations.size() && !done(); ++i) {
    const Combination& c = todo.combinations[i];
    const CrashImage image = memory_->image(pending, c.choice, c.new_size, c.punched, c.new_name);
    const std::string path = "p" + std::to_string(point_) + ".i" + std::to_string(i);
    if (replaying_ && !replay_path_.empty() && path != replay_path_) continue;
    if (!verdicts_.insert(combine(image.hash, history_.hash())).second) continue;
    const Opened& opened = open_image(image);
    ++report_.verdicts;
    std::string wrong = opened.wrong.empty() ? history_.judge(opened.content) : opened.wrong;
    if (!wrong.empty()) fail(path, std::string("power fails before ") + where + ": " + wrong);
  }
}

const Interleaver::Opened& Interleaver::open_image(const CrashImage& image) {
  const auto [it, fresh] = images_.try_emplace(image.hash);
  Opened& opened = it->second;
  if (!fresh) return opened;
  scratch_->load_image(*memory_, image);
  SimPlatform::seed(image.hash);
  SimPlatform::world().thread = 0;
  const auto subject = factory_();
  if (const Status s = subject->open(*scratch_, image.hash >> 1 | 2); !s.ok()) {
    opened.wrong = "open: " + std::string(s.message());
    return opened;
  }
  std::vector<std::string> violations;
  subject->check(violations);
  if (!violations.empty()) opened.wrong = "check: " + violations.front();
  Contents contents;
  if (const Status s = subject->contents(contents); !s.ok()) opened.wrong = "contents unreadable";
  opened.content = Model(contents.begin(), contents.end());
  if (const std::string wrong = compare(*subject, opened.content);
      opened.wrong.empty() && !wrong.empty()) {
    opened.wrong = "scan and lookups differ: " + wrong;
  }
  scratch_->set_mode(SimMode::frozen);
  return opened;
}

void Interleaver::fail(const std::string& path, const std::string& what) {
  ++report_.violations;
  std::string text = options_.name + ": " + what + "\n  replay: PERDURE_REPLAY='" + options_.name +
                     ":" + std::to_string(options_.seed) + ":" + to_text(scheduler_.switches()) +
                     (path.empty() ? "" : "." + path) + "' " + program_invocation_name;
  if (!options_.quiet) std::fprintf(stderr, "interleaver: %s\n", text.c_str());
  report_.failures.push_back(std::move(text));
}

}  // namespace perdure::testing
