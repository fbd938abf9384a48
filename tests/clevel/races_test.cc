// test: explores
// Clevel hashing under the scheduler: the hazards of docs/design/clevel.md by directed schedules
// and by all schedules of one or two preemptions, each with its crashes. Buckets hold two items and
// the table begins with six of them, so that 14 keys make a third level.
#include <gtest/gtest.h>

#include "testing/engines/clevel_subject.h"
#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

SubjectFactory words() {
  return clevel_subjects<clevel::IntegerCodec>({.background_thread = false});
}
SubjectFactory records() {
  return clevel_subjects<clevel::IntegerCodec>(
      {.values = ValueKind::bytes, .background_thread = false});
}

Ops steps_of_background(std::size_t n) { return Ops(n, background()); }
Ops keys_up_to(std::uint64_t n) {
  Ops ops;
  for (std::uint64_t key = 1; key <= n; ++key) ops.push_back(insert(key, 100 + key));
  return ops;
}
// Three levels, the last of which drains: every write takes a step of the background work.
Ops growing() { return keys_up_to(14); }

constexpr EnumerationLimits kLimits = {.product = 32, .random = 4, .sampled = 24};
InterleaveReport explore(const std::string& part, const SubjectFactory& factory, const Ops& setup,
                         const std::vector<Ops>& threads, std::uint32_t thin, bool quiet = false,
                         const EnumerationLimits& limits = kLimits) {
  Interleaver interleaver(factory, {.name = test_name(part),
                                    .setup = setup,
                                    .threads = threads,
                                    .limits = limits,
                                    .quiet = quiet});
  return interleaver.exhaustive(2, thinned(thin));
}
// C1: an update beside the rehash that copies the slot of its key.
TEST(ClevelRaces, C1_UpdateBesideTheRehash) {
  for (const std::uint64_t key : {1, 2, 3}) {
    expect_clean(explore(std::to_string(key), words(), growing(),
                         {{update(key, 7), find(key)}, steps_of_background(3)}, 48),
                 {"clevel.rehash.copy", "clevel.update.word"});
  }
}

// C2: an erase beside it; the copy of a dead item is undone.
TEST(ClevelRaces, C2_EraseBesideTheRehash) {
  for (const std::uint64_t key : {1, 2, 3}) {
    expect_clean(explore(std::to_string(key), words(), growing(),
                         {{erase(key), find(key), insert(key, 8)}, steps_of_background(3)}, 96),
                 {"clevel.rehash.copy", "clevel.erase.state"});
  }
}
TEST(ClevelRaces, C2_BytesAreReplacedBesideAnErase) {
  expect_clean(explore({}, records(), {insert(5, 1)},
                       {{update(5, 2), find(5)}, {erase(5), insert(5, 3)}}, 48));
}

// C1, C2: two threads drain the last level, each another range, beside mutations of what they copy.
TEST(ClevelRaces, C1_C2_TwoThreadsRehash) {
  const Ops steps = steps_of_background(4);
  expect_clean(explore("two", words(), growing(), {steps, steps}, 96),
               {"clevel.rehash.copy", "clevel.ring.word"});
  for (const std::uint64_t key : {1, 2, 3}) {
    Interleaver interleaver(
        words(),
        {.name = test_name(std::to_string(key)),
         .setup = growing(),
         .threads = {steps, steps, {update(key, 7), erase(key), find(key), insert(key, 8)}},
         .limits = {.product = 16, .random = 2, .sampled = 12}});
    expect_clean(interleaver.pct(sanitized() ? 60 : 1000, 3), {"clevel.rehash.copy"});
  }
}

// C3: the level that an insert has looked at becomes the last one, is sealed and goes.
TEST(ClevelRaces, C3_InsertBesideTheRehash) {
  for (const std::uint64_t key : {31, 32, 33}) {
    expect_clean(explore(std::to_string(key), words(), growing(),
                         {{insert(key, 7), find(key)}, steps_of_background(4)}, 96),
                 {"clevel.rehash.copy", "clevel.insert.slot"});
  }
}
// Both make the level that is missing.
TEST(ClevelRaces, C7_TwoInsertsGrowTheTable) {
  expect_clean(explore({}, words(), keys_up_to(11),
                       {{insert(21, 1), insert(22, 1), find(21)}, {insert(23, 1), insert(24, 1)}},
                       192));
}

// C4: of two inserts of a key one returns that it is there, while the table grows, too.
TEST(ClevelRaces, C4_TwoInsertsOfOneKey) {
  expect_clean(explore("quiet", words(), {insert(7, 1)},
                       {{insert(5, 1), update(5, 3)}, {insert(5, 2), erase(5)}}, 48));
  Interleaver interleaver(
      words(),
      {.name = test_name("growing"),
       .setup = growing(),
       .threads = {{insert(31, 1), erase(31)}, {insert(31, 2), find(31)}, steps_of_background(3)},
       .limits = {.product = 16, .random = 2, .sampled = 12}});
  expect_clean(interleaver.pct(sanitized() ? 60 : 1000, 3));
}

// X3: an insert returns while the erase before it waits for its fence; and what else may return.
TEST(ClevelRaces, X3_ResultsBetweenStoreAndFence) {
  const char* updates = "clevel.update.word";
  const char* erases = "clevel.erase.state";
  const char* inserts = "clevel.insert.slot";
  expect_results_between_store_and_fence(words(),
                                         {{"update_find", update(5, 2), updates, find(5)},
                                          {"update_insert", update(5, 2), updates, insert(5, 3)},
                                          {"update_erase", update(5, 2), updates, erase(5)},
                                          {"erase_find", erase(5), erases, find(5)},
                                          {"erase_erase", erase(5), erases, erase(5)},
                                          {"erase_update", erase(5), erases, update(5, 3)},
                                          {"insert_find", insert(9, 1), inserts, find(9)},
                                          {"insert_update", insert(9, 1), inserts, update(9, 2)},
                                          {"insert_erase", insert(9, 1), inserts, erase(9)},
                                          {"insert_insert", insert(9, 1), inserts, insert(9, 2)}});
}

// The help of each thread that returns is needed.
TEST(ClevelRaces, X3_WithoutHelpAResultIsLost) {
  const std::vector<Ops> threads{{update(5, 2), erase(6), insert(7, 1)},
                                 {find(5), find(6), insert(6, 3), find(7), update(7, 2)}};
  expect_clean(explore("green", words(), {insert(5, 1), insert(6, 1)}, threads, 24));
  for (const auto& [site, mutant] : {std::pair{"clevel.help.dead", Mutant::drop_flush},
                                     std::pair{"clevel.help.dead", Mutant::drop_fence},
                                     std::pair{"clevel.help.item", Mutant::drop_flush},
                                     std::pair{"clevel.help.item", Mutant::drop_fence},
                                     std::pair{"clevel.help.slot", Mutant::drop_flush}}) {
    const ScopedMutant scoped(site, mutant);
    ASSERT_TRUE(scoped.matched()) << site;
    const auto report =
        explore("red", words(), {insert(5, 1), insert(6, 1)}, threads, 24, /*quiet=*/true);
    EXPECT_FALSE(report.ok()) << site << ":" << mutant_name(mutant);
  }
}

// An insert moves an item, in whose place other threads look, change it, take it away.
TEST(ClevelRaces, C1_C2_C3_ItemsMoveUpBesideOthers) {
  const Ops setup = keys_up_to(9);
  // Items move when the walk of the open is over.
  const Ops fill = with(steps_of_background(8), inserts({31, 32, 33, 34}));
  for (const std::uint64_t key : {1, 4, 7}) {
    expect_clean(explore(std::to_string(key), words(), setup,
                         {fill, {update(key, 7), find(key), erase(key), insert(key, 8)}}, 384),
                 {"clevel.move.slot"});
  }
  expect_clean(
      explore("two", words(), setup, {fill, {insert(41, 1), insert(42, 1), erase(1)}}, 384),
      {"clevel.move.slot"});
}

// The table is made smaller beside whatever else is done.
TEST(ClevelRaces, C14_CompactBesideOthers) {
  const EnumerationLimits few = {.product = 8, .random = 1, .sampled = 8};  // of a long schedule
  Ops setup = keys_up_to(26);
  for (std::uint64_t key = 1; key <= 22; ++key) setup.push_back(erase(key));
  setup = with(setup, steps_of_background(60));
  const Ops compact = with(steps_of_background(8), {{OpKind::compact, {}, {}}});
  expect_clean(
      explore("mutations", words(), setup,
              {compact, {update(23, 7), erase(24), insert(31, 1), find(25)}}, 4096, false, few),
      {"clevel.ring.word", "clevel.rehash.copy"});
  if (sanitized()) return;  // a minute there
  expect_clean(explore("inserts", words(), setup,
                       {compact, {insert(31, 1), insert(32, 1), insert(33, 1), find(26)}}, 4096,
                       false, few));
}

// P4a: items move while the sweep marks what the process before left.
TEST(ClevelRaces, P4a_ItemsMoveBesideTheSweep) {
  expect_clean(
      explore({}, words(), with(growing(), {reopen()}),
              {steps_of_background(8), {erase(1), insert(31, 1), insert(32, 2), find(2)}}, 512),
      {"clevel.rehash.copy"});
}

// I9: of what is inserted and erased while the walk sums the slots of a closed map none is held for
// lost; without the account of what changes ahead of it some is.
TEST(ClevelRaces, I9_TheWalkSumsBesideMutations) {
  const Ops setup = with(keys_up_to(8), {reopen()});
  const std::vector<Ops> threads{{erase(1), insert(31, 1), insert(1, 2)},
                                 {insert(32, 1), erase(7), erase(8)}};
  expect_clean(explore("two", words(), setup, threads, 128));
  expect_clean(explore("beside_steps", words(), setup, {steps_of_background(8), threads[0]}, 128));
  const ScopedMutant scoped("clevel.slots.ahead", Mutant::skip_step);
  ASSERT_TRUE(scoped.matched());
  EXPECT_FALSE(explore("red", words(), setup, threads, 128, /*quiet=*/true).ok());
}

// The walk of an open clears the slot of an item that has just died, and is over; an insert fills
// it; the eraser, wherever it was stopped since it killed the item, leaves it alone.
TEST(ClevelRaces, C4_P4a_TheWalkEndsBesideAnEraser) {
  Interleaver interleaver(
      clevel_subjects<clevel::IntegerCodec>({}),
      {.name = test_name(),
       .setup = {insert(7, 1), insert(5, 1)},
       .threads = {{erase(5)}, with(steps_of_background(8), {insert(5, 2), find(5)})}});
  const auto report =
      interleaver.sweep({{0, flush_of("clevel.erase.state")}}, 0, {{1, done()}, {0, done()}});
  expect_clean(report, {"clevel.mark.slot"});
  EXPECT_LE(report.blocked, 4U) << "it waits only where the eraser has the latch of the bucket";
}

}  // namespace
}  // namespace perdure::testing
