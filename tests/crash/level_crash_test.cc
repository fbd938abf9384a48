// Level hashing with integer keys under the crash explorer. L ids are those of
// docs/design/hazards.md, E ids those of docs/design/level.md.
#include <gtest/gtest.h>

#include "support.h"
#include "testing/level_subject.h"
#include "testing/workloads.h"

namespace perdure::testing {
namespace {

const MapSetup kWords{};
const MapSetup kRecords{.values = ValueKind::bytes};

std::string word(std::uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), 8);
}
Op insert(std::uint64_t key, std::uint64_t value) {
  return {OpKind::insert, integer_key(key), word(value)};
}
Op erase(std::uint64_t key) { return {OpKind::erase, integer_key(key), {}}; }
Op update(std::uint64_t key, std::uint64_t value) {
  return {OpKind::update, integer_key(key), word(value)};
}

// One workload, every crash point, every image that the limit allows.
void explore_exactly(const std::vector<Op>& workload, std::set<std::string> sites,
                     const MapSetup& setup = kWords) {
  Explorer explorer(level_subjects<level::IntegerCodec>(setup), integer_op,
                    {.name = test_name(),
                     .capacity = 2 << 20,
                     .limits = {.product = 4096, .random = 64, .sampled = 400},
                     .battery = 100,
                     .second_in = 20,
                     .kill_in = 3,
                     .explore_create = false});
  const ExploreReport report = explorer.run(workload);
  std::printf("%s\n", report.summary().c_str());
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  for (const std::string& site : sites) {
    EXPECT_TRUE(report.sites_crossed.contains(site)) << site << " was not crossed by a crash";
  }
}

std::vector<Op> inserts(std::uint64_t n) {
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key <= n; ++key) ops.push_back(insert(key, key));
  return ops;
}

TEST(LevelCrash, RandomWords) {
  const ExploreReport report = explore(
      level_subjects<level::IntegerCodec>(kWords), integer_op,
      {.capacity = 2 << 20, .second_in = 60, .kill_in = 12, .explore_create = false}, 120, 4);
  EXPECT_GE(report.second_images, at_least(1));
}

TEST(LevelCrash, RandomRecords) {
  explore(level_subjects<level::IntegerCodec>(kRecords), integer_record_op,
          {.capacity = 2 << 20, .second_in = 150, .kill_in = 20, .explore_create = false}, 80, 3);
}

TEST(LevelCrash, RandomByteStrings) {
  explore(level_subjects<level::BytesCodec>(kRecords), bytes_op,
          {.capacity = 2 << 20, .second_in = 150, .kill_in = 20, .explore_create = false}, 80, 3);
}

// G10: nothing that opens before it is whole.
TEST(LevelCrash, G10_CreateCrash) {
  explore(level_subjects<level::IntegerCodec>(kWords), integer_op,
          {.capacity = 2 << 20,
           .limits = {.product = 1024, .random = 100, .sampled = 300},
           .battery = 60,
           .second_in = 40,
           .kill_in = 2},
          6, 2);
}

// L1, L2, L6, 3a: item and token in one line; an update is the old value or the new one.
TEST(LevelCrash, L1_L6_OneLine) {
  explore_exactly({insert(5, 1), insert(6, 2), update(5, 7), erase(5), insert(7, 3), erase(6),
                   insert(5, 4), update(7, 9), erase(7), insert(0, 5), insert(~0ULL, 6)},
                  {"level.insert.line", "level.erase.token", "level.update.value"});
}

// L3, 3b: two copies after a crash in a movement are one after the next open: erased is erased, and
// updated is updated.
TEST(LevelCrash, L3_MovedThenErasedOrUpdated) {
  std::vector<Op> ops;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t key = 1; key <= 9; ++key) ops.push_back(insert(key + 20 * round, key));
    for (std::uint64_t key = 1; key <= 9; key += 2) ops.push_back(erase(key + 20 * round));
    for (std::uint64_t key = 2; key <= 9; key += 2) ops.push_back(update(key + 20 * round, 99));
    for (std::uint64_t key = 2; key <= 9; key += 2) ops.push_back(erase(key + 20 * round));
  }
  explore_exactly(ops, {"level.move.record", "level.move.copy", "level.move.replace"});
}

// L7, L8: every image of expansions, and of operations while their level is drained.
TEST(LevelCrash, L7_Expand) {
  std::vector<Op> ops = inserts(30);
  for (std::uint64_t key = 1; key <= 30; key += 3) ops.push_back(update(key, 100 + key));
  explore_exactly(ops, {"level.resize.descriptor", "level.resize.root", "level.drain.copy",
                        "level.drain.clear"});
}

// L9, L12: grown, then emptied: it shrinks, and what does not fit undoes that.
TEST(LevelCrash, L9_ShrinkAndUndo) {
  std::vector<Op> ops = inserts(40);
  for (std::uint64_t key = 1; key <= 36; ++key) ops.push_back(erase(key));
  for (std::uint64_t key = 41; key <= 60; ++key) ops.push_back(insert(key, key));
  explore_exactly(ops, {"level.resize.root", "level.drain.copy", "level.drain.clear"});
}

// X1: killed at every crash point, the machine goes on, and loses power during recovery or after.
TEST(LevelCrash, X1_KillThenPowerLoss) {
  const ExploreReport report =
      explore(level_subjects<level::IntegerCodec>(kWords), integer_op,
              {.capacity = 2 << 20,
               .limits = {.product = 4, .random = 1, .sampled = 4},
               .second_limits = {.product = 24, .random = 8, .sampled = 24},
               .battery = 60,
               .kill_in = 1,
               .second_ops = 5,
               .explore_create = false,
               .close_at_end = false},
              30, 2);
  EXPECT_GE(report.kill_runs, at_least(20));
}

// G11: power fails again inside recovery, and recovery starts once more.
TEST(LevelCrash, G11_SecondCrashInsideRecovery) {
  const ExploreReport report =
      explore(level_subjects<level::IntegerCodec>(kWords), integer_op,
              {.capacity = 2 << 20,
               .limits = {.product = 32, .random = 4, .sampled = 32},
               .second_limits = {.product = 24, .random = 8, .sampled = 24},
               .battery = 60,
               .second_in = 6,
               .second_ops = 2,
               .explore_create = false},
              60, 2);
  EXPECT_GE(report.second_images, at_least(100));
}

}  // namespace
}  // namespace perdure::testing
