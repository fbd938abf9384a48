// test: explores
// The workers of perdure-guard: their reports arrive, and a worker that dies is a violation.
#include "testing/crash/explore_runner.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "testing/crash/synthetic_subject.h"
#include "testing/engines/engine_list.h"
#include "tests/support/explorations.h"

namespace perdure::testing {
namespace {

ExploreReport some_report(std::uint64_t n) {
  ExploreReport report{.name = "job" + std::to_string(n), .images = n, .verdicts = n + 1};
  report.leaks = n % 2;
  report.sites_crossed = {"a.b.c", "d.e.f" + std::to_string(n)};
  for (std::uint64_t i = 0; i < 40'000; ++i) report.hashes[0].insert(i * n + 1);
  report.hashes[1] = {1, n};
  report.hashes[2] = {7};
  return report;
}

TEST(ExploreRunner, AReportSurvivesTheWay) {
  ExploreReport report = some_report(3);
  report.failures = {"it\nfailed", ""};
  ExploreReport again;
  const std::string bytes = pack(report);
  ASSERT_TRUE(unpack(bytes, again));
  EXPECT_EQ(again.name, report.name);
  EXPECT_EQ(again.images, 3U);
  EXPECT_EQ(again.verdicts, 4U);
  EXPECT_EQ(again.leaks, 1U);
  EXPECT_EQ(again.sites_crossed, report.sites_crossed);
  EXPECT_EQ(again.failures, report.failures);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(again.hashes[i], report.hashes[i]);
  for (const std::size_t n : {std::size_t{0}, std::size_t{8}, bytes.size() / 2, bytes.size() - 1}) {
    EXPECT_FALSE(unpack(bytes.substr(0, n), again)) << n;
  }
  EXPECT_FALSE(unpack(bytes + "x", again));
}

TEST(ExploreRunner, FilesAreCountedOnce) {
  PartReport part;
  part.add(some_report(2));
  part.add(some_report(2));
  EXPECT_EQ(part.crash_images(), 40'001U);  // the odd numbers, and 2
  EXPECT_EQ(part.second_crash_images(), 3U);
  EXPECT_EQ(part.third_crash_images(), 1U);
  EXPECT_EQ(part.verdicts, 6U);
}

TEST(ExploreRunner, AWorkerThatDiesIsAViolationAndTheOthersGoOn) {
  std::uint64_t started = 0, good = 0, bad = 0;
  run_batches(
      2,
      [&](Job& job) {
        const std::uint64_t n = started++;
        job = {"job", n % 3, [n] {
                 if (n == 2) std::raise(SIGKILL);
                 if (n == 4) std::_Exit(7);
                 return some_report(n + 1);
               }};
        return n < 7;
      },
      [&](const Job& job, const ExploreReport& report) {
        EXPECT_LT(job.part, 3U);
        (report.ok() ? good : bad) += 1;
        EXPECT_TRUE(report.ok() || report.failures.size() == 1U);
      });
  EXPECT_EQ(good, 5U);
  EXPECT_EQ(bad, 2U);
}

// A recovery that waits for ever takes no processor time.
TEST(ExploreRunner, AWorkerThatWaitsForEverIsKilledAndNamed) {
  class Waiting : public SyntheticSubject {
   public:
    Status open(SimMemory& memory, std::uint64_t boot) override {
      while (boot != 1) pause();
      return SyntheticSubject::open(memory, boot);
    }
  };
  std::uint64_t started = 0, good = 0;
  std::string said;
  run_batches(
      2,
      [&](Job& job) {
        const std::uint64_t n = started++;
        job = {"job", 0, [n] {
                 if (n != 0) return some_report(n);
                 return run_exploration(
                     random_one(
                         "waits", [] { return std::make_unique<Waiting>(); }, synthetic_op,
                         {.capacity = 2 << 20, .explore_create = false}, 3),
                     "test.waits", 5);
               }};
        return n < 3;
      },
      [&](const Job&, const ExploreReport& report) {
        good += report.ok() ? 1 : 0;
        if (!report.ok()) said += report.failures.front();
      },
      2);
  EXPECT_EQ(good, 2U);
  EXPECT_NE(said.find("hung and was killed"), said.npos) << said;
  EXPECT_NE(said.find("PERDURE_REPLAY='test.waits:5:p1.i0'"), said.npos) << said;
}

std::vector<PlantedMutant> all_canaries() {
  std::vector<PlantedMutant> all = heap_canaries();
  for (const EngineUnderTest* engine : engines_under_test()) {
    for (PlantedMutant& canary : pool_canaries(*engine)) all.push_back(std::move(canary));
    for (PlantedMutant& canary : engine_canaries(*engine)) all.push_back(std::move(canary));
  }
  return all;
}
bool is_red(const PlantedMutant& canary, const char* mutant, bool in_recovery,
            std::uint64_t seeds) {
  return fails_in_child(
      [&] {
        Exploration e = canary.exploration;
        if (!in_recovery) e.options.second_in = e.options.kill_in = 0;
        if (mutant != nullptr && !set_mutant(mutant)) return true;
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
          if (!run_exploration(e, "test.canary", seed).ok()) return false;
        }
        return true;
      },
      600);
}

TEST(Explored, CanariesAreRed) {
  if (sanitized()) GTEST_SKIP() << "a matter of many images";
  for (const PlantedMutant& canary : all_canaries()) {
    EXPECT_TRUE(is_red(canary, canary.mutant.c_str(), true, 10)) << canary.mutant;
  }
}

// If only a second run shows a mutant, everything else passes: runs without it, and the first run.
TEST(Explored, CanariesInRecoveryAreGreenForWhatTheyDoNotName) {
  if (sanitized()) GTEST_SKIP() << "a matter of many images";
  for (const PlantedMutant& canary : all_canaries()) {
    if (!canary.in_recovery) continue;
    EXPECT_FALSE(is_red(canary, nullptr, true, 1)) << canary.exploration.name;
    EXPECT_FALSE(is_red(canary, canary.mutant.c_str(), false, 1)) << canary.mutant;
  }
}

TEST(Explored, EverySequenceUpToALengthOnce) {
  const std::vector<Op> alphabet{
      {OpKind::insert, "a", "1"}, {OpKind::erase, "a", {}}, {OpKind::upsert, "b", "2"}};
  std::set<std::string> seen;
  for (std::size_t first = 0; first < alphabet.size(); ++first) {
    for (const std::vector<Op>& ops : sequences(alphabet, first, 3)) {
      std::string text;
      for (const Op& op : ops) text += describe(op) + ";";
      EXPECT_TRUE(seen.insert(text).second) << text;
    }
  }
  EXPECT_EQ(seen.size(), 3U + 9U + 27U);
}

TEST(Explored, NamesAreUnique) {
  for (const Preset preset : {Preset::fast, Preset::figures, Preset::nightly}) {
    for (const EngineUnderTest* engine : engines_under_test()) {
      for (const auto& part : {heap_explorations(preset), pool_explorations(*engine, preset),
                               engine_explorations(*engine, preset)}) {
        std::set<std::string> names;
        for (const Exploration& e : part) {
          EXPECT_TRUE(names.insert(e.name).second) << e.name;
          EXPECT_TRUE(e.operations > 0 || !e.workloads.empty()) << e.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace perdure::testing
