// The scenarios of level hashing. Tables are tiny: two buckets of three slots over one, at first.
// The hash functions' seeds are the same in every run; which keys collide is not said here, so
// scenarios of movements and resizes come in several sizes, of which some hit.
// tests/sim/level_races_test.cc holds them to that.
#include "testing/level_subject.h"
#include "testing/race_ops.h"
#include "testing/races.h"

namespace perdure::testing {

namespace {

constexpr EnumerationLimits kFew{.product = 16, .random = 2, .sampled = 12};

SubjectFactory words() { return level_subjects<level::IntegerCodec>({}); }
SubjectFactory strings() { return level_subjects<level::BytesCodec>({.values = ValueKind::bytes}); }
Op put(char key, char value) {
  return {OpKind::upsert, std::string(12, key), std::string(30, value)};
}
Op look(char key) { return {OpKind::find, std::string(12, key), {}}; }
Op gone(char key) { return {OpKind::erase, std::string(12, key), {}}; }

// G1, E11: what an answer rests on is durable. L4: one key is never there twice.
void add_pairs(RaceList& races) {
  const Ops writers{insert(5, 2), upsert(5, 3), update(5, 4), erase(5)};
  const Ops others{insert(5, 5), upsert(5, 6), update(5, 7), erase(5), find(5), scan()};
  static constexpr const char* kNames[] = {"Insert", "Upsert", "Update", "Erase", "Find", "Scan"};
  for (const bool there : {false, true}) {
    for (std::size_t w = 0; w < writers.size(); ++w) {
      for (std::size_t o = 0; o < others.size(); ++o) {
        races.push_back({.name = std::string("L4_G1_") + kNames[w] + "And" + kNames[o] +
                                 (there ? "There" : "Absent"),
                         .subjects = words(),
                         .setup = there ? Ops{insert(5, 1), insert(7, 1)} : Ops{insert(7, 1)},
                         .threads = {{writers[w]}, {others[o], find(5)}}});
      }
    }
  }
}

void add(RaceList& races, const std::string& name, const Ops& setup,
         const std::vector<Ops>& threads, std::uint32_t thin) {
  races.push_back({.name = name,
                   .subjects = words(),
                   .setup = setup,
                   .threads = threads,
                   .thin = thin,
                   .limits = kFew});
}

// L4, L11, E1, E9, E10, E14: a movement or an expansion beside who looks for, changes or passes
// what it moves. The second mutation of a thread drains, since nothing else does the work.
void add_growth(RaceList& races) {
  for (std::uint64_t n = 5; n <= 9; ++n) {
    const std::string size = std::to_string(n);
    const Ops grow{insert(n * 10 + 10, 1), update(10, 8)};
    add(races, "L11_E9_E10_FindsBesideGrowth_" + size, tens(n), {grow, {find(10), find(30)}}, 96);
    add(races, "L4_E1_WritersBesideGrowth_" + size, tens(n),
        {grow, {erase(20), insert(20, 5), find(20)}}, 192);
    add(races, "L4_E1_InsertsBesideGrowth_" + size, tens(n), {grow, {insert(500, 2), find(500)}},
        192);
    add(races, "E14_E15_ScanBesideGrowth_" + size, tens(n), {grow, {scan()}}, 96);
  }
}

// L9, L11, E2, E3, E5: the same beside a shrink: a table that has grown twice, nearly emptied.
void add_shrinks(RaceList& races) {
  for (std::uint64_t left = 3; left <= 6; ++left) {
    const std::string size = std::to_string(left);
    Ops setup = tens(14);
    for (std::uint64_t i = 14; i > left; --i) setup.push_back(erase(i * 10));
    const Ops shrink{erase(10), update(20, 7), update(30, 7)};
    add(races, "L11_E5_FindsBesideAShrink_" + size, setup, {shrink, {find(20), find(30)}}, 192);
    add(races, "L9_E2_E3_InsertsBesideAShrink_" + size, setup,
        {shrink, {insert(500, 1), insert(510, 1), find(20)}}, 768);
    add(races, "E5_EraseBesideAShrink_" + size, setup, {shrink, {erase(20), find(20)}}, 192);
    add(races, "E14_E15_ScanBesideAShrink_" + size, setup, {shrink, {scan()}}, 192);
  }
}

// Records are made and freed outside the locks.
void add_strings(RaceList& races) {
  const Ops there{put('a', '1'), put('b', '1')};
  const auto add = [&](const char* name, const Ops& one, const Ops& other) {
    races.push_back({.name = name,
                     .subjects = strings(),
                     .setup = there,
                     .threads = {one, other},
                     .thin = 48,
                     .limits = kFew});
  };
  add("G6_UpdatesOfAString", {put('a', '2')}, {put('a', '3'), look('a')});
  add("G6_UpdateAndEraseOfAString", {put('a', '2')}, {gone('a'), look('a')});
  add("G6_FindBesideAnUpdateOfAString", {put('a', '2'), reclaim(), put('c', '4')}, {look('a')});
  add("L4_InsertsOfAString", {put('c', '2')}, {put('c', '3'), look('c')});
}

void add_threes(RaceList& races) {
  add(races, "L4_ThreeHandsOnOneKey", {insert(5, 1)},
      {{update(5, 2), erase(5)}, {insert(5, 3), find(5)}, {erase(5), upsert(5, 4)}}, 24);
  add(races, "L11_ThreeHandsBesideGrowth", tens(8),
      {{insert(500, 1), insert(510, 1)}, {erase(20), insert(20, 2)}, {find(30), scan()}}, 24);
}

}  // namespace

RaceList level_races() {
  RaceList races;
  add_pairs(races);
  add_growth(races);
  add_shrinks(races);
  add_strings(races);
  add_threes(races);
  return races;
}

}  // namespace perdure::testing
