// test: no asan
// The options of `perdure create` for a table's size apply to programs that open the pool.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

TEST(Layout, NoAutoShrinkKeepsATablesSize) {
  const char* cli = std::getenv("PERDURE_CLI");
  ASSERT_NE(cli, nullptr) << "run by ctest";
  for (const bool keeps : {false, true}) {
    TempPath path;
    const std::string command = std::string(cli) + " create " + path.str() +
                                " --max-size 64M --engine level --buckets 2 --key u64 --value u64" +
                                (keeps ? " --no-auto-shrink" : "") + " > /dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    Pool pool = open_pool(path, {.background_threads = 0});
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("default"));
    for (std::uint64_t i = 0; i < 5'000; ++i) must(map.insert(i, i));
    for (std::uint64_t i = 10; i < 5'000; ++i) must(map.erase(i));
    while (must(pool.run_background())) {
    }
    const auto resizes = map.stats().resizes;
    EXPECT_EQ(std::ranges::any_of(resizes, &ResizeStats::shrink), !keeps);
  }
}

}  // namespace
}  // namespace perdure::test
