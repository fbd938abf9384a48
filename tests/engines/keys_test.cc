// test: cross
// Keys at the limits of the contract: awkward byte strings of every kind, and integers at partition
// boundaries.
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/subjects.h"

namespace perdure::test {
namespace {

using std::string_literals::operator""s;

// ---- Byte-string keys ----

template <class S>
class ByteKeyTest : public MapTest<S> {
 protected:
  using ValueType = typename S::V;
  void SetUp() override { map_ = this->backend_.template map<std::string_view, ValueType>("map"); }
  bool insert(std::string_view key, std::uint64_t v) {
    return was_absent(map_->insert(key, ValueType(value_at<ValueType>(v))));
  }
  bool holds(std::string_view key, std::uint64_t v) {
    return must(map_->get(key)) == std::optional(value_at<ValueType>(v));
  }
  // Inserts all keys, each distinct from the others, and erases half of them.
  void expect_distinct(const std::vector<std::string>& keys) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_FALSE(was_present(map_->contains(keys[i]))) << "key " << i << " before its insert";
      ASSERT_TRUE(insert(keys[i], i)) << "key " << i;
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_TRUE(holds(keys[i], i)) << "key " << i;
      ASSERT_FALSE(insert(keys[i], i + 1)) << "key " << i;
    }
    for (std::size_t i = 0; i < keys.size(); i += 2) ASSERT_TRUE(was_present(map_->erase(keys[i])));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(was_present(map_->contains(keys[i])), i % 2 == 1) << "key " << i;
    }
    for (std::size_t i = 1; i < keys.size(); i += 2) {
      ASSERT_TRUE(holds(keys[i], i)) << "key " << i;
      ASSERT_TRUE(was_present(map_->erase(keys[i])));
    }
    ASSERT_EQ(map_->stats().entries, 0U);
  }

  std::optional<Map<std::string_view, ValueType>> map_;
};
using ByteKeyTestKinds = ByteKeyKinds;

MAP_TEST(ByteKeyTest, EmptyKey) {
  EXPECT_FALSE(was_present(this->map_->contains("")));
  EXPECT_FALSE(was_present(this->map_->erase("")));
  EXPECT_TRUE(this->insert("", 1));
  EXPECT_TRUE(this->holds("", 1));
  EXPECT_FALSE(this->insert("", 2));
  EXPECT_FALSE(was_present(this->map_->contains("\0"s)));
  EXPECT_TRUE(was_present(this->map_->erase("")));
  EXPECT_FALSE(was_present(this->map_->contains("")));
}

// Protocol review 1h (i): "", "\0", "\0\0" and every string that starts with eight NULs have head
// 0.
MAP_TEST(ByteKeyTest, P1h_KeysWithHeadZero) {
  std::vector<std::string> keys;
  for (std::size_t n = 0; n < 80; ++n) keys.emplace_back(n, '\0');
  for (int c = 1; c < 100; ++c) {
    keys.push_back(std::string(8, '\0') + static_cast<char>(c));
    keys.push_back(std::string(9, '\0') + static_cast<char>(c));
  }
  this->expect_distinct(keys);
}

// Protocol review 1h (iii): more equal heads than a leaf has entries. Bytes distinguish them, then
// length.
MAP_TEST(ByteKeyTest, P1h_EqualHeads) {
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < scaled(3'000, 500); ++i) {
    keys.push_back("customer:" + std::to_string(mix(i) % 1'000'000'007));
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::shuffle(keys.begin(), keys.end(), Rng(1));
  this->expect_distinct(keys);
}

MAP_TEST(ByteKeyTest, KeysThatArePrefixesOfEachOther) {
  std::vector<std::string> keys = {"ab", "ab\0"s, "ab\0\0"s, "ab\0\0\0\0\0\0"s, "ab\0\0\0\0\0\0\0"s,
                                   "a",  "abc",   "ab\1"s,   "ab\0a"s,          "\0ab"s};
  for (std::size_t n = 3; n < 300; ++n) keys.emplace_back(n, 'p');
  for (std::size_t n = 8; n < 200; ++n) keys.push_back("ab" + std::string(n, '\0'));
  this->expect_distinct(keys);
}

MAP_TEST(ByteKeyTest, KeysOfEveryByte) {
  std::vector<std::string> keys;
  for (int c = 0; c < 256; ++c) {
    keys.emplace_back(1, static_cast<char>(c));
    keys.push_back("same-head" + std::string(1, static_cast<char>(c)));
    keys.push_back("x" + std::string(1, static_cast<char>(c)) + "y");
    if (c != 0) keys.emplace_back(static_cast<std::size_t>(c % 40 + 2), static_cast<char>(c));
  }
  keys.emplace_back(100, '\xff');
  this->expect_distinct(keys);
}

MAP_TEST(ByteKeyTest, KeySizesUpToTheLimit) {
  using V = typename TestFixture::ValueType;
  std::vector<std::string> keys;
  for (const std::size_t n : {0,  1,  6,  7,  8,   9,   10,   15,   16,   17,    31,   32,
                              33, 63, 64, 65, 255, 256, 4095, 4096, 4097, 65534, 65535}) {
    keys.emplace_back(n, 'k');
  }
  this->expect_distinct(keys);

  const std::string longest(kMaxKeyBytes, 'k');
  const std::string too_long(kMaxKeyBytes + 1, 'k');
  ASSERT_TRUE(this->insert(longest, 5));
  const auto owned = value_at<V>(1);
  const V value(owned);
  auto& map = *this->map_;
  EXPECT_EQ(code_of(map.insert(too_long, value)), StatusCode::invalid_argument);
  EXPECT_EQ(code_of(map.put(too_long, value)), StatusCode::invalid_argument);
  EXPECT_EQ(code_of(map.update(too_long, value)), StatusCode::invalid_argument);
  EXPECT_TRUE(this->holds(longest, 5)) << "a refused key must not touch its longest prefix";
  // A lookup of an impossible key may fail or return absent. It must not find anything.
  const auto found = map.get(too_long);
  EXPECT_TRUE(found ? !found->has_value() : found.error() == StatusCode::invalid_argument);
  const auto erased = map.erase(too_long);
  EXPECT_TRUE(erased.ok() ? erased.absent() : erased.status() == StatusCode::invalid_argument);
  EXPECT_EQ(map.stats().entries, 1U);
}

template <class S>
class PrefixScanTest : public MapTest<S> {
 public:
  static bool takes(const Place& place) { return place.ordered(); }

 protected:
  using ValueType = typename S::V;
  using Options = ScanOptions<std::string_view>;
  void SetUp() override {
    map_ = this->backend_.template ordered_map<std::string_view, ValueType>("map");
  }
  void fill(const std::set<std::string>& keys) {
    std::vector<std::string> order(keys.begin(), keys.end());
    std::shuffle(order.begin(), order.end(), Rng());
    for (const std::string& key : order) {
      ASSERT_TRUE(was_absent(map_->insert(key, ValueType(value_at<ValueType>(key.size())))));
    }
  }
  std::vector<std::string> collect(const Options& options) {
    std::vector<std::string> by_callback;
    must(map_->scan(options, [&](std::string_view key, const ValueType& value) {
      by_callback.emplace_back(key);
      EXPECT_TRUE(value == ValueType(value_at<ValueType>(key.size())));
    }));
    std::vector<std::string> by_iterator;
    for (auto it = map_->scan(options); it.valid(); it.next()) by_iterator.emplace_back(it.key());
    EXPECT_EQ(by_callback, by_iterator);
    return by_callback;
  }
  // All options over the model: every prefix, both directions, some bounds and limits.
  void expect_prefix(const std::set<std::string>& keys, const std::string& prefix) {
    const std::vector<std::optional<std::string>> bounds = {
        std::nullopt, prefix, prefix + "m", prefix + "\xff", "", std::string(3, '\xff')};
    for (const auto& from : bounds) {
      for (const auto& to : bounds) {
        for (const bool reverse : {false, true}) {
          for (const std::uint64_t limit :
               {std::uint64_t{1}, std::uint64_t{70}, ~std::uint64_t{0}}) {
            std::vector<std::string> expected;
            for (const std::string& key : keys) {
              if (key.starts_with(prefix) && (!from || key >= *from) && (!to || key < *to)) {
                expected.push_back(key);
              }
            }
            if (reverse) std::reverse(expected.begin(), expected.end());
            if (expected.size() > limit) expected.resize(limit);
            Options options{.prefix = prefix, .limit = limit, .reverse = reverse};
            if (from) options.from = *from;
            if (to) options.to = *to;
            ASSERT_EQ(collect(options), expected)
                << "prefix " << ::testing::PrintToString(prefix) << " from "
                << ::testing::PrintToString(from.value_or("(open)")) << " to "
                << ::testing::PrintToString(to.value_or("(open)")) << " reverse " << reverse
                << " limit " << limit;
          }
        }
      }
    }
  }

  std::optional<OrderedMap<std::string_view, ValueType>> map_;
};
using PrefixScanTestKinds = ByteKeyKinds;

MAP_TEST(PrefixScanTest, PrefixesOfOrdinaryKeys) {
  PERDURE_TRACE_SEED();
  std::set<std::string> keys = {"", "user", "user:", "user;", "user9", "userz", "use", "v"};
  for (int i = 0; i < 150; ++i) {
    keys.insert("user:" + std::to_string(i * 7));
    keys.insert("customer:" + std::to_string(i));
  }
  this->fill(keys);
  for (const char* prefix : {"", "u", "user", "user:", "user:1", "user:1043",
                             "customer:", "customer:14", "absent", "zzz"}) {
    this->expect_prefix(keys, prefix);
  }
}

// The upper bound of a prefix carries past 0xff bytes. A prefix of only 0xff has none.
MAP_TEST(PrefixScanTest, PrefixesThatEndIn0xff) {
  PERDURE_TRACE_SEED();
  std::set<std::string> keys = {"a",         "b",   "a\xff", "a\xff\xff", "a\xff\xff\xff",
                                "a\xfe\xff", "b\0"s};
  for (std::size_t n = 1; n < 100; ++n) keys.emplace(n, '\xff');
  for (int c = 0; c < 256; c += 5) {
    keys.insert("\xff\xff" + std::string(1, static_cast<char>(c)));
    keys.insert("a\xff" + std::string(1, static_cast<char>(c)));
    keys.insert("12345678\xff" + std::string(1, static_cast<char>(c)));
  }
  this->fill(keys);
  for (const std::string& prefix :
       {"\xff"s, "\xff\xff"s, "\xff\xff\xff"s, std::string(8, '\xff'), std::string(9, '\xff'),
        std::string(99, '\xff'), std::string(100, '\xff'), "a\xff"s, "a\xff\xff"s, "a\xfe"s,
        "12345678\xff"s, "12345678\xff\xff"s}) {
    this->expect_prefix(keys, prefix);
  }
}

MAP_TEST(PrefixScanTest, PrefixesWithNulsAndEmptyRanges) {
  PERDURE_TRACE_SEED();
  std::set<std::string> keys;
  for (std::size_t n = 0; n < 90; ++n) keys.emplace(n, '\0');
  for (std::size_t n = 0; n < 90; ++n) keys.insert("ab" + std::string(n, '\0'));
  keys.insert("ab\1"s);
  this->fill(keys);
  for (const std::string& prefix : {"\0"s, "\0\0"s, std::string(8, '\0'), std::string(9, '\0'),
                                    "ab"s, "ab\0"s, "ab\0\0\0\0\0\0"s, "ab\0\0\0\0\0\0\0"s}) {
    this->expect_prefix(keys, prefix);
  }
}

// Equal heads are ordered by unsigned bytes, then by length: "ab" before "ab\0".
MAP_TEST(PrefixScanTest, P1h_OrderIsThatOfUnsignedBytesThenLength) {
  PERDURE_TRACE_SEED();
  std::set<std::string> keys;
  Rng rng;
  const std::string alphabet = "\0\1a\x7f\x80\xff"s;
  while (keys.size() < scaled(2'000, 400)) {
    std::string key = rng.one_in(2) ? "12345678" : "";
    const std::size_t length = rng.below(12);
    for (std::size_t i = 0; i < length; ++i) key += alphabet[rng.below(alphabet.size())];
    keys.insert(key);
  }
  this->fill(keys);
  std::vector<std::string> expected(keys.begin(), keys.end());
  EXPECT_EQ(this->collect({}), expected);
  std::reverse(expected.begin(), expected.end());
  EXPECT_EQ(this->collect({.reverse = true}), expected);
}

// ---- Integer keys ----

template <class S>
class IntegerKeyTest : public MapTest<S> {
 protected:
  using ValueType = typename S::V;
};
using IntegerKeyTestKinds = U64KeyKinds;

std::vector<std::uint64_t> boundary_keys(std::uint32_t bits) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  std::set<std::uint64_t> keys = {0,
                                  1,
                                  2,
                                  kMax,
                                  kMax - 1,
                                  kMax - 2,
                                  kMax - 127,
                                  kMax - 128,
                                  std::uint64_t{1} << 63,
                                  (std::uint64_t{1} << 63) - 1,
                                  (std::uint64_t{1} << 63) + 1};
  for (std::uint64_t i = 0; bits != 0 && i < (std::uint64_t{1} << bits); ++i) {
    const std::uint64_t first = i << (64 - bits);
    keys.insert({first - 1, first, first + 1});  // wraps at partition 0 by design
    // The boundaries of the published code: multiples of MAX / 2^bits.
    const std::uint64_t multiple = i * (kMax >> bits);
    keys.insert({multiple - 1, multiple, multiple + 1});
  }
  return {keys.begin(), keys.end()};
}

MAP_TEST(IntegerKeyTest, P12_PartitionBoundaries) {
  using V = typename TestFixture::ValueType;
  PERDURE_TRACE_SEED();
  for (const std::uint32_t bits : {0U, 1U, 7U, 12U}) {
    SCOPED_TRACE("partition_bits " + std::to_string(bits));
    if (bits == 12 && san()) continue;  // 25,000 keys
    auto map = this->backend_.template map<std::uint64_t, V>("map" + std::to_string(bits),
                                                             {.phast = {.partition_bits = bits}});
    const std::vector<std::uint64_t> sorted = boundary_keys(bits);
    std::vector<std::uint64_t> keys = sorted;
    std::shuffle(keys.begin(), keys.end(), Rng());
    for (const std::uint64_t key : keys) {
      ASSERT_TRUE(was_absent(map.insert(key, V(value_at<V>(key))))) << key;
      ASSERT_FALSE(was_absent(map.insert(key, V(value_at<V>(key + 1))))) << key;
    }
    for (const std::uint64_t key : sorted) {
      ASSERT_TRUE(must(map.get(key)) == std::optional(value_at<V>(key))) << key;
    }
    if (this->backend_.place().ordered()) {
      // An engine returns the same map for both views.
      if (!this->backend_.place().oracle()) {
        auto ordered =
            this->backend_.template ordered_map<std::uint64_t, V>("map" + std::to_string(bits));
        for (const bool reverse : {false, true}) {
          std::vector<std::uint64_t> seen;
          must(ordered.scan({.reverse = reverse},
                            [&](std::uint64_t key, const V&) { seen.push_back(key); }));
          if (reverse) std::reverse(seen.begin(), seen.end());
          ASSERT_EQ(seen, sorted);
        }
        // Scans that start and end exactly at a boundary.
        for (std::size_t i = 0; i + 7 < sorted.size(); i += sorted.size() / 50 + 1) {
          std::vector<std::uint64_t> seen;
          must(ordered.scan(sorted[i], sorted[i + 7],
                            [&](std::uint64_t key, const V&) { seen.push_back(key); }));
          ASSERT_EQ(seen, std::vector(sorted.begin() + static_cast<std::ptrdiff_t>(i),
                                      sorted.begin() + static_cast<std::ptrdiff_t>(i) + 7));
        }
      }
    }
    for (const std::uint64_t key : keys) ASSERT_TRUE(was_present(map.erase(key))) << key;
    for (const std::uint64_t key : keys) ASSERT_FALSE(was_present(map.contains(key))) << key;
  }
}

// Partitions filled until they split, on both sides of each boundary.
MAP_TEST(IntegerKeyTest, P12_SplitsNextToPartitionBoundaries) {
  using V = typename TestFixture::ValueType;
  for (const std::uint32_t bits : {0U, 1U, 7U}) {
    SCOPED_TRACE("partition_bits " + std::to_string(bits));
    auto map = this->backend_.template map<std::uint64_t, V>("map" + std::to_string(bits),
                                                             {.phast = {.partition_bits = bits}});
    std::set<std::uint64_t> keys;
    const std::uint64_t reach = scaled(200, 80);
    const std::uint64_t step = std::uint64_t{1} << (bits == 0 ? 63 : 64 - bits);
    for (std::uint64_t i = 0; i < 4; ++i) {
      for (std::uint64_t d = 0; d < reach; ++d) keys.insert({i * step + d, i * step - 1 - d});
    }
    for (const std::uint64_t key : keys)
      ASSERT_TRUE(was_absent(map.insert(key, V(value_at<V>(key)))));
    for (const std::uint64_t key : keys) {
      ASSERT_TRUE(must(map.get(key)) == std::optional(value_at<V>(key))) << key;
    }
    // Absent neighbours just outside each cluster.
    for (std::uint64_t i = 0; i < 4; ++i) {
      EXPECT_FALSE(was_present(map.contains(i * step + reach)));
      EXPECT_FALSE(was_present(map.contains(i * step - 1 - reach)));
    }
    for (const std::uint64_t key : keys) ASSERT_TRUE(was_present(map.erase(key))) << key;
    EXPECT_EQ(map.stats().entries, 0U);
  }
}

// No key and no value is reserved: tests words that implementations like to use as marks.
MAP_TEST(IntegerKeyTest, G9_NoSentinelKeysOrValues) {
  using V = typename TestFixture::ValueType;
  auto map = this->backend_.template map<std::uint64_t, V>("map");
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const std::vector<std::uint64_t> words = {0,
                                            1,
                                            2,
                                            3,
                                            kMax,
                                            kMax - 1,
                                            kMax - 2,
                                            std::uint64_t{1} << 63,
                                            (std::uint64_t{1} << 63) - 1,
                                            std::uint64_t{1} << 62,
                                            std::uint64_t{1} << 32};
  auto bytes_of = [](std::uint64_t word) {
    if constexpr (std::same_as<V, std::string_view>) {
      return std::string(reinterpret_cast<const char*>(&word), sizeof word);
    } else {
      V value;
      std::memcpy(&value, &word, sizeof value);
      return value;
    }
  };
  for (const std::uint64_t key : words) {
    for (const std::uint64_t word : words) {
      ASSERT_FALSE(was_present(map.contains(key)));
      ASSERT_TRUE(was_absent(map.insert(key, V(bytes_of(word))))) << key << " " << word;
      ASSERT_TRUE(must(map.get(key)) == std::optional(bytes_of(word))) << key << " " << word;
      ASSERT_TRUE(was_present(map.update(key, V(bytes_of(~word)))));
      ASSERT_TRUE(must(map.get(key)) == std::optional(bytes_of(~word))) << key << " " << word;
      ASSERT_FALSE(was_absent(map.put(key, V(bytes_of(word)))));
      ASSERT_TRUE(was_present(map.erase(key)));
    }
  }
  for (const std::uint64_t key : words) ASSERT_TRUE(was_absent(map.insert(key, V(bytes_of(key)))));
  for (const std::uint64_t key : words) {
    ASSERT_TRUE(must(map.get(key)) == std::optional(bytes_of(key)));
  }
  EXPECT_EQ(map.stats().entries, words.size());
}

TEST(SignedKeys, OrderIsNumeric) {
  for (const Place& place : places()) {
    if (!place.ordered() || place.durability != Durability::process) continue;
    SCOPED_TRACE(place.name());
    Backend backend(place);
    auto map = backend.ordered_map<std::int64_t, std::uint32_t>("map");
    std::set<std::int64_t> keys = {
        std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::min() + 1,
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max() - 1};
    for (std::int64_t i = -300; i < 300; ++i) keys.insert(i);
    for (const std::int64_t key : keys) {
      ASSERT_TRUE(was_absent(map.insert(key, static_cast<std::uint32_t>(key))));
    }
    std::vector<std::int64_t> seen;
    must(map.scan(ScanOptions<std::int64_t>{}, [&](std::int64_t key, std::uint32_t value) {
      EXPECT_EQ(value, static_cast<std::uint32_t>(key));
      seen.push_back(key);
    }));
    EXPECT_EQ(seen, std::vector(keys.begin(), keys.end()));
    seen.clear();
    must(map.scan(std::int64_t{-5}, std::int64_t{5},
                  [&](std::int64_t key, std::uint32_t) { seen.push_back(key); }));
    EXPECT_EQ(seen, (std::vector<std::int64_t>{-5, -4, -3, -2, -1, 0, 1, 2, 3, 4}));
    backend.expect_sound();
  }
}

}  // namespace
}  // namespace perdure::test
