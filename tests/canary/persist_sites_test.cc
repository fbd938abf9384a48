// A crash explorer that stays green when a write-back is missing proves nothing. In every run: a
// handful of sites lose theirs, and each must be noticed; tests/nightly does the same to all of
// them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "testing/mutants.h"

namespace perdure::testing {
namespace {

TEST(Canary, WithoutAMutantAllIsGreen) {
  for (const ExploreReport& report : run_explorations(1, false)) {
    std::printf("%s\n", report.summary().c_str());
    EXPECT_TRUE(report.ok()) << report.failures.front();
  }
}

class CanarySites : public ::testing::TestWithParam<std::pair<const char*, Mutant>> {};
INSTANTIATE_TEST_SUITE_P(Handful, CanarySites,
                         ::testing::Values(std::pair{"phast.insert.entry", Mutant::drop_flush},
                                           std::pair{"phast.insert.entry", Mutant::drop_fence},
                                           std::pair{"phast.erase.entry", Mutant::drop_flush},
                                           std::pair{"phast.update.value", Mutant::drop_fence},
                                           std::pair{"phast.split.leaf", Mutant::first_line_only},
                                           std::pair{"phast.split.link", Mutant::drop_flush},
                                           std::pair{"phast.record.write", Mutant::drop_flush},
                                           std::pair{"heap.extent.assign", Mutant::drop_flush},
                                           std::pair{"pool.root.add", Mutant::drop_flush}));

TEST_P(CanarySites, GoRed) {
  const auto& [site, mutant] = GetParam();
  ASSERT_NE(find_site(site), nullptr) << "no such site";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(mutant_is_red(site, mutant, 1)) << site << ":" << mutant_name(mutant);
  std::printf("%s:%s red after %.2f s\n", site, mutant_name(mutant),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

}  // namespace
}  // namespace perdure::testing
