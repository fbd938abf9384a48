// Clevel hashing, as the testers know it.
#include "index/clevel/clevel.h"

#include <cstddef>
#include <utility>

#include "testing/crash/workloads.h"
#include "testing/engines/clevel_races.h"
#include "testing/engines/clevel_subject.h"
#include "testing/engines/engine_list.h"
#include "testing/mutants/trials.h"
#include "testing/torture/lossy_target.h"

namespace perdure::testing {

namespace {

SubjectFactory subjects(KeyKind keys, const MapSetup& setup) {
  return keys == KeyKind::bytes ? clevel_subjects<clevel::BytesCodec>(setup)
                                : clevel_subjects<clevel::IntegerCodec>(setup);
}

// A table that grows to three levels, and loses keys while the last one drains.
std::vector<Op> drained() {
  std::vector<Op> ops;
  const auto key = [](std::uint64_t n) { return integer_key(n + 1); };
  for (std::uint64_t n = 0; n < 14; ++n) ops.push_back({OpKind::insert, key(n), "12345678"});
  for (std::uint64_t n = 0; n < 14; n += 2) {
    ops.push_back({OpKind::erase, key(n), {}});
    ops.push_back({OpKind::insert, key(100 + n), "abcdefgh"});
  }
  return ops;
}
// Values that go leave blocks of the sizes that root blocks and levels have, more of them than a
// thread keeps for itself: those of the map that is made next, and grows, are not zero.
std::vector<Op> dirtied() {
  std::vector<Op> ops;
  for (const std::size_t size : {1, 490, 170}) {
    for (std::uint64_t key = 0; key < 26; ++key) {
      ops.push_back(
          {OpKind::upsert, std::string(1, '\0') + integer_key(key), std::string(size, 'd')});
    }
  }
  ops.push_back({OpKind::drop, std::string(1, '\0'), {}});
  for (std::uint64_t key = 0; key < 24; ++key) {
    ops.push_back({OpKind::insert, std::string(1, '\0') + integer_key(key), "1"});
  }
  return ops;
}
std::vector<Exploration> directed(Preset preset) {
  ExploreOptions options = options_of(preset);
  options.second_in *= 4;
  const SubjectFactory two = subjects(KeyKind::integer, {.values = ValueKind::bytes, .maps = 2});
  return {directed_one("drained", subjects(KeyKind::integer, {}), integer_op, options, drained()),
          directed_one("dirtied", two, pool_ops(2, 16), options, dirtied())};
}
// Few keys, whose values are replaced by blobs of several lines.
Op blob_op(Random& random) {
  return {random_kind(random), integer_key(random.below(6)),
          std::string(100 + random.below(100), static_cast<char>('a' + random.below(26)))};
}
std::vector<Exploration> trials() {
  std::vector<Exploration> all = directed(Preset::fast);
  all.push_back(random_one("many_blobs", subjects(KeyKind::integer, {.values = ValueKind::bytes}),
                           together(blob_op, 4), trial_options(), 40));
  return all;
}

// The root block, with the list of levels.
Covered covered(const SimMemory& memory) {
  const clevel::layout::Root* root = clevel_root(memory);
  if (root == nullptr) return {};
  const auto at =
      static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(root) - memory.base());
  return {{at, at + sizeof(clevel::layout::Root)}};
}

struct UnderLoss {
  static constexpr Engine kEngine = Engine::clevel;
  template <bool Bytes>
  using Map = clevel::Clevel<LossyPlatform,
                             std::conditional_t<Bytes, clevel::BytesCodec, clevel::IntegerCodec>,
                             clevel::Geometry<4, 64, 2, 64, 16>>;
  template <bool Bytes>
  static Expected<std::uint64_t> create(const EngineContext<LossyPlatform>& context,
                                        const MapKinds& kinds) {
    return Map<Bytes>::create(context, kinds, 0);
  }
};

constexpr PlantedBug kPlanted[] = {
    {"integer", "clevel.insert.slot:drop_flush"},
    {"bytes", "clevel.blob.write:drop_flush"},
    {"integer", "clevel.erase.state:drop_flush"},
};

constexpr const char* kCanaries[] = {
    "clevel.insert.item:drop_flush",
    "clevel.update.word:drop_fence",
    "clevel.rehash.copy:drop_fence",
    "clevel.ring.word:drop_flush",
};

constexpr std::string_view kOrdered[] = {
    "clevel.insert.item",  // the state of an item last
    "clevel.update.word",  // a closed item is opened before its value changes
    "clevel.update.blob",
    "clevel.many.item",  // both
};

constexpr HistoricalBug kHistorical[] = {
    {"Witcher 20, Level Hashing", "clevel.mark.twice:skip_step",
     "a moved entry stays where it was: after a crash"},
    {"Witcher 33, P-CLHT-Aga", "clevel.ahead.zero:drop_flush",
     "resize: the new root is durable before the table"},
    {"Witcher 36, P-HOT", "clevel.ring.word:drop_fence", "a new root is shown before its fence"},
    {"SEPH #1, Level Hashing", "clevel.help.dead:drop_fence",
     "another thread returns what is not durable yet"},
};

}  // namespace

namespace under_test {

extern const EngineUnderTest clevel;
const EngineUnderTest clevel{
    .engine = Engine::clevel,
    .ordered = false,
    .background = true,
    .subjects = &subjects,
    .directed = &directed,
    .trials = &trials,
    .image_cost = 3,
    .random_words = {1, 60},
    .random_records = {1, 40},
    .random_strings = {1, 40},
    .races = &clevel_races,
    .interleavings = &clevel_interleavings,
    .byte_latches = false,
    .open_lossy = &open_lossy<UnderLoss>,
    .planted = kPlanted,
    .covered = &covered,
    .canaries = kCanaries,
    .race_mutant = "clevel.help.dead:drop_fence",
    .ordered_sites = kOrdered,
    .arguments = {},
    .historical = kHistorical,
};

}  // namespace under_test
}  // namespace perdure::testing
