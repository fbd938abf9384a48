// The scenarios of the multi-version store. Leaves hold four keys, a block of the chain four slots,
// a history's first segment one entry. W ids are those of docs/design/pskiplist.md.
#include "testing/engines/pskiplist_races.h"

#include <memory>
#include <string>

#include "testing/engines/pskiplist_subject.h"
#include "testing/schedule/conditional_races.h"
#include "testing/schedule/gate_races.h"
#include "testing/schedule/race_ops.h"
#include "testing/schedule/version_ops.h"

namespace perdure::testing {

namespace {

SubjectFactory words() {
  return pskiplist_subjects<pskiplist::IntegerCodec>({.background_thread = false});
}
SubjectFactory strings() {
  return pskiplist_subjects<pskiplist::BytesCodec>(
      {.values = ValueKind::bytes, .background_thread = false});
}
Op store(char key, char value) {
  return {OpKind::upsert, std::string(12, key), std::string(30, value)};
}
Op look(char key) { return {OpKind::find, std::string(12, key), {}}; }
Op remove(char key) { return {OpKind::erase, std::string(12, key), {}}; }

// G1, V2, V7, V18: what a result rests on is durable, whichever thread wrote it. One insert is one
// entry.
void add_pairs(RaceList& races) {
  const Ops writers{insert(5, 2), upsert(5, 3), update(5, 4), erase(5)};
  const Ops others{insert(5, 5), upsert(5, 6), update(5, 7), erase(5), find(5), scan()};
  static constexpr const char* kNames[] = {"Insert", "Upsert", "Update", "Erase", "Find", "Scan"};
  for (const bool there : {false, true}) {
    for (std::size_t w = 0; w < writers.size(); ++w) {
      for (std::size_t o = 0; o < others.size(); ++o) {
        races.push_back({.name = std::string("V2_V7_V18_G1_") + kNames[w] + "And" + kNames[o] +
                                 (there ? "There" : "Absent"),
                         .subjects = words(),
                         .setup = there ? Ops{insert(5, 1), insert(7, 1)} : Ops{insert(7, 1)},
                         .threads = {{writers[w]}, {others[o], find(5)}}});
      }
    }
  }
}

void add(RaceList& races, const char* name, const Ops& setup, const std::vector<Ops>& threads,
         std::uint32_t thin) {
  races.push_back(
      {.name = name, .subjects = words(), .setup = setup, .threads = threads, .thin = thin});
}

// V11, V12: leaves split and are unlinked beside lookups of what they hold.
void add_leaves(RaceList& races) {
  const Ops full = inserts({10, 20, 30, 40});
  add(races, "V11_SplitAndFinds", full, {{insert(25, 1)}, {find(10), find(40)}}, 48);
  add(races, "V11_SplitAndScan", full, {{insert(25, 1)}, {scan()}}, 48);
  add(races, "V11_SplitAndScanBack", full, {{insert(25, 1)}, {scan_back()}}, 48);
  add(races, "V11_SplitAndScanFrom", full, {{insert(25, 1), erase(20)}, {scan_from(28)}}, 48);
  add(races, "V11_SplitAndScanBefore", full, {{insert(25, 1), erase(20)}, {scan_before(23)}}, 48);
  add(races, "V12_TwoSplits", full, {{insert(25, 1)}, {insert(15, 2), find(25)}}, 96);
  const Ops two = with(inserts({10, 20, 30, 40, 50, 60}), {erase(60), erase(50)});
  add(races, "V16_UnlinkAndInsert", two, {{erase(40), erase(30)}, {insert(35, 1), find(40)}}, 192);
  add(races, "V16_UnlinkAndScan", two, {{erase(40), erase(30)}, {scan()}}, 192);
  add(races, "V16_UnlinkAndScanBack", two, {{erase(40), erase(30)}, {scan_back()}}, 192);
  add(races, "V16_RefillAndScanBack", inserts({10, 20, 30, 40, 50, 60, 70, 80, 90, 100}),
      {{erase(40), erase(30), insert(35, 1)}, {scan_back()}}, 192);
  add(races, "V11_SplitAndIterate", full, {{insert(25, 1)}, {iterate(30)}}, 192);
  add(races, "V11_SplitAndIterateBack", full, {{insert(25, 1)}, {iterate_back(20)}}, 192);
  add(races, "V16_UnlinkAndIterate", two, {{erase(40), erase(30)}, {iterate(40)}}, 384);
  add(races, "V16_UnlinkAndIterateBack", two, {{erase(40), erase(30)}, {iterate_back(20)}}, 384);
}

// V16, W8, W10: a key goes, and its slot and node are used again under a lookup of it.
void add_reuse(RaceList& races) {
  add(races, "W8_SlotReusedBesideFind", {insert(5, 1)},
      {{erase(5), insert(6, 2)}, {find(5), find(6)}}, 48);
  add(races, "W10_EraseAndInsert", {insert(5, 1)}, {{erase(5)}, {insert(5, 2), find(5)}}, 48);
  add(races, "W8_ReclaimedBesideScan", {insert(5, 1), insert(6, 1)},
      {{erase(5), reclaim(), insert(8, 2)}, {scan()}}, 96);
}

void add_strings(RaceList& races) {
  const Ops there{store('a', '1'), store('b', '1')};
  const auto add = [&](const char* name, const Ops& one, const Ops& other) {
    races.push_back(
        {.name = name, .subjects = strings(), .setup = there, .threads = {one, other}, .thin = 48});
  };
  add("G6_UpdatesOfAString", {store('a', '2')}, {store('a', '3'), look('a')});
  add("G6_UpdateAndEraseOfAString", {store('a', '2')}, {remove('a'), look('a')});
  add("G6_FindBesideAnUpdateOfAString", {store('a', '2'), reclaim(), store('c', '4')}, {look('a')});
  add("V7_InsertsOfAString", {store('c', '2')}, {store('c', '3'), look('c')});
}

// Versions are the numbers of the tags (testing/schedule/version_model.h).
void add_versions(RaceList& races) {
  const auto add = [&](const char* name, const Ops& setup, const std::vector<Ops>& threads,
                       std::uint32_t thin = 96) {
    races.push_back(
        {.name = name,
         .subjects = numbered_subjects<pskiplist::IntegerCodec>({.background_thread = false}),
         .setup = setup,
         .threads = threads,
         .thin = thin,
         .limits = {.product = 16, .random = 2, .sampled = 6}});
  };
  const Ops two{put(5, 1), tag(), put(5, 2)};
  add("V5_W1_W4_TagBesideAWrite", two, {{put(5, 3)}, {tag(), get(5, 2), get(5, 2)}});
  add("V5_W1_W4_TagBesideAnErase", two, {{gone(5)}, {tag(), scan_at(2), scan_at(2)}});
  add("V5_W3_TagBesideWritesOfTwoKeys", two, {{put(5, 3), put(6, 3)}, {tag(), scan_at(2), get(6)}});
  add("V7_W5_TagBesideANewKey", two, {{put(6, 1)}, {tag(), put(6, 2), get(6, 2)}});
  add("W10_W11_TagBesideAKeyThatGoes", {put(5, 1)},
      {{gone(5), put(5, 2)}, {tag(), get(5, 1), history(5)}});
  const Ops removed{put(5, 1), tag(), gone(5), tag(), put(6, 1), tag()};
  add("V16_W12_TrimBesideReaders", removed, {{trim(2)}, {get(5, 1), scan_at(2), history(5)}}, 384);
  add("V16_W8_TrimBesideADifference", removed, {{trim(3), put(7, 1)}, {diff(1, 3)}}, 384);
  add("V16_TrimBesideWrites", two, {{tag(), trim(2)}, {put(5, 3), get(5, 2), gone(5)}}, 384);
  add("V16_TwoTrims", removed, {{trim(1), trim(3)}, {trim(2), history(5)}}, 384);
  add("V5_W3_W9_ThreeHandsAndATag", two,
      {{put(5, 3), put(6, 3)}, {tag(), get(5, 2), get(6, 2)}, {get(6), get(5), history(5)}});
  add("V16_W15_ThreeHandsAndTrims", removed,
      {{trim(2), trim(3)}, {put(5, 4), tag()}, {get(5, 2), history(5), scan_at(2)}});
}

void add_threes(RaceList& races) {
  add(races, "V7_ThreeHandsOnOneKey", {insert(5, 1)},
      {{update(5, 2), erase(5)}, {insert(5, 3), find(5)}, {erase(5), upsert(5, 4)}}, 24);
}

}  // namespace

RaceList pskiplist_races() {
  RaceList races;
  add_pairs(races);
  add_leaves(races);
  add_reuse(races);
  add_strings(races);
  add_versions(races);
  add_threes(races);
  add_conditional(races, words(), 24, {.product = 16, .random = 2, .sampled = 6});
  add_together(races, words(), 24, {.product = 16, .random = 2, .sampled = 6});
  add_batches(races, words(), 24, {.product = 16, .random = 2, .sampled = 6});
  return races;
}

}  // namespace perdure::testing
