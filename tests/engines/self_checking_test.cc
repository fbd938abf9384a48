// test: no asan, tsan, nightly
// Every kind of operation at once, checked by the readers themselves, over layouts that provoke
// each of the races in docs/design/hazards.md.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/tracked.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

struct MixedRun {
  const char* name;
  Durability durability;
  Layout layout;
  std::size_t keys;
  int writers;
  int readers;
  int scanners;
  std::uint64_t operations;  // per writer
  std::uint32_t partition_bits;
};

using EngineRun = std::tuple<EngineInfo, MixedRun>;
class SelfChecking : public ::testing::TestWithParam<EngineRun> {
 protected:
  // Writers own interleaved keys: neighbours in one leaf belong to different threads.
  template <class K, class V>
  void mixed() {
    const auto& [engine, run] = GetParam();
    const std::size_t keys = scaled(run.keys, run.keys < 100 ? run.keys : run.keys / 10);
    TempPath path;
    Violations violations;
    {
      std::optional<Pool> session(
          open_pool(path, {.durability = run.durability, .max_size = 1_GiB}));
      Pool& pool = *session;
      const MapOptions options{.phast = {.partition_bits = run.partition_bits}};
      std::optional<AnyMap<K, V>> view(std::in_place, pool, "m", engine, options);
      AnyMap<K, V>& map = *view;
      Tracked<K, V> tracked(keys, run.layout, violations);
      std::atomic<int> writing{run.writers};
      const std::uint64_t operations =
          scaled(run.operations, run.operations / 5, run.operations / 40);
      Team team(violations);
      for (int w = 0; w < run.writers; ++w) {
        team.start([&, w] {
          // A handle of its own, because handles of one map must agree.
          AnyMap<K, V> own(pool, "m", engine, options);
          Rng rng(seed() + 1'000 + static_cast<std::uint64_t>(w));
          const auto writers = static_cast<std::size_t>(run.writers);
          const std::size_t mine = (keys - static_cast<std::size_t>(w) + writers - 1) / writers;
          for (std::uint64_t i = 0; i < operations && !violations.any(); ++i) {
            const std::size_t pick = rng.below(mine);
            tracked.advance(own, pick * writers + static_cast<std::size_t>(w), rng);
          }
          --writing;
        });
      }
      for (int r = 0; r < run.readers; ++r) {
        team.start([&, r] {
          Rng rng(seed() + 2'000 + static_cast<std::uint64_t>(r));
          std::vector<std::size_t> batch;
          while (writing.load() > 0 && !violations.any()) {
            const std::size_t i = rng.below(keys);
            switch (rng.below(8)) {
              case 0:
                batch.clear();
                for (std::size_t n = 1 + rng.below(70); n > 0; --n)
                  batch.push_back(rng.below(keys));
                tracked.check_find_many(map, batch);
                break;
              case 1:
              case 2:
                tracked.check_read(map, i);
                break;
              default:
                tracked.check_find(map, i);
                break;
            }
          }
        });
      }
      for (int s = 0; s < run.scanners; ++s) {
        team.start([&, s] {
          Rng rng(seed() + 3'000 + static_cast<std::uint64_t>(s));
          while (writing.load() > 0 && !violations.any()) {
            const std::size_t first = rng.below(keys);
            const std::size_t width = rng.one_in(10) ? keys : 1 + rng.below(200);
            tracked.check_scan(map, first, std::min(keys, first + width), rng.one_in(2));
          }
        });
      }
      team.join();
      if (!violations.any()) tracked.check_final(map);
      violations.expect_none();
      expect_sound(pool);
      if (violations.any()) return;
      // Checks again after a reopen. A map must not outlive its pool.
      view.reset();
      must(pool.close());
      session.reset();
      session.emplace(open_pool(path, {.durability = run.durability}));
      view.emplace(pool, "m", engine, options);
      tracked.check_final(map);
      expect_sound(pool);
    }
    violations.expect_none();
  }
};

const MixedRun kRuns[] = {
    // Leaves split and are unlinked under lookups and scans all over the map.
    {"Spread", Durability::process, Layout::spread, 20'000, 3, 2, 1, 120'000, 7},
    {"SpreadEmulated", Durability::emulated, Layout::spread, 20'000, 3, 2, 1, 80'000, 7},
    // 1b: one leaf whose slots are claimed, freed and claimed again all the time.
    {"P1b_SlotReuseInOneLeaf", Durability::process, Layout::dense, 24, 2, 3, 1, 200'000, 0},
    {"P1b_SlotReuseInOneLeafEmulated", Durability::emulated, Layout::dense, 24, 2, 3, 1, 120'000,
     0},
    // Leaves near full and near empty: 80 keys, three quarters present.
    {"P1_SplitsAndUnlinksOfFewLeaves", Durability::process, Layout::dense, 80, 4, 2, 2, 100'000, 0},
    {"FewLeavesEmulated", Durability::emulated, Layout::dense, 80, 4, 2, 2, 60'000, 0},
    // P6, P7, P8: the index above one partition grows by many nodes.
    {"P7_IndexGrowthInOnePartition", Durability::process, Layout::one_partition, 60'000, 4, 2, 1,
     100'000, 7},
    {"EightThreads", Durability::process, Layout::one_partition, 3'000, 4, 3, 1, 60'000, 1},
    {"TwoThreads", Durability::emulated, Layout::spread, 500, 1, 1, 0, 150'000, 7},
};
std::string run_name(const ::testing::TestParamInfo<EngineRun>& row) {
  const auto& [engine, run] = row.param;
  return name_of(engine) + "_" + run.name;
}
INSTANTIATE_TEST_SUITE_P(Runs, SelfChecking,
                         ::testing::Combine(::testing::ValuesIn(kEngines),
                                            ::testing::ValuesIn(kRuns)),
                         run_name);

TEST_P(SelfChecking, IntegersToIntegers) { mixed<std::uint64_t, std::uint64_t>(); }
// P18: records are replaced and freed under readers.
TEST_P(SelfChecking, P18_StringsToStrings) { mixed<Bytes, Bytes>(); }
TEST_P(SelfChecking, P18_IntegersToStrings) { mixed<std::uint64_t, Bytes>(); }
TEST_P(SelfChecking, StringsToIntegers) { mixed<Bytes, std::uint64_t>(); }

}  // namespace
}  // namespace perdure::test
