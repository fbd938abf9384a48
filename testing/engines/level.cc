// Level hashing, as the testers know it.
#include "index/level/level.h"

#include <utility>

#include "testing/engine_list.h"
#include "testing/engines/level_races.h"
#include "testing/engines/level_subject.h"
#include "testing/lossy_target.h"
#include "testing/workloads.h"

namespace perdure::testing {

namespace {

SubjectFactory subjects(KeyKind keys, const MapSetup& setup) {
  return keys == KeyKind::bytes ? level_subjects<level::BytesCodec>(setup)
                                : level_subjects<level::IntegerCodec>(setup);
}

// A table that grows twice and, emptied again, shrinks.
std::vector<Op> grown_and_shrunk() {
  std::vector<Op> ops;
  const auto key = [](std::uint64_t n) { return integer_key(n + 1); };
  for (std::uint64_t n = 0; n < 40; ++n) ops.push_back({OpKind::insert, key(n), "12345678"});
  for (std::uint64_t n = 0; n < 38; ++n) ops.push_back({OpKind::erase, key(n), {}});
  for (std::uint64_t n = 0; n < 6; ++n) ops.push_back({OpKind::insert, key(n), "12345678"});
  return ops;
}
std::vector<Exploration> directed(Preset preset) {
  ExploreOptions options = options_of(preset);
  options.second_in *= 4;
  return {directed_one("resized", subjects(KeyKind::integer, {}), integer_op, options,
                       grown_and_shrunk())};
}
std::vector<Exploration> trials() { return directed(Preset::fast); }
std::vector<NamedInterleaving> interleavings() { return {}; }

struct UnderLoss {
  static constexpr Engine kEngine = Engine::level;
  template <bool Bytes>
  using Map =
      level::Level<LossyPlatform, std::conditional_t<Bytes, level::BytesCodec, level::IntegerCodec>,
                   level::Geometry<2, 2, 2, 2, 4>>;
  template <bool Bytes>
  static Expected<std::uint64_t> create(const EngineContext<LossyPlatform>& context,
                                        const MapKinds& kinds) {
    return Map<Bytes>::create(context, kinds, {});
  }
};

constexpr PlantedBug kPlanted[] = {
    {"integer", "level.insert.line:drop_flush"},
    {"bytes", "level.record.write:drop_flush"},
    {"integer", "level.erase.token:drop_flush"},
};

constexpr const char* kCanaries[] = {
    "level.insert.line:drop_fence",
    "level.update.value:drop_fence",
    "level.drain.copy:drop_flush",
    "level.move.copy:drop_flush",
};

constexpr std::string_view kOrderedSites[] = {
    "level.insert.line",  // the token last
};

constexpr HistoricalBug kHistorical[] = {
    {"Witcher 7, Level Hashing", "level.insert.line:drop_flush", "token before item: first bucket"},
    {"Witcher 8, Level Hashing", "level.insert.line:any_order", "token before item: second bucket"},
    {"Witcher 9, Level Hashing", "level.update.value:drop_flush",
     "token before item: update, first bucket"},
    {"Witcher 10, Level Hashing", "level.move.copy:drop_flush",
     "token before item: the item that is moved away"},
    {"Witcher 12, Level Hashing", "level.drain.copy:drop_flush",
     "token before item: moved to the top level, first bucket"},
    {"Witcher 13, Level Hashing", "level.drain.copy:drop_fence",
     "token before item: moved to the top level, second bucket"},
    {"Witcher 16, Level Hashing", "level.record.write:drop_fence",
     "token before item: update, second bucket"},
    {"Witcher 19, Level Hashing", "level.drain.clear:drop_flush",
     "a moved entry stays where it was"},
    {"Witcher 20, Level Hashing", "level.recover.twice:skip_step",
     "a moved entry stays where it was: after a crash"},
    {"Witcher 22, Level Hashing", nullptr,
     "an update frees the old slot before the new one counts; ours is one word in one slot"},
    {"Witcher 33, P-CLHT-Aga", "level.resize.descriptor:drop_flush",
     "resize: the new root is durable before the table"},
};

}  // namespace

extern const EngineUnderTest kLevelUnderTest;
const EngineUnderTest kLevelUnderTest{
    .engine = Engine::level,
    .ordered = false,
    .background = true,
    .subjects = &subjects,
    .directed = &directed,
    .trials = &trials,
    .races = &level_races,
    .interleavings = &interleavings,
    .byte_latches = false,
    .open_lossy = &open_lossy<UnderLoss>,
    .planted = kPlanted,
    .canaries = kCanaries,
    .race_mutant = "level.erase.token:drop_fence",
    .ordered_sites = kOrderedSites,
    .arguments = {},
    .historical = kHistorical,
};

}  // namespace perdure::testing
