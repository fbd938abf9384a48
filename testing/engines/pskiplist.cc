// The multi-version store, as the testers know it.
#include "index/pskiplist/pskiplist.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "testing/checksums/checksums.h"
#include "testing/crash/workloads.h"
#include "testing/engines/engine_list.h"
#include "testing/engines/pskiplist_races.h"
#include "testing/engines/pskiplist_subject.h"
#include "testing/schedule/version_ops.h"
#include "testing/torture/lossy_target.h"

namespace perdure::testing {

namespace {

SubjectFactory subjects(KeyKind keys, const MapSetup& setup) {
  return keys == KeyKind::bytes ? pskiplist_subjects<pskiplist::BytesCodec>(setup)
                                : pskiplist_subjects<pskiplist::IntegerCodec>(setup);
}

char name_of(std::uint64_t version) { return static_cast<char>('0' + version); }
Op of_version(OpKind kind, char name) { return {kind, std::string(1, name), {}}; }

// A subject whose versions are named, and what its random operations are.
struct Kept {
  std::string name;
  SubjectFactory factory;
  OpSource source;
  std::string prefix = {};  // of its keys

  Op of_key(Op op) const {
    op.key.insert(1, prefix);
    return op;
  }
};

// Crashes in every step of a trim and of a rollback, and in the recovery that ends the latter.
Exploration trimmed(const Kept& kept, ExploreOptions options) {
  for (std::uint64_t i = 0; i < 5; ++i) {
    options.prepare.push_back(kept.of_key(put(1, i)));
    options.prepare.push_back(kept.of_key(i == 3 ? gone(2) : put(2, i)));
    options.prepare.push_back(of_version(OpKind::tag, name_of(i)));
  }
  return directed_one(kept.name + "_trimmed", kept.factory, kept.source, options,
                      {of_version(OpKind::trim, '1'), of_version(OpKind::trim, '3'),
                       kept.of_key(put(1, 70)), of_version(OpKind::trim, '4')});
}
Exploration rolled_back(const Kept& kept, ExploreOptions options) {
  options.second_in = 10;
  for (std::uint64_t i = 0; i < 3; ++i) {
    for (std::uint64_t key = 0; key < 3; ++key) {
      options.prepare.push_back(kept.of_key(put(key + i, i)));
    }
    options.prepare.push_back(of_version(OpKind::tag, name_of(i)));
  }
  return directed_one(
      kept.name + "_rolled_back", kept.factory, kept.source, options,
      {kept.of_key(put(1, 70)), of_version(OpKind::rollback, '1'), kept.of_key(put(2, 71))});
}

// Every kind of work with versions, on values in the entries and on records.
std::vector<Exploration> directed(Preset preset) {
  ExploreOptions options = options_of(preset);
  options.second_in *= 4;
  const std::size_t operations = preset == Preset::fast ? 30 : 150;
  const MapSetup records{.values = ValueKind::bytes};
  const Kept words{"versions", versioned_subjects({}), versioned_op};
  const Kept strings{"versions_bytes", versioned_subjects<pskiplist::BytesCodec>(records),
                     reopening(versioned_bytes_op), "customer:"};
  return {trimmed(words, options),
          trimmed(strings, options),
          rolled_back(words, options),
          rolled_back(strings, options),
          random_one(words.name, words.factory, words.source, options, operations),
          random_one("versions_close", words.factory, reopening(words.source), options, operations),
          random_one("versions_records", versioned_subjects(records), versioned_record_op, options,
                     operations),
          random_one(strings.name, strings.factory, strings.source, options, operations)};
}
std::vector<Exploration> trials() { return directed(Preset::fast); }

// Histories have segments, and slots and entries that no version needs any more.
std::vector<FlipWork> flips() {
  return {
      {"versions", versioned_subjects({}), versioned_op, /*exchanged=*/true},
      {"versions_bytes", versioned_subjects<pskiplist::BytesCodec>({.values = ValueKind::bytes}),
       versioned_bytes_op, /*exchanged=*/false}};
}

// Of every map in the file its root block, blocks of the key chain and segments of histories, but
// for what is reserved there.
Covered covered(const SimMemory& memory) {
  using pskiplist::layout::Block;
  using pskiplist::layout::Root;
  using pskiplist::layout::Segment;
  using pskiplist::layout::Slot;
  std::string file(reinterpret_cast<const char*>(memory.base()), memory.size());
  const PoolBytes bytes(file);
  Covered out;
  for (std::uint64_t at = 0; at + sizeof(Root) <= bytes.size(); at += kLine) {
    const auto root = bytes.load<Root>(at);
    if (root.magic != pskiplist::layout::kRootMagic) continue;
    out.emplace_back(at, at + offsetof(Root, reserved));
    out.emplace_back(at + offsetof(Root, chain), at + offsetof(Root, pad));
    for (std::uint64_t block = root.chain; block != 0; block = bytes.load<Block>(block).next) {
      const std::uint64_t slots = block + sizeof(Block);
      const std::uint64_t end = slots + root.geometry * sizeof(Slot);
      out.emplace_back(block, block + offsetof(Block, reserved));
      out.emplace_back(slots, end);
      for (std::uint64_t i = slots; i < end; i += sizeof(Slot)) {
        const auto slot = bytes.load<Slot>(i);
        if (slot.first.stamp == 0) continue;
        for (std::uint64_t s = slot.more; s != 0; s = bytes.load<Segment>(s).next) {
          out.emplace_back(s, s + bytes.block_bytes(s));
        }
      }
    }
  }
  return out;
}

struct UnderLoss {
  static constexpr Engine kEngine = Engine::pskiplist;
  template <bool Bytes>
  using Map = pskiplist::PSkipList<
      LossyPlatform, std::conditional_t<Bytes, pskiplist::BytesCodec, pskiplist::IntegerCodec>,
      pskiplist::Geometry<14, 1, 8, 8, 2, 4, 4>>;
  template <bool Bytes>
  static Expected<std::uint64_t> create(const EngineContext<LossyPlatform>& context,
                                        const MapKinds& kinds) {
    return Map<Bytes>::create(context, kinds);
  }
};

constexpr PlantedBug kPlanted[] = {
    {"integer", "pskiplist.insert.slot:drop_flush"},
    {"bytes", "pskiplist.record.write:drop_flush"},
    {"integer", "pskiplist.erase.slot:drop_flush"},
    {"integer", "pskiplist.append.entry:drop_flush"},
    {"integer", "pskiplist.tag.limit:drop_flush"},
    {"integer", "pskiplist.trim.horizon:drop_flush"},
};

constexpr const char* kCanaries[] = {
    "pskiplist.insert.slot:drop_fence",
    "pskiplist.update.entry:drop_fence",
    "pskiplist.append.link:drop_flush",
};

constexpr std::string_view kOrderedSites[] = {
    "pskiplist.insert.slot",   // the stamp last
    "pskiplist.append.entry",  // the same
};

constexpr HistoricalBug kHistorical[] = {
    {"Witcher 7, Level Hashing", "pskiplist.insert.slot:drop_flush",
     "token before item: first bucket"},
    {"Witcher 8, Level Hashing", "pskiplist.insert.slot:any_order",
     "token before item: second bucket"},
    {"Witcher 9, Level Hashing", "pskiplist.update.entry:drop_flush",
     "token before item: update, first bucket"},
    {"Witcher 16, Level Hashing", "pskiplist.record.write:drop_fence",
     "token before item: update, second bucket"},
    {"SEPH #1, Level Hashing", "pskiplist.find.help:drop_fence",
     "another thread returns what is not durable yet"},
};

}  // namespace

namespace under_test {

extern const EngineUnderTest pskiplist;
const EngineUnderTest pskiplist{
    .engine = Engine::pskiplist,
    .ordered = true,
    .background = false,
    .subjects = &subjects,
    .directed = &directed,
    .trials = &trials,
    .random_records = {2, 80},
    .races = &pskiplist_races,
    .interleavings = &pskiplist_interleavings,
    .byte_latches = false,
    .open_lossy = &open_lossy<UnderLoss>,
    .planted = kPlanted,
    .covered = &covered,
    .anonymous_values = true,
    .flips = &flips,
    .canaries = kCanaries,
    .race_mutant = "pskiplist.find.help:drop_fence",
    .version_mutant = "pskiplist.tag.limit:drop_flush",
    .ordered_sites = kOrderedSites,
    .arguments = {},
    .historical = kHistorical,
};

}  // namespace under_test
}  // namespace perdure::testing
