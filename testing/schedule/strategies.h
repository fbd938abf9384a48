// Strategies: the choice of schedules.
//
//   scripted    the switches of a list, the default elsewhere
//   exhaustive  every schedule with at most N preemptions (Musuvathi, Qadeer 2007): ScheduleTree
//   PCT         random priorities and d - 1 random change points (Burckhardt et al. 2010): finds a
//               bug of depth d among n threads and k steps with at least 1 / (n * k^(d-1))
//   directed    legs: "thread A until it reaches that fence, then B to its end"
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "testing/crash/subject.h"
#include "testing/schedule/scheduler.h"

namespace perdure::testing {

class ScriptedStrategy : public Strategy {
 public:
  explicit ScriptedStrategy(Script script) : script_(std::move(script)) {}
  std::uint32_t pick(const Decision& d) override;

 protected:
  bool over() const { return at_ == script_.size(); }

 private:
  Script script_;
  std::size_t at_ = 0;
};

// The schedules still to run, fewest preemptions first. Each is its parent's script and one more
// switch; none runs twice.
class ScheduleTree {
 public:
  // Of the schedules with more than one preemption, a random one in `thin` is kept.
  ScheduleTree(std::uint32_t preemptions, std::uint32_t thin, std::uint64_t seed);

  class Branch : public ScriptedStrategy {
   public:
    Branch(ScheduleTree& tree, Script script, std::uint32_t used);
    std::uint32_t pick(const Decision& d) override;

   private:
    ScheduleTree& tree_;
    Script script_;
    std::uint32_t used_;
  };
  bool empty() const;
  // Returns the script and the number of its preemptions.
  std::pair<Script, std::uint32_t> take();

 private:
  void add(const Script& parent, Switch deviation, std::uint32_t used);

  std::uint32_t preemptions_;
  std::uint32_t thin_;
  Random random_;
  std::vector<std::deque<Script>> todo_;  // by preemptions
};

class PctStrategy : public Strategy {
 public:
  PctStrategy(std::uint32_t threads, std::uint32_t depth, std::uint64_t steps, std::uint64_t seed);
  std::uint32_t pick(const Decision& d) override;

 private:
  std::uint32_t best(std::uint32_t among) const;
  std::vector<std::int64_t> priority_;
  std::vector<std::uint64_t> changes_;
  std::int64_t low_ = 0;  // below all others
};

struct Until {
  enum class Kind : std::uint8_t { done, flush, fence, after_fence, mark, steps, holds };
  Kind kind = Kind::done;
  std::string site = {};
  std::uint64_t count = 1;  // occurrences within the leg
  std::function<bool()> condition = {};
};
// The moment before that write-back, fence or mark takes effect; or right after the fence.
inline Until flush_of(const std::string& site, std::uint64_t n = 1) {
  return {Until::Kind::flush, site, n};
}
inline Until fence_of(const std::string& site, std::uint64_t n = 1) {
  return {Until::Kind::fence, site, n};
}
inline Until after_fence_of(const std::string& site, std::uint64_t n = 1) {
  return {Until::Kind::after_fence, site, n};
}
inline Until mark_of(const std::string& name, std::uint64_t n = 1) {
  return {Until::Kind::mark, name, n};
}
inline Until steps(std::uint64_t n) { return {Until::Kind::steps, "", n}; }
// The first step before which the condition holds. Evaluating it takes no steps.
inline Until holds(const std::string& name, std::function<bool()> condition) {
  return {Until::Kind::holds, name, 1, std::move(condition)};
}
inline Until done() { return {}; }

struct Leg {
  std::uint32_t thread = 0;
  Until until = {};
};
enum class LegEnd : std::uint8_t {
  never,    // not begun
  reached,  // reached its end
  ended,    // the thread ended first
  blocked,  // the thread had to wait: the next leg begins
};

class DirectedStrategy : public Strategy {
 public:
  explicit DirectedStrategy(std::vector<Leg> legs);
  std::uint32_t pick(const Decision& d) override;
  const std::vector<LegEnd>& ends() const { return ends_; }
  // Returns the step before which the leg ended; 0 if it did not.
  std::uint64_t left_at(std::size_t leg) const { return left_at_[leg]; }

 private:
  bool arrived(const Until& until, const Decision& d);
  void leave(LegEnd how, std::uint64_t step);

  std::vector<Leg> legs_;
  std::vector<LegEnd> ends_;
  std::vector<std::uint64_t> left_at_;
  std::size_t leg_ = 0;
  std::uint64_t seen_ = 0;
  bool behind_ = false;  // the next step comes after the fence
};

}  // namespace perdure::testing
