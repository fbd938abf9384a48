// PhaST, as the testers know it.
#include "index/phast/phast.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "testing/crash/workloads.h"
#include "testing/engines/engine_list.h"
#include "testing/engines/phast_interleavings.h"
#include "testing/engines/phast_subject.h"
#include "testing/mutants/trials.h"
#include "testing/torture/lossy_target.h"

namespace perdure::testing {

namespace {

SubjectFactory subjects(KeyKind keys, const MapSetup& setup) {
  return keys == KeyKind::bytes ? phast_subjects<phast::BytesCodec>(setup)
                                : phast_subjects<phast::IntegerCodec>(setup);
}
SubjectFactory wide_records() {
  return phast_subjects<phast::BytesCodec, WideGeometry>({.values = ValueKind::bytes});
}

// Leaves of three lines: entries that a split moves, and records that are freed and used again
// under them (1h iv).
std::vector<Exploration> directed(Preset preset) {
  ExploreOptions moved = options_of(preset);
  moved.second_ops = 12;
  return {directed_one("moved", wide_records(), dense_op, moved,
                       moved_entries(preset == Preset::fast ? 1 : 2)),
          random_one("wide", wide_records(), dense_op, options_of(preset),
                     preset == Preset::fast ? 30 : 150)};
}

// --- for the mutants: splits that stand half done in many images, so that second runs finish them

// What comes then splits the new leaf.
Op behind_op(Random& random) {
  return {OpKind::insert, integer_key(26 + random.below(30)), "in right"};
}
std::vector<Op> one_split() {
  std::vector<Op> ops;
  for (const std::uint64_t key : {10, 20, 30, 40, 25, 22}) {
    ops.push_back({OpKind::insert, integer_key(key), "half way"});
  }
  return ops;
}

// Keys that a split has moved go, and others to the left of it take the blocks of their records.
Op reusing_op(Random& random) {
  if (random.one_in(2)) return {OpKind::erase, dense_key(7 + random.below(5)), {}};
  return {OpKind::upsert, dense_key(random.below(5)) + "a", std::string(30, 'r')};
}
std::vector<Op> one_bytes_split() {
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < 12; ++i) {
    ops.push_back({OpKind::upsert, dense_key(i), std::string(30, 'a')});
  }
  ops.push_back({OpKind::upsert, dense_key(5) + "5", std::string(30, 'b')});
  return ops;
}

std::vector<Exploration> trials() {
  ExploreOptions half = trial_options();
  half.second_in = 3;
  ExploreOptions half_moved = half;
  half_moved.second_ops = 24;
  ExploreOptions moved = trial_options();
  moved.second_in = 12;
  return {directed_one("half_split", subjects(KeyKind::integer, {}), behind_op, half, one_split()),
          directed_one("half_moved", wide_records(), reusing_op, half_moved, one_bytes_split()),
          directed_one("moved", wide_records(), dense_op, moved, moved_entries(2)),
          directed_one("records", wide_records(), large_op, half_moved, moved_records(1))};
}

// The root block and the master array behind it, and the leaves of its chains; but for what is
// reserved in the root block, and its padding.
void cover_leaves(const SimMemory& memory, std::uint64_t first, Covered& out) {
  using Leaf = phast::layout::Leaf<phast::TinyGeometry>;
  for (std::uint64_t at = first; at != 0 && at + sizeof(Leaf) <= memory.size();) {
    out.emplace_back(at, at + sizeof(Leaf));
    at = reinterpret_cast<const Leaf*>(memory.base() + at)->next;
  }
}
Covered covered(const SimMemory& memory) {
  using Root = phast::layout::Root;
  const Root* root = phast_root(memory);
  if (root == nullptr) return {};
  const auto at =
      static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(root) - memory.base());
  const std::uint64_t partitions = std::uint64_t{1} << root->partition_bits;
  Covered out{{at, at + offsetof(Root, reserved)},
              {at + offsetof(Root, zero_value), at + sizeof(Root) + partitions * 8}};
  for (std::uint64_t i = 0; i < partitions; ++i) {
    std::uint64_t first = 0;
    std::memcpy(&first, memory.base() + at + sizeof(Root) + i * 8, sizeof(first));
    cover_leaves(memory, first, out);
  }
  return out;
}

struct UnderLoss {
  static constexpr Engine kEngine = Engine::phast;
  template <bool Bytes>
  using Map =
      phast::Phast<LossyPlatform, std::conditional_t<Bytes, phast::BytesCodec, phast::IntegerCodec>,
                   phast::Geometry<12, 8>>;
  template <bool Bytes>
  static Expected<std::uint64_t> create(const EngineContext<LossyPlatform>& context,
                                        const MapKinds& kinds) {
    return Map<Bytes>::create(context, kinds, {.partition_bits = 3});
  }
};

constexpr PlantedBug kPlanted[] = {
    {"integer", "phast.insert.entry:drop_flush"},
    {"bytes", "phast.record.write:drop_flush"},
    {"bytes", "phast.record.write:first_line_only"},
    {"integer", "phast.erase.entry:drop_flush"},
};

constexpr const char* kCanaries[] = {
    "phast.insert.entry:drop_fence",    "phast.update.value:drop_fence",
    "phast.split.leaf:first_line_only", "phast.split.link:drop_flush",
    "phast.record.write:publish_first", "phast.insert.entry:any_order",
    "phast.recover.split:skip_step",    "phast.leaf.crc:skip_check",
};

constexpr std::string_view kOrderedSites[] = {
    "phast.insert.entry",  // the commit word last
    "phast.many.entry",    // likewise
    "phast.split.link",    // next before bound
    "phast.zero.write",    // the value before its presence
};

constexpr HistoricalBug kHistorical[] = {
    {"Witcher 2, WOART", "phast.split.link:any_order",
     "a link and the prefix that goes with it are persisted apart"},
    {"Witcher 3, FAST_FAIR", "phast.erase.entry:drop_flush",
     "a removal writes back the wrong line"},
    {"Witcher 4, FAST_FAIR", "phast.recover.range:skip_step",
     "what a half-done change left behind is believed by later operations"},
    {"Witcher 5, FAST_FAIR", "phast.recover.split:skip_step",
     "a sibling is linked, the rest of the split is lost and not repaired"},
    {"Witcher 6, FAST_FAIR", "phast.unlink.next:drop_flush",
     "a merge is not atomic: the link to the empty node stays"},
    {"Witcher 7, Level Hashing", "phast.record.write:drop_fence",
     "token before item: first bucket"},
    {"Witcher 8, Level Hashing", "phast.record.write:publish_first",
     "token before item: second bucket"},
    {"Witcher 9, Level Hashing", "phast.record.write:drop_flush",
     "token before item: update, first bucket"},
    {"Witcher 10, Level Hashing", "phast.split.leaf:drop_flush",
     "token before item: the item that is moved away"},
    {"Witcher 11, Level Hashing", "phast.insert.entry:any_order",
     "token before item: the item that takes its place"},
    {"Witcher 12, Level Hashing", "phast.split.leaf:drop_fence",
     "token before item: moved to the top level, first bucket"},
    {"Witcher 13, Level Hashing", "phast.split.leaf:publish_first",
     "token before item: moved to the top level, second bucket"},
    {"Witcher 14, Level Hashing", "phast.insert.entry:drop_fence",
     "token before item: after a movement, first bucket"},
    {"Witcher 15, Level Hashing", "phast.insert.entry:delay_flush",
     "token before item: after a movement, second bucket"},
    {"Witcher 16, Level Hashing", "phast.record.write:delay_flush",
     "token before item: update, second bucket"},
    {"Witcher 19, Level Hashing", "phast.split.zero:drop_flush",
     "a moved entry stays where it was"},
    {"Witcher 20, Level Hashing", "phast.recover.zero:skip_step",
     "a moved entry stays where it was: after a crash"},
    {"Witcher 21, Level Hashing", "phast.recover.zero:drop_flush",
     "a moved entry stays where it was: the repair is not durable"},
    {"Witcher 22, Level Hashing", nullptr,
     "an update frees the old slot before the new one counts; ours is one word in one slot"},
    {"Witcher 23, Level Hashing", nullptr, "the same in the second bucket"},
    {"Witcher 24, CCEH", "phast.split.link:publish_first",
     "a split's parts (depth, pattern, directory) are durable in any combination"},
    {"Witcher 25, CCEH", nullptr,
     "a claimed slot stays claimed after a crash; our claims are in DRAM"},
    {"Witcher 26, P-ART", "phast.zero.write:any_order",
     "an entry and the count that makes it visible are persisted apart"},
    {"Witcher 29, P-BwTree", "phast.create.leaf:drop_flush", "a new chunk is not written back"},
    {"Witcher 30, P-CLHT", "phast.split.leaf:first_line_only",
     "only the first line of what is flushed is right"},
    {"Witcher 31, P-CLHT-Aga", "phast.split.leaf:all_but_last",
     "the flush of a new table misses a line (place only in the list)"},
    {"Witcher 33, P-CLHT-Aga", "phast.create.root:publish_first",
     "resize: the new root is durable before the table (place only)"},
    {"Witcher 34, P-CLHT-Aga-TX", "phast.create.root:drop_flush",
     "resize: the table is not written back (place only)"},
    {"Witcher 35, P-CLHT-Aga-TX", "phast.create.root:drop_fence",
     "resize: the table is not fenced (place only)"},
    {"Witcher 36, P-HOT", "phast.split.link:drop_fence", "a new root is shown before its fence"},
    {"Witcher 37, P-HOT", "phast.split.leaf:delay_flush", "a new child is linked before its fence"},
    {"Witcher 38, P-HOT", "phast.split.link:drop_flush",
     "the write-back of a link goes to another address"},
    {"Witcher 39, P-Masstree", "phast.recover.split:drop_flush",
     "as 5, and the repair is not durable"},
    {"RECIPE #24, P-CLHT", "phast.unlink.next:publish_first",
     "freed before the reference to it is durably gone: freed twice"},
    {"SEPH #1, Level Hashing", "phast.help.entry:drop_fence",
     "another thread returns what is not durable yet"},
    {"SEPH #3, CCEH", "phast.help.entry:drop_flush",
     "a lookup returns a value that is not durable"},
};

}  // namespace

namespace under_test {

extern const EngineUnderTest phast;
const EngineUnderTest phast{
    .engine = Engine::phast,
    .ordered = true,
    .pieces = true,
    .background = false,
    .subjects = &subjects,
    .directed = &directed,
    .trials = &trials,
    .random_words = {4, 120},
    .random_records = {3, 80},
    .random_strings = {3, 80},
    .races = &phast_races,
    .interleavings = &phast_interleavings,
    .byte_latches = true,
    .open_lossy = &open_lossy<UnderLoss>,
    .planted = kPlanted,
    .covered = &covered,
    .canaries = kCanaries,
    .race_mutant = "phast.help.entry:drop_fence",
    .ordered_sites = kOrderedSites,
    .arguments = {},
    .historical = kHistorical,
};

}  // namespace under_test
}  // namespace perdure::testing
