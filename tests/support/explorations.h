// Shared by the crash tests: one exploration as one test, with printed figures and a size that the
// environment sets.
#pragma once

#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "testing/crash/explorer.h"
#include "tests/support/reports.h"

namespace perdure::testing {

// Sanitized builds run a fraction.
inline std::size_t scaled(std::size_t n) {
  return sanitized() ? std::max<std::size_t>(n / 6, 1) : n;
}
// A figure that a full-size run must reach. Sanitized builds, which also try fewer images of each
// point, must reach 1.
inline std::uint64_t at_least(std::uint64_t n) {
  return sanitized() ? std::min<std::uint64_t>(n, 1) : n;
}

// Memory if there is enough, otherwise the build folder: a container's /dev/shm is small.
inline std::string torture_folder() {
  struct statvfs stat{};
  if (statvfs("/dev/shm", &stat) == 0 && stat.f_bavail * stat.f_bsize > 64U << 20) {
    return "/dev/shm";
  }
  const char* build = std::getenv("PERDURE_BUILD_DIR");
  return build != nullptr ? build : ".";
}

// Explores `seeds` random workloads of `n` operations and expects no violation. Where the options
// ask for runs after a crash or a kill, there must be some.
inline ExploreReport explore(const SubjectFactory& factory, const OpSource& source,
                             ExploreOptions options, std::size_t n, std::size_t seeds) {
  ExploreReport total;
  options.name = test_name();
  total.name = options.name;
  const std::uint64_t first = options.seed;
  for (std::uint64_t seed = first; seed < first + scaled(seeds); ++seed) {
    options.seed = seed;
    Explorer explorer(factory, source, options);
    total.add(explorer.run(random_workload(source, seed, n)));
    if (!total.ok()) break;
  }
  expect_clean(total);
  if (sanitized()) return total;  // a workload may be too small for the rest there
  EXPECT_TRUE(options.second_in == 0 || total.second_runs > 0);
  EXPECT_TRUE(options.kill_in == 0 || total.kill_runs > 0);
  return total;
}

// Explores one workload at every crash point with every image within the limits. A crash must cross
// each of the sites.
inline ExploreReport explore_workload(const SubjectFactory& factory, const OpSource& source,
                                      ExploreOptions options, const std::vector<Op>& workload,
                                      const std::set<std::string>& sites = {}) {
  if (options.name.empty()) options.name = test_name();
  Explorer explorer(factory, source, options);
  ExploreReport report = explorer.run(workload);
  expect_clean(report, sites);
  return report;
}
inline ExploreOptions exact_options(const EnumerationLimits& limits = {.product = 4096,
                                                                       .random = 64,
                                                                       .sampled = 400},
                                    std::uint32_t battery = 100) {
  return {.capacity = 2 << 20,
          .limits = limits,
          .battery = battery,
          .second_in = 20,
          .kill_in = 3,
          .explore_create = false};
}

// Of each random workload: images without crash points in create, some second runs and kills.
inline ExploreOptions random_options(std::uint32_t second_in, std::uint32_t kill_in) {
  return {.capacity = 2 << 20, .second_in = second_in, .kill_in = kill_in, .explore_create = false};
}
// Every image of create and of the first open.
inline ExploreOptions create_options() {
  return {.capacity = 2 << 20,
          .limits = {.product = 1024, .random = 100, .sampled = 300},
          .battery = 60,
          .second_in = 40,
          .kill_in = 2};
}
// A process is killed at every crash point; the power fails in the next one.
inline ExploreOptions kill_options() {
  return {.capacity = 2 << 20,
          .limits = {.product = 4, .random = 1, .sampled = 4},
          .second_limits = {.product = 24, .random = 8, .sampled = 24},
          .battery = 60,
          .kill_in = 1,
          .second_ops = 5,
          .explore_create = false,
          .close_at_end = false};
}
// The power often fails again inside recovery.
inline ExploreOptions recovery_options() {
  return {.capacity = 2 << 20,
          .limits = {.product = 32, .random = 4, .sampled = 32},
          .second_limits = {.product = 24, .random = 8, .sampled = 24},
          .battery = 60,
          .second_in = 6,
          .second_ops = 2,
          .explore_create = false};
}

}  // namespace perdure::testing
