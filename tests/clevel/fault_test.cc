// test: injects
// Clevel hashing where a write-back fails: what a mutation has made by then, and nothing names.
#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/support/inject.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Texts = Map<std::uint64_t, std::string_view>;

// The first fence of such a mutation is that of the value's own block, which no item names yet. The
// pool is poisoned, so the block is given back by the sweep of the next open, and not before: more
// such failures than the pool has room for leave it as it was.
TEST(ClevelFault, AValueWhoseFenceFailsIsSweptByTheNextOpen) {
  constexpr std::uint64_t kPresent = 1, kAbsent = 2;
  const std::string path = on_disk("-blob.perdure");
  const std::string large(400'000, 'v');
  const Pretended pretended({.file_system = kXfs, .disk = true});
  const PoolOptions options{
      .durability = Durability::power, .max_size = 4_MiB, .background_threads = 0};
  const auto open_map = [](Pool& pool) {
    return must(pool.map<std::uint64_t, std::string_view>("m", {.engine = Engine::clevel}));
  };
  {
    Pool pool = open_pool(path, options);
    must(open_map(pool).insert(kPresent, "old"));
    must(pool.close());
  }
  for (int round = 0; round < 12; ++round) {
    Pool pool = open_pool(path, options);
    Texts map = open_map(pool);
    while (must(pool.run_background())) {
    }
    {
      const Failing failing(Fault::msync, 1, true);
      EXPECT_EQ(code_of(round % 2 == 0 ? map.insert(kAbsent, large) : map.put(kPresent, large)),
                StatusCode::poisoned);
      EXPECT_GT(faults_fired_here(), 0U);
    }
    EXPECT_EQ(pool.close(), StatusCode::poisoned);
  }
  {
    Pool pool = open_pool(path, options);
    Texts map = open_map(pool);
    EXPECT_EQ(must(map.get(kPresent)), std::optional<std::string>("old"));
    EXPECT_EQ(must(map.get(kAbsent)), std::nullopt);
    expect_sound(pool);
    must(map.put(kPresent, large));
    must(map.insert(kAbsent, large));
    expect_sound(pool);
    must(pool.close());
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace perdure::test
