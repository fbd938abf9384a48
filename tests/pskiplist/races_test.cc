// The multi-version store under the scheduler: the schedules that its page's counter-examples need,
// each swept over every step of the thread that is stopped, with crashes.
#include <gtest/gtest.h>

#include <string_view>

#include "testing/engines/pskiplist_races.h"
#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

void expect_right(std::string_view name) {
  bool found = false;
  for (const NamedInterleaving& interleaving : pskiplist_interleavings()) {
    if (name != interleaving.name) continue;
    found = true;
    expect_clean(interleaving.run(test_name(), false));
  }
  EXPECT_TRUE(found) << name;
}

TEST(PskiplistRaces, W16_AHelperWithAnOldClockStampsNothing) { expect_right("W16_old_clock"); }
TEST(PskiplistRaces, W17_AResultRestsOnOneWrite) { expect_right("W17_stored_twice"); }
TEST(PskiplistRaces, W15_W12_TwoTrimsUnderOneReader) { expect_right("W15_W12_two_trims"); }
TEST(PskiplistRaces, W8_HistoriesAreOfOneKey) { expect_right("W8_histories"); }
TEST(PskiplistRaces, W8_V16_WhatWasTrimmedIsRefused) { expect_right("W8_V16_trimmed_away"); }
TEST(PskiplistRaces, W18_WhatWasRefusedStaysRefused) { expect_right("W18_refused_beside_trims"); }
TEST(PskiplistRaces, W19_ALookupSeesOneMoment) { expect_right("W19_two_halves"); }
TEST(PskiplistRaces, V5_W1_W4_ClosedVersionsDoNotChange) {
  expect_right("V5_W1_W4_closed_beside_writes");
}
TEST(PskiplistRaces, V1_W3_NoWriteIsOlderThanWhatWasRead) { expect_right("V1_W3_new_beside_old"); }
TEST(PskiplistRaces, W9_V18_NoResultWithoutTheLink) { expect_right("W9_V18_links"); }
TEST(PskiplistRaces, W14_V4_V6_V10_TagsAreAboveTheLimitOfNone) {
  expect_right("W14_V4_V6_V10_limits_of_tags");
}
TEST(PskiplistRaces, V7_V8_ABlockIsLinkedBeforeItsSlots) { expect_right("V7_V8_new_blocks"); }
TEST(PskiplistRaces, W20_HintsNameWhatIsListed) { expect_right("W20_hints"); }

// Each shows what it is about: the fence that only another thread's insert needs.
TEST(PskiplistRaces, V7_V8_WithoutTheLinksFenceAnInsertIsLost) {
  const ScopedMutant scoped("pskiplist.chain.link", Mutant::drop_fence);
  ASSERT_TRUE(scoped.matched());
  for (const NamedInterleaving& interleaving : pskiplist_interleavings()) {
    if (std::string_view(interleaving.name) != "V7_V8_new_blocks") continue;
    EXPECT_FALSE(interleaving.run(test_name(), /*quiet=*/true).ok());
  }
}

// A lookup returns without the write-back or the fence that it owes.
TEST(PskiplistRaces, V18_WithoutHelpAResultIsLost) {
  for (const Mutant mutant : {Mutant::drop_flush, Mutant::drop_fence}) {
    const ScopedMutant scoped("pskiplist.find.help", mutant);
    ASSERT_TRUE(scoped.matched());
    bool red = false;
    for (const NamedInterleaving& interleaving : pskiplist_interleavings()) {
      if (std::string_view(interleaving.name) != "W9_V18_links") continue;
      red = !interleaving.run(test_name(), /*quiet=*/true).ok();
    }
    EXPECT_TRUE(red) << mutant_name(mutant);
  }
}

}  // namespace
}  // namespace perdure::testing
