// The flush and fence budgets of PhaST, counted by the platform: in `process` durability nothing,
// in `emulated` exactly what the table in docs/design/phast.md promises, for lookups and scans
// nothing.
#include <string>

#include "tests/support/cost.h"
#include "tests/support/subjects.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

class PhastBudget : public ::testing::Test {
 protected:
  explicit PhastBudget(Durability durability = Durability::emulated)
      : pool_(open_pool(path_, {.durability = durability, .max_size = 256_MiB})) {}
  TempPath path_;
  Pool pool_;
};
class PhastProcess : public PhastBudget {
 protected:
  PhastProcess() : PhastBudget(Durability::process) {}
};

TEST_F(PhastBudget, IntegerMutationsCostOneFlushAndOneFence) {
  auto map =
      must(pool_.ordered_map<std::uint64_t, std::uint64_t>("m", {.phast = {.partition_bits = 0}}));
  ASSERT_TRUE(was_absent(map.insert(1'000, 0)));  // the first leaf may take a new extent
  const Cost one{1, 1};
  const Cost none{0, 0};
  // 40 entries fit into a leaf without a split; key 0 has a slot of its own.
  for (std::uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(cost_of([&] { must(map.insert(i, i)); }), one) << "insert " << i;
  }
  EXPECT_EQ(map.stats().splits, 0U);
  for (std::uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(cost_of([&] { must(map.update(i, i + 1)); }), one) << "update " << i;
    EXPECT_EQ(cost_of([&] { must(map.put(i, i + 2)); }), one) << "upsert " << i;
    EXPECT_EQ(cost_of([&] { must(map.get(i)); }), none) << "find " << i;
    EXPECT_EQ(cost_of([&] { must(map.insert(i, 0)); }), none) << "insert, exists " << i;
    EXPECT_EQ(cost_of([&] { must(map.erase(i + 5'000)); }), none) << "erase, absent " << i;
  }
  std::uint64_t seen = 0;
  EXPECT_EQ(
      cost_of([&] {
        must(map.scan(ScanOptions<std::uint64_t>{}, [&](std::uint64_t, std::uint64_t) { ++seen; }));
      }),
      none);
  EXPECT_EQ(seen, 41U);
  for (std::uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(cost_of([&] { must(map.erase(i)); }), one) << "erase " << i;
    EXPECT_EQ(cost_of([&] { must(map.get(i)); }), none) << "find, absent " << i;
  }
}

// A split adds 17 flushes and 2 fences; a new extent, one of each now and then.
TEST_F(PhastBudget, SplitsAddTwoFences) {
  auto map =
      must(pool_.ordered_map<std::uint64_t, std::uint64_t>("m", {.phast = {.partition_bits = 0}}));
  const std::uint64_t n = scaled(20'000, 3'000);
  Cost total{0, 0};
  std::uint64_t worst_fences = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const Cost cost = cost_of([&] { must(map.insert(mix(i), i)); });
    total.flushes += cost.flushes;
    total.fences += cost.fences;
    worst_fences = std::max(worst_fences, cost.fences);
  }
  const std::uint64_t splits = map.stats().splits;
  ASSERT_GT(splits, 0U);
  const std::uint64_t extents = 256;  // of 1 MiB or more: never more than these in this pool
  EXPECT_LE(total.fences, n + 2 * splits + 8 * extents);
  EXPECT_LE(total.flushes, n + 17 * splits + 8 * extents);
  EXPECT_GE(total.fences, n) << "an insert was acknowledged without a fence";
  EXPECT_LE(worst_fences, 16U) << "one insert: its own fence, a split's two, growing the file";
}

TEST_F(PhastBudget, ByteStringsCostTheirRecordAndTwoFences) {
  auto map = must(pool_.map<Bytes, Bytes>("m", {.phast = {.partition_bits = 0}}));
  const std::string value(100, 'v');
  ASSERT_TRUE(was_absent(map.insert("a first one takes extents", value)));
  // 16 bytes of prefix, 16 of key and 100 of value: 3 lines if aligned, and the entry's line. The
  // first of a size class may take an extent, so the budget is asserted from the second on.
  for (int i = 0; i < 40; ++i) {
    const std::string key = "0123456789abcd" + std::to_string(10 + i);
    const Cost cost = cost_of([&] { must(map.insert(key, value)); });
    if (i == 0) continue;
    EXPECT_EQ(cost.fences, 2U) << "insert " << i;
    EXPECT_GE(cost.flushes, 4U) << "insert " << i;
    EXPECT_LE(cost.flushes, 5U) << "insert " << i;
  }
  for (int i = 0; i < 40; ++i) {
    const std::string key = "0123456789abcd" + std::to_string(10 + i);
    const Cost cost = cost_of([&] { must(map.update(key, value)); });
    EXPECT_EQ(cost.fences, 2U) << "update " << i;
    EXPECT_LE(cost.flushes, 5U) << "update " << i;
    EXPECT_EQ(cost_of([&] { must(map.get(key)); }), (Cost{0, 0}));
  }
  for (int i = 0; i < 40; ++i) {
    const std::string key = "0123456789abcd" + std::to_string(10 + i);
    EXPECT_EQ(cost_of([&] { must(map.erase(key)); }), (Cost{1, 1})) << "erase " << i;
  }
}

// A value of up to 8 bytes under a string key is a word in the record, updated in place.
TEST_F(PhastBudget, WordValuesOfStringKeysAreUpdatedInPlace) {
  auto map = must(pool_.map<Bytes, std::uint64_t>("m"));
  ASSERT_TRUE(was_absent(map.insert("key", 1)));
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(cost_of([&] { must(map.update("key", i)); }), (Cost{1, 1}));
  }
}

TEST_F(PhastProcess, CostsNoFlushAndNoFence) {
  auto numbers = must(pool_.ordered_map<std::uint64_t, std::uint64_t>("numbers"));
  auto texts = must(pool_.map<Bytes, Bytes>("texts"));
  must(numbers.insert(1, 1));
  must(texts.insert("1", "1"));
  const Cost cost = cost_of([&] {
    for (std::uint64_t i = 0; i < 2'000; ++i) {
      const std::string text = std::to_string(i);
      must(numbers.put(i, i));
      must(numbers.update(i, i + 1));
      must(texts.put(text, text));
      must(texts.update(text, text + text));
      must(numbers.get(i));
      must(texts.get(text));
    }
    for (std::uint64_t i = 0; i < 2'000; ++i) {
      must(numbers.erase(i));
      must(texts.erase(std::to_string(i)));
    }
  });
  EXPECT_EQ(cost, (Cost{0, 0}));
}

}  // namespace
}  // namespace perdure::test
