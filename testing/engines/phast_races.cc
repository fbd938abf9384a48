// PhaST's scenarios. Leaves hold 4 entries, inner nodes 4 leaves. Ascending inserts split at the
// end, so that the keys 10, 20, ... make leaves (.., 40], (40, 80], ...; the first and last leaf of
// a partition stay. Partitions are the halves of the key space.
#include "testing/engines/phast_interleavings.h"
#include "testing/engines/phast_subject.h"
#include "testing/schedule/conditional_races.h"
#include "testing/schedule/gate_races.h"
#include "testing/schedule/race_ops.h"

namespace perdure::testing {

namespace {

SubjectFactory words() { return phast_subjects<phast::IntegerCodec>({}); }
SubjectFactory bytes() { return phast_subjects<phast::BytesCodec>({.values = ValueKind::bytes}); }
constexpr EnumerationLimits kWords{.product = 32, .random = 4, .sampled = 12};
constexpr EnumerationLimits kFewer{.product = 16, .random = 2, .sampled = 6};

auto adder(RaceList& races, SubjectFactory subjects, const EnumerationLimits& limits) {
  return [&races, subjects, limits](const char* name, const Ops& setup,
                                    const std::vector<Ops>& threads, std::uint32_t thin = 24) {
    races.push_back({.name = name,
                     .subjects = subjects,
                     .setup = setup,
                     .threads = threads,
                     .thin = thin,
                     .limits = limits});
  };
}

// --- every pair of operations on one key, that is there or not ---

// What a find, a scan, an "exists" or an "absent" rests on is durable when it is returned (1c, X3,
// G1, P11, 7). Writers of a key exclude each other (P2, P9).
void add_pairs(RaceList& races, const std::string& hazards, std::uint64_t key) {
  const Ops writers{insert(key, 2), upsert(key, 3), update(key, 4), erase(key)};
  const Ops others{insert(key, 5), upsert(key, 6), update(key, 7), erase(key),
                   find(key),      scan(),         scan_back()};
  static constexpr const char* kNames[] = {"Insert", "Upsert", "Update",  "Erase",
                                           "Find",   "Scan",   "ScanBack"};
  for (const bool there : {false, true}) {
    for (std::size_t w = 0; w < writers.size(); ++w) {
      for (std::size_t o = 0; o < others.size(); ++o) {
        races.push_back(
            {.name = hazards + "_" + kNames[w] + "And" + kNames[o] + (there ? "There" : "Absent"),
             .subjects = words(),
             .setup = there ? Ops{insert(key, 1), insert(7, 1)} : Ops{insert(7, 1)},
             .threads = {{writers[w]}, {others[o], find(key)}}});
      }
    }
  }
}

// --- integer keys ---

// The middle leaf, (40, 80], holds 80 only.
Ops nearly_empty_leaf() { return with(tens(9), {erase(50), erase(60), erase(70)}); }

void add_splits(RaceList& races) {
  const auto add = adder(races, words(), kWords);
  add("P1_LastSlotOfALeaf", tens(3), {{insert(35, 1), find(35)}, {insert(36, 2), find(36)}}, 24);
  // A second splitter comes to a leaf that a split at the end has left full: it has to see that
  // its key is elsewhere now, or it makes a leaf with an empty range.
  add("P1_SecondSplitterAtTheEnd", tens(4), {{insert(50, 1)}, {insert(60, 2)}}, 24);
  add("P1_SecondSplitterInTheMiddle", with(tens(9), {erase(80), insert(75, 1)}),
      {{insert(76, 1)}, {insert(77, 2)}}, 24);
  add("P2_SameKeyIntoAFullLeaf", tens(4), {{insert(25, 1)}, {insert(25, 2), erase(25)}}, 48);
  add("P9_P3_P4_WritersBesideASplit", tens(4), {{insert(25, 1)}, {update(30, 7), erase(10)}}, 48);
  add("P9_P3_P4_InsertsBesideASplit", tens(4), {{insert(25, 1)}, {insert(35, 2), find(30)}}, 48);
  add("P10_InsertAfterEraseBesideASplit", tens(4), {{insert(25, 1)}, {erase(30), insert(30, 2)}},
      96);
  add("P5_P6_FindBesideASplit", tens(4), {{insert(25, 1)}, {find(30), find(40), find(10)}}, 24);
  // The split of a leaf splits its inner node too, and with it the cache of inner nodes goes.
  add("P6_P7_P8_P16_FindBesideSplitsOfInnerNodes", tens(28),
      {{insert(15, 1), insert(55, 2), insert(95, 3), insert(135, 4), insert(175, 5)},
       {find(160), find(20)}},
      4096);
  add("P12_BothSidesOfAPartitionsBound",
      {insert((1ULL << 63) - 1, 1), insert(~std::uint64_t{0}, 1)},
      {{insert(1ULL << 63, 2), erase((1ULL << 63) - 1)}, {scan(), find(1ULL << 63)}}, 48);
  add("P17_H7_ScanBesideASplit", tens(9), {{insert(65, 1)}, {scan()}}, 48);
  add("P17_H7_ScanBackBesideASplit", tens(9), {{insert(65, 1)}, {scan_back()}}, 48);
}

// An iterator's steps are scans of their own, with keys that it has delivered for bounds.
void add_iterators(RaceList& races) {
  const auto add = adder(races, words(), kWords);
  const Ops leaf = nearly_empty_leaf();
  for (const bool back : {false, true}) {
    const auto to = [&](std::uint64_t key) { return Ops{back ? iterate_back(key) : iterate(key)}; };
    const std::string way = back ? "IterateBack" : "Iterate";
    add(("P17_H7_" + way + "BesideASplit").c_str(), tens(5), {{insert(25, 1)}, to(30)}, 192);
    add(("P17_H7_" + way + "ToTheEndBesideASplit").c_str(), tens(4), {{insert(50, 1)}, to(0)}, 192);
    add(("P1g_H7_" + way + "BesideAnUnlink").c_str(), leaf, {{erase(80)}, to(80)}, 192);
    add(("P1g_H7_" + way + "BesideARefill").c_str(), leaf, {{erase(80), insert(65, 1)}, to(90)},
        1024);
  }
}

void add_slots_and_orders(RaceList& races) {
  const auto add = adder(races, words(), kWords);
  // The slot of an erased key is filled again under a lookup of the old one.
  add("P1a_P1b_ASlotIsReusedUnderALookup", {insert(5, 1)},
      {{erase(5), insert(6, 2), erase(6)}, {find(5)}}, 3);
  // Same number of entries, another set, beside a scan that makes or uses the order kept.
  const Ops three{insert(10, 1), insert(20, 2), insert(30, 3)};
  add("P17_ScanOrderKept", with(three, {scan()}), {{erase(20), insert(25, 4)}, {scan(), scan()}},
      256);
  add("P17_ScanOrderMade", three, {{erase(20), insert(25, 4)}, {scan()}}, 48);
  add("P17_ScanOrderGrown", three, {{insert(25, 4), erase(20)}, {scan()}}, 48);
  // Neither what comes nor what goes meanwhile leads a scan past its bound.
  add("P17_ScanFromBesideAnErase", three, {{erase(20), insert(25, 4)}, {scan_from(28)}}, 48);
  // The fingerprint of 89 is that of 0, and an entry that is being erased has the key 0.
  add("P17_ScanFromZeroBesideAnErase", {insert(10, 1), insert(20, 2), insert(89, 3)},
      {{erase(89)}, {scan_from(0)}}, 48);
  add("P17_ScanBeforeBesideAnErase", three, {{erase(20), insert(15, 4)}, {scan_before(18)}}, 48);
  add("P17_ScanOrderOfASplitLeaf", with(tens(4), {scan()}), {{insert(25, 1), scan()}, {scan()}},
      512);
}

void add_unlinks(RaceList& races) {
  const auto add = adder(races, words(), kWords);
  const Ops leaf = nearly_empty_leaf();
  add("P1g_EraseEmptiesALeafBesideAnInsert", leaf, {{erase(80)}, {insert(65, 1), find(65)}}, 24);
  add("P1g_EraseEmptiesALeafBesideTheSameKey", leaf, {{erase(80)}, {erase(80), insert(80, 2)}}, 24);
  add("P1g_P1f_UnlinkedAndRefilled", leaf, {{erase(80), insert(70, 1)}, {insert(65, 1)}}, 48);
  add("P1g_H7_ScanBesideAnUnlink", leaf, {{erase(80)}, {scan()}}, 48);
  add("P1g_H7_ScanBackBesideAnUnlink", leaf, {{erase(80)}, {scan_back()}}, 48);
  add("P1g_H7_ScanBesideARefill", leaf, {{erase(80), insert(65, 1)}, {scan()}}, 512);
  // What the right neighbour takes over, and is inserted there, is not delivered again to its left.
  add("P1g_H7_ScanBackBesideARefill", leaf, {{erase(80), insert(65, 1)}, {scan_back()}}, 96);
  add("P1g_UnlinkBesideASplitToItsLeft", leaf, {{erase(80)}, {insert(25, 1)}}, 96);
  add("P1g_UnlinkBesideASplitToItsRight",
      with(leaf, {insert(100, 1), insert(110, 1), insert(120, 1)}), {{erase(80)}, {insert(95, 1)}},
      96);
  // Two neighbours empty at once: both unlinks need the latches of the leaf between them.
  Ops two = tens(17);
  for (const std::uint64_t key : {50, 60, 70, 90, 100, 110}) two.push_back(erase(key));
  add("P1g_NeighboursUnlinkedAtOnce", two, {{erase(80)}, {erase(120)}}, 96);
}

// --- byte strings: separators, moved records, equal heads ---

std::string name_of(std::uint64_t i) { return "customer:" + std::to_string(100 + i); }
Op put(std::uint64_t i, char letter) {
  return {OpKind::upsert, name_of(i), std::string(30, letter)};
}
Op gone(std::uint64_t i) { return {OpKind::erase, name_of(i), {}}; }
Op look(std::uint64_t i) { return {OpKind::find, name_of(i), {}}; }
Ops puts(std::uint64_t n) {
  Ops ops;
  for (std::uint64_t i = 1; i <= n; ++i) ops.push_back(put(i * 10, 'a'));
  return ops;
}
Ops nearly_empty_string_leaf() { return with(puts(9), {gone(50), gone(60), gone(70)}); }

void add_strings(RaceList& races) {
  const auto add = adder(races, bytes(), kFewer);
  add("P18_P1c_ReplaceBesideEraseOfStrings", {put(1, 'a')}, {{put(1, 'b')}, {look(1), gone(1)}},
      24);
  add("P18_P1c_EraseBesideUpsertOfStrings", {put(1, 'a')}, {{gone(1)}, {put(1, 'c'), look(1)}}, 24);
  add("P18_P1c_ReplaceBesideScanOfStrings", {put(1, 'a')}, {{put(1, 'b')}, {scan()}}, 24);
  add("P1h_P17_ScanBesideASplitOfStrings", puts(9), {{put(65, 'b')}, {scan()}}, 256);
  add("P1h_P17_ScanBackBesideASplitOfStrings", puts(9), {{put(65, 'b')}, {scan_back()}}, 256);
  add("P1h_InsertsBesideASplitOfStrings", puts(4), {{put(25, 'b')}, {put(35, 'c'), look(30)}}, 192);
  add("P1h_SplittersAtTheEndOfStrings", puts(4), {{put(50, 'b')}, {put(60, 'c')}}, 192);
  add("P1h_EraseBesideASplitOfStrings", puts(4), {{put(25, 'b')}, {gone(40), look(10)}}, 192);
  // The scan's position is the bound of a leaf that goes: the separator stays while it is read.
  const Ops leaf = nearly_empty_string_leaf();
  add("P1g_G6_ScanBesideAnUnlinkOfStrings", leaf, {{gone(80)}, {scan()}}, 192);
  add("P1g_G6_ScanBackBesideAnUnlinkOfStrings", leaf, {{gone(80)}, {scan_back()}}, 192);
  add("P1g_H7_ScanBackBesideARefillOfStrings", leaf, {{gone(80), put(65, 'b')}, {scan_back()}},
      384);
  add("P1g_G6_InsertBesideAnUnlinkOfStrings", leaf, {{gone(80)}, {put(65, 'b'), look(65)}}, 192);
}

// --- three threads, by random priorities ---

void add_threes(RaceList& races) {
  const auto integers = adder(races, words(), kFewer);
  const auto strings = adder(races, bytes(), kFewer);
  integers("X3_P2_P9_ThreeHandsOnOneKey", {insert(5, 1)},
           {{update(5, 2), erase(5)}, {insert(5, 3), find(5)}, {erase(5), upsert(5, 4)}});
  integers("P1a_P1b_ASlotIsReusedUnderTwoLookups", {insert(5, 1)},
           {{erase(5), insert(6, 2)}, {find(5)}, {find(6)}});
  integers("P1_ThreeSplittersAtTheEnd", tens(4),
           {{insert(50, 1)}, {insert(60, 2)}, {insert(70, 3)}});
  integers("P9_P10_P6_WritersAndAFindBesideASplit", tens(4),
           {{insert(25, 1)}, {erase(30), insert(30, 2)}, {find(30), find(40)}});
  integers("P17_H7_ScanBesideASplitAndAnErase", tens(4),
           {{insert(25, 1)}, {erase(30), insert(31, 2)}, {scan()}});
  integers("P1g_FindAndInsertBesideAnUnlink", nearly_empty_leaf(),
           {{erase(80)}, {insert(70, 1)}, {find(70), find(80)}});
  integers("P1g_P17_H7_ScanBesideAnUnlinkAndASplit", nearly_empty_leaf(),
           {{erase(80)}, {insert(25, 1)}, {scan_back()}});
  strings("G6_P18_P1c_ThreeHandsOnOneString", {put(1, 'a')},
          {{put(1, 'b'), gone(1)}, {put(1, 'c')}, {look(1), scan()}});
  strings("P1h_ThreeHandsBesideASplitOfStrings", puts(4),
          {{put(25, 'b')}, {gone(40), put(35, 'c')}, {look(30), look(40)}});
}

// Mutations that share a fence, beside others of the same keys and leaves. The first leaf holds the
// keys up to 40.
void add_many(RaceList& races) {
  const auto add = adder(races, words(), kFewer);
  add("Many_BesideAFind", tens(3),
      {{many({insert(15, 1), update(20, 2), erase(30)})}, {find(15), find(20), find(30)}});
  add("Many_BesideAScan", tens(3), {{many({insert(15, 1), erase(20), update(30, 2)})}, {scan()}});
  add("Many_CrossingKeys", tens(3),
      {{many({update(10, 1), update(20, 2)})}, {many({update(20, 3), update(10, 4)}), find(10)}});
  add("Many_OneKeyTwice", tens(2),
      {{many({insert(15, 1), update(15, 2), erase(15)})}, {upsert(15, 3), find(15)}});
  add("Many_LastSlotOfALeaf", tens(3),
      {{many({insert(35, 1), insert(36, 2)})}, {insert(37, 3), find(35)}}, 48);
  add("Many_EmptiesALeaf", nearly_empty_leaf(),
      {{many({erase(80), insert(65, 1)})}, {insert(55, 2), find(65)}}, 48);
  adder(races, bytes(), kFewer)(
      "Many_Strings", puts(3),
      {{many({put(10, 'b'), gone(20), put(15, 'b')})}, {put(10, 'c'), look(20), look(15)}}, 48);
}

}  // namespace

RaceList phast_races() {
  RaceList races;
  add_pairs(races, "P1c_X3_G1_P2_P9_P11_H7", 5);
  add_pairs(races, "G9", 0);
  add_splits(races);
  add_iterators(races);
  add_slots_and_orders(races);
  add_unlinks(races);
  add_strings(races);
  add_threes(races);
  add_many(races);
  add_conditional(races, words(), 24, kFewer);
  add_together(races, words(), 24, kFewer);
  add_batches(races, words(), 24, kFewer);
  add_pieces(races, phast_subjects<phast::IntegerCodec>({.piece = 1}),
             phast_subjects<phast::BytesCodec>({.values = ValueKind::bytes, .piece = 1}), 48,
             kFewer);
  return races;
}

}  // namespace perdure::testing
