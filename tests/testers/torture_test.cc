// test: explores
// Real processes and real kills. For more of them: build/release/perdure-guard torture.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "testing/engines/engine_list.h"
#include "testing/torture/counters.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

struct Case {
  const char* mode;
  const char* keys;
  std::uint32_t threads;
  std::uint64_t cycles;
};

constexpr Case kCases[] = {{"plain", "bytes", 8, 40},    {"plain", "integer", 1, 40},
                           {"lossless", "bytes", 1, 40}, {"lossless", "integer", 8, 40},
                           {"lossy", "bytes", 2, 60},    {"lossy", "bytes", 1, 30},
                           {"lossy", "integer", 8, 30}};

using EngineCase = std::tuple<const EngineUnderTest*, Case>;
class Torture : public ::testing::TestWithParam<EngineCase> {};
std::string case_name(const ::testing::TestParamInfo<EngineCase>& row) {
  const auto& [engine, c] = row.param;
  return engine->name() + "_" + c.mode + "_" + c.keys + "_" + std::to_string(c.threads);
}
INSTANTIATE_TEST_SUITE_P(Modes, Torture,
                         ::testing::Combine(::testing::ValuesIn(engines_under_test()),
                                            ::testing::ValuesIn(kCases)),
                         case_name);

TEST_P(Torture, LosesNothing) {
  const auto& [engine, c] = GetParam();
  const TortureOptions options{.engine = engine->name(),
                               .mode = c.mode,
                               .keys = c.keys,
                               .path = torture_folder(),
                               .cycles = scaled(c.cycles),
                               .seed = 11,
                               .threads = c.threads,
                               .max_work_us = sanitized() ? 20'000U : 3'000U,
                               .create_every = 20};
  const TortureReport report = run_torture(options, target_of(options));
  std::printf("%s\n", report.summary(options).c_str());
  EXPECT_TRUE(report.ok()) << report.failure;
  EXPECT_EQ(report.kills, options.cycles);
  EXPECT_GT(report.acknowledged, 0U);
  EXPECT_GE(report.together, at_least(1));
  EXPECT_GE(report.conditional, at_least(1));
  EXPECT_EQ(report.kills_at_sites == 0, options.mode == "plain");
  EXPECT_EQ(report.keeps_versions, keeps_versions(engine->engine));
  if (report.keeps_versions) {
    EXPECT_GE(report.tags, at_least(1));
    EXPECT_GE(report.versions_verified, at_least(1));
  }
}

class SharedCounters : public ::testing::TestWithParam<EngineCase> {};
constexpr Case kCounterCases[] = {{"plain", "integer", 8, 20},    {"plain", "bytes", 8, 20},
                                  {"lossless", "integer", 8, 20}, {"lossless", "bytes", 8, 20},
                                  {"lossy", "integer", 8, 30},    {"lossy", "bytes", 8, 30}};
INSTANTIATE_TEST_SUITE_P(Modes, SharedCounters,
                         ::testing::Combine(::testing::ValuesIn(engines_under_test()),
                                            ::testing::ValuesIn(kCounterCases)),
                         case_name);

TEST_P(SharedCounters, CountEachAdditionOnce) {
  const auto& [engine, c] = GetParam();
  const TortureOptions options{.engine = engine->name(),
                               .mode = c.mode,
                               .keys = c.keys,
                               .path = torture_folder(),
                               .durability = Durability::emulated,
                               .cycles = scaled(c.cycles),
                               .seed = 7,
                               .threads = c.threads,
                               .max_work_us = sanitized() ? 20'000U : 3'000U};
  const CountersReport report = run_counters(options, target_of(options));
  std::printf("%s\n", report.summary(options).c_str());
  EXPECT_TRUE(report.ok()) << report.failure;
  EXPECT_EQ(report.kills, options.cycles);
  EXPECT_GT(report.additions, 0U);
  EXPECT_GT(report.transfers, 0U);
}

// The judge can fail: a find and an update are not one addition, and two puts are no transfer.
TEST(SharedCountersItself, TornStepsAreCaught) {
  const TortureOptions options{
      .mode = "plain", .keys = "integer", .path = torture_folder(), .cycles = 300, .threads = 8};
  for (const Torn torn : {Torn::additions, Torn::transfers}) {
    const CountersReport report = run_counters(options, plain_target(), torn);
    std::printf("%s\n", report.failure.c_str());
    EXPECT_FALSE(report.ok());
  }
}

// The harness can fail: a plain kill notices an operation that was acknowledged before it was done.
using EngineMode = std::tuple<const EngineUnderTest*, const char*>;
class EarlyAcknowledgement : public ::testing::TestWithParam<EngineMode> {};
INSTANTIATE_TEST_SUITE_P(Planted, EarlyAcknowledgement,
                         ::testing::Combine(::testing::ValuesIn(engines_under_test()),
                                            ::testing::Values("plain", "lossless")));
TEST_P(EarlyAcknowledgement, IsCaught) {
  const auto& [engine, mode] = GetParam();
  const TortureOptions options{.engine = engine->name(),
                               .mode = mode,
                               .keys = "integer",
                               .path = torture_folder(),
                               .early_ack = true,
                               .cycles = 300};
  const TortureReport report = run_torture(options, target_of(options));
  std::printf("%s: red after %llu kills\n", mode, static_cast<unsigned long long>(report.kills));
  EXPECT_FALSE(report.ok());
}

// Only reads of versions after the kill can show that a tag came too late.
using LooseVersions = EarlyAcknowledgement;
std::vector<const EngineUnderTest*> with_versions() {
  std::vector<const EngineUnderTest*> rows;
  for (const EngineUnderTest* row : engines_under_test()) {
    if (keeps_versions(row->engine)) rows.push_back(row);
  }
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Planted, LooseVersions,
                         ::testing::Combine(::testing::ValuesIn(with_versions()),
                                            ::testing::Values("plain", "lossless", "lossy")));
TEST_P(LooseVersions, AreCaught) {
  const auto& [engine, mode] = GetParam();
  const TortureOptions options{.engine = engine->name(),
                               .mode = mode,
                               .keys = "integer",
                               .path = torture_folder(),
                               .loose_versions = true,
                               .cycles = 300,
                               .threads = 1};
  const TortureReport report = run_torture(options, target_of(options));
  std::printf("%s: red after %llu kills: %s\n", mode, static_cast<unsigned long long>(report.kills),
              report.failure.c_str());
  EXPECT_FALSE(report.ok());
}

// A missing write-back, a missing fence, half a record: a plain kill would show none of these.
TEST(TortureMutants, AreCaught) {
  for (const EngineUnderTest* engine : engines_under_test()) {
    for (const auto& [keys, mutant] : engine->planted) {
      const TortureOptions options{.engine = engine->name(),
                                   .mode = "lossy",
                                   .keys = keys,
                                   .path = torture_folder(),
                                   .mutant = mutant,
                                   .cycles = 100,
                                   .seed = 3};
      const TortureReport report = run_torture(options, lossy_target());
      std::printf("%s: red after %llu kills\n", mutant,
                  static_cast<unsigned long long>(report.kills));
      EXPECT_FALSE(report.ok()) << mutant;
    }
  }
}

TEST(TortureSelfTest, AnUnknownMutantIsAnError) {
  const TortureOptions options{
      .path = torture_folder(), .mutant = "no.such.site:drop_flush", .cycles = 1};
  EXPECT_FALSE(run_torture(options, lossy_target()).ok());
}

}  // namespace
}  // namespace perdure::testing
