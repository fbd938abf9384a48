// The cross product that the typed suites run on: {engine x durability, oracle} x {key kind x value
// kind}, and generators of keys and values of each kind.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>

#include "tests/conformance/engines.h"
#include "tests/conformance/oracle.h"
#include "tests/conformance/support.h"

namespace perdure::test {

// An enum key and a value of a size that is no power of two.
enum class Shelf : std::int16_t {};
struct Rgb {
  std::uint8_t red, green, blue;
  friend bool operator==(const Rgb&, const Rgb&) = default;
};

// The longest arrays.
using Name = std::array<char, kMaxArrayKeyBytes>;
using Digest = std::array<std::uint8_t, kMaxArrayValueBytes>;

template <class Row, Durability D>
class PoolBackend {
 public:
  static constexpr bool ordered = Row::ordered;
  static constexpr bool is_oracle = false;
  static std::string name() {
    return std::string(engine_name(Row::engine)) + "_" + std::string(durability_name(D));
  }

  PoolBackend() : pool_(open_pool(path_, {.durability = D, .max_size = 2_GiB})) {}

  template <class K, class V>
  Map<K, V> map(std::string_view map_name, MapOptions options = {}) {
    options.engine = Row::engine;
    return must(pool_.map<K, V>(map_name, options));
  }
  template <class K, class V>
  OrderedMap<K, V> ordered_map(std::string_view map_name, MapOptions options = {}) {
    options.engine = Row::engine;
    return must(pool_.ordered_map<K, V>(map_name, options));
  }
  void expect_sound() { test::expect_sound(pool_); }

 private:
  TempPath path_;
  Pool pool_;
};

class OracleBackend {
 public:
  static constexpr bool ordered = true;
  static constexpr bool is_oracle = true;
  static std::string name() { return "oracle"; }

  template <class K, class V>
  Map<K, V> map(std::string_view, const MapOptions& = {}) {
    return Map<K, V>(std::make_shared<OracleIndex>(std::same_as<K, std::string_view>));
  }
  template <class K, class V>
  OrderedMap<K, V> ordered_map(std::string_view, const MapOptions& = {}) {
    return OrderedMap<K, V>(std::make_shared<OracleIndex>(std::same_as<K, std::string_view>));
  }
  void expect_sound() {}
};

template <class K, class V>
struct Kinds {
  using Key = K;
  using Val = V;
};
using AllKinds =
    std::tuple<Kinds<std::uint64_t, std::uint64_t>, Kinds<std::int64_t, std::uint32_t>,
               Kinds<Shelf, Rgb>, Kinds<Name, Digest>, Kinds<std::string_view, std::string_view>,
               Kinds<std::string_view, std::uint64_t>, Kinds<std::uint64_t, std::string_view>>;

template <class B, class KindsT>
struct Subject {
  using Backend = B;
  using K = typename KindsT::Key;
  using V = typename KindsT::Val;
  static constexpr bool ordered = B::ordered;
  static constexpr bool byte_keys = std::same_as<K, std::string_view>;
  static constexpr bool byte_values = std::same_as<V, std::string_view>;
};

template <class T>
constexpr const char* kind_name() {
  if constexpr (std::same_as<T, std::string_view>) return "string";
  if constexpr (std::same_as<T, std::uint64_t>) return "u64";
  if constexpr (std::same_as<T, std::int64_t>) return "i64";
  if constexpr (std::same_as<T, std::uint32_t>) return "u32";
  if constexpr (std::same_as<T, Shelf>) return "enum16";
  if constexpr (std::same_as<T, Name>) return "array16";
  if constexpr (std::same_as<T, Digest>) return "array15";
  return "rgb";
}

// Readable names in test output instead of numbers.
struct SubjectName {
  template <class S>
  static std::string GetName(int) {
    return S::Backend::name() + "_" + kind_name<typename S::K>() + "_" + kind_name<typename S::V>();
  }
};

namespace subjects_detail {
template <class Tuple>
struct ToTypes;
template <class... Ts>
struct ToTypes<std::tuple<Ts...>> {
  using type = ::testing::Types<Ts...>;
};
template <class... Rows>
auto backends(std::tuple<Rows...>*)
    -> std::tuple<OracleBackend, PoolBackend<Rows, Durability::process>...,
                  PoolBackend<Rows, Durability::emulated>...>;
template <class B, class... Ks>
auto of_backend(std::tuple<Ks...>*) -> std::tuple<Subject<B, Ks>...>;
template <class... Bs>
auto cross(std::tuple<Bs...>*)
    -> decltype(std::tuple_cat(of_backend<Bs>(static_cast<AllKinds*>(nullptr))...));
template <template <class> class Pred, class... Ts>
auto filter(std::tuple<Ts...>*) -> decltype(std::tuple_cat(
    std::conditional_t<Pred<Ts>::value, std::tuple<Ts>, std::tuple<>>{}...));

using All =
    decltype(cross(static_cast<decltype(backends(static_cast<EngineRows*>(nullptr)))*>(nullptr)));
template <class S>
struct IsOrdered : std::bool_constant<S::ordered> {};
template <class S>
struct IsByteKeyed : std::bool_constant<S::byte_keys> {};
template <class S>
struct IsOrderedByteKeyed : std::bool_constant<S::byte_keys && S::ordered> {};
template <class S>
struct IsU64Keyed : std::is_same<typename S::K, std::uint64_t> {};
template <class S>
struct IsByteValued : std::bool_constant<S::byte_values> {};
template <template <class> class Pred>
using Filtered = typename ToTypes<decltype(filter<Pred>(static_cast<All*>(nullptr)))>::type;
}  // namespace subjects_detail

using AllSubjects = typename subjects_detail::ToTypes<subjects_detail::All>::type;
using OrderedSubjects = subjects_detail::Filtered<subjects_detail::IsOrdered>;
using ByteKeySubjects = subjects_detail::Filtered<subjects_detail::IsByteKeyed>;
using OrderedByteKeySubjects = subjects_detail::Filtered<subjects_detail::IsOrderedByteKeyed>;
using U64KeySubjects = subjects_detail::Filtered<subjects_detail::IsU64Keyed>;
using ByteValueSubjects = subjects_detail::Filtered<subjects_detail::IsByteValued>;

// The i-th key in key order, for i below kMaxKeyIndex.
inline constexpr std::uint64_t kMaxKeyIndex = 60'000;
template <class K>
detail::OwnedKey<K> key_at(std::uint64_t i) {
  if constexpr (std::same_as<K, std::string_view>) {
    char text[32];
    std::snprintf(text, sizeof text, "k%06llu", static_cast<unsigned long long>(i));
    return text + std::string(i % 19, '~');  // lengths 7 to 25: inside and beyond the head
  } else if constexpr (std::same_as<K, Name>) {
    Name name{};
    std::snprintf(name.data(), name.size(), "n%014llu", static_cast<unsigned long long>(i));
    name.back() = static_cast<char>(i % 7);  // both halves tell some keys apart
    return name;
  } else if constexpr (std::same_as<K, std::uint64_t>) {
    return (i + 1) * 0x0001'0000'0000'0001ULL;
  } else if constexpr (std::same_as<K, std::int64_t>) {
    return (static_cast<std::int64_t>(i) - 30'000) * 0x1000'0000'0001LL;
  } else {
    return static_cast<K>(static_cast<std::int64_t>(i) - 30'000);
  }
}

template <class V>
detail::Owned<V> value_at(std::uint64_t i) {
  const std::uint64_t bits = mix(i);
  if constexpr (std::same_as<V, std::string_view>) {
    std::string text = std::to_string(i) + ":";
    text.append(bits % 90, static_cast<char>('a' + i % 26));
    return text;
  } else {
    // Of those of more than a word, the first byte differs, or the last ones do.
    const std::uint64_t words[2] = {sizeof(V) > 8 ? i / 2 : bits, bits};
    V value;
    std::memcpy(static_cast<void*>(&value), words, sizeof(V));
    return value;
  }
}

}  // namespace perdure::test
