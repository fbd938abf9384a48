// The skiplist `as`, as the testers know it.
#include "testing/engine_list.h"
#include "testing/engines/skiplist_races.h"
#include "testing/engines/skiplist_under_test.h"

namespace perdure::testing {

namespace {

constexpr PlantedBug kPlanted[] = {
    {"integer", "as.insert.link:drop_flush"},
    {"bytes", "as.blob.write:drop_flush"},
    {"integer", "as.erase.link:drop_flush"},
};

constexpr const char* kCanaries[] = {
    "as.insert.node:drop_flush",  "as.insert.node:drop_fence", "as.update.value:drop_fence",
    "as.insert.upper:drop_fence", "as.erase.upper:drop_fence",
};

constexpr HistoricalBug kHistorical[] = {
    {"hazard A2, as published", "as.insert.node:drop_flush",
     "the node's height and upper links are not written back"},
    {"hazard A4, as published", "as.erase.upper:drop_fence",
     "a level is unlinked durably before the one above it"},
    {"SEPH #1, Level Hashing", "as.help.word:drop_fence",
     "another thread answers by what is not durable yet"},
};

constexpr EngineUnderTest row() {
  EngineUnderTest row = SkiplistUnderTest<skiplist::As>::row();
  row.races = &as_races;
  row.planted = kPlanted;
  row.canaries = kCanaries;
  row.race_mutant = "as.help.word:drop_fence";
  row.historical = kHistorical;
  return row;
}

}  // namespace

namespace under_test {

extern const EngineUnderTest as;
constinit const EngineUnderTest as = row();

}  // namespace under_test
}  // namespace perdure::testing
