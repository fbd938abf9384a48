// test: explores
// The skiplists under the scheduler, by directed schedules: a thread stopped where it hurts. Four
// levels, parts of two nodes. K ids are those of docs/design/atomic_skiplists.md.
#include "testing/engines/skiplist_races.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "testing/engines/skiplist_subject.h"
#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

constexpr EnumerationLimits kFew{.product = 16, .random = 2, .sampled = 12};

template <class Kind>
class SkiplistRaces : public ::testing::Test {
 protected:
  static SubjectFactory words() {
    return skiplist_subjects<Kind>(KeyKind::integer, {.background_thread = false});
  }
  static std::string site(const std::string& rest) {
    return std::string(engine_name(Kind::kEngine)) + "." + rest;
  }

  static InterleaveOptions options(const std::string& part, const Ops& setup,
                                   const std::vector<Ops>& threads) {
    return {.name = test_name(part), .setup = setup, .threads = threads, .limits = kFew};
  }
};
using Kinds = ::testing::Types<skiplist::As, skiplist::Ascs>;
struct KindName {
  template <class Kind>
  static std::string GetName(int) {
    return std::string(engine_name(Kind::kEngine));
  }
};
TYPED_TEST_SUITE(SkiplistRaces, Kinds, KindName);

// K5: the writer stands between its store and its fence. A reader returns, and writes back what the
// result rests on. A writer of the key waits for its turn.
TYPED_TEST(SkiplistRaces, K5_G1_A11_ResultsBetweenStoreAndFence) {
  const std::string updates = this->site("update.value");
  const std::string erases = this->site("erase.link");
  const std::string inserts = this->site("insert.link");
  expect_results_between_store_and_fence(
      this->words(),
      {{"update_find", update(5, 2), updates, find(5)},
       {"update_scan", update(5, 2), updates, scan()},
       {"update_scan_back", update(5, 2), updates, scan_back()},
       {"update_insert", update(5, 2), updates, insert(5, 3)},
       {"update_erase", update(5, 2), updates, erase(5), true},
       {"erase_find", erase(5), erases, find(5)},
       {"erase_scan", erase(5), erases, scan()},
       {"erase_scan_back", erase(5), erases, scan_back()},
       {"erase_erase", erase(5), erases, erase(5)},
       {"erase_update", erase(5), erases, update(5, 3)},
       {"erase_insert", erase(5), erases, insert(5, 3), true},
       {"insert_find", insert(9, 1), inserts, find(9)},
       {"insert_scan", insert(9, 1), inserts, scan()},
       {"insert_scan_back", insert(9, 1), inserts, scan_back()},
       {"insert_insert", insert(9, 1), inserts, insert(9, 2)},
       {"insert_update", insert(9, 1), inserts, update(9, 2), true},
       {"insert_erase", insert(9, 1), inserts, erase(9), true}},
      kFew);
}

// The help of each thread that returns is needed.
TYPED_TEST(SkiplistRaces, K5_WithoutHelpAResultIsLost) {
  const std::vector<Ops> threads{{update(5, 2), erase(6), insert(7, 1)},
                                 {find(5), find(6), insert(7, 3), find(7), scan()}};
  const Ops setup{insert(5, 1), insert(6, 1)};
  {
    Interleaver interleaver(this->words(), this->options("green", setup, threads));
    expect_clean(interleaver.exhaustive(1));
  }
  for (const Mutant mutant : {Mutant::drop_flush, Mutant::drop_fence}) {
    const ScopedMutant scoped(this->site("help.word"), mutant);
    ASSERT_TRUE(scoped.matched());
    InterleaveOptions options = this->options("red", setup, threads);
    options.quiet = true;
    Interleaver interleaver(this->words(), options);
    EXPECT_FALSE(interleaver.exhaustive(1).ok()) << mutant_name(mutant);
  }
}

// Lookups and scans never wait, wherever in its tower a writer stands.
TYPED_TEST(SkiplistRaces, NoReaderWaitsForAWriter) {
  for (const Op& writer : {insert(35, 1), erase(30), update(30, 2)}) {
    for (const Op& reader : {find(30), find(35), scan(), scan_back()}) {
      const std::string part = describe(writer) + " " + describe(reader);
      Interleaver interleaver(this->words(), this->options(part, tens(6), {{writer}, {reader}}));
      const auto report = interleaver.sweep({}, 0, {{1, done()}, {0, done()}});
      expect_clean(report);
      EXPECT_EQ(report.blocked, 0U) << part;
      EXPECT_GT(report.schedules, 10U) << part;
    }
  }
}

// A writer waits for changes of its neighbours, and by chance for one that shares a stripe with it:
// there are four. Wherever the other one stands, some writers go on.
TYPED_TEST(SkiplistRaces, NotEveryWriterWaitsForAnother) {
  constexpr std::uint32_t kOfThePool = 2;  // steps at which a change holds a latch of the pool
  for (const Op& first : {update(30, 2), insert(35, 1), erase(30)}) {
    std::uint32_t free = 0;
    for (const Op& second : {update(10, 3), update(60, 3), insert(65, 3), erase(60), erase(10)}) {
      const std::string part = describe(first) + " " + describe(second);
      Interleaver interleaver(this->words(), this->options(part, tens(6), {{first}, {second}}));
      const auto report = interleaver.sweep({}, 0, {{1, done()}, {0, done()}});
      expect_clean(report);
      EXPECT_GT(report.schedules, 10U) << part;
      free += report.blocked <= kOfThePool ? 1 : 0;
    }
    EXPECT_GT(free, 0U) << describe(first);
  }
}

// K3: the writer has walked; what it came by is erased, and what was erased is used again, before
// it has the latch. Keys of every height, before and behind it.
TYPED_TEST(SkiplistRaces, K3_APathOfThePast) {
  for (const std::uint64_t gone : {10, 20, 30, 40, 50, 60}) {
    for (const Op& writer : {insert(gone + 1, 1), erase(gone + 10), upsert(gone, 2)}) {
      const Ops other{erase(gone), reclaim(),           reclaim(),
                      reclaim(),   insert(gone + 2, 1), insert(gone - 1, 1)};
      const std::string part = std::to_string(gone) + " " + describe(writer);
      Interleaver interleaver(this->words(), this->options(part, tens(7), {other, {writer}}));
      const auto report = interleaver.sweep({}, 1, {{0, done()}, {1, done()}});
      expect_clean(report);
      EXPECT_GT(report.schedules, 10U) << part;
    }
  }
}

// K7, K10, G6: a reader is stopped after each of its steps; what it stands on is erased, and so
// many blocks are freed and taken that it would be another key's.
TYPED_TEST(SkiplistRaces, K7_K10_G6_NothingIsReusedUnderAReader) {
  Ops writer{erase(30), erase(40)};
  for (int i = 0; i < 3; ++i) writer.push_back(reclaim());
  for (const std::uint64_t key : {5, 35, 36, 65}) writer.push_back(insert(key, key));
  for (const Op& reader : {find(30), find(40), find(50), scan(), scan_back()}) {
    Interleaver interleaver(this->words(),
                            this->options(describe(reader), tens(6), {writer, {reader}}));
    const auto report = interleaver.sweep({}, 1, {{0, done()}, {1, done()}});
    expect_clean(report);
    EXPECT_GT(report.schedules, 10U);
  }
}

// K2: the next mutation of any thread writes back what the last link of a tower owes. Runs every
// schedule of one preemption.
TYPED_TEST(SkiplistRaces, A4_K2_ThreeTowersAtOnce) {
  const std::vector<Ops> threads{
      {insert(15, 1), erase(20)}, {insert(16, 1), erase(30)}, {insert(25, 2), scan()}};
  Interleaver interleaver(this->words(), this->options({}, tens(4), threads));
  std::set<std::string> sites{this->site("insert.link"), this->site("erase.link")};
  if (TypeParam::kUpperDurable) sites.insert(this->site("owed.link"));
  expect_clean(interleaver.exhaustive(1), sites);
}

// K8: the races beside the walk behind an open of `as` run beside one: what it does not mark is
// lost.
TEST(SkiplistWalkRaces, K8_WalksAreReached) {
  std::uint32_t walks = 0;
  for (const Race& race : as_races()) {
    if (race.name.find("K8_") == std::string::npos) continue;
    ++walks;
    const ScopedMutant scoped("as.visit.mark", Mutant::skip_step);
    ASSERT_TRUE(scoped.matched());
    InterleaveOptions options = options_of(race, "as");
    options.name = test_name(race.name);
    options.quiet = true;
    Interleaver interleaver(race.subjects, options);
    EXPECT_FALSE(interleaver.exhaustive(1).ok()) << race.name;
  }
  EXPECT_GT(walks, 3U);
}

// The one place where a lookup may wait: an update of its word stands between its two stores, and
// the walk behind the open is not over.
TEST(SkiplistWalkRaces, ALookupWaitsForAnUpdateThatIsHalfDone) {
  Interleaver interleaver(skiplist_subjects<skiplist::As>(KeyKind::integer, {}),
                          {.name = test_name(),
                           .setup = with(tens(4), {reopen()}),
                           .threads = {{update(30, 9)}, {find(30)}}});
  const auto report = interleaver.sweep({}, 0, {{1, done()}, {0, done()}, {1, done()}});
  expect_clean(report);
  EXPECT_GT(report.blocked, 0U);
  EXPECT_LE(report.blocked, 2U);
}

// Wherever the walk overtakes it, stats() counts every entry: as the walk has, or for itself.
TEST(SkiplistWalkRaces, StatsCountBesideTheWalk) {
  bool overtaken = true;
  for (std::uint64_t at = 1; overtaken; ++at) {
    SkiplistSubject<skiplist::IntegerCodec, skiplist::As> subject;
    SimMemory memory{2 << 20};
    SimPlatform::seed(1);
    memory.set_mode(SimMode::plain);
    ASSERT_TRUE(subject.create(memory).ok());
    ASSERT_TRUE(subject.open(memory, 1).ok());
    for (const Op& op : tens(5)) ASSERT_TRUE(subject.call(op).value_or(false));
    ASSERT_TRUE(subject.close().ok());
    ASSERT_TRUE(subject.open(memory, 1).ok());
    EngineStats stats;
    bool counted = false;
    Scheduler scheduler;
    ScriptedStrategy strategy({{at, 1}});
    const auto count = [&] {
      stats = subject.stats();
      counted = true;
    };
    const auto walk = [&] {
      overtaken = !counted;
      subject.background();
    };
    ASSERT_TRUE(scheduler.run({count, walk}, strategy));
    ASSERT_EQ(stats.entries, 5U) << at;
  }
}

}  // namespace
}  // namespace perdure::testing
