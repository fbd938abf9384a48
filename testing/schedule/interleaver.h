// Interleaver: runs a few operations of two or three simulated threads under many schedules, and
// stops inside each schedule at the crash points.
//
// VERDICT per schedule: every thread ends. Some order explains the results and the content
//   (history.h). check() and the audit pass.
// VERDICT per crash image: it opens, at another address and whatever latches were held (G5).
//   check() passes, and nothing has leaked. Some order explains its content and what has returned
//   so far. Crash points are before every fence, at every return, and at every entry that a scan
//   delivers. Equal images under equal histories are judged once.
// REPLAY  Every failure prints PERDURE_REPLAY=<name>:<seed>:<script>[.p<point>.i<image>]. With it
//   in the environment the interleaver of that name runs only that schedule and judges that image.
//
// Thread safety: one Interleaver at a time in a process.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "testing/crash/enumerate.h"
#include "testing/schedule/history.h"
#include "testing/schedule/strategies.h"

namespace perdure::testing {

struct InterleaveOptions {
  std::string name;                      // unique; PERDURE_REPLAY names it
  std::vector<Op> setup;                 // run in order, and durable, before the threads start
  std::vector<std::vector<Op>> threads;  // the operations of each thread
  std::uint64_t seed = 1;
  std::uint64_t capacity = 2 << 20;
  bool crashes = true;
  EnumerationLimits limits = {.product = 32, .random = 4, .sampled = 12};
  std::uint64_t max_schedules = ~0ULL;
  std::uint32_t max_failures = 1;  // stop after this many
  bool quiet = false;              // failures are expected: report them, but do not print them
};

struct InterleaveReport {
  std::string name;
  std::uint64_t schedules = 0;
  std::uint64_t steps = 0;      // of the longest schedule
  std::uint64_t points = 0;     // crash points
  std::uint64_t truncated = 0;  // of the points judged, those not enumerated exhaustively
  std::uint64_t images = 0;     // distinct files that were opened
  std::uint64_t verdicts = 0;   // pairs of file and history
  std::uint64_t histories = 0;  // distinct histories at the end of schedules
  std::uint64_t blocked = 0;    // legs that ended because their thread had to wait
  bool capped = false;          // max_schedules was reached
  std::uint64_t violations = 0;
  double seconds = 0;
  std::set<std::string> sites_crossed;  // as in ExploreReport
  std::vector<std::string> failures;
  std::vector<LegEnd> legs;  // of the last directed schedule

  bool ok() const { return violations == 0; }
  void add(InterleaveReport other);  // adds another interleaving of the same scenario
  std::string summary() const;
};

class Interleaver {
 public:
  Interleaver(SubjectFactory factory, InterleaveOptions options);
  ~Interleaver();
  Interleaver(const Interleaver&) = delete;
  Interleaver& operator=(const Interleaver&) = delete;

  // Runs every schedule with at most `preemptions`. Of those with more than one, it runs a random
  // one in `thin`.
  InterleaveReport exhaustive(std::uint32_t preemptions, std::uint32_t thin = 1);
  InterleaveReport pct(std::uint32_t schedules, std::uint32_t depth);
  // The subject that the threads use.
  Subject& subject() { return *subject_; }

  // Runs one schedule. A leg that waits for a site must reach it.
  InterleaveReport directed(const std::vector<Leg>& legs);
  // For k = 0, 1, 2, ...: runs `before`, then k more steps of `thread`, then `after`, until the
  // thread ends within k steps.
  InterleaveReport sweep(const std::vector<Leg>& before, std::uint32_t thread,
                         const std::vector<Leg>& after);

 private:
  struct Opened {  // the content of an image
    std::string wrong;
    Model content;
  };

  void prepare();
  // The crash points before step `shared` were judged in a schedule that is the same up to there.
  bool run(Strategy& strategy, std::uint64_t shared = 0);
  void run_replay();
  bool start();
  void finish(bool ended);
  void body(std::uint32_t thread);
  void operate(std::uint32_t thread, const Op& op);
  void write_many(std::uint32_t thread, const Op& op);
  void commit(std::uint32_t thread, const Op& op);
  void read_together(std::uint32_t thread, const Op& op);
  void scan(std::uint32_t thread, const Op& op);
  void iterate(std::uint32_t thread, const Op& op);
  void crash_point(const char* where);
  void judge_images(const char* where);
  const Opened& open_image(const CrashImage& image);
  void fail(const std::string& path, const std::string& what);
  bool done() const;
  InterleaveReport take_report();

  SubjectFactory factory_;
  InterleaveOptions options_;
  InterleaveReport report_;
  Scheduler scheduler_;
  History history_;
  Model before_;
  std::unique_ptr<SimMemory> base_, memory_, scratch_;
  std::unique_ptr<Subject> subject_;
  std::uint64_t point_ = 0;
  std::uint64_t shared_ = 0;
  std::uint64_t seen_changes_ = ~0ULL;
  std::uint64_t seen_history_ = ~0ULL;
  std::string broken_;  // the error of an operation in this schedule
  bool abandoned_ = false;
  std::unordered_map<std::uint64_t, Opened> images_;
  std::unordered_set<std::uint64_t> verdicts_;
  std::unordered_set<std::uint64_t> histories_;
  bool replaying_ = false;
  bool skipped_ = false;  // PERDURE_REPLAY names another interleaver
  Script replay_script_;
  std::string replay_path_;
};

}  // namespace perdure::testing
