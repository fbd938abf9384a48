// The skiplist `as`, as the testers know it.
#include "testing/engines/skiplist_races.h"
#include "testing/engines/skiplist_under_test.h"

namespace perdure::testing::under_test {

namespace {

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
     "another thread returns what is not durable yet"},
};

}  // namespace

extern const EngineUnderTest as;
constinit const EngineUnderTest as =
    SkiplistUnderTest<skiplist::As>::row(&as_races, kCanaries, kHistorical);

}  // namespace perdure::testing::under_test
