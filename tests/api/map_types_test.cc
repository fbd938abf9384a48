// test: cross
// map.h before it calls an engine: keys to words and back, values to words and back, the kinds of a
// map, and the interval of scan options.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "perdure/pool.h"

namespace perdure {
namespace {

using std::string_literals::operator""s;
using std::string_view_literals::operator""sv;

template <class K>
class IntegerKeyWords : public ::testing::Test {};
enum class Small : std::int8_t { low = -128, zero = 0, high = 127 };
enum Plain : unsigned { kPlainA, kPlainB = 0xffffffffU };
using IntegerKinds = ::testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t,
                                      std::uint32_t, std::int32_t, std::uint64_t, std::int64_t,
                                      char, bool, Small, Plain, unsigned long long>;
TYPED_TEST_SUITE(IntegerKeyWords, IntegerKinds);

template <class K>
std::vector<K> ascending() {
  std::vector<K> keys;
  if constexpr (std::same_as<K, bool>) {
    keys = {false, true};
  } else if constexpr (std::is_enum_v<K>) {
    using U = std::underlying_type_t<K>;
    for (const U v : ascending<U>()) keys.push_back(static_cast<K>(v));
  } else {
    using Limits = std::numeric_limits<K>;
    auto add = [&](auto key) { keys.push_back(static_cast<K>(key)); };
    add(Limits::min());
    add(Limits::min() + 1);
    for (int key = Limits::is_signed ? -2 : 2; key <= 2; ++key) add(key);
    add(Limits::max() / 2);
    add(Limits::max() / 2 + 1);
    add(Limits::max() - 1);
    add(Limits::max());
  }
  return keys;
}

TYPED_TEST(IntegerKeyWords, RoundTripAndKeepTheirOrder) {
  const auto keys = ascending<TypeParam>();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const detail::Key word = detail::to_key<TypeParam>(keys[i]);
    EXPECT_TRUE(word.bytes.empty());
    EXPECT_EQ(detail::from_key<TypeParam>(word), keys[i]);
    if (i > 0) {
      EXPECT_LT(detail::to_key<TypeParam>(keys[i - 1]).word, word.word) << "at " << i;
    }
  }
}

TEST(ByteKeys, AreNotCopied) {
  const std::string text = "a\0b"s;
  const detail::Key key = detail::to_key<std::string_view>(text);
  EXPECT_EQ(key.bytes.data(), text.data());
  EXPECT_EQ(key.bytes.size(), 3U);
  EXPECT_EQ(detail::from_key<std::string_view>(key), text);
}

struct Three {
  std::uint8_t a, b, c;
};

TEST(Values, RoundTrip) {
  EXPECT_EQ(detail::from_value<std::uint64_t>(detail::to_value<std::uint64_t>(~0ULL)), ~0ULL);
  EXPECT_EQ(detail::from_value<double>(detail::to_value<double>(-0.5)), -0.5);
  EXPECT_EQ(detail::from_value<std::int16_t>(detail::to_value<std::int16_t>(-3)), -3);
  const Three three = detail::from_value<Three>(detail::to_value<Three>({1, 2, 3}));
  EXPECT_EQ(three.c, 3);
  EXPECT_EQ(detail::to_value<Three>({1, 2, 3}).word_size, 3U);
  EXPECT_EQ(detail::to_value<std::uint32_t>(7).word, 7U) << "unused bytes of the word are zero";
  EXPECT_EQ(detail::to_value<std::string_view>("x\0y"sv).bytes, "x\0y"sv);
  EXPECT_EQ(detail::to_value<std::string_view>("").word_size, 0U) << "empty bytes are not a word";
}

TEST(MapTypes, TellKindsApart) {
  const MapTypes integer = map_types<std::int32_t, std::uint16_t>();
  EXPECT_EQ(integer.key_kind, KeyKind::integer);
  EXPECT_EQ(integer.value_kind, ValueKind::word);
  EXPECT_TRUE(integer.is_signed);
  EXPECT_EQ(integer.key_bytes, 4);
  EXPECT_EQ(integer.value_bytes, 2);
  const MapTypes bytes = map_types<std::string_view, std::string_view>();
  EXPECT_EQ(bytes.key_kind, KeyKind::bytes);
  EXPECT_EQ(bytes.value_kind, ValueKind::bytes);
  struct Twelve {
    std::uint32_t a, b, c;
  };
  const MapTypes arrays = map_types<std::array<std::byte, 16>, Twelve>();
  EXPECT_EQ(arrays.key_kind, KeyKind::array);
  EXPECT_EQ(arrays.value_kind, ValueKind::array);
  EXPECT_EQ(arrays.key_bytes, 16);
  EXPECT_EQ(arrays.value_bytes, 12);
}

TEST(Arrays, WhichTypesAreKeysAndValues) {
  static_assert(MapKey<std::array<char, 1>> && MapKey<std::array<unsigned char, 16>>);
  static_assert(!MapKey<std::array<char, 17>> && !MapKey<std::array<char, 0>>);
  static_assert(!MapKey<std::array<std::uint16_t, 4>>, "its order would not be that of its bytes");
  static_assert(WordValue<std::array<char, 8>> && ArrayValue<std::array<char, 9>>);
  static_assert(ArrayValue<std::array<char, 15>> && !MapValue<std::array<char, 16>>);
  const std::array<char, 3> key = {'a', '\0', 'c'};
  EXPECT_EQ(detail::to_key(key).bytes, "a\0c"sv);
  EXPECT_EQ((detail::from_key<std::array<char, 3>>({.bytes = "a\0c"sv})), key);
  EXPECT_EQ((detail::from_key<std::array<char, 3>>({.bytes = "a"sv})),
            (std::array<char, 3>{'a', '\0', '\0'}))
      << "damage must not be read beyond";
}

// The interval of byte-string options, as {from, to} with "-" for open.
struct Interval {
  std::optional<std::string> from, to;
  friend bool operator==(const Interval&, const Interval&) = default;
};
Interval interval(const ScanOptions<std::string_view>& options) {
  detail::PrefixEnd end;
  const auto range = scan_range(options, end);
  Interval out;
  if (range->from) out.from = std::string(range->from->bytes);
  if (range->to) out.to = std::string(range->to->bytes);
  EXPECT_EQ(range->reverse, options.reverse);
  return out;
}
// An absent lower bound and "" mean the same.
bool starts_at(const Interval& range, std::string_view from) {
  return range.from.value_or("") == from;
}

TEST(ScanRanges, OfPrefixes) {
  EXPECT_TRUE(starts_at(interval({.prefix = "user:"}), "user:"));
  EXPECT_EQ(interval({.prefix = "user:"}).to, "user;");
  EXPECT_EQ(interval({.prefix = "a\xff"}).to, "b");
  EXPECT_EQ(interval({.prefix = "a\xff\xff"}).to, "b");
  EXPECT_EQ(interval({.prefix = "a\xfe\xff"}).to, "a\xff");
  EXPECT_EQ(interval({.prefix = "\x7f"}).to, "\x80") << "bytes carry as unsigned";
  EXPECT_EQ(interval({.prefix = "a\0"sv}).to, "a\1");
  EXPECT_EQ(interval({.prefix = "\xff"}).to, std::nullopt);
  EXPECT_TRUE(starts_at(interval({.prefix = "\xff\xff"}), "\xff\xff"));
  EXPECT_EQ(interval({.prefix = "\xff\xff"}).to, std::nullopt);
  const std::string longer(200, 'a');
  EXPECT_EQ(interval({.prefix = longer}).to, longer.substr(1) + "b");
  EXPECT_TRUE(starts_at(interval({}), ""));
  EXPECT_EQ(interval({}).to, std::nullopt);
}

TEST(ScanRanges, OfPrefixAndBoundsIntersect) {
  EXPECT_TRUE(starts_at(interval({.from = "m", .prefix = "a"}), "m")) << "an empty interval";
  EXPECT_TRUE(starts_at(interval({.from = "ab", .prefix = "a"}), "ab"));
  EXPECT_TRUE(starts_at(interval({.from = "A", .prefix = "a"}), "a"));
  EXPECT_EQ(interval({.to = "ab", .prefix = "a"}).to, "ab");
  EXPECT_EQ(interval({.to = "z", .prefix = "a"}).to, "b");
  EXPECT_EQ(interval({.to = "z", .prefix = "\xff"}).to, "z");
  EXPECT_EQ(interval({.from = "a", .to = "b"}), (Interval{"a", "b"}));
  EXPECT_EQ(interval({.to = ""}).to, "") << "a bound of the empty string is a bound";
}

TEST(ScanRanges, OfIntegers) {
  detail::PrefixEnd end;
  const auto range =
      scan_range(ScanOptions<std::int64_t>{.from = -1, .to = 1, .reverse = true}, end);
  EXPECT_LT(range->from->word, range->to->word);
  EXPECT_TRUE(range->reverse);
  const auto open = scan_range(ScanOptions<std::uint64_t>{}, end);
  EXPECT_FALSE(open->from.has_value());
  EXPECT_FALSE(open->to.has_value());
}

}  // namespace
}  // namespace perdure
