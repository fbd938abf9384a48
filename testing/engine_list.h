// The engines that the testers know: crash explorer, scheduler, mutants, torture, recorded
// histories. What they need of one is its row, in testing/engines/<engine>.cc. What else a new one
// needs: docs/design/overview.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perdure/options.h"
#include "testing/explored.h"
#include "testing/flip_scenarios.h"
#include "testing/lossy_platform.h"
#include "testing/map_subject.h"
#include "testing/mutants.h"
#include "testing/races.h"
#include "testing/torture_runner.h"

namespace perdure::testing {

using OpenLossy = Expected<std::unique_ptr<TortureTarget>> (*)(const TortureOptions& options,
                                                               const std::string& file,
                                                               LossyJournal* journal);

// A mutant that workloads with these keys have to notice.
struct PlantedBug {
  const char* keys;    // integer: to words; bytes: to byte strings
  const char* mutant;  // SITE:op
};

struct EngineUnderTest {
  Engine engine;
  bool ordered;
  bool background;  // has units of background work: workloads run steps of it between operations

  // --- the crash explorer ---
  // Maps with nodes so small that a dozen operations fill, split and empty them.
  SubjectFactory (*subjects)(KeyKind keys, const MapSetup& setup);
  bool arrays = false;  // subjects() takes KeyKind::array, too: values are arrays then
  // Explorations that only this engine needs, and those that only its mutants need.
  std::vector<Exploration> (*directed)(Preset preset);
  std::vector<Exploration> (*trials)();
  // An image takes so many times what one of phast does: figures cross one in so many points.
  std::uint32_t image_cost = 1;

  // --- the scheduler ---
  RaceList (*races)();
  std::vector<NamedInterleaving> (*interleavings)();
  bool byte_latches;  // its writers exclude each other by ByteLatches

  // --- torture and recorded histories ---
  OpenLossy open_lossy;  // open_lossy<Row>, testing/lossy_target.h

  // --- mutants ---
  // Torture has to notice each. The first with integer keys and the first with byte strings are
  // planted elsewhere, too; explorations notice the former within seconds.
  std::span<const PlantedBug> planted;
  FindCovered covered = nullptr;  // by checksums, every bit
  // A record of a value does not say whose it is: two that change places are not noticed.
  bool anonymous_values = false;
  std::vector<FlipWork> (*flips)() = nullptr;  // besides those of every kind of key and value
  std::span<const char* const> canaries;  // SITE:op, more that the trials notice in every test run
  const char* race_mutant;                // SITE:op that only another thread can see
  const char* version_mutant = nullptr;   // SITE:op that only those who tag versions can see
  std::span<const std::string_view> ordered_sites;  // rely on the order of stores to one line
  std::span<const Argument> arguments;
  std::span<const HistoricalBug> historical;

  std::string name() const { return std::string(engine_name(engine)); }  // of its sites, too
  const char* planted_bug(std::string_view keys) const;                  // the first
};

std::span<const EngineUnderTest* const> engines_under_test();
const EngineUnderTest* find_engine_under_test(std::string_view name);  // null: none
bool keeps_versions(Engine engine);

}  // namespace perdure::testing
