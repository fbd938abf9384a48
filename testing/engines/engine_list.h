// The engines that the testers know: crash explorer, scheduler, mutants, torture, recorded
// histories. An engine's row, in testing/engines/<engine>.cc, has all that they need of it.
// docs/design/overview.md lists what else a new engine needs.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perdure/options.h"
#include "testing/crash/explored.h"
#include "testing/crash/flip_scenarios.h"
#include "testing/crash/map_subject.h"
#include "testing/mutants/mutants.h"
#include "testing/schedule/races.h"
#include "testing/torture/lossy_platform.h"
#include "testing/torture/torture_runner.h"

namespace perdure::testing {

using OpenLossy = Expected<std::unique_ptr<TortureTarget>> (*)(const TortureOptions& options,
                                                               const std::string& file,
                                                               LossyJournal* journal);

// A mutant that workloads with these keys must notice.
struct PlantedBug {
  const char* keys;    // integer: words as values; bytes: byte strings as values
  const char* mutant;  // SITE:op
};

struct RandomWorkloads {
  std::size_t number;
  std::size_t operations;  // of each
};

struct EngineUnderTest {
  Engine engine;
  bool ordered;
  bool pieces = false;  // large batches are done in pieces
  bool background;      // has background work: workloads run steps of it between operations

  // --- the crash explorer ---
  // Maps with very small nodes: a dozen operations fill, split and empty them.
  SubjectFactory (*subjects)(KeyKind keys, const MapSetup& setup);
  bool arrays = false;  // subjects() also accepts KeyKind::array; values are arrays then
  // Explorations that only this engine needs, and explorations that only its mutants need.
  std::vector<Exploration> (*directed)(Preset preset);
  std::vector<Exploration> (*trials)();
  // The cost of an image relative to phast's. The figures preset crosses an image in one of this
  // many points.
  std::uint32_t image_cost = 1;
  // Of these random workloads fast tests explore every crash point: integer keys with words,
  // integer keys with records, byte strings.
  RandomWorkloads random_words = {2, 120};
  RandomWorkloads random_records = {1, 80};
  RandomWorkloads random_strings = {1, 80};

  // --- the scheduler ---
  RaceList (*races)();
  std::vector<NamedInterleaving> (*interleavings)();
  bool byte_latches;  // its writers exclude each other by ByteLatches

  // --- torture and recorded histories ---
  OpenLossy open_lossy;  // open_lossy<Row>, testing/torture/lossy_target.h

  // --- mutants ---
  // Torture must notice each of these. Explorations notice the first with integer keys within
  // seconds. Other testers plant the first with integer keys and the first with byte strings, too.
  std::span<const PlantedBug> planted;
  FindCovered covered = nullptr;  // finds bytes whose every bit a checksum covers
  // A value's record does not identify its owner. Exchanging two of them goes unnoticed.
  bool anonymous_values = false;
  // in addition to those of every kind of key and value
  std::vector<FlipWork> (*flips)() = nullptr;
  // SITE:op; further mutants that the trials notice in every test run
  std::span<const char* const> canaries;
  const char* race_mutant;               // SITE:op; only another thread can notice it
  const char* version_mutant = nullptr;  // SITE:op; only a thread that tags versions can notice it
  // sites that rely on the order of stores to one line
  std::span<const std::string_view> ordered_sites;
  std::span<const Argument> arguments;
  std::span<const HistoricalBug> historical;

  // also the prefix of its sites
  std::string name() const { return std::string(engine_name(engine)); }
  const char* planted_bug(std::string_view keys) const;  // the first in `planted`
};

std::span<const EngineUnderTest* const> engines_under_test();
const EngineUnderTest* find_engine_under_test(std::string_view name);  // null if unknown
bool keeps_versions(Engine engine);

}  // namespace perdure::testing
