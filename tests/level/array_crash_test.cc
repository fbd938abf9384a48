// test: explores
// Level hashing with arrays in its lines under the crash explorer. L ids are those of
// docs/design/hazards.md, E ids those of docs/design/level.md.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "testing/crash/workloads.h"
#include "testing/engines/level_subject.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

// Mutations do the background work, so that what a workload reaches is in its operations.
const MapSetup kSetup{.background_thread = false};

Op op(OpKind kind, std::uint64_t key, char value) {
  return {kind, integer_key(key), std::string(8, value)};
}

// Updates, erases and inserts of the first `keys` keys at random, behind each recovery.
OpSource changes_of(std::uint64_t keys) {
  return [keys](Random& random) {
    static constexpr OpKind kKinds[] = {OpKind::update, OpKind::erase, OpKind::insert};
    return op(kKinds[random.below(3)], 1 + random.below(keys),
              static_cast<char>('A' + random.below(26)));
  };
}
// Every crash point of the operations, and of some recoveries. `prepare`: what comes before.
void explore_updates(const SubjectFactory& subjects, const OpSource& changes,
                     std::vector<Op> prepare, const std::vector<Op>& ops,
                     const std::set<std::string>& sites) {
  const ExploreReport report =
      explore_workload(subjects, changes,
                       {.capacity = 2 << 20,
                        .limits = {.product = 512, .random = 16, .sampled = 100},
                        .second_limits = {.product = 16, .random = 4, .sampled = 16},
                        .battery = 60,
                        .second_in = 4,
                        .kill_in = 3,
                        .second_ops = 4,
                        .prepare = std::move(prepare),
                        .explore_create = false},
                       ops, sites);
  EXPECT_GE(report.second_images, at_least(100));
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
  explore_updates(level_subjects<level::ArrayCodec>(kSetup), changes_of(6), prepare, ops,
                  {"level.update.slot", "level.update.record", "level.update.array",
                   "level.update.clear", "level.recover.update"});
}

// E30: both words of a value, into the bucket's other line. Ten items in twelve slots fill lines
// and leave slots in buckets. Recovery that drops one of two slots is struck again.
TEST(LevelArrayCrash, E30_UpdatesOverTwoLines) {
  std::vector<Op> prepare;
  for (std::uint64_t key = 1; key <= 10; ++key) prepare.push_back(op(OpKind::insert, key, 'a'));
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key <= 10; ++key) ops.push_back(op(OpKind::update, key, 'b'));
  ops.push_back(op(OpKind::erase, 3, ' '));
  ops.push_back(op(OpKind::insert, 11, 'c'));
  for (std::uint64_t key = 1; key <= 10; ++key) ops.push_back(op(OpKind::update, key, 'd'));
  explore_updates(level_subjects<level::ArrayCodec, TwoLineGeometry>(kSetup), changes_of(11),
                  prepare, ops, {"level.update.copy", "level.update.old", "level.recover.double"});
}

}  // namespace
}  // namespace perdure::testing
