// Runs explorations in worker processes and adds up their reports.
//
// A job is one exploration with one seed. Each runs in its own process, with a limit on how many
// run at a time. A job that crashes or hangs is a violation, and the others continue. Workers send
// their counters, the sites they crossed and the hashes of the files they judged through a pipe. A
// file is counted once, however many workers met it. A worker keeps the description of its current
// step (seed, image) in memory shared with the parent. The parent kills a worker whose step does
// not change for too long by the clock, and reports a violation with that description.
//
// Thread safety: one call at a time in a process, which must have no other threads.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "testing/crash/explorer.h"

namespace perdure::testing {

// The report of one part. Files are counted once.
struct PartReport {
  std::uint64_t crash_images() const { return files[0].size(); }
  std::uint64_t second_crash_images() const { return files[1].size(); }
  std::uint64_t third_crash_images() const { return files[2].size(); }
  void add(const ExploreReport& report);

  std::uint64_t verdicts = 0;
  std::uint64_t points = 0;
  std::uint64_t truncated = 0;
  std::uint64_t bounded = 0;
  std::uint64_t skipped = 0;
  std::uint64_t kills = 0;
  std::uint64_t violations = 0;
  std::uint64_t leaks = 0;
  double seconds = 0;  // of processor time
  std::set<std::string> sites_crossed;
  std::vector<std::string> failures;
  // Files judged after any crash, after a second or third crash, and after a third.
  std::unordered_set<std::uint64_t> files[3];
};

struct Job {
  std::string name;
  std::size_t part = 0;
  std::function<ExploreReport()> run;
};

// Asks `next` for a job whenever a worker is free, until it returns false and all jobs are done.
// `done` receives every report; the report of a job that crashed is a violation. `patience` is the
// limit by the clock, in seconds, for a step of a job, an image or an operation. It is many times
// the time on a busy machine.
constexpr double kPatience = 600;
void run_batches(std::size_t workers, const std::function<bool(Job&)>& next,
                 const std::function<void(const Job&, const ExploreReport&)>& done,
                 double patience = kPatience);

// Encodes an ExploreReport as bytes, and decodes it. unpack() returns false if the bytes are no
// report.
std::string pack(const ExploreReport& report);
bool unpack(const std::string& bytes, ExploreReport& report);

}  // namespace perdure::testing
