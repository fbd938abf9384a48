// The scenarios of level hashing. Tables are tiny: two buckets of three slots over one, at first.
// Which keys collide depends on the hash functions' seeds, which are the same in every run: setups
// end just before the operation that moves an item or begins a resize.
#include "testing/engines/level_races.h"

#include <memory>
#include <string>

#include "testing/engines/level_subject.h"
#include "testing/schedule/conditional_races.h"
#include "testing/schedule/gate_races.h"
#include "testing/schedule/race_ops.h"

namespace perdure::testing {

namespace {

constexpr EnumerationLimits kFew{.product = 16, .random = 2, .sampled = 6};

SubjectFactory words() { return level_subjects<level::IntegerCodec>({.background_thread = false}); }
SubjectFactory strings() {
  return level_subjects<level::BytesCodec>(
      {.values = ValueKind::bytes, .background_thread = false});
}
Op put(char key, char value) {
  return {OpKind::upsert, std::string(12, key), std::string(30, value)};
}
Op look(char key) { return {OpKind::find, std::string(12, key), {}}; }
Op gone(char key) { return {OpKind::erase, std::string(12, key), {}}; }

// G1, E11: what a result rests on is durable. L4: no key is there twice.
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
         const std::vector<Ops>& threads, std::uint32_t thin,
         const std::set<std::string>& reaches = {}) {
  races.push_back({.name = name,
                   .subjects = words(),
                   .setup = setup,
                   .threads = threads,
                   .thin = thin,
                   .limits = kFew,
                   .reaches = reaches});
}

const std::set<std::string> kResize{"level.resize.root", "level.drain.copy", "level.drain.clear"};
const std::set<std::string> kMove{"level.move.record", "level.move.copy", "level.move.replace"};

// L4, L11, E1, E9, E10, E14: a movement or an expansion beside a thread that looks for, changes or
// passes what it moves. The second mutation of a thread drains, since nothing else does the work.
void add_growth(RaceList& races) {
  const auto add_to = [&](const std::string& what, const Setup& setup,
                          const std::set<std::string>& reaches) {
    const Ops grow{setup.next, update(10, 8)};
    const auto beside = [&](const char* hazards, const char* who, const Ops& other,
                            std::uint32_t thin) {
      add(races, std::string(hazards) + "_" + who + "Beside" + what, setup.before, {grow, other},
          thin, reaches);
    };
    beside("L4_L11_E9_E10", "Finds", {find(10), find(30), find(40)}, 192);
    beside("L4_E1", "Writers", {erase(20), insert(20, 5), find(20)}, 384);
    beside("L4_E1", "Changes", {update(20, 5), upsert(30, 6), find(20)}, 384);
    beside("L4_E1", "Inserts", {insert(500, 2), find(500)}, 384);
    beside("E14_E15", "Scan", {scan()}, 384);
  };
  add_to("AMovement", until("level.move.copy", tens(60)), kMove);
  add_to("AnExpansion", until("level.resize.root", tens(60)), kResize);
  const Setup first = until("level.resize.root", tens(60));
  add_to("TheSecondExpansion", until("level.resize.root", tens(60), first.before.size() + 1),
         kResize);
}

// L9, L11, E2, E3, E5: the same beside a shrink: a table that has grown twice, emptied in an order
// that leaves items everywhere.
void add_shrinks(RaceList& races) {
  constexpr std::uint64_t kMost = 30;
  Ops ops = tens(kMost);
  for (std::uint64_t i = kMost; i > 3; --i) ops.push_back(erase(i * 10));
  const Setup setup = until("level.resize.root", ops, kMost);
  const Ops shrink{setup.next, update(20, 7), update(30, 7)};
  const auto beside = [&](const char* hazards, const char* who, const Ops& other,
                          std::uint32_t thin) {
    add(races, std::string(hazards) + "_" + who + "BesideAShrink", setup.before, {shrink, other},
        thin, kResize);
  };
  beside("L11_E5", "Finds", {find(20), find(30)}, 384);
  beside("L9_E2_E3", "Inserts", {insert(500, 1), insert(510, 1), find(20)}, 1536);
  beside("E5", "Erase", {erase(20), find(20)}, 384);
  beside("E5", "Changes", {update(20, 5), upsert(30, 6), find(20)}, 384);
  beside("E14_E15", "Scan", {scan()}, 384);
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

// E25, E26: an array's two words beside a thread that looks for it, changes it, or puts another key
// into its slot. Five keys fill lines, in which nothing but an Update replaces a value.
void add_arrays(RaceList& races) {
  Ops setup;
  for (std::uint64_t key = 1; key <= 5; ++key) setup.push_back(insert(key, 1));
  const auto add = [&](const char* who, std::uint64_t key, const Ops& other) {
    races.push_back({.name = std::string("E25_E26_") + who + std::to_string(key) + "BesideAnArray",
                     .subjects = level_subjects<level::ArrayCodec>({.background_thread = false}),
                     .setup = setup,
                     .threads = {{update(key, 2)}, other},
                     .thin = 48,
                     .limits = kFew});
  };
  for (std::uint64_t key = 1; key <= 3; ++key) {
    add("Finds", key, {find(key), find(key)});
    add("Changes", key, {update(key, 3), erase(key), find(key)});
    add("Scan", key, {scan()});
  }
}

// An Update that is not durably gone when its slot is: only another thread can show it. Of the last
// key, or the first that shows it.
InterleaveReport slot_of_an_array_reused(const std::string& name, bool quiet) {
  Ops setup;
  for (std::uint64_t n = 1; n <= 5; ++n) setup.push_back(insert(n, 1));
  InterleaveReport report;
  for (std::uint64_t key = 1; key <= 5 && report.ok(); ++key) {
    Interleaver interleaver(
        level_subjects<level::ArrayCodec>({.background_thread = false}),
        {.name = name + std::to_string(key),
         .setup = setup,
         .threads = {{update(key, 2)}, {erase(key), insert(10 + key, 3), insert(20 + key, 3)}},
         .limits = kFew,
         .quiet = quiet});
    report = interleaver.exhaustive(0);
  }
  return report;
}

// Mutations that share a fence, beside others of the same keys and buckets, and beside what moves
// items: no mutation waits while it holds a bucket (level.I5), and none adds to a level that is
// drained (level.I6).
void add_many(RaceList& races) {
  const auto pairs = [&](const std::string& name, const Ops& setup,
                         const std::vector<Ops>& threads) {
    add(races, "Many_" + name, setup, threads, 48);
  };
  pairs("BesideAFind", tens(3),
        {{many({insert(15, 1), update(20, 2), erase(30)})}, {find(15), find(20), find(30)}});
  pairs("BesideAScan", tens(3), {{many({insert(15, 1), erase(20), update(30, 2)})}, {scan()}});
  pairs("CrossingKeys", tens(3),
        {{many({update(10, 1), update(20, 2)})}, {many({update(20, 3), update(10, 4)}), find(10)}});
  pairs("CrossingInserts", tens(2),
        {{many({insert(15, 1), insert(16, 2)})}, {many({insert(16, 3), insert(15, 4)}), find(15)}});
  pairs("OneKeyTwice", tens(2),
        {{many({insert(15, 1), update(15, 2), erase(15)})}, {upsert(15, 3), find(15)}});
  const auto beside = [&](const char* what, const Setup& setup,
                          const std::set<std::string>& reaches) {
    add(races, std::string("Many_Beside") + what, setup.before,
        {{setup.next, update(10, 8)},
         {many({insert(500, 1), update(20, 5), erase(30)}), find(500)}},
        384, reaches);
  };
  beside("AMovement", until("level.move.copy", tens(60)), kMove);
  beside("AnExpansion", until("level.resize.root", tens(60)), kResize);
  races.push_back({.name = "Many_Strings",
                   .subjects = strings(),
                   .setup = {put('a', '1'), put('b', '1')},
                   .threads = {{many({put('a', '2'), gone('b'), put('c', '2')})},
                               {put('a', '3'), look('b'), look('c')}},
                   .thin = 48,
                   .limits = kFew});
}

}  // namespace

std::vector<NamedInterleaving> level_interleavings() {
  return {{"slot_of_an_array_reused", &slot_of_an_array_reused}};
}

Setup until(const std::string& site, const Ops& ops, std::size_t from) {
  const ScopedWorld world;
  SimPlatform::seed(InterleaveOptions{}.seed);
  SimMemory memory(InterleaveOptions{}.capacity);
  const std::unique_ptr<Subject> subject = words()();
  if (!subject->create(memory).ok() || !subject->open(memory, 1).ok()) return {};
  memory.settle();
  memory.set_mode(SimMode::recording);
  bool crossed = false;
  memory.before_fence = [&](const SiteInfo& info) { crossed = crossed || info.name == site; };
  Setup setup;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    setup.next = ops[i];
    crossed = false;
    (void)subject->apply(ops[i]);
    if (crossed && i >= from) break;
    setup.before.push_back(ops[i]);
  }
  memory.set_mode(SimMode::frozen);
  return setup;
}

RaceList level_races() {
  RaceList races;
  add_pairs(races);
  add_growth(races);
  add_shrinks(races);
  add_strings(races);
  add_threes(races);
  add_arrays(races);
  add_many(races);
  add_conditional(races, words(), 24, kFew);
  add_together(races, words(), 24, kFew);
  add_batches(races, words(), 24, kFew);
  return races;
}

}  // namespace perdure::testing
