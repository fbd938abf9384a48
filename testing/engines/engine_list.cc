#include "testing/engines/engine_list.h"

#include <algorithm>

#include "perdure/pool.h"

namespace perdure::testing {

// The row of each engine of engines.def is in testing/engines/<engine>.cc.
namespace under_test {
#define PERDURE_ENGINE(name) extern const EngineUnderTest name;
#include "index/engines.def"
}  // namespace under_test

namespace {

constexpr const EngineUnderTest* kEngines[] = {
#define PERDURE_ENGINE(name) &under_test::name,
#include "index/engines.def"
};

}  // namespace

const char* EngineUnderTest::planted_bug(std::string_view keys) const {
  const auto found =
      std::ranges::find_if(planted, [&](const PlantedBug& bug) { return keys == bug.keys; });
  return found == planted.end() ? nullptr : found->mutant;
}

std::span<const EngineUnderTest* const> engines_under_test() { return kEngines; }

const EngineUnderTest* find_engine_under_test(std::string_view name) {
  const auto* found = std::ranges::find_if(
      kEngines, [&](const EngineUnderTest* row) { return row->name() == name; });
  return found == std::end(kEngines) ? nullptr : *found;
}

bool keeps_versions(Engine engine) {
  const auto row = std::ranges::find(engines(), engine, &EngineInfo::engine);
  return row != engines().end() && row->versioned;
}

TortureOpen lossy_target() {
  LossyJournal* journal = LossyJournal::make();
  return [journal](const TortureOptions& options,
                   const std::string& file) -> Expected<std::unique_ptr<TortureTarget>> {
    const EngineUnderTest* row = find_engine_under_test(options.engine);
    if (row == nullptr) return fail(StatusCode::invalid_argument);
    return row->open_lossy(options, file, journal);
  };
}

TortureOpen target_of(const TortureOptions& options) {
  return options.mode == "plain" ? plain_target() : lossy_target();
}

}  // namespace perdure::testing
