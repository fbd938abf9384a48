// Explorer: runs a workload on a recording SimMemory. It stops before every fence, at every
// acknowledgement and, if asked, after every store. It makes the files that a power failure could
// leave there, and judges each of them.
//
// VERDICT per image: it opens. Its invariants hold, and nothing has leaked. Every acknowledged
//   operation is present with its exact value, and the one in flight wholly or not at all. Lookups
//   and scan agree. It executes `battery` further operations like any other structure. Closed and
//   reopened, it still has the same content.
// SECOND CRASH  Another recorded run starts from some images, and from some killed processes: the
//   state is the visible one, with its stores still pending, because the machine did not go down.
//   The run is recovery and a few operations, with crash points of their own. A third run starts
//   from some of its images and kills.
// REPLAY  Every failure prints PERDURE_REPLAY=<name>:<seed>:<path>. With it in the environment, the
//   run of that name judges only the image at that path. A path is p<point>.i<image>, or p<point>.k
//   (kill), or p<point>.i<image> followed by .p<point>.i<image> of the second run, and so on. With
//   several workloads it begins with w<number>.
// TIMEOUT  A run or verdict that takes verdict_seconds of processor time ends the process with its
//   replay line, as a recovery that crashes does. run_batches (explore_runner.h) survives that. It
//   also ends a process that waits for ever, which uses no processor time.
//
// Thread safety: one Explorer at a time in a process. It installs signal handlers that name the
// image whose recovery crashed or hung.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "testing/crash/enumerate.h"
#include "testing/crash/subject.h"
#include "testing/sim/sim_platform.h"

namespace perdure::testing {

struct ExploreOptions {
  std::string name;  // unique; PERDURE_REPLAY names it
  std::uint64_t seed = 1;
  std::uint64_t capacity = 16 << 20;  // of the file
  std::uint64_t disk_limit = 0;       // 0: capacity
  EnumerationLimits limits = {};
  EnumerationLimits second_limits = {.product = 8, .random = 2, .sampled = 4};
  std::uint32_t battery = 200;  // operations after each recovery
  std::uint32_t second_in = 0;  // every n-th image starts a second run; 0: none
  std::uint32_t kill_in = 0;    // every n-th crash point is also a kill without power loss; 0: none
  // Every n-th image, and every n-th point as a kill, of a second run starts a third run; 0: none.
  std::uint32_t third_in = 0;
  std::uint32_t second_ops = 6;  // operations of a second or third run
  bool second_reopens = false;   // whether these include close and reopen
  bool store_points = false;     // crash points also after every store of a word
  // Judges every n-th crash point, and the last: for long workloads.
  std::uint32_t points_in = 1;
  // The same for a run after a crash: its recovery may cross as many points as its workload.
  std::uint32_t second_points_in = 1;
  // Operations before the first crash point. They require explore_create = false.
  std::vector<Op> prepare = {};
  bool explore_create = true;  // crash points inside create and the first open
  bool close_at_end = true;
  // `process` durability: after a power failure open may refuse the pool. If it opens, it must be
  // right.
  bool process_mode = false;
  bool tear_partial_copies = false;  // see SimMemory
  unsigned verdict_seconds = 60;     // processor time, for a verdict and for an operation
  std::uint64_t max_images = ~0ULL;
  std::uint32_t max_failures = 1;  // stop after this many
};

struct ExploreReport {
  std::string name;
  std::uint64_t images = 0;         // distinct files judged
  std::uint64_t verdicts = 0;       // files judged; a file counts again for each expectation
  std::uint64_t second_images = 0;  // of `verdicts`, those after a second crash
  std::uint64_t third_images = 0;   // of `verdicts`, those after a third crash
  std::uint64_t second_runs = 0;    // runs after a power failure
  std::uint64_t kill_runs = 0;      // runs after a kill without one
  std::uint64_t points = 0;         // crash points with at least one new store
  std::uint64_t truncated = 0;      // of `points`, those not enumerated exhaustively
  std::uint64_t bounded = 0;        // of `points`, those with too many lines to try each alone
  std::uint64_t skipped = 0;        // crash points that points_in left out; not in `points`
  std::uint64_t operations = 0;
  std::uint64_t refused = 0;  // of these, by a full pool
  std::uint64_t violations = 0;
  std::uint64_t leaks = 0;  // of `violations`
  std::uint64_t unexplained_lines = 0;
  double seconds = 0;  // of processor time
  // Sites that a crash hit while their write-back was not fenced, or just before their fence or
  // sync.
  std::set<std::string> sites_crossed;
  // Files judged after the first, second and third crash.
  std::unordered_set<std::uint64_t> hashes[3];
  std::vector<std::string> failures;

  bool ok() const { return violations == 0; }
  std::string summary() const;
  void add(const ExploreReport& other);
};

class Explorer {
 public:
  Explorer(SubjectFactory factory, OpSource source, ExploreOptions options);
  ~Explorer();
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  ExploreReport run(const std::vector<Op>& workload);
  // Runs each workload from the start. A file that occurs again under the same expectation is not
  // judged again.
  ExploreReport run_all(const std::vector<std::vector<Op>>& workloads);

 private:
  struct Run;  // a recorded run: the workload, or a second run
  struct Expectation {
    std::vector<Model> candidates;  // the allowed contents
    bool created = true;            // the file is a pool: opening it must succeed
    std::uint64_t hash() const;
  };

  void shrink();
  void run_one(const std::vector<Op>& workload, const std::string& path);
  void set_context(const Run& run, const std::string& path, const CrashImage* image);
  void expect(Run& run);
  void create(Run& run);
  void operate(Run& run, const Op& op);
  void reopen(Run& run, bool resizes = false);
  void crash_point(Run& run, std::string_view where, bool acknowledged);
  void judge_images(Run& run, const std::string& path);
  void judge(Run& run, const CrashImage& image, const std::string& path);
  std::string verdict(SimMemory& memory, const Expectation& expected, bool created,
                      std::uint64_t seed);
  std::string battery(Subject& subject, Model& model, std::uint64_t seed);
  bool starts_run(const Run& run, const std::string& path, bool kill) const;
  void second_run(Run& run, const CrashImage* image, const std::string& path);
  void second_operations(Run& run, const std::string& path);
  void fail(const std::string& path, const std::string& what);
  bool wanted(const std::string& path) const;
  bool on_the_way(const std::string& path) const;
  bool done() const;

  SubjectFactory factory_;
  OpSource source_;
  ExploreOptions options_;
  ExploreReport report_;
  std::unique_ptr<SimMemory> scratch_;
  std::unordered_set<std::uint64_t> images_;    // files
  std::unordered_set<std::uint64_t> verdicts_;  // pairs of file and expectation
  std::string replay_;                          // the path to judge; empty: all
  std::string context_;
};

// Also writes the current context to `memory`, which other processes may share.
void show_context_in(char* memory, std::size_t bytes);

// A random workload of n operations.
std::vector<Op> random_workload(const OpSource& source, std::uint64_t seed, std::size_t n);

// Runs `body` in a child process. Returns whether it failed: it returned false, crashed, or took
// longer than `seconds`. For mutants, whose damage may crash or hang the process.
bool fails_in_child(const std::function<bool()>& body, unsigned seconds);

}  // namespace perdure::testing
