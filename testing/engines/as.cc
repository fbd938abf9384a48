// The skiplist `as`, as the testers know it.
#include <utility>

#include "index/skiplist/skiplist.h"
#include "testing/engine_list.h"
#include "testing/engines/skiplist_races.h"
#include "testing/engines/skiplist_subject.h"
#include "testing/lossy_target.h"
#include "testing/workloads.h"

namespace perdure::testing {

namespace {

using Kind = skiplist::As;

SubjectFactory subjects(KeyKind keys, const MapSetup& setup) {
  return skiplist_subjects<Kind>(keys, setup);
}

// Towers of every height, built and taken down beside each other.
std::vector<Op> towers() {
  std::vector<Op> ops;
  const auto key = [](std::uint64_t n) { return integer_key(n * 7 % 16 + 1); };
  for (std::uint64_t n = 0; n < 16; ++n) ops.push_back({OpKind::insert, key(n), "12345678"});
  for (std::uint64_t n = 0; n < 16; n += 2) {
    ops.push_back({OpKind::erase, key(n), {}});
    ops.push_back({OpKind::upsert, key(n + 1), "abcdefgh"});
    ops.push_back({OpKind::insert, integer_key(100 + n), "ABCDEFGH"});
  }
  return ops;
}
std::vector<Exploration> directed(Preset preset) {
  ExploreOptions options = options_of(preset);
  options.second_in *= 4;
  return {directed_one("towers", subjects(KeyKind::integer, {}), integer_op, options, towers())};
}
std::vector<Exploration> trials() { return directed(Preset::fast); }
std::vector<NamedInterleaving> interleavings() { return {}; }

struct UnderLoss {
  static constexpr Engine kEngine = Kind::kEngine;
  template <bool Bytes>
  using Map =
      skiplist::Skiplist<LossyPlatform,
                         std::conditional_t<Bytes, skiplist::BytesCodec, skiplist::IntegerCodec>,
                         Kind, skiplist::Geometry<8, 1, 64, 16>>;
  template <bool Bytes>
  static Expected<std::uint64_t> create(const EngineContext<LossyPlatform>& context,
                                        const MapKinds& kinds) {
    return Map<Bytes>::create(context, kinds);
  }
};

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

}  // namespace

extern const EngineUnderTest kAsUnderTest;
const EngineUnderTest kAsUnderTest{
    .engine = Kind::kEngine,
    .ordered = true,
    .background = true,
    .subjects = &subjects,
    .directed = &directed,
    .trials = &trials,
    .races = &as_races,
    .interleavings = &interleavings,
    .byte_latches = false,
    .open_lossy = &open_lossy<UnderLoss>,
    .planted = kPlanted,
    .canaries = kCanaries,
    .race_mutant = "as.help.word:drop_fence",
    .ordered_sites = {},
    .arguments = {},
    .historical = kHistorical,
};

}  // namespace perdure::testing
