// A file that becomes shorter under its owner, where writes are made durable with msync
// (tests/api/bus_error_test.cc has the other modes): what was stored to a page that is no longer of
// the file cannot be synced, and must not be answered.
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/conformance/engines.h"
#include "tests/conformance/support.h"
#include "tests/fault/inject.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kKeys = 200;

TEST(ShortFile, OnADiskEveryLaterCallIsToldToo) {
  const std::string path = on_disk("-short.perdure");
  const Pretended pretended({.file_system = kXfs, .disk = true});
  const PoolOptions options{
      .handle_sigbus = true, .durability = Durability::power, .max_size = 4_MiB};
  {
    Pool pool = must(Pool::open(path, options));
    auto map =
        must(pool.map<std::uint64_t, std::uint64_t>("m", {.engine = chosen_engine().engine}));
    for (std::uint64_t i = 0; i < kKeys; ++i) must(map.insert(i, i));
    ASSERT_EQ(truncate(path.c_str(), 8192), 0);
    EXPECT_EQ(code_of(map.upsert(1, 2)), StatusCode::poisoned);
    EXPECT_EQ(code_of(map.upsert(kKeys, 1)), StatusCode::poisoned);
    EXPECT_EQ(code_of(map.find(1)), StatusCode::poisoned);
    EXPECT_EQ(pool.sync(), StatusCode::poisoned);
    EXPECT_EQ(pool.close(), StatusCode::poisoned);
  }
  EXPECT_EQ(std::filesystem::file_size(path), 8192U) << "the file is left as it is";
  EXPECT_EQ(code_of(Pool::open(path, options)), StatusCode::corruption);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace perdure::test
