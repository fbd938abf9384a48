// Real processes, real kills. More of them: build/release/perdure-torture.
#include <gtest/gtest.h>

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "support.h"
#include "testing/sites.h"
#include "testing/torture_runner.h"

namespace perdure::testing {
namespace {

// Memory where there is some to spare, else the build folder: a container's /dev/shm is small.
std::string folder() {
  struct statvfs stat{};
  if (statvfs("/dev/shm", &stat) == 0 && stat.f_bavail * stat.f_bsize > 64U << 20) {
    return "/dev/shm";
  }
  const char* build = std::getenv("PERDURE_BUILD_DIR");
  return build != nullptr ? build : ".";
}

struct Case {
  const char* mode;
  const char* keys;
  std::uint32_t threads;
  std::uint64_t cycles;
};

class Torture : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Modes, Torture,
    ::testing::Values(Case{"plain", "bytes", 8, 40}, Case{"plain", "integer", 1, 40},
                      Case{"lossless", "bytes", 1, 40}, Case{"lossless", "integer", 8, 40},
                      Case{"lossy", "bytes", 2, 60}, Case{"lossy", "bytes", 1, 30},
                      Case{"lossy", "integer", 8, 30}),
    [](const auto& c) {
      return std::string(c.param.mode) + "_" + c.param.keys + "_" + std::to_string(c.param.threads);
    });

TEST_P(Torture, LosesNothing) {
  const Case& c = GetParam();
  const TortureOptions options{.mode = c.mode,
                               .keys = c.keys,
                               .path = folder(),
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
  EXPECT_EQ(report.kills_at_sites == 0, options.mode == "plain");
}

// The harness can fail. A plain kill sees an operation that was acknowledged before it was done.
class EarlyAcknowledgement : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Planted, EarlyAcknowledgement, ::testing::Values("plain", "lossless"));
TEST_P(EarlyAcknowledgement, IsCaught) {
  const TortureOptions options{
      .mode = GetParam(), .keys = "integer", .path = folder(), .early_ack = true, .cycles = 300};
  const TortureReport report = run_torture(options, target_of(options));
  std::printf("%s: red after %llu kills\n", GetParam(),
              static_cast<unsigned long long>(report.kills));
  EXPECT_FALSE(report.ok());
}

// A missing write-back, a missing fence, half a record: a plain kill would
// see none of these.
class TortureMutants : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Planted, TortureMutants,
                         ::testing::Values(std::pair{"integer", "phast.insert.entry:drop_flush"},
                                           std::pair{"bytes", "phast.record.write:drop_flush"},
                                           std::pair{"bytes", "phast.record.write:first_line_only"},
                                           std::pair{"integer", "phast.erase.entry:drop_flush"}));

TEST_P(TortureMutants, AreCaught) {
  const auto& [keys, mutant] = GetParam();
  const TortureOptions options{
      .mode = "lossy", .keys = keys, .path = folder(), .mutant = mutant, .cycles = 100, .seed = 3};
  const TortureReport report = run_torture(options, lossy_target());
  std::printf("%s: red after %llu kills\n", mutant, static_cast<unsigned long long>(report.kills));
  EXPECT_FALSE(report.ok());
}

TEST(TortureSelfTest, AnUnknownMutantIsAnError) {
  const TortureOptions options{.path = folder(), .mutant = "no.such.site:drop_flush", .cycles = 1};
  EXPECT_FALSE(run_torture(options, lossy_target()).ok());
}

}  // namespace
}  // namespace perdure::testing
