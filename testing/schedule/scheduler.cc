#include "testing/schedule/scheduler.h"

#include <cstdlib>

namespace perdure::testing {

std::string to_text(const Script& script) {
  std::string out;
  for (const Switch& s : script) {
    out += (out.empty() ? "" : "+") + std::to_string(s.to) + "@" + std::to_string(s.step);
  }
  return out.empty() ? "-" : out;
}

Script parse_script(std::string_view text) {
  Script script;
  const std::string copy(text);
  for (const char* at = copy.c_str(); *at >= '0' && *at <= '9';) {
    char* end = nullptr;
    Switch s;
    s.to = static_cast<std::uint32_t>(std::strtoul(at, &end, 10));
    if (*end != '@') break;
    s.step = std::strtoull(end + 1, &end, 10);
    script.push_back(s);
    at = *end == '+' ? end + 1 : end;
  }
  return script;
}

Scheduler::Scheduler() {
  for (std::uint32_t i = 0; i < kMaxThreads; ++i) threads_.push_back(std::make_unique<Thread>());
}
Scheduler::~Scheduler() = default;

bool Scheduler::run(const std::vector<Body>& bodies, Strategy& strategy) {
  strategy_ = &strategy;
  live_ = (1U << bodies.size()) - 1;
  waiting_ = 0;
  steps_ = pauses_ = 0;
  stuck_ = false;
  switches_.clear();
  const std::uint32_t slot = SimPlatform::world().thread;
  for (std::uint32_t i = 0; i < bodies.size(); ++i) {
    Thread& thread = *threads_[i];
    thread.slot = i + 1;  // slot 0 belongs to the caller of run()
    thread.coarse = false;
    thread.last_site = "";
    thread.steps = 0;
    thread.fiber.start(bodies[i]);
  }
  active_ = this;
  SimPlatform::step_hook = &Scheduler::on_step;
  Decision first{.forced = true, .candidates = live_, .live = live_};
  decide(first);
  while (live_ != 0 && !stuck_) {
    current_ = next_;
    Thread& thread = *threads_[current_];
    SimPlatform::world().thread = thread.slot;
    thread.fiber.resume();
    thread.slot = SimPlatform::world().thread;
    const std::uint32_t was = current_;
    current_ = kNoThread;
    if (work_ != nullptr) {
      SimPlatform::step_hook = nullptr;
      (*work_)();
      SimPlatform::step_hook = &Scheduler::on_step;
      work_ = nullptr;
      next_ = was;
    } else if (thread.fiber.finished()) {
      live_ &= ~(1U << was);
      waiting_ = 0;
      if (live_ == 0) break;
      Decision over{.step = ++steps_,
                    .current = was,
                    .forced = true,
                    .candidates = live_,
                    .live = live_,
                    .site = "end"};
      decide(over);
    }
  }
  SimPlatform::step_hook = nullptr;
  active_ = nullptr;
  SimPlatform::world().thread = slot;
  return !stuck_;
}

void Scheduler::outside(const std::function<void()>& work) {
  work_ = &work;
  threads_[current_]->fiber.suspend();
}

void Scheduler::mark(const char* name) { step(StepKind::read, name); }

void Scheduler::set_coarse(bool coarse) { threads_[current_]->coarse = coarse; }

void Scheduler::on_step(StepKind kind, const char* site) {
  if (active_ == nullptr || active_->current_ == kNoThread) return;
  active_->step(kind, site);
}

void Scheduler::step(StepKind kind, const char* site) {
  Thread& thread = *threads_[current_];
  const std::uint32_t bit = 1U << current_;
  ++steps_;
  ++thread.steps;
  if (site != nullptr) thread.last_site = site;
  Decision d{.step = steps_,
             .current = current_,
             .forced = kind == StepKind::pause,
             .live = live_,
             .kind = kind,
             .site = site};
  if (d.forced) {
    waiting_ |= bit;
    stuck_ = ++pauses_ > kMaxPauses;
    if (stuck_) return thread.fiber.suspend();
    if ((live_ & ~waiting_) == 0) waiting_ = bit;
  } else if (steps_ > kMaxSteps) {
    stuck_ = true;
    return thread.fiber.suspend();
  } else if (kind != StepKind::read && kind != StepKind::flush) {
    waiting_ = 0;
  } else if (thread.coarse && site == nullptr) {
    return;
  }
  d.candidates = live_ & ~waiting_ & ~bit;
  if (live_ == bit) return;  // no other thread is live
  decide(d);
  if (next_ != current_) thread.fiber.suspend();
}

std::uint32_t Scheduler::next_of(std::uint32_t candidates) const {
  for (std::uint32_t i = 1; i <= kMaxThreads; ++i) {
    const std::uint32_t thread = current_ == kNoThread ? i - 1 : (current_ + i) % kMaxThreads;
    if ((candidates >> thread & 1) != 0) return thread;
  }
  return current_;
}

// Chooses the next thread.
void Scheduler::decide(Decision& d) {
  if (d.forced) {
    const std::uint32_t saved = current_;
    if (d.current != kNoThread) current_ = d.current;  // round robin from the thread that ended
    d.fallback = next_of(d.candidates);
    current_ = saved;
  } else {
    d.fallback = d.current;
  }
  next_ = strategy_->pick(d);
  if (!d.can_run(next_)) next_ = d.fallback;
  if (next_ != d.fallback) switches_.push_back({d.step, next_});
}

std::string Scheduler::where() const {
  std::string out;
  for (std::uint32_t i = 0; i < kMaxThreads; ++i) {
    if ((live_ >> i & 1) == 0) continue;
    out += "    thread " + std::to_string(i) + ": " + std::to_string(threads_[i]->steps) +
           " steps, last named one: " + threads_[i]->last_site + "\n";
  }
  return out;
}

}  // namespace perdure::testing
