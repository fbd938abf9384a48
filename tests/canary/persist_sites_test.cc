// A crash explorer that stays green when a write-back is missing proves nothing. In every run: a
// handful of sites lose theirs, and each must be noticed; tests/nightly does the same to all of
// them.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>

#include "testing/mutants.h"

namespace perdure::testing {
namespace {

TEST(Canary, WithoutAMutantAllIsGreen) {
  for (const Trial& trial : trials("phast", 1)) EXPECT_EQ(trial.run(), "") << trial.name;
}

// The baseline is run once, and only by the tests that need it.
MutantRunner& runner() {
  static MutantRunner instance = [] {
    MutantRunner made(trials("phast", 1), 2);
    EXPECT_EQ(made.baseline(), "");
    return made;
  }();
  return instance;
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
                                           std::pair{"pool.root.add", Mutant::drop_flush},
                                           std::pair{"phast.record.write", Mutant::publish_first},
                                           std::pair{"phast.insert.entry", Mutant::any_order},
                                           std::pair{"phast.recover.split", Mutant::skip_step},
                                           std::pair{"phast.leaf.crc", Mutant::skip_check}));

TEST_P(CanarySites, GoRed) {
  const auto& [site, mutant] = GetParam();
  ASSERT_NE(find_site(site), nullptr) << "no such site";
  const std::string name = std::string(site) + ":" + mutant_name(mutant);
  const MutantResult result = runner().run({name}).front();
  EXPECT_TRUE(result.killed) << name;
  std::printf("%s red after %.2f s by %s\n", name.c_str(), result.seconds, result.by.c_str());
}

}  // namespace
}  // namespace perdure::testing
