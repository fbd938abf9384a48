// The flush and fence budgets of the multi-version store, as docs/design/pskiplist.md has them, and
// what a version takes.
#include <string>

#include "tests/support/cost.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

class PskiplistBudget : public ::testing::Test {
 protected:
  template <class K, class V>
  VersionedMap<K, V> map() {
    return must(pool_.versioned_map<K, V>("m"));
  }
  TempPath path_;
  Pool pool_ = open_pool(path_, {.durability = Durability::emulated, .max_size = 256_MiB});
};

// A new key is a line; every 126th one links a block of the chain as well, and now and then that
// needs an extent. One block is linked ahead.
TEST_F(PskiplistBudget, H6_IntegerMutationsCostOneFlushAndOneFence) {
  auto map = this->map<std::uint64_t, std::uint64_t>();
  const Cost one{1, 1};
  const Cost none{0, 0};
  const std::uint64_t n = 5'000;
  std::uint64_t more = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const Cost cost = cost_of([&] { must(map.insert(i, i)); });
    if (cost == one) continue;
    ++more;
    EXPECT_LE(cost.fences, 3U) << i;
  }
  EXPECT_EQ(more, (n + 125) / 126 + 1);
  for (std::uint64_t i = 0; i < n; ++i) {
    ASSERT_EQ(cost_of([&] { must(map.update(i, i + 1)); }), one) << "update " << i;
    ASSERT_EQ(cost_of([&] { must(map.put(i, i + 2)); }), one) << "upsert " << i;
    ASSERT_EQ(cost_of([&] { must(map.get(i)); }), none) << "find " << i;
    ASSERT_EQ(cost_of([&] { must(map.insert(i, 0)); }), none) << "insert, exists " << i;
    ASSERT_EQ(cost_of([&] { must(map.erase(i + n)); }), none) << "erase, absent " << i;
  }
  const Version version = must(map.tag());
  for (std::uint64_t i = 0; i < n; ++i) {
    ASSERT_EQ(cost_of([&] { must(map.get(i, version)); }), none) << "find at a version " << i;
  }
}

// The second entry begins a segment, the third does not, the fourth does.
TEST_F(PskiplistBudget, H6_VersionsAppend) {
  auto map = this->map<std::uint64_t, std::uint64_t>();
  for (std::uint64_t i = 0; i < 100; ++i) must(map.insert(i, i));
  const Cost expected[] = {{2, 1}, {1, 1}, {2, 1}, {1, 1}};
  for (const Cost& cost : expected) {
    must(map.tag());
    must(map.update(99, 1));  // takes whatever extent the segments need
    for (std::uint64_t i = 0; i < 50; ++i) {
      const Cost its = cost_of([&] { must(map.update(i, 1)); });
      // A segment of 48 bytes may lie in two lines, its first entry in the second.
      EXPECT_EQ(its, cost) << "update " << i;
    }
  }
  must(map.tag());
  EXPECT_EQ(cost_of([&] { must(map.erase(1)); }), (Cost{1, 1}));
  EXPECT_EQ(cost_of([&] { must(map.insert(1, 1)); }), (Cost{1, 1}));
  EXPECT_EQ(cost_of([&] { must(map.erase(1)); }), (Cost{1, 1}));
}

TEST_F(PskiplistBudget, H6_TagsAreFreeButForTheReservation) {
  auto map = this->map<std::uint64_t, std::uint64_t>();
  for (int i = 0; i < 4096; ++i) must(map.tag());  // the first takes an extent for the reserve
  std::uint64_t flushes = 0;
  std::uint64_t fences = 0;
  for (int i = 0; i < 3 * 4096; ++i) {
    const Cost cost = cost_of([&] { must(map.tag()); });
    flushes += cost.flushes;
    fences += cost.fences;
  }
  EXPECT_EQ(flushes, 3U);
  EXPECT_EQ(fences, 3U);
}

TEST_F(PskiplistBudget, H6_ByteStringsCostTheirRecordsAndTwoFences) {
  auto map = this->map<std::string_view, std::string_view>();
  const std::string value(100, 'v');
  for (int i = 0; i < 40; ++i) {
    const std::string key = "0123456789abcd" + std::to_string(10 + i);
    const Cost cost = cost_of([&] { must(map.insert(key, value)); });
    if (i == 0) continue;  // may take an extent
    EXPECT_EQ(cost.fences, 2U) << "insert " << i;
    EXPECT_LE(cost.flushes, 6U) << "insert " << i;
    EXPECT_EQ(cost_of([&] { must(map.update(key, value)); }).fences, 2U) << "update " << i;
    EXPECT_EQ(cost_of([&] { must(map.get(key)); }), (Cost{0, 0}));
    EXPECT_EQ(cost_of([&] { must(map.erase(key)); }), (Cost{1, 1})) << "erase " << i;
  }
}

// At most 64 persistent bytes for an integer key of one version, and 40 more for each further one,
// averaged over 2 to 64 of them.
TEST_F(PskiplistBudget, BytesPerVersion) {
  auto map = this->map<std::uint64_t, std::uint64_t>();
  const std::uint64_t keys = scaled(5'000, 500);
  const auto per_key = [&] {
    return static_cast<double>(map.stats().pm_bytes) / static_cast<double>(keys);
  };
  for (std::uint64_t i = 0; i < keys; ++i) must(map.insert(i, i));
  const double first = per_key();
  EXPECT_LE(first, 64);
  double sum = 0;
  for (int version = 2; version <= 64; ++version) {
    must(map.tag());
    for (std::uint64_t i = 0; i < keys; ++i) must(map.update(i, i));
    sum += (per_key() - first) / (version - 1);
  }
  std::printf("bytes of the first version %.1f, of each further one %.1f\n", first, sum / 63);
  EXPECT_LE(sum / 63, 40);
}

}  // namespace
}  // namespace perdure::test
