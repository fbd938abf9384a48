// That the scenarios of level hashing reach what they are about. What they find is in races_test.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "testing/engines/level_races.h"
#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

// The sites crossed by the schedules of one preemption of all races with this in their name.
std::set<std::string> sites_of(const std::string& part) {
  std::set<std::string> sites;
  for (const Race& race : level_races()) {
    if (race.name.find(part) == std::string::npos) continue;
    InterleaveOptions options = options_of(race, "level");
    options.name = test_name(race.name);
    Interleaver interleaver(race.subjects, options);
    const InterleaveReport report = interleaver.exhaustive(1);
    for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
    sites.insert(report.sites_crossed.begin(), report.sites_crossed.end());
  }
  return sites;
}

void expect_crossed(const std::string& part, const std::set<std::string>& wanted) {
  const std::set<std::string> sites = sites_of(part);
  for (const std::string& site : wanted) EXPECT_TRUE(sites.contains(site)) << part << ": " << site;
}

const std::set<std::string> kResize{"level.resize.root", "level.drain.copy", "level.drain.clear"};
const std::set<std::string> kMove{"level.move.record", "level.move.copy", "level.move.replace"};

TEST(LevelRaces, L4_E9_MovementsAreReached) {
  for (const char* who : {"Finds", "Writers", "Inserts", "Scan"}) {
    expect_crossed(std::string(who) + "BesideAMovement", kMove);
  }
}
TEST(LevelRaces, L11_E1_GrowthIsReached) {
  for (const char* who : {"Finds", "Writers", "Inserts", "Scan"}) {
    expect_crossed(std::string(who) + "BesideAnExpansion", kResize);
    expect_crossed(std::string(who) + "BesideTheSecondExpansion", kResize);
  }
}
TEST(LevelRaces, L11_E2_ShrinksAreReached) {
  for (const char* who : {"Finds", "Inserts", "Erase", "Scan"}) {
    expect_crossed(std::string(who) + "BesideAShrink", kResize);
  }
}

}  // namespace
}  // namespace perdure::testing
