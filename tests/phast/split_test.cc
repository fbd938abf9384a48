// How full splits leave the leaves of a PhaST map: by ascending keys, also of several streams, and
// by keys in no order.
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/phast/stream_keys.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

template <class K>
class PhastSplits : public ::testing::Test {
 protected:
  using Key = std::conditional_t<std::is_same_v<K, std::string>, Bytes, K>;
  void put(std::uint64_t s, std::uint64_t i) {
    K key;
    make(s, i, key);
    must(map_.put(Key(key), i));
  }
  // Returns how full the leaves are.
  double load() {
    const double load = map_.stats().load_factor;
    expect_sound(pool_);
    return load;
  }

  TempPath path_;
  Pool pool_ = open_pool(path_, {.durability = Durability::process, .max_size = 256_MiB});
  Map<Key, std::uint64_t> map_ =
      must(pool_.map<Key, std::uint64_t>("m", {.phast = {.partition_bits = 0}}));
};
using Keys = ::testing::Types<std::uint64_t, std::string>;
TYPED_TEST_SUITE(PhastSplits, Keys);

constexpr std::uint64_t kKeys = 60'000;

TYPED_TEST(PhastSplits, AscendingKeysFillLeaves) {
  for (std::uint64_t i = 0; i < kKeys; ++i) this->put(0, i);
  EXPECT_GT(this->load(), 0.99);
}

// Above the keys of a stream lie those with which the next one has begun.
TYPED_TEST(PhastSplits, StreamsThatAscendFillLeaves) {
  for (const std::uint64_t streams : {2, 3, 40}) {
    for (std::uint64_t i = 0; i < kKeys / streams; ++i) {
      for (std::uint64_t s = 0; s < streams; ++s) this->put(100 * streams + s, i);
    }
  }
  EXPECT_GT(this->load(), 0.95);
}

TYPED_TEST(PhastSplits, StreamsInNoOrderFillLeaves) {
  std::uint64_t next[40] = {};
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const std::uint64_t s = mix(i) % 40;
    this->put(s, next[s]++);
  }
  EXPECT_GT(this->load(), 0.9);
}

TYPED_TEST(PhastSplits, ThreadsThatAscendFillLeaves) {
  std::vector<std::thread> threads;
  for (std::uint64_t s = 0; s < 2; ++s) {
    threads.emplace_back([this, s] {
      for (std::uint64_t i = 0; i < kKeys / 2; ++i) this->put(s, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(this->load(), 0.9);
}

// The key above a stream differs from its keys in the last byte. A string between them ends with
// 0xFF then; if the keys have that, too, there is none.
TEST(PhastSplit, BelowAKeyWithoutMoreBytes) {
  for (const bool between : {true, false}) {
    TempPath path;
    Pool pool = open_pool(path, {.durability = Durability::process, .max_size = 64_MiB});
    auto map = must(pool.map<Bytes, std::uint64_t>("m", {.phast = {.partition_bits = 0}}));
    const std::string stream = between ? "user:1" : "user:1\xFF";
    must(map.put("user:2", 0));
    for (int i = 10'000; i < 16'000; ++i) must(map.put(stream + std::to_string(i), 1));
    must(map.put("user:1\xFF", 2));
    must(map.put("user:1\xFF\xFF", 3));
    EXPECT_EQ(must(map.get("user:2")), 0U);
    EXPECT_EQ(must(map.get("user:1\xFF")), 2U);
    EXPECT_EQ(must(map.get("user:1\xFF\xFF")), 3U);
    EXPECT_EQ(map.size(), 6003U);
    EXPECT_GT(map.stats().load_factor, between ? 0.95 : 0.45);
    expect_sound(pool);
  }
}

// Keys in no order meet a gap as seldom as the end of a leaf. kLeaves: as without splits at gaps.
TYPED_TEST(PhastSplits, KeysInNoOrderTakeNoMoreLeaves) {
  constexpr std::uint64_t kLeaves = 1433;
  for (std::uint64_t i = 0; i < kKeys; ++i) this->put(0, mix(i) >> 32);
  const std::uint64_t leaves = this->map_.stats().leaves;
  EXPECT_LE(leaves, kLeaves + kLeaves / 100);
  expect_sound(this->pool_);
}

}  // namespace
}  // namespace perdure::test
