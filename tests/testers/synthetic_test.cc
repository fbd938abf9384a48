// test: explores
// The synthetic engine: the heap's guarantees that PhaST does not use. Each rule, and the failure
// without it.
#include <gtest/gtest.h>

#include <unistd.h>

#include <string_view>
#include <utility>

#include "testing/crash/synthetic_subject.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

constexpr EnumerationLimits kFew{.product = 128, .random = 12, .sampled = 80};

SubjectFactory subjects(const SyntheticRules& rules) {
  return [rules] { return std::make_unique<SyntheticSubject>(rules); };
}
ExploreOptions options(std::uint64_t seed) {
  return {.seed = seed,
          .capacity = 2 << 20,
          .limits = kFew,
          .second_in = 100,
          .kill_in = 10,
          .explore_create = false};
}

// A few explorations show that the rule is broken.
void expect_red(const SyntheticRules& rules) {
  if (sanitized()) GTEST_SKIP() << "needs many images";
  EXPECT_TRUE(fails_in_child(
      [&] {
        for (std::uint64_t seed = 1; seed <= 6; ++seed) {
          ExploreOptions o = options(seed);
          o.name = "synthetic_rule";
          Explorer explorer(subjects(rules), synthetic_op, o);
          if (!explorer.run(random_workload(synthetic_op, seed, 60)).ok()) return false;
        }
        return true;
      },
      60));
}

TEST(Synthetic, ExploresGreen) {
  expect_crossed(
      explore(subjects({}), synthetic_op, options(1), 60, 2),
      {"synthetic.move.copy", "synthetic.move.clear", "heap.extent.assign", "reclaim.batch.dead"});
}

TEST(Synthetic, CreateCrash) {
  ExploreOptions o = options(1);
  o.explore_create = true;
  explore(subjects({}), synthetic_op, o, 4, 1);
}

// The marker follows the mover: a record moves from a slot that is still to be marked to one that
// already was.
bool moved_records_survive(const SyntheticRules& rules) {
  SimMemory memory(2 << 20);
  Model model;
  {
    SyntheticSubject subject(rules);
    if (!subject.create(memory).ok() || !subject.open(memory, 1).ok()) return false;
    subject.engine().finish_sweep();
    for (std::uint64_t k = 0; k < 20; ++k) {
      model[integer_key(k)] = "v" + std::to_string(k);
      if (!subject.engine().insert(k, model[integer_key(k)])) return false;
    }
    // One round: all records are in the second level, which the next sweep marks last.
    do {
      subject.engine().step();
    } while (subject.engine().mover() != 0);
    memory.settle();
  }
  SyntheticSubject subject(rules);
  if (!subject.open(memory, 2).ok()) return false;
  for (int i = 0; i < 400; ++i) subject.engine().step();
  std::vector<std::string> violations;
  subject.check(violations);
  const std::string wrong = violations.empty() ? compare(subject, model) : violations.front();
  memory.set_mode(SimMode::frozen);
  return wrong.empty();
}

TEST(Synthetic, H4a_MarkBeforeCopy) {
  EXPECT_TRUE(moved_records_survive({}));
  EXPECT_FALSE(moved_records_survive({.mark_before_copy = false}));
}

// I4 of the pool: an engine that serves before its sweep is over must mark the pool dirty before it
// mutates it, because the header still says clean.
TEST(Synthetic, I4_ServingAtOnceMakesThePoolDirtyFirst) {
  SimMemory memory(2 << 20);
  SyntheticSubject subject;
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  ASSERT_TRUE(subject.apply({OpKind::insert, integer_key(1), "a"}));
  ASSERT_TRUE(subject.close().ok());
  SyntheticSubject again;
  ASSERT_TRUE(again.open(memory, 1).ok());
  ASSERT_TRUE(again.pool().heap().sweeping());
  ASSERT_TRUE(again.engine().insert(2, "b").has_value());
  SimMemory next(2 << 20);
  next.load_killed(memory);
  SimPool pool(next);
  ASSERT_TRUE(pool.open(1).ok());
  EXPECT_FALSE(pool.report().was_clean);
  memory.set_mode(SimMode::frozen);
  next.set_mode(SimMode::frozen);
}

TEST(Synthetic, X2_RecordsPublishedWithTheirLinkAreDeadBeforeReuse) {
  expect_red({.record_kind = BlockKind::plain});
}

TEST(Synthetic, X2_SegmentsAreZeroBeforeReuse) { expect_red({.segment_kind = BlockKind::plain}); }

TEST(Synthetic, X4_HelpersFenceBeforeTheyLeaveTheirGuard) { expect_red({.fence_helpers = false}); }

// X1, lazily: a dead process's stores are written back before a result depends on them.
TEST(Synthetic, X1_ResultsDependOnDurableStoresOnly) { expect_red({.settle_results = false}); }

// 4d: in a pool that is full after a reopen, with every extent touched, an insert must not return
// pool_full while the sweep could still find space. An erase always works.
TEST(Synthetic, H4d_AFullPoolThatJustReopened) {
  for (const bool help : {true, false}) {
    const SyntheticRules rules{.help_sweep = help};
    SimMemory memory(2 << 20);
    {
      SyntheticSubject subject(rules);
      ASSERT_TRUE(subject.create(memory).ok());
      ASSERT_TRUE(subject.open(memory, 1).ok());
      memory.set_disk_limit(memory.size());
      std::uint64_t key = 0;
      Expected<bool> inserted = true;
      while (key < 70 && inserted.has_value()) {
        inserted = subject.apply({OpKind::insert, integer_key(key++), std::string(200, 'x')});
      }
      ASSERT_FALSE(inserted.has_value());
      EXPECT_EQ(inserted.error(), StatusCode::pool_full);
      for (std::uint64_t k = 0; k < 4; ++k) {
        EXPECT_TRUE(subject.apply({OpKind::erase, integer_key(k), {}}).value_or(false));
      }
      memory.settle();  // power fails: everything is durable
    }
    SyntheticSubject subject(rules);
    ASSERT_TRUE(subject.open(memory, 2).ok());
    const auto inserted = subject.engine().insert(1000, std::string(200, 'y'));
    EXPECT_EQ(inserted.has_value(), help);
    EXPECT_TRUE(subject.engine().erase(5).value_or(false));
    memory.set_mode(SimMode::frozen);
  }
}

// The pool is closed repeatedly before its sweep is over. Nothing is lost, and a sweep that ends
// finds the blocks of the earlier processes.
TEST(Synthetic, H4d_ClosedInMidSweep) {
  SimMemory memory(2 << 20);
  Model model;
  Random random(11);
  for (int open = 0; open < 12; ++open) {
    SyntheticSubject subject({.marks_per_step = 1});
    if (open == 0) {
      ASSERT_TRUE(subject.create(memory).ok());
    }
    ASSERT_TRUE(subject.open(memory, 1).ok());
    for (int i = 0; i < 20; ++i) {
      const Op op = synthetic_op(random);
      const bool expected = apply_to(model, op);
      const auto result = subject.apply(op);
      ASSERT_TRUE(result.has_value());
      EXPECT_EQ(*result, expected);
    }
    EXPECT_EQ(compare(subject, model), "");
    EXPECT_EQ(subject.pool().heap().sweeping(), open != 0) << "a new pool has nothing to sweep";
    if (open == 11) subject.pool().core().background().settle();
    std::vector<std::string> violations;
    subject.check(violations);
    EXPECT_TRUE(violations.empty()) << violations.front();
    EXPECT_EQ(subject.pool().heap().sweeping(), open != 0 && open != 11);
    ASSERT_TRUE(subject.close().ok());
  }
}

TEST(Synthetic, RunsOfExtentsComeBack) {
  SimMemory memory(2 << 20);
  SyntheticSubject subject;
  ASSERT_TRUE(subject.create(memory).ok());
  ASSERT_TRUE(subject.open(memory, 1).ok());
  subject.engine().finish_sweep();
  for (int round = 0; round < 60; ++round) {
    ASSERT_TRUE(subject.apply({OpKind::insert, integer_key(1), std::string(20000, 'r')}));
    ASSERT_TRUE(subject.apply({OpKind::erase, integer_key(1), {}}));
    subject.pool().epochs().drain_all();
  }
  EXPECT_LT(memory.size(), 200U << 10);
  memory.set_mode(SimMode::frozen);
}

}  // namespace
}  // namespace perdure::testing
