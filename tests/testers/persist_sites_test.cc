// test: explores, starts first
// A crash explorer that passes without a write-back proves nothing. Every run removes the
// write-back of a few sites of pool, heap and each engine; each must be noticed. perdure-guard
// mutants does so for all sites.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "testing/engines/engine_list.h"

namespace perdure::testing {
namespace {

struct Planted {
  const EngineUnderTest* engine;
  std::string mutant;
};

// Runs each trial of the baseline, without a mutant, at most once, and only if a search reaches it.
MutantRunner& runner(const EngineUnderTest& engine) {
  static std::map<Engine, MutantRunner> made;
  return made.try_emplace(engine.engine, trials(engine, 1), 2U).first->second;
}

std::vector<Planted> handful() {
  std::vector<Planted> all;
  for (const EngineUnderTest* engine : engines_under_test()) {
    for (const char* mutant : {"heap.extent.assign:drop_flush", "pool.root.add:drop_flush"}) {
      all.push_back({engine, mutant});
    }
    for (const PlantedBug& bug : engine->planted) all.push_back({engine, bug.mutant});
    for (const char* mutant : engine->canaries) all.push_back({engine, mutant});
  }
  return all;
}
std::string planted_name(const ::testing::TestParamInfo<Planted>& row) {
  std::string name = row.param.engine->name() + "_" + row.param.mutant;
  std::ranges::replace_if(name, [](char c) { return c == '.' || c == ':'; }, '_');
  return name;
}
class CanarySites : public ::testing::TestWithParam<Planted> {};
INSTANTIATE_TEST_SUITE_P(Handful, CanarySites, ::testing::ValuesIn(handful()), planted_name);

TEST_P(CanarySites, GoRed) {
  const auto& [engine, mutant] = GetParam();
  ASSERT_NE(find_site(mutant.substr(0, mutant.rfind(':'))), nullptr) << "no such site";
  std::string wrong;
  const MutantResult result = runner(*engine).search(mutant, wrong);
  EXPECT_EQ(wrong, "") << "without a mutant";
  EXPECT_TRUE(result.killed) << mutant;
  std::printf("%s red after %.2f s by %s\n", mutant.c_str(), result.seconds, result.by.c_str());
}

}  // namespace
}  // namespace perdure::testing
