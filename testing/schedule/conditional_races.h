// Scenarios of update_if and erase_if: their look at the value and their store are one step. Every
// engine has them, over its own subjects.
#pragma once

#include <string>
#include <utility>

#include "testing/schedule/race_ops.h"
#include "testing/schedule/races.h"

namespace perdure::testing {

inline void add_conditional(RaceList& races, const SubjectFactory& subjects, std::uint32_t thin,
                            const EnumerationLimits& limits) {
  const auto add = [&](const char* name, std::vector<Ops> threads) {
    races.push_back({.name = std::string("If_") + name,
                     .subjects = subjects,
                     .setup = {insert(5, 1), insert(7, 1)},
                     .threads = std::move(threads),
                     .thin = thin,
                     .limits = limits});
  };
  add("TwoUpdates", {{update_if(5, 1, 2)}, {update_if(5, 1, 3), find(5)}});
  add("UpdateBesideAnUpdate", {{update_if(5, 1, 2)}, {update(5, 3), find(5)}});
  add("UpdateBesideAnErase", {{update_if(5, 1, 2), find(5)}, {erase(5), insert(5, 1)}});
  add("EraseBesideAnUpdate", {{erase_if(5, 1)}, {update(5, 2), find(5)}});
  add("EraseBesideAnUpdateIf", {{erase_if(5, 1)}, {update_if(5, 1, 2), find(5)}});
  add("EraseBesideAnUpsert", {{erase_if(5, 1), find(5)}, {upsert(5, 2), find(5)}});
  add("TwoErases", {{erase_if(5, 1)}, {erase_if(5, 1), find(5)}});
  add("EraseBesideMany", {{erase_if(5, 1)}, {many({update(5, 2), erase(7)}), find(5)}});
  add("EraseBesideTwoUpdates", {{erase_if(5, 1)}, {update(5, 2), update(5, 1)}, {update(5, 3)}});
  add("ErasesBesideMany",
      {{erase_if(5, 1)}, {many({update(5, 2), update(7, 2)})}, {erase_if(7, 1), find(7)}});
}

}  // namespace perdure::testing
