// Shared by the crash tests: one exploration as one test, with printed figures and a size that the
// environment sets.
#pragma once

#include <gtest/gtest.h>

#include <sys/statvfs.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "testing/crash/explorer.h"

namespace perdure::testing {

// Sanitized builds run a fraction.
inline bool sanitized() {
  const char* san = std::getenv("PERDURE_SAN");
  return san != nullptr && *san == '1';
}
inline std::size_t scaled(std::size_t n) {
  return sanitized() ? std::max<std::size_t>(n / 6, 1) : n;
}
// A figure that only a full-size run must reach.
inline std::uint64_t at_least(std::uint64_t n) { return sanitized() ? 0 : n; }

// Memory if there is enough, otherwise the build folder: a container's /dev/shm is small.
inline std::string torture_folder() {
  struct statvfs stat{};
  if (statvfs("/dev/shm", &stat) == 0 && stat.f_bavail * stat.f_bsize > 64U << 20) {
    return "/dev/shm";
  }
  const char* build = std::getenv("PERDURE_BUILD_DIR");
  return build != nullptr ? build : ".";
}

inline std::string test_name() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info->test_suite_name()) + "." + info->name();
}

// Explores `seeds` random workloads of `n` operations and expects no violation.
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
  std::printf("%s\n", total.summary().c_str());
  for (const std::string& failure : total.failures) ADD_FAILURE() << failure;
  EXPECT_GT(total.images, 0U);
  EXPECT_EQ(total.unexplained_lines, 0U);
  return total;
}

// Explores one workload at every crash point with every image within the limits. A crash must cross
// each of the sites.
inline void explore_workload(const SubjectFactory& factory, const OpSource& source,
                             ExploreOptions options, const std::vector<Op>& workload,
                             const std::set<std::string>& sites) {
  options.name = test_name();
  Explorer explorer(factory, source, options);
  const ExploreReport report = explorer.run(workload);
  std::printf("%s\n", report.summary().c_str());
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  for (const std::string& site : sites) {
    EXPECT_TRUE(report.sites_crossed.contains(site)) << site << " was not crossed by a crash";
  }
}
inline ExploreOptions exact_options() {
  return {.capacity = 2 << 20,
          .limits = {.product = 4096, .random = 64, .sampled = 400},
          .battery = 100,
          .second_in = 20,
          .kill_in = 3,
          .explore_create = false};
}

}  // namespace perdure::testing
