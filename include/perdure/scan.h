// The range of a scan, and the iterator over it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "perdure/cursor.h"
#include "perdure/found.h"
#include "perdure/map_types.h"

namespace perdure {

// What a scan visits: the keys in [from, to) that start with `prefix` (byte strings), in ascending
// order or, with `reverse`, in descending order; at most `limit` of them.
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

// A position in the entries of a range, which moves both ways.
//
//   for (auto it = store->scan({.prefix = "user:"}); it.valid(); it.next()) use(it.key());
//
// It holds what it needs: the map object, the options and the keys that it was given may go. It
// must not outlive the pool. It keeps no guard between calls, so it may live long, and any thread
// may insert, erase and replace meanwhile: an entry that is present from one positioning call
// (first, last, seek) to the end of the walk is delivered once; one that comes or goes meanwhile is
// delivered or not. Keys rise, or fall, strictly while the direction stays the same. Entries are
// copied in batches, so a value may be as old as the last call that left a batch.
//
// `first`, `next` and `seek` go in the direction of the scan, `last` and `prev` against it: with
// `reverse`, first() stands on the greatest key, and seek(key) on the greatest one that is not
// above `key`. `limit` counts the entries that were delivered since the last positioning call.
//
// Errors end it: valid() is false, and status() says why. Where status() is ok, the range or the
// limit has ended. Either way next() and prev() do nothing until first(), last() or seek() tries
// anew. Complexity: a step is O(1) on average, a positioning call costs a lookup and a short scan.
// Thread safety: one thread at a time.
template <MapKey K, MapValue V>
class Iterator {
 public:
  // Stands on the first entry of the scan.
  explicit Iterator(detail::Cursor cursor) noexcept : cursor_(std::move(cursor)) {}

  bool valid() const noexcept { return cursor_.valid(); }
  // The entry; views of byte strings end with the next call that moves. Zero or "" if not valid().
  K key() const noexcept { return detail::from_key<K>(cursor_.entry().key); }
  V value() const noexcept { return detail::from_value<V>(cursor_.entry().value); }
  const Status& status() const noexcept { return cursor_.status(); }

  void next() noexcept { cursor_.next(); }
  void prev() noexcept { cursor_.prev(); }
  // The first and the last entry of the range, in the direction of the scan.
  void first() noexcept { cursor_.first(); }
  void last() noexcept { cursor_.last(); }
  // The first entry at `key` or behind it, in the direction of the scan; none outside the range.
  void seek(const K& key) noexcept { cursor_.seek(detail::to_key(key)); }

 private:
  detail::Cursor cursor_;
};

namespace detail {

// Calls visit(arguments...), which may return void, or bool: false ends the walk.
template <class F, class... Arguments>
bool goes_on(F& visit, const Arguments&... arguments) {
  if constexpr (std::is_void_v<std::invoke_result_t<F&, const Arguments&...>>) {
    visit(arguments...);
    return true;
  } else {
    return static_cast<bool>(visit(arguments...));
  }
}

// Calls visit(key, value) for the entries of the range that scan(range, visit_batch) delivers.
// Returns how many were visited.
template <MapKey K, MapValue V, class Scan, class F>
Expected<std::uint64_t> scan_entries(const ScanOptions<K>& options, Scan&& scan, F& visit) {
  std::uint64_t left = options.limit;
  if (left == 0) return std::uint64_t{0};
  PrefixEnd end;
  auto range = scan_range(options, end);
  if (!range) return fail(std::move(range.error()));
  Expected<void> done = scan(*range, [&](std::span<const Entry> entries) {
    for (const Entry& entry : entries) {
      --left;
      if (!goes_on(visit, from_key<K>(entry.key), from_value<V>(entry.value)) || left == 0) {
        return false;
      }
    }
    return true;
  });
  if (!done) return fail(std::move(done.error()));
  return options.limit - left;
}

// `source`: a std::shared_ptr<OrderedIndex> or a HeldVersion.
template <MapKey K, class Source>
Cursor cursor_of(Source source, const ScanOptions<K>& options) noexcept {
  PrefixEnd end;
  auto range = scan_range(options, end);
  if (!range) return Cursor(std::move(range.error()));
  return Cursor(std::move(source), IntegerKey<K>, *range);
}

// A copy of the value that read(visit) shows, or nothing.
template <MapValue V, class Read>
Expected<std::optional<Owned<V>>> owned_copy(Read&& read) {
  std::optional<Owned<V>> out;
  bool copied = true;
  Expected<bool> found = read(
      [&](const Value& value) { copied = attempt([&] { out.emplace(from_value<V>(value)); }); });
  if (!found) return fail(std::move(found.error()));
  if (!copied) return fail(StatusCode::out_of_memory);
  return out;
}

inline Found present_if(Expected<bool> done) noexcept {
  return done ? Found(*done) : Found(std::move(done.error()));
}
inline Found absent_if(Expected<bool> done) noexcept {
  return done ? Found(!*done) : Found(std::move(done.error()));
}

}  // namespace detail

}  // namespace perdure
