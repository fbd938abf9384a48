// The explorations of perdure-guard explore: of the heap, the pool, and an engine.
//
// A part is one of these. The factories below make its explorations from the preset. An engine
// (engine_list.h) provides its subjects, its directed workloads and its interleavings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "testing/crash/explorer.h"

namespace perdure::testing {

enum class Preset : std::uint8_t {
  fast,     // a minute
  figures,  // the bars of one change
  nightly,  // the bars of a night
};
std::optional<Preset> parse_preset(std::string_view name);

// Several workloads of one subject. `options` has no name and no seed yet.
struct Exploration {
  std::string name;
  SubjectFactory factory;
  OpSource source;
  ExploreOptions options;
  std::size_t operations = 0;  // length of a random workload, if there are no others
  std::vector<std::vector<Op>> workloads = {};
  bool repeated = true;  // repeated with other seeds until the bars are met
};

Exploration random_one(std::string name, SubjectFactory factory, OpSource source,
                       ExploreOptions options, std::size_t operations);
Exploration directed_one(std::string name, SubjectFactory factory, OpSource source,
                         ExploreOptions options, std::vector<Op> workload);
ExploreReport run_exploration(const Exploration& e, const std::string& name, std::uint64_t seed);

struct EngineUnderTest;  // testing/engines/engine_list.h

// Adds steps of the engine's background work between the operations, if it has any.
std::vector<Exploration> beside_background(const EngineUnderTest& engine,
                                           std::vector<Exploration> all);

// The amounts of a preset, and the depth of enumeration at each crash point.
ExploreOptions options_of(Preset preset);

std::vector<Exploration> heap_explorations(Preset preset);
std::vector<Exploration> pool_explorations(const EngineUnderTest& engine, Preset preset);
std::vector<Exploration> engine_explorations(const EngineUnderTest& engine, Preset preset);

// A small exploration, and the mutant (SITE:op) that it notices within seconds.
struct PlantedMutant {
  std::string mutant;
  Exploration exploration;
  // only a second run shows it: a power failure after another one, or a kill
  bool in_recovery = false;
};
std::vector<PlantedMutant> heap_canaries();
std::vector<PlantedMutant> pool_canaries(const EngineUnderTest& engine);
std::vector<PlantedMutant> engine_canaries(const EngineUnderTest& engine);

// Every sequence of 1 to `length` of these operations that starts with operation `first`.
std::vector<std::vector<Op>> sequences(const std::vector<Op>& alphabet, std::size_t first,
                                       std::size_t length);

}  // namespace perdure::testing
