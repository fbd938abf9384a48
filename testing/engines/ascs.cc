// The skiplist `ascs`, as the testers know it.
#include "testing/engines/skiplist_races.h"
#include "testing/engines/skiplist_under_test.h"

namespace perdure::testing::under_test {

namespace {

constexpr const char* kCanaries[] = {
    "ascs.insert.node:drop_flush",
    "ascs.insert.node:drop_fence",
    "ascs.update.value:drop_fence",
};

constexpr HistoricalBug kHistorical[] = {
    {"hazard A2, as published", "ascs.insert.node:drop_flush",
     "the node's height is not written back"},
    {"SEPH #1, Level Hashing", "ascs.help.word:drop_fence",
     "another thread returns what is not durable yet"},
};

}  // namespace

extern const EngineUnderTest ascs;
constinit const EngineUnderTest ascs =
    SkiplistUnderTest<skiplist::Ascs>::row(&ascs_races, kCanaries, kHistorical);

}  // namespace perdure::testing::under_test
