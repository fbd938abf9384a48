// Scenarios of reads together, which close the gate for mutations (reclaim/gate.h). Every engine
// has them, over its own subjects. A mutation that passes the closed gate, or one that the reader
// does not wait for, shows as a state that never was.
#pragma once

#include <string>
#include <utility>

#include "testing/schedule/race_ops.h"
#include "testing/schedule/races.h"

namespace perdure::testing {

inline void add_together(RaceList& races, const SubjectFactory& subjects, std::uint32_t thin,
                         const EnumerationLimits& limits) {
  const auto add = [&](const char* name, std::vector<Ops> threads) {
    races.push_back({.name = std::string("Together_") + name,
                     .subjects = subjects,
                     .setup = {insert(5, 1), insert(7, 1)},
                     .threads = std::move(threads),
                     .thin = thin,
                     .limits = limits});
  };
  const Op both = together({find(5), find(7)});
  add("BesideTwoUpdates", {{both}, {update(5, 2), update(7, 2)}});
  add("BesideTwoUpdatesTheOtherWay", {{both}, {update(7, 2), update(5, 2)}});
  add("BesideAnInsertAndAnErase", {{together({find(6), find(7)})}, {insert(6, 2), erase(7)}});
  add("BesideMany", {{both}, {many({update(5, 2), erase(7)})}});
  add("Twice", {{both, upsert(5, 3)}, {update(5, 2), together({find(7), find(5)})}});
  add("BesideTwoWriters", {{both}, {update(5, 2)}, {update(7, 2), find(5)}});
}

// Scenarios of batches, which hold the closed gate while they change several keys. A mutation
// between its parts, a batch that a crash leaves done in part, and one that undoes a later mutation
// when it is done again, show as states that never were.
inline void add_batches(RaceList& races, const SubjectFactory& subjects, std::uint32_t thin,
                        const EnumerationLimits& limits) {
  const auto add = [&](const char* name, std::vector<Ops> threads) {
    races.push_back({.name = std::string("Batch_") + name,
                     .subjects = subjects,
                     .setup = {insert(5, 1), insert(7, 1)},
                     .threads = std::move(threads),
                     .thin = thin,
                     .limits = limits});
  };
  const Op both = batch({upsert(5, 2), upsert(7, 2)});
  add("BesideLookups", {{both}, {find(5), find(7)}});
  add("BesideReadsTogether", {{both}, {together({find(5), find(7)})}});
  add("BesideAnUpdate", {{both}, {update(7, 3), find(5)}});
  add("BesideMany", {{batch({upsert(6, 2), erase(7)})}, {many({update(5, 3), erase(7)})}});
  add("BesideABatch", {{both}, {batch({upsert(7, 3), erase(5)})}});
  add("BesideTwoThreads", {{both}, {together({find(7), find(5)})}, {erase(5), insert(5, 4)}});
}

// Scenarios of batches in pieces, of engines that take them: pieces of one key.
inline void add_pieces(RaceList& races, const SubjectFactory& words, const SubjectFactory& bytes,
                       std::uint32_t thin, const EnumerationLimits& limits) {
  const auto add = [&](const char* name, std::vector<Ops> threads, Ops setup = {},
                       bool strings = false) {
    if (setup.empty()) setup = {insert(5, 1), insert(7, 1)};
    races.push_back({.name = std::string("Pieces_") + name,
                     .subjects = strings ? bytes : words,
                     .setup = std::move(setup),
                     .threads = std::move(threads),
                     .thin = strings ? 16 * thin : thin,  // a step of a string has more steps
                     .limits = limits});
  };
  // Batches of an even number of keys would be small ones.
  const Op all = batch({upsert(5, 2), upsert(6, 2), erase(7)});
  add("BesideAnInsertOfWhatIsErased", {{all}, {insert(7, 3), find(5)}});
  add("BesideAnEraseOfWhatIsPut", {{all}, {erase(6), find(6)}});
  add("BesideAPutThatHasSeenIt", {{all}, {find(5), upsert(7, 3)}});
  add("BesideMany", {{all}, {many({update(5, 3), insert(7, 3)})}});
  add("BesideReadsTogether", {{all}, {together({find(5), find(6), find(7)})}});
  add("BesideABatch", {{all}, {batch({upsert(6, 3), erase(5)})}});
  add("BesideTwoThreads", {{all}, {erase(6), insert(6, 4)}, {update(5, 5), find(7)}});
  // Leaves of four: one more needs a slot that is promised.
  add("BesideAnInsertIntoItsLeaf",
      {{batch({upsert(5, 2), upsert(8, 2), upsert(9, 2)})}, {insert(6, 3), find(9)}});
  // An erase empties a leaf that it will fill, and the next one is full.
  for (const bool strings : {false, true}) {
    add(strings ? "BesideAnEraseOfTheLastStringInItsLeaf" : "BesideAnEraseOfTheLastInItsLeaf",
        {{batch({upsert(55, 2), upsert(65, 2), upsert(10, 2)})}, {erase(80), find(55)}},
        with(tens(9),
             {insert(91, 1), insert(92, 1), insert(93, 1), erase(50), erase(60), erase(70)}),
        strings);
  }
}

}  // namespace perdure::testing
