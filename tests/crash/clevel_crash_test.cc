// Clevel hashing under the crash explorer. The ids are those of docs/design/hazards.md.
#include <gtest/gtest.h>

#include <set>

#include "support.h"
#include "testing/engines/clevel_subject.h"
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
void explore_exactly(const std::vector<Op>& workload, const std::set<std::string>& sites,
                     const MapSetup& setup = kWords) {
  Explorer explorer(clevel_subjects<clevel::IntegerCodec>(setup), beside_background(integer_op),
                    {.name = test_name(),
                     .capacity = 2 << 20,
                     .limits = {.product = 1024, .random = 32, .sampled = 200},
                     .battery = 60,
                     .second_in = 20,
                     .kill_in = 3,
                     .explore_create = false});
  const ExploreReport report = explorer.run(beside_background(workload));
  std::printf("%s\n", report.summary().c_str());
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  for (const std::string& site : sites) {
    EXPECT_TRUE(report.sites_crossed.contains(site)) << site << " was not crossed by a crash";
  }
}

// 2a: a slot durable before its item names nothing, also where the block had another life.
TEST(ClevelCrash, P2a_ReusedBlocks) {
  explore_exactly({insert(5, 1), erase(5), insert(5, 2), erase(5), insert(6, 3), insert(5, 4),
                   update(5, 5), erase(6), insert(6, 6)},
                  {"clevel.insert.slot", "clevel.erase.state", "clevel.update.word"});
}

// C3, C6, C7: the table grows from 12 slots; every point of expansions and rehashes.
TEST(ClevelCrash, C6_C7_GrowthAndRehash) {
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key <= 24; ++key) ops.push_back(insert(key, key));
  explore_exactly(ops, {"clevel.ring.word", "clevel.rehash.copy", "clevel.insert.slot"});
}

// C2: erases while the last level drains.
TEST(ClevelCrash, C2_EraseDuringRehash) {
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key <= 14; ++key) ops.push_back(insert(key, key));
  for (std::uint64_t key = 1; key <= 14; key += 2) {
    ops.push_back(erase(key));
    ops.push_back(insert(key + 100, key));
  }
  explore_exactly(ops, {"clevel.rehash.copy", "clevel.erase.state"});
}

bool goes_red(const char* site, Mutant mutant, const std::vector<Op>& workload,
              const ExploreOptions& options) {
  return fails_in_child(
      [&] {
        const ScopedMutant scoped(site, mutant);
        Explorer explorer(clevel_subjects<clevel::IntegerCodec>(kWords),
                          beside_background(integer_op), options);
        return !scoped.matched() || explorer.run(beside_background(workload)).ok();
      },
      60);
}

std::vector<Op> drained() {
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key <= 14; ++key) ops.push_back(insert(key, key));
  for (std::uint64_t key = 1; key <= 5; ++key) {
    ops.push_back(update(key, 100 + key));
    ops.push_back(erase(key));
  }
  return ops;
}

// C5: a rehash that begins again copies nothing twice: what was copied is found above.
TEST(ClevelCrash, C5_RehashAgainAfterACrash) {
  explore_exactly(drained(), {"clevel.rehash.copy"});
  EXPECT_TRUE(goes_red("clevel.rehash.found", Mutant::skip_step, drained(),
                       {.name = "c5_mutant", .capacity = 2 << 20, .second_in = 4, .kill_in = 2}));
}

// C10: which items are in use is known by the slots alone, wherever an insert or an erase was cut
// short: what they name stays, all else is swept.
TEST(ClevelCrash, C10_WhatSlotsNameStays) {
  const std::vector<Op> ops{insert(5, 1), insert(6, 2), erase(5), insert(7, 3), insert(5, 4)};
  explore_exactly(ops, {"clevel.insert.item", "clevel.insert.slot", "clevel.erase.state"});
  EXPECT_TRUE(goes_red("clevel.mark.item", Mutant::skip_step, ops,
                       {.name = "c10_mutant", .capacity = 2 << 20, .battery = 20}));
}

// Items that a close has closed are opened by the first update, in the order of their line.
std::vector<Op> closed_and_updated() {
  return {insert(5, 1), insert(6, 1), {OpKind::reopen, {}, {}}, update(5, 2),
          erase(6),     insert(6, 3), {OpKind::reopen, {}, {}}, update(6, 4),
          update(5, 3), update(5, 4)};
}
TEST(ClevelCrash, ClosedItemsAreUpdated) {
  explore_exactly(closed_and_updated(), {"clevel.update.word"});
  explore_exactly(closed_and_updated(), {"clevel.update.blob"}, kRecords);
}
TEST(ClevelCrash, ClosedItemsThatAreNotOpenedFirstAreLost) {
  for (const auto& [site, mutant] : {std::pair{"clevel.update.open", Mutant::skip_step},
                                     std::pair{"clevel.update.word", Mutant::any_order}}) {
    EXPECT_TRUE(goes_red(site, mutant, closed_and_updated(),
                         {.name = "closed_mutant", .capacity = 2 << 20, .battery = 20}))
        << site << ":" << mutant_name(mutant);
  }
}

TEST(ClevelCrash, RandomWords) {
  explore(clevel_subjects<clevel::IntegerCodec>(kWords), beside_background(integer_op),
          {.capacity = 2 << 20, .second_in = 60, .kill_in = 12, .explore_create = false}, 60, 3);
}

// 2b: the only pointer to an acknowledged value is replaced.
TEST(ClevelCrash, P2b_RandomRecords) {
  explore(clevel_subjects<clevel::IntegerCodec>(kRecords), beside_background(integer_record_op),
          {.capacity = 2 << 20, .second_in = 150, .kill_in = 20, .explore_create = false}, 40, 2);
}

TEST(ClevelCrash, CreateCrash) {
  explore(clevel_subjects<clevel::IntegerCodec>(kWords), beside_background(integer_op),
          {.capacity = 2 << 20,
           .limits = {.product = 256, .random = 50, .sampled = 100},
           .battery = 60,
           .second_in = 40,
           .kill_in = 2},
          6, 1);
}

}  // namespace
}  // namespace perdure::testing
