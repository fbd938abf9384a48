// The interleavings that show a missing write-back or fence, with a check that each does. Their
// sites are reached only while another thread is inside its write, or matter only to another
// thread.
#include "testing/engines/phast_interleavings.h"

#include <gtest/gtest.h>

#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

// Passes as it is, fails without that site.
void expect_red_without(InterleavingScenario scenario,
                        const std::vector<std::pair<const char*, Mutant>>& mutants) {
  expect_clean(scenario(test_name(), false));
  for (const auto& [site, mutant] : mutants) {
    const ScopedMutant scoped(site, mutant);
    ASSERT_TRUE(scoped.matched()) << site;
    const InterleaveReport report = scenario(test_name(), true);
    EXPECT_FALSE(report.ok()) << site << ":" << mutant_name(mutant) << "\n" << report.summary();
  }
}

TEST(Interleavings, P1c_X3_G1_P11_ResultsBesideWriters) {
  expect_red_without(&results_beside_writers, {{"phast.help.entry", Mutant::drop_flush},
                                               {"phast.help.entry", Mutant::drop_fence},
                                               {"phast.update.value", Mutant::drop_flush},
                                               {"phast.erase.entry", Mutant::drop_fence}});
}

TEST(Interleavings, P1c_ValueWordsInsideRecords) {
  expect_red_without(&results_beside_record_writers, {{"phast.help.record", Mutant::drop_flush},
                                                      {"phast.help.entry", Mutant::drop_fence}});
}

TEST(Interleavings, G12_X4_SplitWithoutInsertFences) {
  expect_red_without(&split_without_insert, {{"phast.write.settle", Mutant::drop_fence},
                                             {"phast.split.zero", Mutant::drop_flush}});
}

TEST(Interleavings, G6_X4_UnlinkIsDurableBeforeTheBlockIsReused) {
  expect_red_without(&unlinked_leaf_reused, {{"phast.unlink.next", Mutant::drop_fence},
                                             {"phast.unlink.next", Mutant::drop_flush}});
}

}  // namespace
}  // namespace perdure::testing
