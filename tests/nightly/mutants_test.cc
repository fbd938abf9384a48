// Every persist site of heap, reclamation, pool and PhaST, with every mutant that applies to it.
// One that survives is a missing test, a redundant write-back, or stands in the table below with
// its argument.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "testing/mutants.h"

namespace perdure::testing {
namespace {

struct Argued {
  const char* mutant;
  const char* why;
};
constexpr const char* kSameLine =
    "pool.root.clear writes the same line back, after `root` in its order of stores";
constexpr const char* kFreeSlot =
    "a slot whose root is 0 is free whatever else it holds; the next add writes the whole line";
constexpr Argued kArgued[] = {
    {"heap.extent.zero:drop_fence",
     "the fence of heap.extent.assign follows in the same thread; until then no block of the "
     "extent is reachable, and the sweep makes unreachable ones dead"},
    {"phast.close.root:drop_fence",
     "pool.close.data fences next, in the same thread, before the header says clean"},
    {"pool.close.data:drop_fence",
     "every operation, and phast.close.root, has fenced what it wrote: this one is for engines "
     "that do not"},
    {"pool.sync.data:drop_fence", "as pool.close.data"},
    {"pool.create.zero:drop_sync", "the sync of the whole file follows it"},
    {"pool.root.drop:drop_flush", kSameLine},
    {"pool.root.drop:drop_fence", kSameLine},
    {"pool.root.clear:drop_flush", kFreeSlot},
    {"pool.root.clear:drop_fence", kFreeSlot},
};

const char* argument_for(const std::string& mutant) {
  for (const Argued& argued : kArgued) {
    if (mutant == argued.mutant) return argued.why;
  }
  return nullptr;
}

bool of_the_library(std::string_view site) {
  for (const char* prefix : {"heap.", "reclaim.", "pool.", "phast.", "storage."}) {
    if (site.starts_with(prefix)) return true;
  }
  return false;
}

TEST(Mutants, EverySiteWithEveryOperator) {
  reset_site_counts();
  for (const ExploreReport& report : run_explorations(2, false)) {
    ASSERT_TRUE(report.ok()) << report.failures.front();
  }
  const char* only = std::getenv("PERDURE_MUTANTS");  // a part of SITE:op
  int total = 0, killed = 0, argued = 0;
  for (const SiteInfo* site : all_sites()) {
    if (!of_the_library(site->name)) continue;
    EXPECT_TRUE(site->flush_count + site->fence_count + site->sync_count > 0 ||
                argument_for(std::string(site->name) + ":drop_fence") != nullptr ||
                argument_for(std::string(site->name) + ":drop_flush") != nullptr)
        << site->name << " is never reached";
    for (const Mutant mutant : mutants_of(*site)) {
      const bool shortens = mutant == Mutant::first_line_only || mutant == Mutant::all_but_last;
      if (shortens && site->multi_line_count == 0) continue;  // it would change nothing
      const std::string name = std::string(site->name) + ":" + mutant_name(mutant);
      if (only != nullptr && name.find(only) == std::string::npos) continue;
      ++total;
      const bool red = mutant_is_red(site->name, mutant, 2);
      killed += red ? 1 : 0;
      const char* why = argument_for(name);
      if (!red && why != nullptr) ++argued;
      std::printf("%-52s %s\n", name.c_str(), red ? "killed" : why != nullptr ? why : "SURVIVED");
      std::fflush(stdout);
      EXPECT_TRUE(red || why != nullptr) << name << " survived";
      EXPECT_FALSE(red && why != nullptr) << name << " is killed; its argument is wrong";
    }
  }
  std::printf("mutants=%d\nmutants_killed=%d\nmutants_argued=%d\n", total, killed, argued);
}

}  // namespace
}  // namespace perdure::testing
