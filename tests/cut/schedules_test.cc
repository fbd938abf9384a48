// test: explores
// Cuts beside writers of a few words, under every schedule with at most two preemptions, and kills
// of the process inside them. Each of the bugs that can be planted is noticed.
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "testing/cut/shadow.h"
#include "testing/cut/sparse_storage.h"
#include "testing/schedule/strategies.h"
#include "tests/support/support.h"
#include "tests/support/violates.h"

namespace perdure::testing {
namespace {

using test::must;

constexpr std::uint64_t kBytes = 2 * kPage;
using Content = std::array<std::byte, kBytes>;

struct Step {
  enum class Kind { store, exchange, copy, zero } kind = Kind::store;
  std::uint64_t word = 0;   // of the pool
  std::uint64_t value = 0;  // copy, zero: the number of words
};

struct Scenario {
  const char* name;
  std::vector<std::vector<Step>> writers;
  CutLimits limits = {};
  bool full = false;  // the log has no space for rings
  bool kills = false;
  std::uint32_t thin = 1;
  std::uint32_t random = 0;  // schedules with more preemptions
  bool coarse = true;        // the reads of the thread that cuts are no decision points
  bool sleeps = false;       // after each cut the gate may
};

// Two stores to one line, with a cut in between; of two lines that follow from each other.
std::vector<Scenario> scenarios() {
  using enum Step::Kind;
  const std::vector<Step> twice{{store, 8, 1}, {store, 9, 2}, {store, 16, 3}};
  const std::vector<Step> two_lines{{store, 8, 1}, {store, 16, 1}};
  const std::vector<Step> back{{store, 8, 1}, {store, 16, 2}, {store, 9, 3}};
  const std::vector<Step> other{{store, 24, 1}, {exchange, 32, 1}};
  const std::vector<Step> shared{{exchange, 8, 1}, {store, 16, 2}};
  // Seven lines on both sides of a page's end, and then the word that names them.
  const std::vector<Step> published{{copy, 512 - 24, 56}, {store, 8, 1}};
  const std::vector<Step> emptied{{zero, 512 - 24, 56}, {store, 8, 2}};
  // Writers open the gate at once. The thread that cuts hardly waits.
  const CutLimits hasty{.writer_ns = 0, .shut_ns = 0, .round_ns = 0, .tries = 4};
  CutLimits once = hasty;
  once.tries = 1;
  return {
      {.name = "one line", .writers = {twice}, .kills = true, .coarse = false},
      {.name = "one line, no rings", .writers = {twice}, .full = true, .coarse = false},
      {.name = "two lines", .writers = {two_lines}, .kills = true},
      {.name = "no rings", .writers = {two_lines}, .full = true, .kills = true},
      {.name = "asleep", .writers = {two_lines}, .sleeps = true},
      {.name = "two writers wake it",
       .writers = {two_lines, other},
       .limits = hasty,
       .thin = 32,
       .sleeps = true},
      {.name = "published", .writers = {published}, .kills = true},
      {.name = "two writers", .writers = {two_lines, other}, .thin = 16},
      {.name = "one word", .writers = {twice, shared}, .thin = 16},
      {.name = "copies", .writers = {published, emptied}, .thin = 16},
      {.name = "hasty", .writers = {back}, .limits = hasty, .random = 2000, .coarse = false},
      {.name = "hasty, no rings",
       .writers = {back},
       .limits = hasty,
       .full = true,
       .random = 2000,
       .coarse = false},
      {.name = "two hasty writers", .writers = {two_lines, shared}, .limits = hasty, .thin = 16},
      {.name = "one try", .writers = {two_lines, shared}, .limits = once, .thin = 16},
  };
}

// Calls note() at every decision.
class Noting final : public Strategy {
 public:
  Noting(Strategy& inner, std::function<void()> note) : inner_(inner), note_(std::move(note)) {}
  std::uint32_t pick(const Decision& d) override {
    note_();
    return inner_.pick(d);
  }

 private:
  Strategy& inner_;
  std::function<void()> note_;
};

class Trial final : private GateWatch {
 public:
  explicit Trial(const Scenario& scenario) : scenario_(scenario) {}

  // Returns what is wrong, or nothing.
  std::string run(Strategy& strategy, Scheduler& scheduler, bool kills) {
    start();
    std::vector<Scheduler::Body> bodies;
    for (const auto& steps : scenario_.writers) {
      bodies.emplace_back([&] {
        for (const Step& step : steps) take(step);
      });
    }
    bodies.emplace_back([&] {
      scheduler.set_coarse(scenario_.coarse);
      for (int i = 0; i < 3 && wrong_.empty(); ++i) {
        cut();
        if (scenario_.sleeps) sleep();
      }
    });
    Noting noting(strategy, [&] {
      note();
      if (kills) kill();
    });
    if (!scheduler.run(bodies, noting)) return "stuck: " + scheduler.where();
    // Whatever was not in a cut is in the next one.
    note();
    if (wrong_.empty()) cut();
    if (wrong_.empty() && std::memcmp(shadow_->data(), memory_->base(), kBytes) != 0) {
      wrong_ = "the last cut is not the pool";
    }
    return wrong_;
  }
  std::uint64_t cuts() const { return cuts_; }
  std::uint64_t busy() const { return busy_; }
  std::uint64_t sleeps() const { return sleeps_; }

 private:
  void start() {
    memory_ = std::make_unique<SimMemory>(kBytes);
    memory_->set_mode(SimMode::plain);
    must(memory_->allocate(0, kBytes));
    platform_.emplace(*memory_);
    platform_->set_durable(false);
    storage_.clear();
    storage_.set_full(false);
    log_.emplace(storage_, kBytes);
    must(log_->create());
    must(log_->cover(kBytes));
    storage_.set_full(scenario_.full);
    tracker_.emplace(memory_->base(), *log_, scenario_.limits);
    ASSERT_TRUE(tracker_->make());
    tracker_->gate().set_watch(*this);
    clean_ = asleep_ = false;
    platform_->track_stores(*tracker_);
    cutter_.emplace(*platform_, *tracker_);
    shadow_.emplace(kBytes);
    durable_ = content();
    wrong_.clear();
  }
  Content content() const {
    Content now;
    std::memcpy(now.data(), memory_->base(), kBytes);
    return now;
  }
  std::uint64_t& word(std::uint64_t number) {
    return reinterpret_cast<std::uint64_t*>(memory_->base())[number];
  }
  void take(const Step& step) {
    static const std::vector<std::uint64_t> source(64, 7);
    switch (step.kind) {
      case Step::Kind::store:
        return platform_->store(word(step.word), step.value);
      case Step::Kind::exchange: {
        std::uint64_t expected = platform_->load(word(step.word));
        while (!platform_->compare_exchange(word(step.word), expected, step.value)) {
        }
        return;
      }
      case Step::Kind::copy:
        return platform_->copy(&word(step.word), source.data(), step.value * 8);
      case Step::Kind::zero:
        return platform_->zero(&word(step.word), step.value * 8);
    }
  }
  // cut.G4: while the gate sleeps, and no writer has called the watch, nothing changes.
  void on_wake() noexcept override { clean_ = false; }
  void on_many() noexcept override {}
  void sleep() {
    const bool asleep = cutter_->sleep([&] { clean_ = log_->empty(); });
    asleep_ = asleep;
    if (asleep) ++sleeps_;
    note();
  }
  void note() {
    if (asleep_ && clean_ && content() != durable_) wrong_ = "stored while the gate slept";
    if (!cutting_) return;
    if (moments_.empty() || std::memcmp(moments_.back().data(), memory_->base(), kBytes) != 0) {
      moments_.push_back(content());
    }
  }
  // Cuts until one succeeds, or gives up. It must be a moment of the call.
  void cut() {
    asleep_ = false;
    tracker_->gate().wake();
    cutting_ = true;
    moments_.clear();
    note();
    CutReport report;
    const CutStep step = cutter_->cut(*shadow_, report);
    note();
    cutting_ = false;
    if (step != CutStep::done) {
      ++busy_;
      return;
    }
    ++cuts_;
    bool found = false;
    for (const Content& moment : moments_) {
      found = found || std::memcmp(moment.data(), shadow_->data(), kBytes) == 0;
    }
    if (!found) {
      wrong_ = "the cut is none of " + std::to_string(moments_.size()) + " moments";
      return;
    }
    std::memcpy(durable_.data(), shadow_->data(), kBytes);
    cutter_->settle();
  }
  // The process is killed now. The successor must find every line that the disk does not have.
  void kill() {
    const SimPlatform::Unobserved unobserved;
    successor_storage_.load(storage_);
    DirtyLog<SimPlatform> log(successor_storage_, kBytes);
    must(log.inherit());
    std::vector<bool> dirty(kBytes / kLine);
    std::vector<std::uint64_t> lines(DirtyLog<SimPlatform>::kLeast);
    for (bool ended = false; !ended;) {
      const std::uint64_t count = log.take(lines, ended);
      for (std::uint64_t i = 0; i < count; ++i) dirty[lines[i]] = true;
    }
    for (std::uint64_t line = 0; line < dirty.size(); ++line) {
      const std::uint64_t at = line * kLine;
      if (!dirty[line] && std::memcmp(durable_.data() + at, memory_->base() + at, kLine) != 0) {
        wrong_ = "killed: no log has line " + std::to_string(line);
      }
    }
  }

  const Scenario& scenario_;
  SparseStorage storage_{DirtyLog<SimPlatform>::bytes_for(kBytes)};
  SparseStorage successor_storage_{DirtyLog<SimPlatform>::bytes_for(kBytes)};
  std::unique_ptr<SimMemory> memory_;
  std::optional<SimPlatform> platform_;
  std::optional<DirtyLog<SimPlatform>> log_;
  std::optional<StoreTracker<SimPlatform>> tracker_;
  std::optional<Cutter<SimPlatform>> cutter_;
  std::optional<Shadow> shadow_;
  Content durable_{};
  std::vector<Content> moments_;
  std::string wrong_;
  bool cutting_ = false;
  bool asleep_ = false, clean_ = false;
  std::uint64_t sleeps_ = 0;
  std::uint64_t cuts_ = 0;
  std::uint64_t busy_ = 0;
};

struct Outcome {
  std::string wrong;
  std::uint64_t schedules = 0;
  std::uint64_t cuts = 0;
  std::uint64_t busy = 0;
  std::uint64_t sleeps = 0;
};

Outcome explore(const Scenario& scenario, std::uint32_t preemptions) {
  Outcome outcome;
  Scheduler scheduler;
  Trial trial(scenario);
  ScheduleTree tree(preemptions, scenario.thin, 1);
  while (!tree.empty() && outcome.wrong.empty()) {
    auto [script, used] = tree.take();
    const std::string text = to_text(script);
    ScheduleTree::Branch branch(tree, std::move(script), used);
    const std::string wrong = trial.run(branch, scheduler, scenario.kills && used < 2);
    if (!wrong.empty()) outcome.wrong = scenario.name + (" " + text) + ": " + wrong;
    ++outcome.schedules;
  }
  for (std::uint32_t i = 0; i < scenario.random && outcome.wrong.empty(); ++i) {
    PctStrategy strategy(static_cast<std::uint32_t>(scenario.writers.size()) + 1, 4, 250, i + 1);
    const std::string wrong = trial.run(strategy, scheduler, false);
    if (!wrong.empty())
      outcome.wrong = scenario.name + (" " + to_text(scheduler.switches())) + ": " + wrong;
    ++outcome.schedules;
  }
  outcome.cuts = trial.cuts();
  outcome.busy = trial.busy();
  outcome.sleeps = trial.sleeps();
  return outcome;
}

TEST(Schedules, EveryCutIsAMoment) {
  for (const Scenario& scenario : scenarios()) {
    const Outcome outcome = explore(scenario, 2);
    EXPECT_EQ(outcome.wrong, "");
    EXPECT_GT(outcome.cuts, outcome.schedules);
    EXPECT_EQ(outcome.sleeps != 0, scenario.sleeps);
    std::printf("%s: %llu schedules, %llu cuts, %llu busy\n", scenario.name,
                static_cast<unsigned long long>(outcome.schedules),
                static_cast<unsigned long long>(outcome.cuts),
                static_cast<unsigned long long>(outcome.busy));
  }
}

class Planted : public ::testing::TestWithParam<const char*> {};
TEST_P(Planted, IsNoticed) {
  const ScopedMutant mutant(GetParam(), Mutant::skip_step);
  ASSERT_TRUE(mutant.matched());
  std::string wrong;
  for (const Scenario& scenario : scenarios()) {
    if (wrong.empty()) wrong = explore(scenario, 2).wrong;
  }
  EXPECT_NE(wrong, "");
  std::printf("%s\n", wrong.c_str());
}
INSTANTIATE_TEST_SUITE_P(Steps, Planted,
                         ::testing::Values("cut.track.round", "cut.track.before",
                                           "cut.gate.announce", "cut.gate.wait", "cut.gate.await",
                                           "cut.gate.shut", "cut.gate.void", "cut.take.keep",
                                           "cut.round.order", "cut.round.give_back",
                                           "cut.last.give_back", "cut.take.order", "cut.gate.watch",
                                           "cut.sleep.drain"),
                         [](const auto& step) {
                           std::string name = step.param;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

struct OneWord {
  OneWord() {
    memory.set_mode(SimMode::plain);
    must(memory.allocate(0, kBytes));
    must(log.create());
    must(log.cover(1 << 20));
    if (!tracker.make()) throw std::bad_alloc();
    platform.track_stores(tracker);
  }
  SimMemory memory{1 << 20};
  static constexpr std::uint64_t kMost = 8 << 20;  // more than is covered
  SparseStorage storage{DirtyLog<SimPlatform>::bytes_for(kMost)};
  SimPlatform platform{memory};
  DirtyLog<SimPlatform> log{storage, kMost};
  StoreTracker<SimPlatform> tracker{memory.base(), log};
  Cutter<SimPlatform> cutter{platform, tracker};
  CutReport report;
  void note_last() {
    std::uint64_t at = 0;
    log.note(nullptr, at, kMost / kLine - 1, 1);
  }
};

TEST(Assertions, cut_C3) {
  OneWord one;
  Shadow shadow(1 << 20);
  EXPECT_EQ(one.cutter.cut(shadow, one.report), CutStep::done);
  EXPECT_VIOLATES("cut.C3", one.cutter.cut(shadow, one.report));
  one.cutter.settle();
  EXPECT_EQ(one.cutter.cut(shadow, one.report), CutStep::done);
}

TEST(Assertions, cut_L1) {
  OneWord one;
  EXPECT_VIOLATES("cut.L1", one.note_last());
}

TEST(Cuts, EndIfThePoolIsPoisoned) {
  OneWord one;
  Shadow shadow(1 << 20);
  one.platform.store(*reinterpret_cast<std::uint64_t*>(one.memory.base()), 1);
  one.platform.poison();
  EXPECT_EQ(one.cutter.cut(shadow, one.report), CutStep::damaged);
  one.platform.store(*reinterpret_cast<std::uint64_t*>(one.memory.base()), 2);  // the gate is open
}

}  // namespace
}  // namespace perdure::testing
