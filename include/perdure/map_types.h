// The types that keys and values of a map may have, and their conversion to the words and bytes of
// the engines.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>

#include "perdure/index.h"
#include "perdure/options.h"
#include "perdure/stats.h"

namespace perdure {

// Integers and enums of up to 8 bytes.
template <class K>
concept IntegerKey = (std::integral<K> || std::is_enum_v<K>) && sizeof(K) <= 8;
namespace detail {
template <class K>
inline constexpr bool kIsByteArray = false;
template <class B, std::size_t N>
inline constexpr bool kIsByteArray<std::array<B, N>> =
    N != 0 &&
    (std::same_as<B, std::byte> || std::same_as<B, char> || std::same_as<B, unsigned char>);
}  // namespace detail

// A std::array of 1 to 16 char, unsigned char or std::byte.
template <class K>
concept ArrayKey = detail::kIsByteArray<K> && sizeof(K) <= kMaxArrayKeyBytes;
// What a key of a map may be.
template <class K>
concept MapKey = IntegerKey<K> || ArrayKey<K> || std::same_as<K, std::string_view>;
// Values of up to 8 bytes, which fit a word.
template <class V>
concept WordValue =
    std::is_trivially_copyable_v<V> && sizeof(V) <= 8 && !std::same_as<V, std::string_view>;
// Values of 9 to 15 bytes.
template <class V>
concept ArrayValue = std::is_trivially_copyable_v<V> && sizeof(V) >= kLeastArrayValueBytes &&
                     sizeof(V) <= kMaxArrayValueBytes && !std::same_as<V, std::string_view>;
// What a value of a map may be.
template <class V>
concept MapValue = WordValue<V> || ArrayValue<V> || std::same_as<V, std::string_view>;
// Values whose copies have the same bits: no padding.
template <class V>
concept HasExactBits = std::same_as<V, std::string_view> || std::floating_point<V> ||
                       std::has_unique_object_representations_v<V>;

namespace detail {
// The result of opening a map whose types are not allowed. The compiler then prints the rule that
// is broken, before all other errors.
template <class K, class V>
struct TypesNotAllowed {
  static_assert(MapKey<K>,
                "a key is an integer or enum of at most 8 bytes, a std::array of at most 16 char, "
                "unsigned char or std::byte, or std::string_view");
  static_assert(MapValue<V>,
                "a value is a trivially copyable type of at most 15 bytes; use std::string_view "
                "for larger ones");
};

template <IntegerKey K>
constexpr bool key_is_signed() noexcept {
  if constexpr (std::is_enum_v<K>) {
    return std::is_signed_v<std::underlying_type_t<K>>;
  } else {
    return std::is_signed_v<K>;
  }
}

template <class T>
std::string_view bytes_of(const T& object) noexcept {
  return {reinterpret_cast<const char*>(&object), sizeof(T)};
}
// Missing bytes read as zero: a damaged record can have fewer than T has.
template <class T>
T object_of(std::string_view bytes) noexcept {
  T object{};
  std::memcpy(static_cast<void*>(&object), bytes.data(), std::min(bytes.size(), sizeof(T)));
  return object;
}

// Converts a key. Words order as the keys do: the sign bit of signed types is flipped. A key of
// bytes refers to `key`.
template <MapKey K>
Key to_key(const K& key) noexcept {
  if constexpr (std::same_as<K, std::string_view>) {
    return {.bytes = key};
  } else if constexpr (ArrayKey<K>) {
    return {.bytes = bytes_of(key)};
  } else if constexpr (key_is_signed<K>()) {
    return {.word = static_cast<std::uint64_t>(static_cast<std::int64_t>(key)) ^ (1ULL << 63)};
  } else {
    return {.word = static_cast<std::uint64_t>(key)};
  }
}

template <MapKey K>
K from_key(const Key& key) noexcept {
  if constexpr (std::same_as<K, std::string_view>) {
    return key.bytes;
  } else if constexpr (ArrayKey<K>) {
    return object_of<K>(key.bytes);
  } else if constexpr (key_is_signed<K>()) {
    return static_cast<K>(static_cast<std::int64_t>(key.word ^ (1ULL << 63)));
  } else {
    return static_cast<K>(key.word);
  }
}

template <MapValue V>
Value to_value(const V& value) noexcept {
  if constexpr (std::same_as<V, std::string_view>) {
    return {.bytes = value};
  } else if constexpr (ArrayValue<V>) {
    return {.bytes = bytes_of(value)};
  } else {
    Value out{.word_size = sizeof(V)};
    std::memcpy(&out.word, &value, sizeof(V));
    return out;
  }
}

template <MapValue V>
V from_value(const Value& value) noexcept {
  if constexpr (std::same_as<V, std::string_view>) {
    return value.bytes;
  } else if constexpr (ArrayValue<V>) {
    return object_of<V>(value.bytes);
  } else {
    V out;
    std::memcpy(static_cast<void*>(&out), &value.word, sizeof(V));
    return out;
  }
}

// Calls allocate(). Returns false if it threw std::bad_alloc. A program that is built without
// exceptions ends there, as it does wherever a std::string finds no memory. read() and scan() with
// a callback copy nothing, so they do not call this.
template <class F>
bool attempt(F&& allocate) noexcept {
#ifdef __cpp_exceptions
  try {
    allocate();
  } catch (const std::bad_alloc&) {
    return false;
  }
#else
  allocate();
#endif
  return true;
}

}  // namespace detail

// The type of an owned copy of a value or of a key: std::string for std::string_view, otherwise the
// type itself.
template <MapValue V>
using Owned = std::conditional_t<std::same_as<V, std::string_view>, std::string, V>;
template <MapKey K>
using OwnedKey = std::conditional_t<std::same_as<K, std::string_view>, std::string, K>;

// The types of a map's keys and values. They are fixed when the map is created.
struct MapTypes {
  KeyKind key_kind = KeyKind::bytes;
  ValueKind value_kind = ValueKind::bytes;
  bool is_signed = false;        // integer keys order as signed numbers
  std::uint8_t key_bytes = 0;    // integer and array keys: size of the type; otherwise 0
  std::uint8_t value_bytes = 0;  // word and array values: size of the type; otherwise 0

  // Compares all members.
  bool operator==(const MapTypes&) const = default;
};
// The MapTypes of a Map<K, V>.
template <MapKey K, MapValue V>
constexpr MapTypes map_types() noexcept {
  MapTypes types{};
  if constexpr (ArrayKey<K>) {
    types.key_kind = KeyKind::array;
    types.key_bytes = sizeof(K);
  } else if constexpr (IntegerKey<K>) {
    types.key_kind = KeyKind::integer;
    types.is_signed = detail::key_is_signed<K>();
    types.key_bytes = sizeof(K);
  }
  if constexpr (!std::same_as<V, std::string_view>) {
    types.value_kind = WordValue<V> ? ValueKind::word : ValueKind::array;
    types.value_bytes = sizeof(V);
  }
  return types;
}

}  // namespace perdure
