// Level hashing, as the testers know it.
#include "index/level/level.h"

#include <cstddef>
#include <string>
#include <utility>

#include "testing/crash/workloads.h"
#include "testing/engines/engine_list.h"
#include "testing/engines/level_races.h"
#include "testing/engines/level_subject.h"
#include "testing/mutants/trials.h"
#include "testing/torture/lossy_target.h"

namespace perdure::testing {

namespace {

SubjectFactory subjects(KeyKind keys, const MapSetup& setup) {
  if (keys == KeyKind::array) return level_subjects<level::ArrayCodec>(setup);
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
Op new_key(Random& random) {
  return {OpKind::insert, integer_key(100 + random.below(300)), "87654321"};
}
Op old_key(Random& random) { return {OpKind::erase, integer_key(1 + random.below(40)), {}}; }

// An Update is gone before its slot changes again, and gone after recovery: the key whose value is
// replaced goes, and others take its slot. With `two_lines`, so is the second slot of a key.
Exploration updated_again(ExploreOptions options, std::uint64_t key, bool two_lines = false) {
  const auto op = [](OpKind kind, std::uint64_t of, char value) {
    return Op{kind, integer_key(of), std::string(8, value)};
  };
  const std::uint64_t keys = two_lines ? 10 : 5;
  for (std::uint64_t n = 1; n <= keys; ++n) options.prepare.push_back(op(OpKind::insert, n, 'a'));
  std::vector<Op> ops;
  for (std::uint64_t round = 1; round <= 4; ++round) {
    const std::uint64_t other = 10 * round + key;
    ops.push_back(op(OpKind::update, key, 'b'));
    ops.push_back(op(OpKind::erase, key, ' '));
    ops.push_back(op(OpKind::insert, other, 'c'));
    ops.push_back(op(OpKind::erase, other, ' '));
    ops.push_back(op(OpKind::insert, key, 'a'));
  }
  // An insert may write the line back in which recovery has cleared a second slot.
  const OpSource next = [op, key, two_lines](Random& random) {
    return two_lines || random.one_in(2) ? op(OpKind::erase, key, ' ')
                                         : op(OpKind::insert, 100 + random.below(20), 'd');
  };
  const MapSetup setup{.background_thread = false};
  const std::string name = (two_lines ? "moved_and_updated" : "updated_again");
  return directed_one(name + std::to_string(key),
                      two_lines ? level_subjects<level::ArrayCodec, TwoLineGeometry>(setup)
                                : subjects(KeyKind::array, setup),
                      next, options, std::move(ops));
}

// Crashes within a movement, and within the recovery that ends it; another movement takes the line
// that told of the copy.
Exploration moved_again(ExploreOptions options, std::uint64_t stride) {
  std::vector<Op> inserts;
  for (std::uint64_t n = 0; n < 60; ++n) {
    inserts.push_back({OpKind::insert, integer_key(1000 + n * stride), "12345678"});
  }
  Setup setup = until("level.move.copy", inserts, 20);
  options.prepare = std::move(setup.before);
  return directed_one("moved_again" + std::to_string(stride),
                      subjects(KeyKind::integer, {.background_thread = false}), new_key, options,
                      {std::move(setup.next)});
}

std::vector<Exploration> directed(Preset preset) {
  ExploreOptions options = options_of(preset);
  options.second_in *= 4;
  std::vector<Exploration> all{directed_one("resized", subjects(KeyKind::integer, {}), integer_op,
                                            options, grown_and_shrunk())};
  if (preset == Preset::fast) return all;
  options.second_in = 2;
  for (const std::uint64_t stride : {1, 2}) all.push_back(moved_again(options, stride));
  options.second_in = 1;  // crashes within the recovery that finds an Update
  for (const std::uint64_t key : {1, 3}) {
    all.push_back(updated_again(options, key));
    all.push_back(updated_again(options, key, true));
  }
  return all;
}

// What recovery drops stays dropped, whatever the table does next: another movement takes the line
// that told of the copy, or the other copy is erased while one bucket is drained at a time.
std::vector<Exploration> trials() {
  std::vector<Exploration> all = directed(Preset::fast);
  ExploreOptions again = trial_options();
  again.limits = {.product = 8, .random = 2, .sampled = 4};
  again.battery = 20;
  again.second_in = 1;
  again.kill_in = 0;
  again.second_ops = 4;
  all.push_back(directed_one("drained_again", level_subjects<level::IntegerCodec, SlowGeometry>({}),
                             old_key, again, grown_and_shrunk()));
  again.explore_create = false;
  for (std::uint64_t key = 1; key <= 5; ++key) {
    all.push_back(updated_again(again, key));
    all.push_back(updated_again(again, 2 * key, true));
  }
  for (std::uint64_t stride = 1; stride <= 6; ++stride) all.push_back(moved_again(again, stride));
  return all;
}

// The root block but for its Moves, and the list of levels.
Covered covered(const SimMemory& memory) {
  const level::layout::Root* root = level_root(memory);
  if (root == nullptr) return {};
  const auto at =
      static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(root) - memory.base());
  return {{at, at + offsetof(level::layout::Root, moves)},
          {root->descriptor, root->descriptor + sizeof(level::layout::Descriptor)}};
}

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
    "level.many.line",    // likewise
};

constexpr const char* kFencedByPool =
    "the pool gives the dead process's extents back before it is served, and fences that on the "
    "same thread; a recovery that has none to give back has only this fence";
constexpr const char* kFencedByNext =
    "explorations go on with the thread that recovered, whose next fence has it, before the slot "
    "is "
    "another's; in a pool any thread may change the slot first";
constexpr const char* kNextFences = "level.erase.token level.insert.line";
constexpr Argument kArguments[] = {
    {"level.recover.update_clear:drop_fence", kNextFences, kFencedByNext},
    {"level.recover.update_clear:delay_flush", kNextFences, kFencedByNext},
    {"level.recover.update_clear:publish_first", kNextFences, kFencedByNext},
    {"level.recover.move:drop_fence", "heap.extent.release", kFencedByPool},
    {"level.recover.move:delay_flush", "heap.extent.release", kFencedByPool},
    {"level.recover.move:publish_first", "heap.extent.release", kFencedByPool},
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

namespace under_test {

extern const EngineUnderTest level;
const EngineUnderTest level{
    .engine = Engine::level,
    .ordered = false,
    .background = true,
    .subjects = &subjects,
    .arrays = true,
    .directed = &directed,
    .trials = &trials,
    .random_words = {4, 120},
    .random_records = {3, 80},
    .random_strings = {3, 80},
    .races = &level_races,
    .interleavings = &level_interleavings,
    .byte_latches = false,
    .open_lossy = &open_lossy<UnderLoss>,
    .planted = kPlanted,
    .covered = &covered,
    .canaries = kCanaries,
    .race_mutant = "level.erase.token:drop_fence",
    .ordered_sites = kOrderedSites,
    .arguments = kArguments,
    .historical = kHistorical,
};

}  // namespace under_test
}  // namespace perdure::testing
