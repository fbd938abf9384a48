// The subjects of the suites of maps: {engine x durability, oracle} x {key kind x value kind}; and
// generators of keys and values of each kind.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/support/engines.h"
#include "tests/support/oracle.h"
#include "tests/support/support.h"

namespace perdure::test {

// An enum key, and a value whose size is no power of two.
enum class Shelf : std::int16_t {};
struct Rgb {
  std::uint8_t red, green, blue;
  friend bool operator==(const Rgb&, const Rgb&) = default;
};

// The longest arrays.
using Name = std::array<char, kMaxArrayKeyBytes>;
using Digest = std::array<std::uint8_t, kMaxArrayValueBytes>;

// The place of a test's maps: in a pool, by an engine with a durability; or in the oracle.
struct Place {
  std::optional<EngineInfo> engine;
  Durability durability = Durability::process;

  bool oracle() const { return !engine; }
  bool ordered() const { return !engine || engine->ordered; }
  std::string name() const {
    if (oracle()) return "oracle";
    return std::string(engine_name(engine->engine)) + "_" +
           std::string(durability_name(durability));
  }
};
inline std::vector<Place> places() {
  std::vector<Place> all{Place{}};
  for (const Durability durability : {Durability::process, Durability::emulated}) {
    for (const EngineInfo& engine : kEngines) all.push_back({engine, durability});
  }
  return all;
}

class Backend {
 public:
  explicit Backend(const Place& place) : place_(place) {
    if (place.oracle()) return;
    path_.emplace();
    pool_.emplace(open_pool(*path_, {.durability = place.durability, .max_size = 2_GiB}));
  }
  const Place& place() const { return place_; }

  template <class K, class V>
  Map<K, V> map(std::string_view map_name, MapOptions options = {}) {
    if (place_.oracle()) return oracle<K, Map<K, V>>();
    options.engine = place_.engine->engine;
    return must(pool_->map<K, V>(map_name, options));
  }
  template <class K, class V>
  OrderedMap<K, V> ordered_map(std::string_view map_name, MapOptions options = {}) {
    if (place_.oracle()) return oracle<K, OrderedMap<K, V>>();
    options.engine = place_.engine->engine;
    return must(pool_->ordered_map<K, V>(map_name, options));
  }
  void expect_sound() {
    if (pool_) test::expect_sound(*pool_);
  }

 private:
  template <class K, class MapType>
  MapType oracle() {
    oracles_.emplace_back(new (std::nothrow) OracleIndex(std::same_as<K, std::string_view>));
    return MapType(detail::Handle<detail::OrderedIndex>(oracles_.back().get()));
  }

  Place place_;
  std::optional<TempPath> path_;
  std::optional<Pool> pool_;
  std::vector<std::unique_ptr<OracleIndex>> oracles_;
};

template <class Key, class Value>
struct Kinds {
  using K = Key;
  using V = Value;
};
using AllKinds =
    std::tuple<Kinds<std::uint64_t, std::uint64_t>, Kinds<std::int64_t, std::uint32_t>,
               Kinds<Shelf, Rgb>, Kinds<Name, Digest>, Kinds<std::string_view, std::string_view>,
               Kinds<std::string_view, std::uint64_t>, Kinds<std::uint64_t, std::string_view>>;

using ByteKeyKinds =
    std::tuple<Kinds<std::string_view, std::string_view>, Kinds<std::string_view, std::uint64_t>>;
using ByteValueKinds =
    std::tuple<Kinds<std::string_view, std::string_view>, Kinds<std::uint64_t, std::string_view>>;
using U64KeyKinds =
    std::tuple<Kinds<std::uint64_t, std::uint64_t>, Kinds<std::uint64_t, std::string_view>>;

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

// Base of the suites below. A test has its kinds as types and its place as a value: it is compiled
// once per kinds.
template <class KindsT>
class MapTest : public ::testing::Test {
 public:
  static bool takes(const Place&) { return true; }
  static inline Place next;  // the place of the test that is made next

 protected:
  void TearDown() override { backend_.expect_sound(); }
  Backend backend_{next};
};

template <template <class> class Suite, template <class> class Test, class... KindsTs>
bool register_map_test(const char* suite, const char* name, const char* file, int line,
                       std::tuple<KindsTs...>*) {
  const auto add = [&]<class KindsT>(const Place& place, KindsT*) {
    if (!Suite<KindsT>::takes(place)) return;
    const std::string full = std::string(suite) + "/" + place.name() + "_" +
                             kind_name<typename KindsT::K>() + "_" +
                             kind_name<typename KindsT::V>();
    ::testing::RegisterTest(full.c_str(), name, nullptr, nullptr, file, line,
                            [place]() -> Suite<KindsT>* {
                              MapTest<KindsT>::next = place;
                              return new Test<KindsT>();
                            });
  };
  for (const Place& place : places()) (add(place, static_cast<KindsTs*>(nullptr)), ...);
  return true;
}

// TYPED_TEST for suites over MapTest: for each of <suite>Kinds, in each place of the suite.
#define MAP_TEST(suite, name)                                                        \
  template <class KindsT>                                                            \
  class suite##_##name : public suite<KindsT> {                                      \
    using TestFixture = suite<KindsT>;                                               \
    void TestBody() override;                                                        \
  };                                                                                 \
  const bool suite##_##name##_registered = register_map_test<suite, suite##_##name>( \
      #suite, #name, __FILE__, __LINE__, static_cast<suite##Kinds*>(nullptr));       \
  template <class KindsT>                                                            \
  void suite##_##name<KindsT>::TestBody()

// The i-th key in key order, for i below kMaxKeyIndex.
inline constexpr std::uint64_t kMaxKeyIndex = 60'000;
template <class K>
OwnedKey<K> key_at(std::uint64_t i) {
  if constexpr (std::same_as<K, std::string_view>) {
    char text[32];
    std::snprintf(text, sizeof text, "k%06llu", static_cast<unsigned long long>(i));
    return text + std::string(i % 19, '~');  // lengths 7 to 25: inside and beyond the head
  } else if constexpr (std::same_as<K, Name>) {
    Name name{};
    std::snprintf(name.data(), name.size(), "n%014llu", static_cast<unsigned long long>(i));
    name.back() = static_cast<char>(i % 7);  // both halves distinguish some keys
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
Owned<V> value_at(std::uint64_t i) {
  const std::uint64_t bits = mix(i);
  if constexpr (std::same_as<V, std::string_view>) {
    std::string text = std::to_string(i) + ":";
    text.append(bits % 90, static_cast<char>('a' + i % 26));
    return text;
  } else {
    // For values of more than a word, the first bytes differ or the last ones.
    const std::uint64_t words[2] = {sizeof(V) > 8 ? i / 2 : bits, bits};
    V value;
    std::memcpy(static_cast<void*>(&value), words, sizeof(V));
    return value;
  }
}

}  // namespace perdure::test
