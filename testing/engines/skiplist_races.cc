// The scenarios of the skiplists. Heights depend on the keys and on a seed that is the same in
// every run; among sixteen keys there are towers of every height.
#include "testing/engines/skiplist_races.h"

#include <memory>
#include <string>

#include "testing/engines/skiplist_subject.h"
#include "testing/schedule/conditional_races.h"
#include "testing/schedule/gate_races.h"
#include "testing/schedule/race_ops.h"

namespace perdure::testing {

namespace {

using skiplist::As;
using skiplist::Ascs;

constexpr EnumerationLimits kFew{.product = 16, .random = 2, .sampled = 12};

Op put(char key, char value) {
  return {OpKind::upsert, std::string(12, key), std::string(30, value)};
}
Op put_long(char key, char value) {
  return {OpKind::upsert, std::string(12, key), std::string(1100, value)};
}
Op look(char key) { return {OpKind::find, std::string(12, key), {}}; }
Op gone(char key) { return {OpKind::erase, std::string(12, key), {}}; }

template <class Kind>
class Scenarios {
 public:
  RaceList take() {
    add_pairs();
    add_neighbours();
    add_scans();
    add_strings();
    add_threes();
    if constexpr (Kind::kUpperDurable) add_walks();
    const auto words = skiplist_subjects<Kind>(KeyKind::integer, {.background_thread = false});
    add_conditional(races_, words, 24, kFew);
    add_together(races_, words, 24, kFew);
    add_batches(races_, words, 24, kFew);
    return std::move(races_);
  }

 private:
  // `reaches`: without the name of the engine.
  void add(const std::string& name, const Ops& setup, const std::vector<Ops>& threads,
           std::uint32_t thin, const std::vector<const char*>& reaches = {}) {
    races_.push_back(
        {.name = name,
         .subjects = skiplist_subjects<Kind>(KeyKind::integer, {.background_thread = false}),
         .setup = setup,
         .threads = threads,
         .thin = thin,
         .limits = kFew});
    for (const char* site : reaches) {
      races_.back().reaches.insert(std::string(engine_name(Kind::kEngine)) + "." + site);
    }
  }

  // G1, A3, A11: what a result rests on is durable. A1: of two inserts none is lost.
  void add_pairs() {
    const Ops writers{insert(5, 2), upsert(5, 3), update(5, 4), erase(5)};
    const Ops others{insert(5, 5), upsert(5, 6), update(5, 7), erase(5), find(5), scan()};
    static constexpr const char* kNames[] = {"Insert", "Upsert", "Update", "Erase", "Find", "Scan"};
    for (const bool there : {false, true}) {
      for (std::size_t w = 0; w < writers.size(); ++w) {
        for (std::size_t o = 0; o < others.size(); ++o) {
          add(std::string("A1_A11_G1_") + kNames[w] + "And" + kNames[o] +
                  (there ? "There" : "Absent"),
              there ? Ops{insert(5, 1), insert(7, 1)} : Ops{insert(7, 1)},
              {{writers[w]}, {others[o], find(5)}}, 24);
        }
      }
    }
  }

  // A1, A8: changes of neighbours, which are changes of one word. Heights differ from key to key.
  void add_neighbours() {
    const Ops there = tens(6);
    add("A1_InsertsBesideEachOther", there, {{insert(31, 1)}, {insert(32, 1), find(31)}}, 48);
    add("A1_InsertsInTheSamePlaces", there, {{insert(31, 1)}, {insert(29, 1), scan()}}, 48);
    add("A4_A8_InsertBehindWhatGoes", there, {{erase(30)}, {insert(31, 1), find(40)}}, 48);
    add("A4_A8_InsertBeforeWhatGoes", there, {{erase(30)}, {insert(29, 1), find(30)}}, 48);
    add("A4_A8_NeighboursGo", there, {{erase(30)}, {erase(40), find(50)}}, 48);
    add("A8_FindBesideErase", there, {{erase(30), reclaim(), insert(35, 1)}, {find(40)}}, 48);
    add("A8_UpdateOfWhatComesBack", there, {{erase(30), insert(30, 2)}, {update(30, 3), find(30)}},
        48);
    for (const std::uint64_t key : {10, 20, 30, 40, 50, 60}) {  // of every height
      std::vector<const char*> reaches{"insert.node", "insert.link", "erase.link"};
      if (Kind::kUpperDurable && key == 10)
        reaches.insert(reaches.end(), {"insert.upper", "erase.upper"});
      add("A4_A8_FindsBesideTheTowerOf" + std::to_string(key), there,
          {{erase(key), insert(key, 2)}, {find(key), find(key + 10)}}, 96, reaches);
    }
  }

  void add_scans() {
    const Ops there = tens(5);
    for (const bool back : {false, true}) {
      const Op all = back ? scan_back() : scan();
      const std::string way = back ? "BackwardScan" : "Scan";
      add("H7_A8_" + way + "BesideErases", there, {{erase(20), erase(30)}, {all}}, 48);
      add("H7_" + way + "BesideInserts", there, {{insert(25, 1), insert(5, 1)}, {all}}, 48);
      add("H7_A8_" + way + "BesideReuse", there,
          {{erase(20), reclaim(), insert(45, 2), update(30, 9)}, {all}}, 96);
    }
    for (const bool back : {false, true}) {
      const std::string way = back ? "IterateBack" : "Iterate";
      const auto to = [&](std::uint64_t key) { return back ? iterate_back(key) : iterate(key); };
      add("H7_A8_" + way + "BesideErases", there, {{erase(20), erase(30)}, {to(30)}}, 192);
      add("H7_" + way + "BesideInserts", there, {{insert(25, 1), insert(5, 1)}, {to(30)}}, 192);
      add("H7_A8_" + way + "BesideReuse", there,
          {{erase(20), reclaim(), insert(45, 2), update(30, 9)}, {to(40)}}, 384);
    }
    // What it stands on before its bound goes, and something comes between the two.
    add("A8_ScanFromBesideAnErase", there, {{erase(20), insert(25, 1)}, {scan_from(28)}}, 48);
    add("A8_ScanFromBesideErases", there, {{erase(20), insert(15, 1)}, {scan_from(18)}}, 48);
    add("A8_ScanBeforeBesideAnErase", there, {{erase(30), insert(25, 1)}, {scan_before(28)}}, 48);
  }

  // Values in blobs are made and freed outside the latch.
  void add_strings() {
    const auto add_one = [&](const char* name, const Ops& one, const Ops& other) {
      races_.push_back(
          {.name = name,
           .subjects = skiplist_subjects<Kind>(
               KeyKind::bytes, {.values = ValueKind::bytes, .background_thread = false}),
           .setup = {put('a', '1'), put('b', '1')},
           .threads = {one, other},
           .thin = 48,
           .limits = kFew});
    };
    add_one("A10_G6_UpdatesOfAString", {put('a', '2')}, {put('a', '3'), look('a')});
    add_one("A10_G6_UpdateAndEraseOfAString", {put('a', '2')}, {gone('a'), look('a')});
    add_one("A10_G6_FindBesideAnUpdateOfAString", {put('a', '2'), reclaim(), put('c', '4')},
            {look('a')});
    add_one("A1_InsertsOfAString", {put('c', '2')}, {put('c', '3'), look('c')});
    add_one("A1_InsertsOfALongString", {put_long('c', '2')}, {put_long('c', '3'), look('c')});
    add_one("A10_EraseBeneathAnUpdate", {gone('a'), put('a', '5')}, {put('a', '3'), look('a')});
  }

  // owed_: the last link of a tower is fenced by another thread's next operation.
  void add_threes() {
    add("A1_ThreeHandsOnOneKey", {insert(5, 1)},
        {{update(5, 2), erase(5)}, {insert(5, 3), find(5)}, {erase(5), upsert(5, 4)}}, 24);
    add("A4_ThreeTowersAtOnce", tens(4),
        {{insert(15, 1), erase(20)}, {insert(16, 1), erase(30)}, {insert(25, 2), scan()}}, 24);
  }

  // K8: the map serves while the walk behind its open, two nodes at a time, marks, and adds up what
  // was closed.
  void add_walks() {
    const auto add_walk = [&](const char* name, const SubjectFactory& subjects, const Ops& setup,
                              const Ops& beside) {
      races_.push_back({.name = std::string("K8_P4a_") + name,
                        .subjects = subjects,
                        .setup = with(setup, {reopen()}),
                        .threads = {{background()}, beside},
                        .thin = 96,
                        .limits = kFew});
    };
    const SubjectFactory words = skiplist_subjects<Kind>(KeyKind::integer, {});
    const SubjectFactory strings =
        skiplist_subjects<Kind>(KeyKind::bytes, {.values = ValueKind::bytes});
    add_walk("ErasesBesideTheWalk", words, tens(6), {erase(20), erase(30), find(20)});
    add_walk("InsertsBesideTheWalk", words, tens(6), {insert(5, 1), insert(35, 2), erase(35)});
    add_walk("WhatComesBackBesideTheWalk", words, tens(6), {erase(20), insert(20, 2), erase(60)});
    add_walk("UpdatesBesideTheWalk", words, tens(4), {update(20, 7), find(20), update(40, 7)});
    add_walk("FindsBesideTheWalk", words, tens(5), {find(30), find(35), scan()});
    add_walk("StringsBesideTheWalk", strings, {put('a', '1'), put_long('b', '1'), put('c', '1')},
             {put('a', '2'), gone('b'), put('d', '3')});
  }

  RaceList races_;
};

}  // namespace

RaceList as_races() { return Scenarios<As>().take(); }
RaceList ascs_races() { return Scenarios<Ascs>().take(); }

}  // namespace perdure::testing
