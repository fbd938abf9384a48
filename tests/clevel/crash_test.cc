// test: explores
// Clevel hashing under the crash explorer. The ids are those of docs/design/hazards.md.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "testing/crash/workloads.h"
#include "testing/engines/clevel_subject.h"
#include "testing/schedule/race_ops.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

const MapSetup kWords{};
const MapSetup kRecords{.values = ValueKind::bytes};

// One workload, beside steps of the background work.
void explore_exactly(const std::vector<Op>& workload, const std::set<std::string>& sites,
                     const MapSetup& setup = kWords) {
  explore_workload(clevel_subjects<clevel::IntegerCodec>(setup), beside_background(integer_op),
                   exact_options({.product = 1024, .random = 32, .sampled = 200}, 60),
                   beside_background(workload), sites);
}

// 2a: a slot durable before its item names nothing, also where the block had another life.
TEST(ClevelCrash, P2a_ReusedBlocks) {
  explore_exactly({insert(5, 1), erase(5), insert(5, 2), erase(5), insert(6, 3), insert(5, 4),
                   update(5, 5), erase(6), insert(6, 6)},
                  {"clevel.insert.slot", "clevel.erase.state", "clevel.update.word"});
}

// Mutations of one call reach the medium in any subset until their fence, each whole or absent.
TEST(ClevelCrash, MutationsOfOneCall) {
  explore_exactly({many({insert(5, 1), insert(6, 2), insert(7, 3), insert(8, 4)}),
                   many({update(5, 5), erase(6), insert(9, 6), update(10, 7)}),
                   many({erase(5), insert(6, 8), erase(7), update(8, 9)}),
                   many({erase(6), erase(8), erase(9), insert(5, 10)})},
                  {"clevel.many.item", "clevel.many.slot"});
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

// C5: what a rehash has copied when it is cut short is named once before it goes on: by the walk.
TEST(ClevelCrash, C5_RehashAgainAfterACrash) {
  explore_exactly(drained(), {"clevel.rehash.copy"});
  for (const char* site : {"clevel.mark.twice", "clevel.rehash.wait"}) {
    EXPECT_TRUE(goes_red(site, Mutant::skip_step, drained(),
                         {.name = "c5_mutant", .capacity = 2 << 20, .second_in = 2, .kill_in = 1}))
        << site;
  }
}

// An insert that finds no slot moves an item up before the table grows.
std::vector<Op> moved_up() {
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key <= 22; ++key) ops.push_back(insert(key, key));
  for (std::uint64_t key = 2; key <= 22; key += 3) ops.push_back(erase(key));
  for (std::uint64_t key = 31; key <= 34; ++key) ops.push_back(insert(key, key));
  return ops;
}
TEST(ClevelCrash, I4_ItemsMoveUp) {
  explore_exactly(moved_up(), {"clevel.move.slot", "clevel.rehash.copy"});
  EXPECT_TRUE(goes_red("clevel.mark.twice", Mutant::skip_step, moved_up(),
                       {.name = "moved_mutant", .capacity = 2 << 20, .battery = 20}));
}

// A table that is made smaller: every point of it, and of what is inserted and erased beside it.
TEST(ClevelCrash, C14_Compact) {
  std::vector<Op> ops;
  const auto some = [&](std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t key = from; key <= to; ++key) ops.push_back(insert(key, key));
  };
  some(1, 26);
  for (std::uint64_t key = 1; key <= 22; ++key) ops.push_back(erase(key));
  ops.push_back({OpKind::compact, {}, {}});
  some(41, 44);
  ops.push_back(update(25, 1));
  ops.push_back(erase(26));
  ops.push_back({OpKind::compact, {}, {}});
  some(51, 54);
  explore_exactly(ops, {"clevel.ring.word", "clevel.rehash.copy", "clevel.rehash.seal"});
}

TEST(ClevelCrash, ADamagedRootBlockIsRefused) {
  const auto opens = [] {
    SimMemory memory(2 << 20);
    ClevelSubject<clevel::IntegerCodec> subject(kWords);
    EXPECT_TRUE(subject.create(memory).ok());
    EXPECT_TRUE(subject.open(memory, 1).ok());
    EXPECT_TRUE(subject.close().ok());
    const_cast<clevel::layout::Root*>(clevel_root(memory))->seed[0] ^= 1;
    ClevelSubject<clevel::IntegerCodec> reopened(kWords);
    return reopened.open(memory, 1).ok();
  };
  EXPECT_FALSE(opens());
  const ScopedMutant scoped("clevel.root.crc", Mutant::skip_check);
  ASSERT_TRUE(scoped.matched());
  EXPECT_TRUE(opens());
}

// The next level is zeroed before it is needed, also while a level drains and a scan holds that
// back. If it is not, an insert makes a small one itself; when the drain is over, the next one lies
// ready again.
TEST(ClevelCrash, LooksAheadWhileALevelDrains) {
  SimMemory memory(2 << 20);
  ASSERT_TRUE(ClevelSubject<clevel::IntegerCodec>(kWords).create(memory).ok());
  ClevelSubject<clevel::IntegerCodec> subject(kWords);
  ASSERT_TRUE(subject.open(memory, 1).ok());
  const SiteInfo* zeroed = find_site("clevel.ahead.zero");
  ASSERT_NE(zeroed, nullptr);
  const Op step{OpKind::background, {}, {}};
  std::uint64_t key = 0;
  const auto next = [&] {
    ++key;
    return insert(key, key);
  };
  const auto grow_to = [&](std::size_t levels) {
    while (subject.stats().levels.size() < levels) ASSERT_TRUE(subject.apply(next()));
  };
  const auto zeroed_by_steps = [&] {
    reset_site_counts();
    for (int i = 0; i < 20; ++i) (void)subject.apply(step);
    return zeroed->flush_count.load();
  };
  const auto first_slots = [&] { return subject.stats().levels[0].slots; };
  grow_to(3);
  EXPECT_EQ(first_slots(), 16U);
  // A scan holds the drain back, and nothing else.
  std::uint64_t beside_a_drain = 0;
  const std::uint64_t before = key;
  while (key < before + 10) ASSERT_TRUE(subject.apply(next()));
  ASSERT_EQ(subject.stats().levels.size(), 3U);
  bool first = true;
  ASSERT_TRUE(subject
                  .scan(false,
                        [&](const std::string&, const std::string&) {
                          if (std::exchange(first, false)) beside_a_drain = zeroed_by_steps();
                        })
                  .ok());
  EXPECT_EQ(beside_a_drain, 2U) << "sixteen buckets in steps of eight";
  reset_site_counts();
  grow_to(4);
  EXPECT_EQ(zeroed->flush_count.load(), 0U) << "the level lay ready";
  EXPECT_EQ(first_slots(), 32U);
  reset_site_counts();
  grow_to(5);
  EXPECT_EQ(zeroed->flush_count.load(), 4U) << "an insert has made it: of four times eight buckets";
  EXPECT_EQ(first_slots(), 64U);
  for (int i = 0; i < 400; ++i) (void)subject.apply(step);
  ASSERT_EQ(subject.stats().levels.size(), 2U);
  std::uint64_t ahead = 0;
  while (ahead == 0 && subject.stats().levels.size() == 2) {
    ASSERT_TRUE(subject.apply(next()));
    ahead = zeroed_by_steps();
  }
  EXPECT_GT(ahead, 0U);
  std::vector<std::string> violations;
  subject.check(violations);
  EXPECT_TRUE(violations.empty()) << violations.front();
  EXPECT_TRUE(subject.close().ok());
}

// Levels pile up, made by inserts, where no step of the background work is ever run.
TEST(ClevelCrash, C12_GrowthOutrunsTheRehash) {
  std::vector<Op> ops;
  for (std::uint64_t key = 1; key <= 40; ++key) ops.push_back(insert(key, key));
  explore_workload(clevel_subjects<clevel::IntegerCodec>(kWords), integer_op,
                   {.capacity = 2 << 20, .second_in = 60}, ops,
                   {"clevel.ring.word", "clevel.ahead.zero"});
}

// C10: which items are in use is known by the slots alone, wherever an insert or an erase was cut
// short: what they name stays, all else is swept.
TEST(ClevelCrash, C10_WhatSlotsNameStays) {
  const std::vector<Op> ops{insert(5, 1), insert(6, 2), erase(5), insert(7, 3), insert(5, 4)};
  explore_exactly(ops, {"clevel.insert.item", "clevel.insert.slot", "clevel.erase.state"});
  EXPECT_TRUE(goes_red("clevel.mark.item", Mutant::skip_step, ops,
                       {.name = "c10_mutant", .capacity = 2 << 20, .battery = 20}));
}

// Of the only map in the memory: the first item that a slot names.
clevel::Item* first_item(const SimMemory& memory) {
  const auto at = [&](std::uint64_t offset) { return memory.base() + offset; };
  for (const std::uint64_t level : clevel_root(memory)->levels) {
    const std::uint64_t buckets = level & clevel::kOffsetMask & ~std::uint64_t{63};
    for (std::uint64_t n = 0; level != 0 && n < std::uint64_t{8} << (level & 63); ++n) {
      const std::uint64_t slot = *reinterpret_cast<const std::uint64_t*>(at(buckets + n * 8));
      if (slot <= clevel::kSealed) continue;
      return reinterpret_cast<clevel::Item*>(
          const_cast<std::byte*>(at(slot & clevel::kOffsetMask)));
    }
  }
  return nullptr;
}

// An item that was pending when its process died never was one: the walk clears its slot, and the
// sweep frees its block. In a closed map it is damage.
TEST(ClevelCrash, AnItemThatIsPendingNeverWas) {
  for (const bool closed : {false, true}) {
    const ScopedWorld world;
    SimPlatform::seed(1);
    SimMemory memory(2 << 20);
    auto subject = std::make_unique<ClevelSubject<clevel::IntegerCodec>>(kWords);
    ASSERT_TRUE(subject->create(memory).ok());
    ASSERT_TRUE(subject->open(memory, 1).ok());
    ASSERT_TRUE(subject->apply(insert(5, 1)).value_or(false));
    if (closed) {
      ASSERT_TRUE(subject->close().ok());
    }
    clevel::Item* item = first_item(memory);
    ASSERT_NE(item, nullptr);
    item->state = clevel::toggle_pending(item->state);
    subject = std::make_unique<ClevelSubject<clevel::IntegerCodec>>(kWords);
    ASSERT_TRUE(subject->open(memory, 2).ok());
    for (int n = 0; n < 20; ++n) subject->background();
    std::string value;
    const auto found = subject->lookup(integer_key(5), value);
    EXPECT_EQ(found.has_value(), !closed);
    if (closed) continue;
    EXPECT_FALSE(*found);
    std::vector<std::string> violations;
    subject->check(violations);
    EXPECT_TRUE(violations.empty()) << violations.front();
    EXPECT_TRUE(subject->apply(insert(5, 2)).value_or(false));
  }
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
          random_options(60, 12), 60, 3);
}

// 2b: the only pointer to an acknowledged value is replaced.
TEST(ClevelCrash, P2b_RandomRecords) {
  explore(clevel_subjects<clevel::IntegerCodec>(kRecords), beside_background(integer_record_op),
          random_options(150, 20), 40, 2);
}

TEST(ClevelCrash, CreateCrash) {
  explore(clevel_subjects<clevel::IntegerCodec>(kWords), beside_background(integer_op),
          create_options(), 6, 1);
}

}  // namespace
}  // namespace perdure::testing
