// PhaST with integer keys under the scheduler: one key in two hands, splits, unlinks, scans.
//
// Leaves hold 4 entries, inner nodes 4 leaves. Ascending inserts split at the end, so that the keys
// 10, 20, ... make leaves (.., 40], (40, 80], ...; the first and last leaf of a partition stay.
#include <gtest/gtest.h>

#include "support.h"

namespace perdure::testing {
namespace {

SubjectFactory phast_words() { return phast_subjects<phast::IntegerCodec>({}); }

Ops tens(std::uint64_t n) {
  Ops ops;
  for (std::uint64_t i = 1; i <= n; ++i) ops.push_back(insert(i * 10, 1000 + i));
  return ops;
}
Ops with(Ops ops, const Ops& more) {
  ops.insert(ops.end(), more.begin(), more.end());
  return ops;
}

InterleaveReport all_schedules(const Ops& setup, const std::vector<Ops>& threads,
                               std::uint32_t preemptions, std::uint32_t thin = 1,
                               const std::string& part = {}) {
  Interleaver interleaver(phast_words(),
                          {.name = test_name(part), .setup = setup, .threads = threads});
  const InterleaveReport report = interleaver.exhaustive(preemptions, thinned(thin));
  expect_clean(report);
  return report;
}
void random_schedules(const Ops& setup, const std::vector<Ops>& threads, std::uint32_t schedules) {
  Interleaver interleaver(phast_words(), {.name = test_name(), .setup = setup, .threads = threads});
  expect_clean(interleaver.pct(sanitized() ? schedules / 16 : schedules, 4));
}

// --- one key, two threads: every pair of operations, on a key that is there and one that is not
// ---

void every_pair(std::uint64_t key) {
  const std::vector<Op> writers{insert(key, 2), upsert(key, 3), update(key, 4), erase(key)};
  std::vector<Op> others{insert(key, 5), upsert(key, 6), update(key, 7), erase(key)};
  others.push_back(find(key));
  others.push_back(scan());
  others.push_back(scan_back());
  const std::string zero = key == 0 ? "zero" : "";
  for (const bool there : {false, true}) {
    for (std::size_t w = 0; w < writers.size(); ++w) {
      for (std::size_t o = 0; o < others.size(); ++o) {
        const Ops setup = there ? Ops{insert(key, 1), insert(7, 1)} : Ops{insert(7, 1)};
        Interleaver interleaver(
            phast_words(),
            {.name = test_name(zero + std::to_string(w) + std::to_string(o) + (there ? "t" : "a")),
             .setup = setup,
             .threads = {{writers[w]}, {others[o], find(key)}}});
        const InterleaveReport report = interleaver.exhaustive(2, thinned(24));
        for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
      }
    }
  }
}

// What a find, a scan, an "exists" or an "absent" rests on is durable when it is answered (1c, X3,
// G1, P11, 7); writers of a key exclude each other (P9).
TEST(PhastRaces, P1c_X3_G1_P11_H7_EveryPairOnOneKey) { every_pair(5); }
TEST(PhastRaces, G9_EveryPairOnKeyZero) { every_pair(0); }

// The same with a third hand, by random priorities.
TEST(PhastRaces, X3_ThreeHandsOnOneKey) {
  random_schedules({insert(5, 1)},
                   {{update(5, 2), erase(5)}, {insert(5, 3), find(5)}, {erase(5), upsert(5, 4)}},
                   4000);
}

// The schedules of 1c and X3 by hand: thread 0 stands between its store and its fence.
struct Unfenced {
  const char* part;
  Op write;
  const char* site;
  Op answer;
  bool waits;  // for the stripe; else it writes back and fences itself
};
TEST(PhastRaces, P1c_X3_AnswersBetweenStoreAndFence) {
  std::vector<Unfenced> cases;
  const char* updates = "phast.update.value";
  const char* erases = "phast.erase.entry";
  cases.push_back({"update_find", update(5, 2), updates, find(5), false});
  cases.push_back({"update_scan", update(5, 2), updates, scan(), false});
  cases.push_back({"update_scan_back", update(5, 2), updates, scan_back(), false});
  cases.push_back({"update_insert", update(5, 2), updates, insert(5, 3), true});
  cases.push_back({"erase_find", erase(5), erases, find(5), false});
  cases.push_back({"erase_scan", erase(5), erases, scan(), false});
  cases.push_back({"erase_erase", erase(5), erases, erase(5), true});
  cases.push_back({"erase_update", erase(5), erases, update(5, 3), true});
  cases.push_back({"erase_insert", erase(5), erases, insert(5, 3), true});
  for (const Unfenced& c : cases) {
    for (const bool flushed : {false, true}) {
      Interleaver interleaver(phast_words(), {.name = test_name(c.part),
                                              .setup = {insert(5, 1), insert(6, 1)},
                                              .threads = {{c.write}, {c.answer}}});
      const Until stop = flushed ? fence_of(c.site) : flush_of(c.site);
      const auto report = interleaver.directed({{0, stop}, {1, done()}, {0, done()}});
      for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
      ASSERT_EQ(report.legs.size(), 3U);
      EXPECT_EQ(report.legs[1], c.waits ? LegEnd::blocked : LegEnd::reached) << c.part;
    }
  }
}

// 1b: the slot of an erased key is filled again under a lookup of the old one.
TEST(PhastRaces, P1b_ASlotIsReusedUnderALookup) {
  all_schedules({insert(5, 1)}, {{erase(5), insert(6, 2)}, {find(5)}, {find(6)}}, 1, 1, "three");
  all_schedules({insert(5, 1)}, {{erase(5), insert(6, 2), erase(6)}, {find(5)}}, 2, 3, "two");
}

// --- splits ---

// A second splitter comes to a leaf that a split at the end has left full: it has to see that its
// key is elsewhere now, or it makes a leaf with an empty range.
TEST(PhastRaces, P1_SecondSplitterAtTheEnd) {
  all_schedules(tens(4), {{insert(50, 1)}, {insert(60, 2)}}, 2, 24, "last");
  all_schedules(with(tens(9), {erase(80), insert(75, 1)}), {{insert(76, 1)}, {insert(77, 2)}}, 2,
                24, "middle");
  random_schedules(tens(4), {{insert(50, 1)}, {insert(60, 2)}, {insert(70, 3)}}, 600);
}

TEST(PhastRaces, P9_WritersBesideASplit) {
  all_schedules(tens(4), {{insert(25, 1)}, {update(30, 7), erase(10)}}, 1, 1, "writers");
  all_schedules(tens(4), {{insert(25, 1)}, {insert(35, 2), find(30)}}, 2, 48, "inserts");
}

TEST(PhastRaces, P5_P6_FindBesideASplit) {
  all_schedules(tens(4), {{insert(25, 1)}, {find(30), find(40), find(10)}}, 2, 24);
}

TEST(PhastRaces, P17_H7_ScanBesideASplit) {
  all_schedules(tens(9), {{insert(65, 1)}, {scan()}}, 2, 48, "forward");
  all_schedules(tens(9), {{insert(65, 1)}, {scan_back()}}, 2, 48, "backward");
}

// The scan enters the leaf while it still ends at its old bound, and looks into it when the bound
// is lowered and the version not raised yet. Going left from there it passed over what had moved.
TEST(PhastRaces, P17_BackwardScanEntersALeafBeforeItsBoundFalls) {
  Interleaver interleaver(
      phast_words(),
      {.name = test_name(), .setup = tens(9), .threads = {{insert(65, 1)}, {scan_back()}}});
  std::uint64_t schedules = 0;
  for (std::uint64_t k = 0; k <= 20; k += sanitized() ? 5 : 1) {
    const auto report = interleaver.sweep(
        {{1, mark_of("delivery")}, {1, steps(k)}, {0, after_fence_of("phast.split.link")}}, 0,
        {{1, done()}, {0, done()}});
    for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
    if (!report.ok()) break;
    schedules = report.schedules;
  }
  EXPECT_GT(schedules, sanitized() ? 100U : 500U);
}

// P15: readers, and writers of other leaves, never wait for a split, wherever it stands.
TEST(PhastRaces, P15_NobodyElseWaitsForASplit) {
  for (const char* site : {"phast.split.leaf", "phast.split.link"}) {
    Interleaver interleaver(
        phast_words(),
        {.name = test_name(site),
         .setup = tens(9),
         .threads = {{insert(65, 1)},
                     {find(50), find(80), scan(), scan_back(), update(20, 9), insert(95, 1)}}});
    const auto report = interleaver.directed({{0, fence_of(site)}, {1, done()}, {0, done()}});
    expect_clean(report);
    ASSERT_EQ(report.legs.size(), 3U);
    EXPECT_EQ(report.legs[1], LegEnd::reached) << "blocked at " << site;
  }
  // In DRAM, between any two of its steps. A read may try again; it does not wait for the split.
  Interleaver interleaver(
      phast_words(),
      {.name = test_name("steps"), .setup = tens(9), .threads = {{insert(65, 1)}, {find(50)}}});
  const auto report = interleaver.sweep({}, 0, {{1, mark_of("return")}, {0, done()}});
  expect_clean(report);
  EXPECT_EQ(report.blocked, 0U);
}

// --- unlinks ---

// The middle leaf, (40, 80], holds 80 only.
Ops nearly_empty_leaf() { return with(tens(9), {erase(50), erase(60), erase(70)}); }

TEST(PhastRaces, P1g_EraseEmptiesALeafBesideAnInsertIntoIt) {
  all_schedules(nearly_empty_leaf(), {{erase(80)}, {insert(65, 1), find(65)}}, 2, 24, "insert");
  all_schedules(nearly_empty_leaf(), {{erase(80)}, {erase(80), insert(80, 2)}}, 2, 24, "same");
  all_schedules(nearly_empty_leaf(), {{erase(80), insert(70, 1)}, {insert(65, 1)}}, 2, 48, "both");
}

// Where the leaf is dead and the right neighbour does not own the range yet, nobody answers for it;
// a find waits, an insert does too, and neither misses the other.
TEST(PhastRaces, P1g_FindAndInsertWhereNobodyOwnsTheRange) {
  Interleaver interleaver(phast_words(),
                          {.name = test_name(),
                           .setup = nearly_empty_leaf(),
                           .threads = {{erase(80)}, {insert(70, 1)}, {find(70), find(80)}}});
  const auto report =
      interleaver.sweep({{0, after_fence_of("phast.unlink.next")}}, 0,
                        {{2, steps(12)}, {1, mark_of("return")}, {2, done()}, {0, done()}});
  expect_clean(report);
  EXPECT_GT(report.schedules, 20U);
  random_schedules(nearly_empty_leaf(), {{erase(80)}, {insert(70, 1)}, {find(70), find(80)}}, 2000);
}

TEST(PhastRaces, P1g_H7_ScanBesideAnUnlink) {
  all_schedules(nearly_empty_leaf(), {{erase(80)}, {scan()}}, 2, 48, "forward");
  all_schedules(nearly_empty_leaf(), {{erase(80)}, {scan_back()}}, 2, 48, "backward");
  all_schedules(nearly_empty_leaf(), {{erase(80), insert(65, 1)}, {scan()}}, 1, 1, "refilled");
}

TEST(PhastRaces, P1g_UnlinkBesideASplitOfItsNeighbour) {
  all_schedules(nearly_empty_leaf(), {{erase(80)}, {insert(25, 1)}}, 2, 96, "left");
  all_schedules(with(nearly_empty_leaf(), {insert(100, 1), insert(110, 1), insert(120, 1)}),
                {{erase(80)}, {insert(95, 1)}}, 2, 96, "right");
}

// Two neighbours empty at once: both unlinks need the latches of the leaf between them.
TEST(PhastRaces, P1g_NeighboursUnlinkedAtOnce) {
  Ops setup = tens(17);
  for (const std::uint64_t key : {50, 60, 70, 90, 100, 110}) setup.push_back(erase(key));
  all_schedules(setup, {{erase(80)}, {erase(120)}}, 2, 96);
}

// --- memory that readers still look at ---

// G6: the reader is stopped after each of its steps; meanwhile the leaf it is in goes, and so many
// blocks are freed and taken that its own would come back.
void reclaimed_under(const Op& reader, const std::string& part) {
  Ops writer{erase(80)};
  for (int i = 0; i < 3; ++i) writer.push_back(reclaim());
  for (const std::uint64_t key : {100, 110, 120, 130, 140}) writer.push_back(insert(key, key));
  Interleaver interleaver(
      phast_words(),
      {.name = test_name(part), .setup = nearly_empty_leaf(), .threads = {writer, {reader}}});
  const auto report = interleaver.sweep({}, 1, {{0, done()}, {1, done()}});
  expect_clean(report);
  EXPECT_GT(report.schedules, 20U);
}
// Records: a scan has taken a leaf's entries and delivers them one by one, while one of them is
// erased and its record's block would hold another key's by the time it is delivered.
TEST(PhastRaces, G6_P18_RecordsLiveAsLongAsAScanDeliversThem) {
  const auto put = [](std::uint64_t key, char letter) {
    return Op{OpKind::upsert, integer_key(key), std::string(30, letter)};
  };
  Ops writer{erase(30), put(10, 'x')};
  for (int i = 0; i < 3; ++i) writer.push_back(reclaim());
  for (std::uint64_t key = 100; key < 106; ++key) writer.push_back(put(key, 'z'));
  Interleaver interleaver(phast_subjects<phast::IntegerCodec>({.values = ValueKind::bytes}),
                          {.name = test_name(),
                           .setup = {put(10, 'a'), put(20, 'b'), put(30, 'c')},
                           .threads = {writer, {scan()}}});
  const auto report = interleaver.sweep({}, 1, {{0, done()}, {1, done()}});
  expect_clean(report);
  EXPECT_GT(report.schedules, 20U);
}
TEST(PhastRaces, G6_NothingIsReusedUnderAReader) {
  reclaimed_under(find(80), "find");
  reclaimed_under(scan(), "scan");
  reclaimed_under(scan_back(), "back");
}

// --- the scan order kept per leaf ---

// Same number of entries, another set, beside a scan that makes or uses the order; afterwards a
// scan alone must be right too (the interleaver compares it with lookups).
TEST(PhastRaces, P17_ScanOrderOfAnotherSet) {
  const Ops three{insert(10, 1), insert(20, 2), insert(30, 3)};
  all_schedules(with(three, {scan()}), {{erase(20), insert(25, 4)}, {scan(), scan()}}, 1, 1,
                "kept");
  all_schedules(three, {{erase(20), insert(25, 4)}, {scan()}}, 2, 48, "made");
  all_schedules(three, {{insert(25, 4), erase(20)}, {scan()}}, 2, 48, "grown");
  all_schedules(with(tens(4), {scan()}), {{insert(25, 1), scan()}, {scan()}}, 1, 1, "split");
}

// An order made while a split has raised the version and not yet taken the moved entries away: when
// the leaf is as full again, it must not count.
TEST(PhastRaces, P17_ScanOrderMadeInsideASplit) {
  Interleaver interleaver(phast_words(),
                          {.name = test_name(),
                           .setup = tens(4),
                           .threads = {{insert(25, 1), insert(11, 2), insert(12, 3)}, {scan()}}});
  const auto report =
      interleaver.sweep({{0, after_fence_of("phast.split.link")}}, 0, {{1, done()}, {0, done()}});
  expect_clean(report);
  EXPECT_GT(report.schedules, 50U);
}

// An erase has taken its entry from the visible ones and not raised the version yet; an insert
// makes their number what it was. The order kept is of the old set: only a settled leaf may use it.
TEST(PhastRaces, P17_ScanOrderOfAnUnsettledLeaf) {
  const Ops setup{insert(10, 1), insert(20, 2), insert(30, 3), scan()};
  for (std::uint64_t key = 41; key <= 48; ++key) {  // some of them of another stripe than 20
    Interleaver interleaver(phast_words(), {.name = test_name(std::to_string(key)),
                                            .setup = setup,
                                            .threads = {{erase(20)}, {insert(key, 1)}, {scan()}}});
    const auto report = interleaver.sweep({{0, after_fence_of("phast.erase.entry")}}, 0,
                                          {{1, done()}, {2, done()}, {0, done()}});
    for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  }
}

}  // namespace
}  // namespace perdure::testing
