// The skiplist `ascs`, as the testers know it.
#include "testing/engine_list.h"
#include "testing/engines/skiplist_races.h"
#include "testing/engines/skiplist_under_test.h"

namespace perdure::testing {

namespace {

constexpr PlantedBug kPlanted[] = {
    {"integer", "ascs.insert.link:drop_flush"},
    {"bytes", "ascs.blob.write:drop_flush"},
    {"integer", "ascs.erase.link:drop_flush"},
};

constexpr const char* kCanaries[] = {
    "ascs.insert.node:drop_flush",
    "ascs.insert.node:drop_fence",
    "ascs.update.value:drop_fence",
};

constexpr HistoricalBug kHistorical[] = {
    {"hazard A2, as published", "ascs.insert.node:drop_flush",
     "the node's height is not written back"},
    {"SEPH #1, Level Hashing", "ascs.help.word:drop_fence",
     "another thread answers by what is not durable yet"},
};

constexpr EngineUnderTest row() {
  EngineUnderTest row = SkiplistUnderTest<skiplist::Ascs>::row();
  row.races = &ascs_races;
  row.planted = kPlanted;
  row.canaries = kCanaries;
  row.race_mutant = "ascs.help.word:drop_fence";
  row.historical = kHistorical;
  return row;
}

}  // namespace

namespace under_test {

extern const EngineUnderTest ascs;
constinit const EngineUnderTest ascs = row();

}  // namespace under_test
}  // namespace perdure::testing
