// ScanOptions: the range of a scan. Iterator: a position in the entries of that range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
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

// What a scan visits: the keys in [from, to) that begin with `prefix` (byte strings only), at most
// `limit` of them. The order is ascending; with `reverse`, descending. `from` is included and `to`
// is not, in both directions. If `from` is not below `to`, or `limit` is 0, the scan visits nothing
// and returns no error. Views are borrowed for the call.
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
// The memory of the bound behind all keys with a prefix.
struct PrefixEnd {
  char in_place[64];
  std::unique_ptr<char[]> allocated;  // for a bound that does not fit in_place
};
}  // namespace detail

// The half-open key interval of `options`. `end` owns a bound that had to be computed, and must
// outlive the range. O(1), with a prefix O(its length); allocates for a prefix of more than 64
// bytes.
// Errors: out_of_memory.
Expected<detail::ScanRange> scan_range(const ScanOptions<std::string_view>& options,
                                       detail::PrefixEnd& end) noexcept;
template <MapKey K>
Expected<detail::ScanRange> scan_range(const ScanOptions<K>& options, detail::PrefixEnd&) noexcept {
  detail::ScanRange range{.reverse = options.reverse, .limit = options.limit};
  if (options.from) range.from = detail::to_key(*options.from);
  if (options.to) range.to = detail::to_key(*options.to);
  return range;
}

// Iterator: a position in the entries of a range. It moves both ways.
//
//   for (auto it = store->scan({.prefix = "user:"}); it.valid(); it.next()) use(it.key());
//
//   auto users = store->scan({.prefix = "user:"});
//   for (auto [key, value] : users) use(key, value);
//   if (!users.status().ok()) return users.status();
//
// It owns what it needs: the map object, the options and the keys that it was given may go. Once
// the pool is closed or the map is dropped, it goes on in the entries that it has copied; then its
// status() is invalid_argument. It holds no guard between calls, so it may live long, and any
// thread may insert, erase and replace entries meanwhile.
//
// An entry that is present from a positioning call (first, last, seek) to the end of the walk is
// delivered once. An entry that is inserted or erased meanwhile may be delivered or not. While the
// direction stays the same, keys strictly rise, or strictly fall. Entries are copied in batches, so
// a value may be as old as the last call that loaded a batch. Every entry that the iterator shows
// is durable, as a result of Map::get().
//
// first() and last() move to the ends of the range, in the direction of the scan. next() moves in
// that direction, prev() against it. With `reverse`, first() moves to the greatest key, and
// seek(key) to the greatest key that is not above `key`. `limit` counts the entries, in either
// direction, since the last positioning call.
//
// Errors: valid() becomes false and status() returns the error. If valid() is false and status() is
// ok, the range or the limit has ended. In both cases next() and prev() do nothing until first(),
// last() or seek() starts anew.
// Complexity: a step is O(1) amortized; a positioning call, or a turn behind the end of a batch,
// costs a lookup and a short scan.
// Thread safety: one thread at a time.
template <MapKey K, MapValue V>
class Iterator {
 public:
  // Users get an iterator from scan(). It is on the first entry of the scan.
  explicit Iterator(detail::Cursor cursor) noexcept : cursor_(std::move(cursor)) {}

  // True if the iterator is on an entry.
  bool valid() const noexcept { return cursor_.valid(); }
  // The key and the value of the entry; zero or "" if not valid(). Views of byte strings end with
  // the next call that moves.
  K key() const noexcept { return detail::from_key<K>(cursor_.entry().key); }
  V value() const noexcept { return detail::from_value<V>(cursor_.entry().value); }
  // The error that ended the walk, or ok.
  const Status& status() const noexcept { return cursor_.status(); }

  // Moves one entry in the direction of the scan, or against it.
  void next() noexcept { cursor_.next(); }
  void prev() noexcept { cursor_.prev(); }
  // Moves to the first or the last entry of the range, in the direction of the scan.
  void first() noexcept { cursor_.first(); }
  void last() noexcept { cursor_.last(); }
  // Moves to the first entry of the range at or behind `key`, in the direction of the scan: with a
  // key before the range, to its first entry. Not valid() if the range has none.
  void seek(const K& key) noexcept { cursor_.seek(detail::to_key(key)); }

  // For range-based `for`: an input iterator that moves this one. The walk begins where this one
  // is, and ends also at an error, which status() has then.
  class Walk {
   public:
    using value_type = std::pair<K, V>;      // of operator*
    using difference_type = std::ptrdiff_t;  // which std::input_iterator asks for

    // begin() makes it.
    explicit Walk(Iterator& iterator) noexcept : iterator_(&iterator) {}
    // The key and the value of the entry.
    value_type operator*() const noexcept { return {iterator_->key(), iterator_->value()}; }
    // Moves to the next entry.
    Walk& operator++() noexcept {
      iterator_->next();
      return *this;
    }
    void operator++(int) noexcept { iterator_->next(); }
    // Whether the walk has ended.
    bool operator==(std::default_sentinel_t) const noexcept { return !iterator_->valid(); }

   private:
    Iterator* iterator_;
  };
  // The walk, from where this one is; it moves this one.
  Walk begin() noexcept { return Walk(*this); }
  // The end of every walk.
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  detail::Cursor cursor_;
};

namespace detail {

// Calls visit(arguments...), which returns void, or bool. Returns false if it returned false.
template <class F, class... Arguments>
bool goes_on(F& visit, const Arguments&... arguments) {
  if constexpr (std::is_void_v<std::invoke_result_t<F&, const Arguments&...>>) {
    visit(arguments...);
    return true;
  } else {
    return static_cast<bool>(visit(arguments...));
  }
}

// Calls visit(key, value) for the entries that scan(range, visit_batch) delivers. Returns how many
// entries were visited.
template <MapKey K, MapValue V, class Scan, class F>
Expected<std::uint64_t> scan_entries(const ScanOptions<K>& options, Scan&& scan, F& visit) {
  std::uint64_t left = options.limit;  // 0: only the arguments are verified
  PrefixEnd end;
  auto range = scan_range(options, end);
  if (!range) return fail(std::move(range.error()));
  Carried each([&](std::span<const Entry> entries) {
    if (left == 0) return false;
    for (const Entry& entry : entries) {
      --left;
      if (!goes_on(visit, from_key<K>(entry.key), from_value<V>(entry.value)) || left == 0) {
        return false;
      }
    }
    return true;
  });
  Expected<void> done = scan(*range, FunctionRef<bool(std::span<const Entry>)>(each));
  each.rethrow();
  if (!done) return fail(std::move(done.error()));
  return options.limit - left;
}

// OrderedMap::erase_range(). `words`: the keys are integers.
Expected<std::uint64_t> erase_entries(OrderedIndex& index, bool words, ScanRange range);

// `source`: a Handle<OrderedIndex> or a HeldVersion.
template <MapKey K, class Source>
Cursor cursor_of(Source source, const ScanOptions<K>& options) noexcept {
  PrefixEnd end;
  auto range = scan_range(options, end);
  if (!range) return Cursor(std::move(range.error()));
  return Cursor(std::move(source), IntegerKey<K>, *range);
}

// Returns a copy of the value that read(visit) visits, or nothing if it visits none.
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
inline Exchanged exchanged_if(Expected<bool> done) noexcept {
  return done ? Exchanged(*done) : Exchanged(std::move(done.error()));
}
// compare_exchange() of Map and of UntypedMap. Null stands for "absent".
inline Exchanged exchange(Index& index, const Key& key, const Value* expected,
                          const Value* desired) {
  if (expected == nullptr && desired == nullptr) {
    Found found = present_if(index.read(key, [](const Value&) {}));
    return found.ok() ? Exchanged(found.absent()) : Exchanged(std::move(found).status());
  }
  if (expected == nullptr) return exchanged_if(index.insert(key, *desired));
  return exchanged_if(desired == nullptr ? index.erase_if(key, *expected)
                                         : index.update_if(key, *expected, *desired));
}
inline Found found_of(MutationKind kind, Expected<bool> done) noexcept {
  const bool inserts = kind == MutationKind::put || kind == MutationKind::insert;
  return inserts ? absent_if(std::move(done)) : present_if(std::move(done));
}

}  // namespace detail

}  // namespace perdure
