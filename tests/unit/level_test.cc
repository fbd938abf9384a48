// Level hashing where its own structure shows: the list of levels, resizes, damage.
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "index/level/layout.h"
#include "tests/conformance/support.h"

namespace perdure::test {
namespace {

using Numbers = Map<std::uint64_t, std::uint64_t>;
constexpr MapOptions kSmall{.engine = Engine::level, .level = {.buckets = 2}};
constexpr PoolOptions kDriven{
    .durability = Durability::process, .max_size = 64_MiB, .background_threads = 0};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
// In place: another file would be a copy, and not trusted.
void put_bytes(const std::string& path, const std::string& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
// Of the only map in the file.
std::size_t root_in(const std::string& bytes) {
  for (std::size_t at = 0; at + sizeof(level::layout::Root) <= bytes.size(); at += 64) {
    std::uint64_t magic = 0;
    std::memcpy(&magic, bytes.data() + at, sizeof(magic));
    if (magic == level::layout::kRootMagic) return at;
  }
  throw std::runtime_error("no root block");
}

// Descriptors of the past lie about, intact, and so do the levels that they name, empty.
TEST(Level, EveryBitOfTheWordThatNamesTheLevelsIsChecked) {
  TempPath path;
  {
    Pool pool = open_pool(path, kDriven);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kSmall));
    for (std::uint64_t i = 0; i < 2'000; ++i) ASSERT_TRUE(must(map.insert(i, i)));
    while (must(pool.run_background())) {
    }
    ASSERT_GT(map.stats().resizes.size(), 5U);
    must(pool.close());
  }
  const std::string closed = bytes_of(path);
  const std::size_t word = root_in(closed) + offsetof(level::layout::Root, descriptor);
  for (std::size_t bit = 0; bit < 64; ++bit) {
    std::string flipped = closed;
    flipped[word + bit / 8] = static_cast<char>(flipped[word + bit / 8] ^ 1 << bit % 8);
    put_bytes(path, flipped);
    auto pool = Pool::open(path, kDriven);
    if (!pool) {
      EXPECT_EQ(pool.error(), StatusCode::corruption) << bit;
    } else {
      const auto map = pool->map<std::uint64_t, std::uint64_t>("m", kSmall);
      ASSERT_FALSE(map) << bit;
      EXPECT_EQ(map.error(), StatusCode::corruption) << bit;
    }
  }
  put_bytes(path, closed);
  Pool pool = open_pool(path, kDriven);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", kSmall));
  for (std::uint64_t i = 0; i < 2'000; ++i) ASSERT_EQ(must(map.find(i)), std::optional(i));
  expect_sound(pool);
}

// A map that has no room to get smaller keeps no other one, nor the pool, from it.
TEST(Level, CompactGoesOnInAFullPool) {
  TempPath path;
  Pool pool = open_pool(
      path, {.durability = Durability::process, .max_size = 8_MiB, .background_threads = 0});
  auto map = must(pool.map<std::uint64_t, std::uint64_t>(
      "m", {.engine = Engine::level, .level = {.buckets = 2, .auto_shrink = false}}));
  for (std::uint64_t i = 0; i < 40'000; ++i) ASSERT_TRUE(must(map.insert(i, i)));
  for (std::uint64_t i = 10; i < 40'000; ++i) ASSERT_TRUE(must(map.erase(i)));
  while (must(pool.run_background())) {
  }
  auto rest = must(pool.map<std::uint64_t, std::string_view>("rest", {.engine = Engine::phast}));
  const std::string kilobyte(1'000, 'k');
  std::uint64_t made = 0;
  for (; rest.insert(made, kilobyte); ++made) {
  }
  ASSERT_GT(made, 1'000U);
  for (std::uint64_t i = 500; i < 550; ++i) ASSERT_TRUE(must(rest.erase(i)));
  EXPECT_GT(must(pool.compact()), 0U);
  expect_sound(pool);
}

}  // namespace
}  // namespace perdure::test
