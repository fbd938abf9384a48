// test: explores
// PhaST with integer keys under the scheduler, by directed schedules: a thread stopped where it
// hurts. All schedules of such scenarios: races_test.
//
// Leaves hold 4 entries, inner nodes 4 leaves. Ascending inserts split at the end, so that the keys
// 10, 20, ... make leaves (.., 40], (40, 80], ...; the first and last leaf of a partition stay.
#include <gtest/gtest.h>

#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

SubjectFactory phast_words() { return phast_subjects<phast::IntegerCodec>({}); }

// The schedules of 1c and X3 by hand: thread 0 stands between its store and its fence.
TEST(PhastRaces, P1c_X3_ResultsBetweenStoreAndFence) {
  const char* updates = "phast.update.value";
  const char* erases = "phast.erase.entry";
  expect_results_between_store_and_fence(
      phast_words(), {{"update_find", update(5, 2), updates, find(5)},
                      {"update_scan", update(5, 2), updates, scan()},
                      {"update_scan_back", update(5, 2), updates, scan_back()},
                      {"update_insert", update(5, 2), updates, insert(5, 3), true},
                      {"erase_find", erase(5), erases, find(5)},
                      {"erase_scan", erase(5), erases, scan()},
                      {"erase_erase", erase(5), erases, erase(5), true},
                      {"erase_update", erase(5), erases, update(5, 3), true},
                      {"erase_insert", erase(5), erases, insert(5, 3), true}});
}

// --- splits ---

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
    expect_clean(report);
    if (!report.ok()) break;
    schedules = report.schedules;
  }
  EXPECT_GT(schedules, sanitized() ? 100U : 500U);
}

// P15: readers, and writers of other leaves, never wait for a split, wherever it stands.
TEST(PhastRaces, P15_NoOtherThreadWaitsForASplit) {
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

// A split at a gap gives the old leaf a bound that is no key. Others read, and insert on both sides
// of it, between any two of its steps.
TEST(PhastRaces, P17_ASplitBelowAnotherStream) {
  const Ops setup = inserts({10, 20, 100, 110, 30, 40});  // the leaf has 30, 40, 100, 110
  for (const Ops& others :
       {Ops{find(40), find(100), scan()}, Ops{scan_back(), find(110)},
        Ops{insert(99, 1), find(99), scan()}, Ops{insert(60, 1), scan_back()},
        Ops{erase(100), insert(105, 1), scan()}, Ops{update(40, 9), update(110, 9)}}) {
    Interleaver interleaver(phast_words(), {.name = test_name(describe(others.front())),
                                            .setup = setup,
                                            .threads = {{insert(50, 1)}, others}});
    expect_clean(interleaver.sweep({}, 0, {{1, done()}, {0, done()}}));
    expect_clean(interleaver.sweep({}, 1, {{0, done()}, {1, done()}}));
    const auto report =
        interleaver.sweep({{0, after_fence_of("phast.split.link")}}, 0, {{1, done()}, {0, done()}});
    expect_clean(report);
    EXPECT_GT(report.schedules, sanitized() ? 5U : 20U);
  }
}

// --- unlinks ---

// The middle leaf, (40, 80], holds 80 only.
Ops nearly_empty_leaf() { return with(tens(9), {erase(50), erase(60), erase(70)}); }

// Where the leaf is dead and the right neighbour does not own the range yet, no leaf owns the key;
// a find waits, an insert does too, and neither misses the other.
TEST(PhastRaces, P1g_FindAndInsertWhereNoLeafOwnsTheRange) {
  Interleaver interleaver(phast_words(),
                          {.name = test_name(),
                           .setup = nearly_empty_leaf(),
                           .threads = {{erase(80)}, {insert(70, 1)}, {find(70), find(80)}}});
  const auto report =
      interleaver.sweep({{0, after_fence_of("phast.unlink.next")}}, 0,
                        {{2, steps(12)}, {1, mark_of("return")}, {2, done()}, {0, done()}});
  expect_clean(report);
  EXPECT_GT(report.schedules, 20U);
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
    expect_clean(report);
  }
}

// An order is used again after erases. One of them has emptied a slot that an insert fills again;
// with another erase in flight, the version may count more or fewer than the visible slots tell.
TEST(PhastRaces, P17_ScanOrderBesideErases) {
  Ops setup = tens(4);
  setup.push_back(scan());
  for (const Ops& writer : {Ops{erase(20), insert(35, 1), erase(10)}, Ops{erase(40), erase(20)},
                            Ops{erase(10), insert(5, 1), insert(25, 1)}}) {
    for (const Op& reader : {scan(), scan_back()}) {
      Interleaver interleaver(
          phast_words(),
          {.name = test_name(), .setup = setup, .threads = {writer, {reader, reader}}});
      for (const unsigned stopped : {0U, 1U}) {
        const auto report =
            interleaver.sweep({}, stopped, {{1 - stopped, done()}, {stopped, done()}});
        expect_clean(report);
        EXPECT_GT(report.schedules, 20U);
      }
    }
  }
}

}  // namespace
}  // namespace perdure::testing
