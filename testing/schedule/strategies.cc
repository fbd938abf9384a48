#include "testing/schedule/strategies.h"

#include <algorithm>

namespace perdure::testing {

// --- scripted ---

std::uint32_t ScriptedStrategy::pick(const Decision& d) {
  if (at_ < script_.size() && script_[at_].step == d.step) return script_[at_++].to;
  return d.fallback;
}

// --- exhaustive ---

ScheduleTree::ScheduleTree(std::uint32_t preemptions, std::uint32_t thin, std::uint64_t seed)
    : preemptions_(preemptions), thin_(thin), random_(seed), todo_(preemptions + 1) {
  todo_[0].push_back({});
}

bool ScheduleTree::empty() const {
  return std::ranges::all_of(todo_, [](const auto& scripts) { return scripts.empty(); });
}

std::pair<Script, std::uint32_t> ScheduleTree::take() {
  for (std::uint32_t used = 0;; ++used) {
    if (todo_[used].empty()) continue;
    // The last first: depth-first order keeps fewer schedules in memory.
    std::pair<Script, std::uint32_t> next{std::move(todo_[used].back()), used};
    todo_[used].pop_back();
    return next;
  }
}

void ScheduleTree::add(const Script& parent, Switch deviation, std::uint32_t used) {
  if (used > preemptions_) return;
  if (used > 1 && thin_ > 1 && !random_.one_in(thin_)) return;
  Script script = parent;
  script.push_back(deviation);
  todo_[used].push_back(std::move(script));
}

ScheduleTree::Branch::Branch(ScheduleTree& tree, Script script, std::uint32_t used)
    : ScriptedStrategy(script), tree_(tree), script_(std::move(script)), used_(used) {}

std::uint32_t ScheduleTree::Branch::pick(const Decision& d) {
  const bool mine = over();  // beyond the parent's last switch, deviations are new
  const std::uint32_t next = ScriptedStrategy::pick(d);
  if (!mine) return next;
  for (std::uint32_t t = 0; t < Scheduler::kMaxThreads; ++t) {
    if ((d.candidates >> t & 1) == 0 || t == d.fallback) continue;
    tree_.add(script_, {d.step, t}, used_ + (d.forced ? 0 : 1));
  }
  return next;
}

// --- PCT ---

PctStrategy::PctStrategy(std::uint32_t threads, std::uint32_t depth, std::uint64_t steps,
                         std::uint64_t seed) {
  Random random(seed);
  for (std::uint32_t i = 0; i < threads; ++i) priority_.push_back(i + 1);
  for (std::uint32_t i = threads; i > 1; --i) {
    std::swap(priority_[i - 1], priority_[random.below(i)]);
  }
  for (std::uint32_t i = 1; i < depth; ++i) changes_.push_back(1 + random.below(steps));
}

std::uint32_t PctStrategy::best(std::uint32_t among) const {
  std::uint32_t found = kNoThread;
  for (std::uint32_t t = 0; t < priority_.size(); ++t) {
    if ((among >> t & 1) == 0) continue;
    if (found == kNoThread || priority_[t] > priority_[found]) found = t;
  }
  return found;
}

std::uint32_t PctStrategy::pick(const Decision& d) {
  // A waiting thread gets the lowest priority. Otherwise two that wait for each other would never
  // stop.
  const bool change = std::ranges::find(changes_, d.step) != changes_.end();
  if (d.current != kNoThread && (d.forced || change)) priority_[d.current] = --low_;
  std::uint32_t among = d.candidates;
  if (!d.forced) among |= 1U << d.current;
  const std::uint32_t next = best(among);
  return next == kNoThread ? d.fallback : next;
}

// --- directed ---

DirectedStrategy::DirectedStrategy(std::vector<Leg> legs)
    : legs_(std::move(legs)), ends_(legs_.size(), LegEnd::never), left_at_(legs_.size()) {}

void DirectedStrategy::leave(LegEnd how, std::uint64_t step) {
  left_at_[leg_] = step;
  ends_[leg_++] = how;
  seen_ = 0;
  behind_ = false;
}

bool DirectedStrategy::arrived(const Until& until, const Decision& d) {
  const bool named = d.site != nullptr && until.site == d.site;
  switch (until.kind) {
    case Until::Kind::done:
      return false;
    case Until::Kind::flush:
      return d.kind == StepKind::flush && named && ++seen_ == until.count;
    case Until::Kind::fence:
      return d.kind == StepKind::fence && named && ++seen_ == until.count;
    case Until::Kind::mark:
      return d.kind == StepKind::read && named && ++seen_ == until.count;
    case Until::Kind::steps:
      return ++seen_ > until.count;
    case Until::Kind::holds:
      return until.condition();
    case Until::Kind::after_fence:
      if (behind_) return true;
      behind_ = d.kind == StepKind::fence && named && ++seen_ == until.count;
      return false;
  }
  return false;
}

std::uint32_t DirectedStrategy::pick(const Decision& d) {
  bool fresh = false;  // the leg begins at this step, which is another thread's
  while (leg_ < legs_.size()) {
    const Leg& leg = legs_[leg_];
    if (!d.can_run(leg.thread)) {
      leave(fresh || d.current != leg.thread || leg.until.kind != Until::Kind::done
                ? LegEnd::ended
                : LegEnd::reached,
            d.step);
      fresh = true;
      continue;
    }
    if (fresh || d.current != leg.thread) return leg.thread;
    if (d.forced) {
      leave(LegEnd::blocked, d.step);
    } else if (arrived(leg.until, d)) {
      leave(LegEnd::reached, d.step);
    } else {
      return leg.thread;
    }
    fresh = true;
  }
  return d.fallback;
}

}  // namespace perdure::testing
