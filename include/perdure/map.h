// Map<K, V> and OrderedMap<K, V>: typed views of one named map in a pool.
//
// K: an integer or enum of up to 8 bytes, a std::array of up to 16 bytes (std::byte, unsigned char,
//    char), or std::string_view (up to 64 KiB, any bytes, "" too).
// V: a trivially copyable type of up to 15 bytes, or std::string_view (up to 1 GiB).
// Arrays order as byte strings do. Engine `level` keeps arrays, and values of 9 to 15 bytes, in its
// table, unless the map's other side is a std::string_view; elsewhere they are records.
// A map's kinds are fixed when it is created; opening it with others fails with invalid_argument.
//
// Thread safety: all methods, from any number of threads. A Map must not outlive its Pool.
// Absence is not an error: find answers an empty optional, erase answers false.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "perdure/index.h"
#include "perdure/options.h"

namespace perdure {

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

template <class K>
concept ArrayKey = detail::kIsByteArray<K> && sizeof(K) <= kMaxArrayKeyBytes;
template <class K>
concept MapKey = IntegerKey<K> || ArrayKey<K> || std::same_as<K, std::string_view>;
template <class V>
concept WordValue =
    std::is_trivially_copyable_v<V> && sizeof(V) <= 8 && !std::same_as<V, std::string_view>;
template <class V>
concept ArrayValue = std::is_trivially_copyable_v<V> && sizeof(V) >= kLeastArrayValueBytes &&
                     sizeof(V) <= kMaxArrayValueBytes && !std::same_as<V, std::string_view>;
template <class V>
concept MapValue = WordValue<V> || ArrayValue<V> || std::same_as<V, std::string_view>;

namespace detail {

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
// Zeros where `bytes` are too few, as damage can make them.
template <class T>
T object_of(std::string_view bytes) noexcept {
  T object{};
  std::memcpy(static_cast<void*>(&object), bytes.data(), std::min(bytes.size(), sizeof(T)));
  return object;
}

// Integers keep their order as unsigned words: the sign bit of signed types is flipped. A key of
// bytes looks into `key`.
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

// Runs what may throw std::bad_alloc; false if it did. A program that is built without exceptions
// ends there, as it does wherever a std::string finds no memory: read() and scan() with a callback
// copy nothing.
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

// What an owned copy of a value is: the word itself, or a std::string.
template <MapValue V>
using Owned = std::conditional_t<std::same_as<V, std::string_view>, std::string, V>;
template <MapKey K>
using OwnedKey = std::conditional_t<std::same_as<K, std::string_view>, std::string, K>;

}  // namespace detail

// The bounds of a scan: [from, to), all keys that start with `prefix` (byte strings), at most
// `limit`.
template <MapKey K>
struct ScanOptions {
  std::optional<K> from = {};
  std::optional<K> to = {};
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  bool reverse = false;
};
template <>
struct ScanOptions<std::string_view> {
  std::optional<std::string_view> from = {};
  std::optional<std::string_view> to = {};
  std::string_view prefix = {};
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  bool reverse = false;
};

namespace detail {
// The bound behind all keys with a prefix.
struct PrefixEnd {
  char in_place[64];
  std::unique_ptr<char[]> allocated;  // of a longer one
};
}  // namespace detail

// The half-open key interval that an options object means; `end` owns a bound that it had to
// compute. Errors: out_of_memory.
Expected<detail::ScanRange> scan_range(const ScanOptions<std::string_view>& options,
                                       detail::PrefixEnd& end) noexcept;
template <MapKey K>
Expected<detail::ScanRange> scan_range(const ScanOptions<K>& options, detail::PrefixEnd&) noexcept {
  detail::ScanRange range{.reverse = options.reverse, .limit = options.limit};
  if (options.from) range.from = detail::to_key(*options.from);
  if (options.to) range.to = detail::to_key(*options.to);
  return range;
}

template <MapKey K, MapValue V>
class Map {
 public:
  explicit Map(std::shared_ptr<detail::Index> index) noexcept : index_(std::move(index)) {}

  // True: inserted. False: the key exists, nothing changed.
  Expected<bool> insert(const K& key, const V& value) {
    return index_->insert(detail::to_key(key), detail::to_value(value));
  }
  // Inserts or replaces. True: the key is new.
  Expected<bool> upsert(const K& key, const V& value) {
    return index_->upsert(detail::to_key(key), detail::to_value(value));
  }
  // Replaces. False: the key is absent.
  Expected<bool> update(const K& key, const V& value) {
    return index_->update(detail::to_key(key), detail::to_value(value));
  }
  // Removes. False: the key was absent.
  Expected<bool> erase(const K& key) { return index_->erase(detail::to_key(key)); }

  // A copy of the value, or nothing.
  Expected<std::optional<detail::Owned<V>>> find(const K& key) {
    std::optional<detail::Owned<V>> out;
    bool copied = true;
    auto found = index_->read(detail::to_key(key), [&](const detail::Value& value) {
      copied = detail::attempt([&] { out.emplace(detail::from_value<V>(value)); });
    });
    if (!found) return fail(std::move(found.error()));
    if (!copied) return fail(StatusCode::out_of_memory);
    return out;
  }
  Expected<bool> contains(const K& key) {
    return index_->read(detail::to_key(key), [](const detail::Value&) {});
  }
  // Calls `visit(value)` without copying; the view ends with the call. Answers whether it is
  // present.
  template <class F>
  Expected<bool> read(const K& key, F&& visit) {
    return index_->read(detail::to_key(key),
                        [&](const detail::Value& value) { visit(detail::from_value<V>(value)); });
  }
  // Looks up keys[i] into values[i], cache misses overlapped; answers how many are present. Batches
  // of 8 to 64 pay best. values.size() must be at least keys.size().
  Expected<std::uint64_t> find_many(std::span<const K> keys,
                                    std::span<std::optional<detail::Owned<V>>> values) {
    if (values.size() < keys.size()) return fail(StatusCode::invalid_argument);
    std::uint64_t present = 0;
    bool copied = true;
    std::array<detail::Key, kBatch> batch;
    for (std::size_t begin = 0; begin < keys.size(); begin += kBatch) {
      const std::size_t n = std::min(kBatch, keys.size() - begin);
      for (std::size_t i = 0; i < n; ++i) {
        batch[i] = detail::to_key(keys[begin + i]);
        values[begin + i].reset();
      }
      auto found = index_->read_many(std::span<const detail::Key>(batch.data(), n),
                                     [&](std::size_t i, const detail::Value& value) {
                                       copied &= detail::attempt([&] {
                                         values[begin + i].emplace(detail::from_value<V>(value));
                                       });
                                     });
      if (!found) return found;
      if (!copied) return fail(StatusCode::out_of_memory);
      present += *found;
    }
    return present;
  }

  // Calls visit(key, value) for every entry once, in the engine's order. `visit` may return void,
  // or bool: false ends it. Answers how many entries were visited. Views end with the callback.
  // Entries that are inserted or removed meanwhile may be missed or seen; in an engine that keeps
  // no order, one that is removed and inserted again may be seen twice.
  template <class F>
  Expected<std::uint64_t> for_each(F&& visit) {
    std::uint64_t visited = 0;
    auto done = index_->for_each([&](std::span<const detail::Entry> entries) {
      for (const detail::Entry& entry : entries) {
        ++visited;
        if (!call(visit, entry)) return false;
      }
      return true;
    });
    if (!done) return fail(std::move(done.error()));
    return visited;
  }

  MapStats stats() { return detail::stats_of(*index_); }

 protected:
  template <class F>
  static bool call(F& visit, const detail::Entry& entry) {
    const K key = detail::from_key<K>(entry.key);
    const V value = detail::from_value<V>(entry.value);
    if constexpr (std::is_void_v<std::invoke_result_t<F&, const K&, const V&>>) {
      visit(key, value);
      return true;
    } else {
      return static_cast<bool>(visit(key, value));
    }
  }

  static constexpr std::size_t kBatch = 64;
  std::shared_ptr<detail::Index> index_;
};

template <MapKey K, MapValue V>
class OrderedMap : public Map<K, V> {
 public:
  explicit OrderedMap(std::shared_ptr<detail::OrderedIndex> index) noexcept
      : Map<K, V>(index), ordered_(index.get()) {}

  // Calls visit(key, value) in order for every entry of the range. `visit` may return void, or
  // bool: false ends the scan. Answers how many entries were visited. Views end with the callback.
  template <class F>
  Expected<std::uint64_t> scan(const ScanOptions<K>& options, F&& visit) {
    std::uint64_t left = options.limit;
    if (left == 0) return std::uint64_t{0};
    detail::PrefixEnd end;
    auto range = scan_range(options, end);
    if (!range) return fail(std::move(range.error()));
    auto done = ordered_->scan(*range, [&](std::span<const detail::Entry> entries) {
      for (const detail::Entry& entry : entries) {
        --left;
        if (!Map<K, V>::call(visit, entry) || left == 0) return false;
      }
      return true;
    });
    if (!done) return fail(std::move(done.error()));
    return options.limit - left;
  }
  template <class F>
  Expected<std::uint64_t> scan(const K& from, const K& to, F&& visit) {
    return scan(ScanOptions<K>{.from = from, .to = to}, std::forward<F>(visit));
  }

  // An input iterator over copies: keeps no guard between steps, so it may live long and mutations
  // between steps are fine. Where valid() ends, status() says whether that was the end.
  class Iterator {
   public:
    bool valid() const noexcept { return position_ < batch_.size(); }
    const detail::OwnedKey<K>& key() const noexcept { return batch_[position_].first; }
    const detail::Owned<V>& value() const noexcept { return batch_[position_].second; }
    const Status& status() const noexcept { return status_; }
    void next() {
      if (++position_ >= batch_.size()) fill();
    }

   private:
    friend class OrderedMap;
    static constexpr std::uint64_t kStep = 64;

    Iterator(OrderedMap* map, const ScanOptions<K>& options)
        : map_(map), options_(options), left_(options.limit) {
      if constexpr (std::same_as<K, std::string_view>) {
        const bool copied = detail::attempt([&] {
          if (options.from) from_.emplace(*options.from);
          if (options.to) to_.emplace(*options.to);
          prefix_ = std::string(options.prefix);
        });
        if (!copied) stop(StatusCode::out_of_memory);
      }
      fill();
    }

    // Fetches the next batch, from just past the last key delivered.
    void fill() {
      std::optional<detail::OwnedKey<K>> last;
      if (!batch_.empty()) last = std::move(batch_.back().first);
      batch_.clear();
      position_ = 0;
      if (left_ == 0 || done_) return;
      ScanOptions<K> step = options_;
      if constexpr (std::same_as<K, std::string_view>) {
        step.from = from_ ? std::optional<std::string_view>(*from_) : std::nullopt;
        step.to = to_ ? std::optional<std::string_view>(*to_) : std::nullopt;
        step.prefix = prefix_;
      }
      if (last) (options_.reverse ? step.to : step.from) = K(*last);
      // Going forward `from` is inclusive: ask for one more and drop the repeated key.
      const bool repeats = last.has_value() && !options_.reverse;
      step.limit = std::min(left_, kStep) + (repeats ? 1 : 0);
      bool copied = true;
      auto visited = map_->scan(step, [&](const K& key, const V& value) {
        if (repeats && key == K(*last)) return true;
        if (batch_.size() >= std::min(left_, kStep)) return true;
        copied = detail::attempt([&] { batch_.emplace_back(key, value); });
        return copied;
      });
      if (!visited) return stop(std::move(visited.error()));
      if (!copied) return stop(StatusCode::out_of_memory);
      done_ = *visited < step.limit;
      left_ -= batch_.size();
    }
    // Nothing more comes, nor what is in `batch_`: `status_` is looked at where valid() ends.
    void stop(Status status) {
      status_ = std::move(status);
      batch_.clear();
      done_ = true;
    }

    OrderedMap* map_;
    ScanOptions<K> options_;
    std::uint64_t left_;
    std::optional<std::string> from_, to_;
    std::string prefix_;
    std::vector<std::pair<detail::OwnedKey<K>, detail::Owned<V>>> batch_;
    std::size_t position_ = 0;
    bool done_ = false;
    Status status_;
  };
  Iterator scan(const ScanOptions<K>& options = {}) { return Iterator(this, options); }

 private:
  detail::OrderedIndex* ordered_;
};

}  // namespace perdure
