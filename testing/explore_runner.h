// Runs explorations in worker processes and adds up what they found.
//
// A job is one exploration under one seed. Each runs in a process of its own, so many at a time as
// asked for; one that crashes or hangs is a violation, and the others go on. Workers answer through
// a pipe with their counters, the sites they crossed and the hashes of the files they judged, so
// that a file is counted once however many of them met it. What a worker is doing (seed, image)
// stands in memory that it shares with its parent: one that does the same for too long by the clock
// is killed, and is a violation of that name.
//
// Thread safety: one at a time in a process, which has no other threads.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "testing/explorer.h"

namespace perdure::testing {

// What was found in one part; files are counted once.
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
  double seconds = 0;  // of processors
  std::set<std::string> sites_crossed;
  std::vector<std::string> failures;
  // Judged after any crash, after a second or third one, after a third.
  std::unordered_set<std::uint64_t> files[3];
};

struct Job {
  std::string name;
  std::size_t part = 0;
  std::function<ExploreReport()> run;
};

// Asks `next` for a job whenever a worker is free, until it has none (false) and all are done.
// `done` sees every report; the report of a job that crashed is a violation. `patience`: seconds by
// the clock for a step of a job, an image or an operation; many times what a busy machine takes.
constexpr double kPatience = 600;
void run_batches(std::size_t workers, const std::function<bool(Job&)>& next,
                 const std::function<void(const Job&, const ExploreReport&)>& done,
                 double patience = kPatience);

// An ExploreReport as bytes, and back; false if they are not one.
std::string pack(const ExploreReport& report);
bool unpack(const std::string& bytes, ExploreReport& report);

}  // namespace perdure::testing
