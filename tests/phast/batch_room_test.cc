// Leaves that a batch divides before its commit: how full they are, and that each key of the batch
// finds its place, wherever the new keys and the old ones lie.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>

#include "tests/phast/stream_keys.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

template <class K>
using KeyOf = std::conditional_t<std::is_same_v<K, std::string>, Bytes, K>;

template <class K>
class PhastBatches : public ::testing::Test {
 protected:
  using Key = KeyOf<K>;
  void add(std::uint64_t s, std::uint64_t i) {
    K key;
    make(s, i, key);
    batch_.put(map_, Key(key), i);
    model_[key] = i;
  }
  void commit() {
    must(pool_.commit(batch_));
    batch_ = WriteBatch();
  }
  // Returns how full the leaves are.
  double load() {
    expect_content();
    return map_.stats().load_factor;
  }
  void expect_content() {
    EXPECT_EQ(must(map_.size()), model_.size());
    for (const auto& [key, value] : model_) ASSERT_EQ(must(map_.get(Key(key))), value);
    expect_sound(pool_);
  }

  TempPath path_;
  Pool pool_ = open_pool(path_, {.durability = Durability::process, .max_size = 256_MiB});
  Map<Key, std::uint64_t> map_ =
      must(pool_.map<Key, std::uint64_t>("m", {.phast = {.partition_bits = 0}}));
  WriteBatch batch_;
  std::map<K, std::uint64_t> model_;
};
using Keys = ::testing::Types<std::uint64_t, std::string>;
TYPED_TEST_SUITE(PhastBatches, Keys);

constexpr std::uint64_t kKeys = 60'000;

TYPED_TEST(PhastBatches, AscendingKeysFillLeaves) {
  for (std::uint64_t i = 0; i < kKeys;) {
    for (const std::uint64_t end = i + 1 + i % 500; i < end; ++i) this->add(0, i);
    this->commit();
  }
  EXPECT_GT(this->load(), 0.99);
}

TYPED_TEST(PhastBatches, StreamsThatAscendFillLeaves) {
  constexpr std::uint64_t kStreams = 40;
  for (std::uint64_t i = 0; i < kKeys / kStreams;) {
    for (const std::uint64_t end = i + 1 + i % 100; i < end; ++i) {
      for (std::uint64_t s = 0; s < kStreams; ++s) this->add(s, i);
    }
    this->commit();
  }
  EXPECT_GT(this->load(), 0.9);
}

TYPED_TEST(PhastBatches, OneBatchIntoAnEmptyMap) {
  for (std::uint64_t i = 0; i < kKeys; ++i) this->add(mix(i) % 100, mix(i) >> 32);
  this->commit();
  EXPECT_GT(this->load(), 0.99);
}

// The keys of a batch are beside those that are there, between them and apart from them.
TYPED_TEST(PhastBatches, KeysInNoOrderAndInRuns) {
  for (std::uint64_t round = 0; round < 400; ++round) {
    const std::uint64_t stream = mix(round) % 3;
    const std::uint64_t from = mix(round + 1) % 4000;
    const std::uint64_t count = 1 + mix(round + 2) % (round % 4 == 0 ? 300 : 20);
    for (std::uint64_t n = 0; n < count; ++n) {
      this->add(stream, round % 2 == 0 ? from + n : mix(round << 16 | n) % 4000);
    }
    if (round % 5 == 0) {
      for (std::uint64_t n = 0; n < 400; ++n) {
        TypeParam key;
        make(stream, (from + 7 * n) % 4000, key);
        this->batch_.erase(this->map_, KeyOf<TypeParam>(key));
        this->model_.erase(key);
      }
    }
    this->commit();
  }
  this->expect_content();
}

// A batch that finds no room leaves leaves divided, and changes no entry.
TYPED_TEST(PhastBatches, ABatchThatFailsChangesNothing) {
  TempPath path;
  Pool pool = open_pool(path, {.durability = Durability::process, .max_size = 4_MiB});
  auto map = must(pool.map<KeyOf<TypeParam>, Bytes>("m", {.phast = {.partition_bits = 0}}));
  const std::string value(100, 'v');
  TypeParam key;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    make(0, 10 * i, key);
    must(map.put(KeyOf<TypeParam>(key), value));
  }
  WriteBatch batch;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    make(0, i, key);
    batch.put(map, KeyOf<TypeParam>(key), value);
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pool.commit(batch).code(), StatusCode::pool_full);
  EXPECT_EQ(must(map.size()), 1000U);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    make(0, 10 * i, key);
    EXPECT_EQ(must(map.get(KeyOf<TypeParam>(key))), value);
  }
  expect_sound(pool);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    make(1, i, key);
    must(map.put(KeyOf<TypeParam>(key), value));
  }
  expect_sound(pool);
}

}  // namespace
}  // namespace perdure::test
