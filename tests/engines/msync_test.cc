// test: injects, no asan, each engine
// Media on which msync makes writes durable. An operation that could not be written back must fail,
// whether the device fails or the file became shorter. tests/platform/bus_error_test.cc covers the
// other modes.
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/engines.h"
#include "tests/support/inject.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kKeys = 200;

PoolOptions power() {
  return {.handle_sigbus = true, .durability = Durability::power, .max_size = 4_MiB};
}

// An engine writes for the last time when its new map begins to serve.
TEST(FailedMsync, ANewMapThatIsNotDurableIsNotReturned) {
  const std::string path = on_disk("-new.perdure");
  const Pretended pretended({.file_system = kXfs, .disk = true});
  bool fired = true;
  std::uint64_t k = 0;
  while (fired) {
    ++k;
    {
      Pool pool = must(Pool::open(path, power()));
      const std::uint64_t before = faults_fired_here();
      {
        const Failing failing(Fault::msync, k, true);
        const auto made =
            pool.map<std::uint64_t, std::uint64_t>("m", {.engine = chosen_engine().engine});
        fired = faults_fired_here() != before;
        EXPECT_EQ(code_of(made), fired ? StatusCode::poisoned : StatusCode::ok) << "msync " << k;
      }
      EXPECT_EQ(pool.close(), fired ? StatusCode::poisoned : StatusCode::ok);
    }
    std::filesystem::remove(path);
  }
  EXPECT_GT(k, 2U);
}

TEST(FailedMsync, OfAFileThatBecameShorterIsToldToEveryLaterCall) {
  const std::string path = on_disk("-short.perdure");
  const Pretended pretended({.file_system = kXfs, .disk = true});
  {
    Pool pool = must(Pool::open(path, power()));
    auto map =
        must(pool.map<std::uint64_t, std::uint64_t>("m", {.engine = chosen_engine().engine}));
    for (std::uint64_t i = 0; i < kKeys; ++i) must(map.insert(i, i));
    ASSERT_EQ(truncate(path.c_str(), 8192), 0);
    EXPECT_EQ(code_of(map.put(1, 2)), StatusCode::poisoned);
    EXPECT_EQ(code_of(map.put(kKeys, 1)), StatusCode::poisoned);
    EXPECT_EQ(code_of(map.get(1)), StatusCode::poisoned);
    EXPECT_EQ(pool.sync(), StatusCode::poisoned);
    EXPECT_EQ(pool.close(), StatusCode::poisoned);
  }
  EXPECT_EQ(std::filesystem::file_size(path), 8192U) << "the file is left as it is";
  EXPECT_EQ(code_of(Pool::open(path, power())), StatusCode::corruption);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace perdure::test
