// Chain, as the testers know it: two buckets, whose lists get long.
#include "index/chain/chain.h"

#include <cstddef>
#include <utility>

#include "testing/crash/map_subject.h"
#include "testing/crash/workloads.h"
#include "testing/engines/engine_list.h"
#include "testing/schedule/conditional_races.h"
#include "testing/schedule/gate_races.h"
#include "testing/schedule/race_ops.h"
#include "testing/torture/lossy_target.h"

namespace perdure::testing {

namespace {

template <bool Bytes>
struct Traits {
  using Map = chain::Chain<SimPlatform, 1>;
  static constexpr Engine kEngine = Engine::chain;
  static constexpr bool kBytes = Bytes;
  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup&) {
    return Map::create(context, kinds);
  }
};
template <bool Bytes>
SubjectFactory subjects_of(const MapSetup& setup) {
  return [setup] { return std::make_unique<MapSubject<Traits<Bytes>>>(setup); };
}
SubjectFactory subjects(KeyKind keys, const MapSetup& setup) {
  return keys == KeyKind::bytes ? subjects_of<true>(setup) : subjects_of<false>(setup);
}

// Replaces and removes the first, a middle and the last node of a list.
std::vector<Exploration> directed(Preset preset) {
  Ops ops = tens(6);
  for (const std::uint64_t key : {10, 30, 60}) ops = with(ops, {upsert(key, 7), erase(key)});
  return {directed_one("lists", subjects(KeyKind::integer, {}), integer_op, options_of(preset),
                       with(ops, tens(6)))};
}
std::vector<Exploration> trials() { return directed(Preset::fast); }

// Every mutation beside a mutation or a lookup of the same key and of its neighbours.
RaceList races() {
  RaceList out;
  const Ops writers{insert(5, 2), upsert(5, 3), update(5, 4), erase(5)};
  const char* const names[] = {"Insert", "Upsert", "Update", "Erase"};
  const Ops there{insert(3, 1), insert(5, 1), insert(7, 1)};
  const Ops readers{find(5), scan()};
  const SubjectFactory integers = subjects(KeyKind::integer, {.background_thread = false});
  const auto add = [&](const std::string& name, const Ops& first, const Ops& second) {
    out.push_back(
        {.name = "G1_" + name, .subjects = integers, .setup = there, .threads = {first, second}});
  };
  for (std::size_t i = 0; i < writers.size(); ++i) {
    const std::string name = names[i];
    for (std::size_t j = i; j < writers.size(); ++j) {
      add(name + "And" + names[j], {writers[i]}, {writers[j], find(5)});
    }
    add(name + "BesideErase", {writers[i], find(7)}, {erase(7), reclaim(), find(5)});
    add(name + "AndFind", {writers[i]}, {readers[0], readers[0]});
    add(name + "AndScan", {writers[i]}, {readers[1], readers[0]});
    out.push_back({.name = "G1_" + name + "OfThree",
                   .subjects = integers,
                   .setup = there,
                   .threads = {{writers[i]}, {erase(5), insert(5, 6)}, {find(5), insert(9, 1)}}});
  }
  const Race defaults;
  add_conditional(out, integers, defaults.thin, defaults.limits);
  add_together(out, integers, defaults.thin, defaults.limits);
  add_batches(out, integers, defaults.thin, defaults.limits);
  return out;
}
std::vector<NamedInterleaving> interleavings() { return {}; }

// The root block up to its checksum, and the links of the table.
Covered covered(const SimMemory& memory) {
  using chain::layout::Root;
  for (std::uint64_t at = 0; at < memory.size(); at += kLine) {
    const auto* root = reinterpret_cast<const Root*>(memory.base() + at);
    if (root->magic != chain::layout::kMagic) continue;
    return {{at, at + offsetof(Root, fixed_crc)},
            {root->table, root->table + root->buckets() * sizeof(std::uint64_t)}};
  }
  return {};
}

struct UnderLoss {
  static constexpr Engine kEngine = Engine::chain;
  template <bool Bytes>
  using Map = chain::Chain<LossyPlatform, 6>;
  template <bool Bytes>
  static Expected<std::uint64_t> create(const EngineContext<LossyPlatform>& context,
                                        const MapKinds& kinds) {
    return Map<Bytes>::create(context, kinds);
  }
};

constexpr PlantedBug kPlanted[] = {
    {"integer", "chain.link.write:drop_flush"},
    {"bytes", "chain.node.write:drop_flush"},
    {"integer", "chain.link.erase:drop_flush"},
};

constexpr const char* kCanaries[] = {
    "chain.link.replace:drop_flush",
    "chain.link.erase:drop_fence",
};

}  // namespace

namespace under_test {

extern const EngineUnderTest chain;
const EngineUnderTest chain{
    .engine = Engine::chain,
    .ordered = false,
    .background = false,
    .subjects = &subjects,
    .directed = &directed,
    .trials = &trials,
    .races = &races,
    .interleavings = &interleavings,
    .byte_latches = false,
    .open_lossy = &open_lossy<UnderLoss>,
    .planted = kPlanted,
    .covered = &covered,
    .canaries = kCanaries,
    .race_mutant = "chain.link.write:drop_fence",
    .ordered_sites = {},
    .arguments = {},
    .historical = {},
};

}  // namespace under_test
}  // namespace perdure::testing
