// Level hashing with arrays in its lines under the crash explorer. L ids are those of
// docs/design/hazards.md, E ids those of docs/design/level.md.
#include <gtest/gtest.h>

#include "testing/crash/workloads.h"
#include "testing/engines/level_subject.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

// Mutations do the background work, so that what a workload reaches is in its operations.
const MapSetup kSetup{.background_thread = false};
SubjectFactory arrays() { return level_subjects<level::ArrayCodec>(kSetup); }

Op op(OpKind kind, std::uint64_t key, char value) {
  return {kind, integer_key(key), std::string(8, value)};
}

TEST(LevelArrayCrash, RandomArrays) {
  const ExploreReport report = explore(
      arrays(), integer_op,
      {.capacity = 2 << 20, .second_in = 60, .kill_in = 12, .explore_create = false}, 100, 3);
  EXPECT_GE(report.second_images, at_least(1));
}

// L5: both words of a value, into the line's free slot or where it is, at every crash point; and
// what recovery does about it, struck again, with other changes of the slots in between.
TEST(LevelArrayCrash, L5_E25_E26_Updates) {
  std::vector<Op> prepare;
  for (std::uint64_t key = 1; key <= 5; ++key) prepare.push_back(op(OpKind::insert, key, 'a'));
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key <= 5; ++key) ops.push_back(op(OpKind::update, key, 'b'));
  ops.push_back(op(OpKind::erase, 2, ' '));
  ops.push_back(op(OpKind::erase, 4, ' '));
  for (std::uint64_t key = 1; key <= 5; key += 2) ops.push_back(op(OpKind::update, key, 'c'));
  const OpSource changes = [](Random& random) {
    static constexpr OpKind kKinds[] = {OpKind::update, OpKind::erase, OpKind::insert};
    return op(kKinds[random.below(3)], 1 + random.below(6),
              static_cast<char>('A' + random.below(26)));
  };
  Explorer explorer(arrays(), changes,
                    {.name = test_name(),
                     .capacity = 2 << 20,
                     .limits = {.product = 512, .random = 16, .sampled = 100},
                     .second_limits = {.product = 16, .random = 4, .sampled = 16},
                     .battery = 60,
                     .second_in = 4,
                     .kill_in = 3,
                     .second_ops = 4,
                     .prepare = prepare,
                     .explore_create = false});
  const ExploreReport report = explorer.run(ops);
  std::printf("%s\n", report.summary().c_str());
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  for (const char* site : {"level.update.slot", "level.update.record", "level.update.array",
                           "level.update.clear", "level.recover.update"}) {
    EXPECT_TRUE(report.sites_crossed.contains(site)) << site << " was not crossed by a crash";
  }
  EXPECT_GE(report.second_images, at_least(100));
}

}  // namespace
}  // namespace perdure::testing
