// What perdure-explore explores: the heap, the pool, and every engine of a list.
//
// A part is one of them. Its explorations are made by the factories below from the preset; an
// engine brings its subjects, the directed workloads that only it needs, and its interleavings.
// Adding an engine is adding its line to explored_engines().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perdure/options.h"
#include "testing/explorer.h"
#include "testing/interleavings.h"
#include "testing/map_subject.h"

namespace perdure::testing {

enum class Preset : std::uint8_t {
  fast,     // a minute
  figures,  // the bars of one change
  nightly,  // the bars of a night
};
const char* preset_name(Preset preset);
std::optional<Preset> parse_preset(std::string_view name);

// Several workloads of one subject. `options` has neither name nor seed yet.
struct Exploration {
  std::string name;
  SubjectFactory factory;
  OpSource source;
  ExploreOptions options;
  std::size_t operations = 0;  // of a random workload, if there are no others
  std::vector<std::vector<Op>> workloads = {};
  bool repeated = true;  // again under other seeds, until the bars are met
};

struct ExploredEngine {
  const char* name;  // of its sites, too
  // Maps with nodes so small that a dozen operations fill, split and empty them.
  SubjectFactory (*subjects)(KeyKind keys, const MapSetup& setup);
  const char* canary;  // SITE:op that words() must notice
  // What only this engine needs; may be null.
  std::vector<Exploration> (*directed)(Preset preset) = nullptr;
  const std::vector<NamedInterleaving>& (*interleavings)() = nullptr;
};
const std::vector<ExploredEngine>& explored_engines();

// How much of everything, and how far each crash point is enumerated.
ExploreOptions options_of(Preset preset);

std::vector<Exploration> heap_explorations(Preset preset);
std::vector<Exploration> pool_explorations(const ExploredEngine& engine, Preset preset);
std::vector<Exploration> engine_explorations(const ExploredEngine& engine, Preset preset);

// Small explorations that notice a canary within seconds.
Exploration heap_canary();
Exploration pool_canary(const ExploredEngine& engine);
Exploration engine_canary(const ExploredEngine& engine);

// Every sequence of 1 to `length` of these operations that starts with operation `first`.
std::vector<std::vector<Op>> sequences(const std::vector<Op>& alphabet, std::size_t first,
                                       std::size_t length);

}  // namespace perdure::testing
