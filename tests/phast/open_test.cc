// What an open of a PhaST map reads, and where leaves and records lie.
#include <unistd.h>

#include <string>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

constexpr int kEntries = 20000;
// Equal heads, so that words decide nothing.
std::string key_of(int i) {
  std::string digits = std::to_string(i);
  return "customer" + std::string(8 - digits.size(), '0') + digits;
}

// A process fills a map, and closes the pool or not.
void fill(const TempPath& path, std::size_t value_bytes, bool closes) {
  const ChildEnd end = run_child([&] {
    Pool pool = open_pool(path, {.durability = Durability::process, .max_size = 256_MiB});
    auto map =
        must(pool.map<std::string_view, std::string_view>("m", {.phast = {.partition_bits = 0}}));
    for (int i = 0; i < kEntries; ++i) {
      must(map.put(key_of(i * 7 % kEntries), std::string(value_bytes, 'v')));
    }
    if (!closes) ::_exit(0);
    must(pool.close());
  });
  ASSERT_TRUE(end.ok()) << end;
}

// Makes every record that has a value unreadable. Separators have keys only.
int damage_records(const TempPath& path) {
  std::string bytes = read_bytes(path);
  int damaged = 0;
  for (std::size_t at = bytes.find("customer0"); at != std::string::npos;
       at = bytes.find("customer0", at + 1)) {
    if (bytes[at + 16] != 'v') continue;
    bytes.replace(at, 16, 16, '?');
    ++damaged;
  }
  write_bytes(path, bytes);
  return damaged;
}

class PhastOpen : public ::testing::TestWithParam<bool> {
 protected:
  TempPath path_;
};
INSTANTIATE_TEST_SUITE_P(, PhastOpen, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "AfterAClose" : "AfterAKill");
});

TEST_P(PhastOpen, ReadsNoRecord) {
  fill(path_, 1100, GetParam());
  EXPECT_GE(damage_records(path_), kEntries);
  Pool pool = open_pool(path_, {.durability = Durability::process, .max_size = 256_MiB});
  auto map = must(pool.map<std::string_view, std::string_view>("m"));
  EXPECT_EQ(map.stats().entries, std::uint64_t{kEntries});
  EXPECT_FALSE(must(map.get(key_of(1))));
}

// Records have the size class of leaves. A descriptor is for a place of a leaf, so places that
// are records would cost as much.
TEST_P(PhastOpen, LeavesLieApartFromRecordsOfTheirSize) {
  fill(path_, 950, GetParam());
  Pool pool = open_pool(path_, {.durability = Durability::process, .max_size = 256_MiB});
  auto map = must(pool.map<std::string_view, std::string_view>("m"));
  EXPECT_LE(map.stats().dram_bytes, std::uint64_t{20} * kEntries);
}

// There is no free extent for a leaf, but every record of an erased entry has room for one.
TEST(PhastFull, ASplitTakesThePlaceOfARecord) {
  TempPath path;
  Pool pool = open_pool(path, {.durability = Durability::process, .max_size = 1_MiB});
  auto map =
      must(pool.map<std::string_view, std::string_view>("m", {.phast = {.partition_bits = 0}}));
  const std::string value(950, 'v');
  int n = 0;
  while (map.put(key_of(n), value).ok()) ++n;
  int room = 0;
  for (int i = 0; i < n; ++i) {
    if (i % 3 == 0) continue;  // no leaf becomes empty
    must(map.erase(key_of(i)));
    ++room;
  }
  for (int i = 0; i < room * 3 / 4; ++i) must(map.put(key_of(n + i), value));
  expect_sound(pool);
}

}  // namespace
}  // namespace perdure::test
