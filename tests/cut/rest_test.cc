// test: tsan
// Pools with durability `buffered` that are open and not used.
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/buffered_files.h"
#include "tests/support/soon.h"

namespace perdure::test {
namespace {

using Rest = BufferedFiles;

constexpr std::size_t kDescriptors = 6;  // of a pool that rests

// Each has a thread again when something is stored. phast has no background work.
TEST_F(Rest, PoolsThatRestShareAThread) {
  constexpr std::uint64_t kPools = 8;
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first
  const std::size_t before = threads_of_this_process();
  const std::size_t files = open_descriptors();
  const auto map_of = [](Pool& pool) {
    return must(pool.map<std::uint64_t, std::uint64_t>("map", {.engine = Engine::phast}));
  };
  std::vector<Pool> pools;
  for (std::uint64_t i = 0; i < kPools; ++i) {
    pools.push_back(must(Pool::open(path("pool" + std::to_string(i)), buffered(5))));
    must(map_of(pools.back()).put(1, 1));
  }
  EXPECT_TRUE(soon([&] { return threads_of_this_process() <= before + 1; }));
  EXPECT_LE(open_descriptors(), files + kPools * kDescriptors);
  for (const Pool& pool : pools) EXPECT_EQ(must(pool.stats()).lag_ns, 0U);
  std::vector<std::uint64_t> cuts;
  for (Pool& pool : pools) {
    cuts.push_back(must(pool.stats()).cuts);
    must(map_of(pool).put(1, 2));
  }
  for (std::uint64_t i = 0; i < kPools; ++i) {
    EXPECT_TRUE(soon([&] { return must(pools[i].stats()).cuts > cuts[i]; }));
  }
  EXPECT_TRUE(soon([&] { return threads_of_this_process() <= before + 1; }));
  must(pools[0].sync());
  must(pools[0].fold_log());
  EXPECT_TRUE(soon([&] { return open_descriptors() <= files + kPools * kDescriptors; }));
  for (Pool& pool : pools) must(pool.close());
  EXPECT_TRUE(soon([&] { return threads_of_this_process() == before; }));
  EXPECT_EQ(open_descriptors(), files);
}

}  // namespace
}  // namespace perdure::test
