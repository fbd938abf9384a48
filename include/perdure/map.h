// Map<K, V> and OrderedMap<K, V>: typed views of one named map in a pool.
//
//   auto users = pool->map<std::uint64_t, std::uint64_t>("users");
//   Found put = users->put(42, 7);                 // ok(), absent(): inserted, present(): replaced
//   auto value = users->get(42);                   // Expected<std::optional<std::uint64_t>>
//
// K: an integer or enum of up to 8 bytes; a std::array of up to 16 bytes (std::byte, unsigned char,
//    char); or std::string_view (up to 65,535 bytes of any value, also "").
// V: a trivially copyable type of up to 15 bytes, or std::string_view (up to 1 GiB).
//
// Order: integers order as numbers, byte strings and arrays as unsigned bytes. Only engine `level`
// stores arrays, and values of 9 to 15 bytes, inline, and only if neither K nor V is a
// std::string_view. Other engines store them as byte strings. A map's types are fixed when it is
// created; opening it with other types fails with invalid_argument.
//
// Thread safety: any number of threads may call all methods. The calls of a Map that outlives its
// Pool fail with invalid_argument.
// Durability: when a call returns, its effect, and every state that it has returned, is durable as
// the pool's durability guarantees (docs/durability.md). Each call is atomic; a crash leaves its
// effect whole or absent.
// Complexity: a call on one key is O(log n) in an ordered engine and expected O(1) in a hash table
// (`level`, `clevel`). An insert that finds a hash table full waits until it has grown.
// Absence of a key is not an error: get() returns an empty optional, and calls on one key return a
// Found, which distinguishes an error, present and absent (found.h).
// Errors of every call: out_of_memory, poisoned, and corruption if the call reads damaged content.
// Errors of calls that change the map: also read_only, invalid_argument (a key or value is too
// long), pool_full (no space in the pool or on the disk) and hash_overflow (more keys of one hash
// than a table takes). After `poisoned` the change may be in the file or not; the next open shows
// it whole or not at all. After every other error the entry is unchanged.
// Lookups and scans of phast, level and pskiplist do not verify the checksums of records. A damaged
// value is returned as it is, a damaged key reads as absent; Pool::check() with `deep` finds both.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "perdure/found.h"
#include "perdure/map_types.h"
#include "perdure/scan.h"

namespace perdure {

class WriteBatch;

// A mutation of Map::write_many(): the call that `kind` names, with these arguments.
template <MapKey K, MapValue V>
struct Mutation {
  MutationKind kind = MutationKind::put;
  K key{};
  V value{};  // erase does not read it
};

template <MapKey K, MapValue V>
class Map {
 public:
  // Pool::map() makes it.
  explicit Map(detail::Handle<detail::Index> index) noexcept : index_(std::move(index)) {}

  // Inserts the key or replaces its value. absent(): inserted. present(): replaced.
  Found put(const K& key, const V& value) {
    return detail::absent_if(index_->put(detail::to_key(key), detail::to_value(value)));
  }
  // Inserts the key unless it exists. absent(): inserted. present(): nothing changed.
  Found insert(const K& key, const V& value) {
    return detail::absent_if(index_->insert(detail::to_key(key), detail::to_value(value)));
  }
  // Replaces the value if the key exists. present(): replaced. absent(): nothing changed.
  Found update(const K& key, const V& value) {
    return detail::present_if(index_->update(detail::to_key(key), detail::to_value(value)));
  }
  // Removes the key. present(): removed. absent(): nothing changed.
  Found erase(const K& key) { return detail::present_if(index_->erase(detail::to_key(key))); }

  // Gives the key the value `desired` if it has the value `expected`. Without a value each stands
  // for "absent", so that the call can insert and erase, too. exchanged(): it had, and now it has
  // `desired`. refused(): it had something else, and nothing changed. Values are compared by their
  // bits. No other mutation of the key comes between the look and the change. Costs: those of
  // update(), insert() or erase().
  // V must have no padding: its bits may change when it is copied.
  Exchanged compare_exchange(const K& key, const std::optional<V>& expected,
                             const std::optional<V>& desired)
    requires(HasExactBits<V>)
  {
    detail::Value values[2];
    if (expected) values[0] = detail::to_value(*expected);
    if (desired) values[1] = detail::to_value(*desired);
    return detail::exchange(*index_, detail::to_key(key), expected ? &values[0] : nullptr,
                            desired ? &values[1] : nullptr);
  }
  // Gives the key what f(before) returns. `before` is a std::optional<V>, empty if the key is
  // absent; f returns the new value, or a std::optional of it, empty to erase the key: a V, or what
  // a V is made of, as a std::string for a view. If it returns what it got, nothing is written. If
  // another mutation of the key comes in between, f is called again, and only its last result
  // counts. f may read the pool; if it throws, nothing is written. A view that f returns must
  // outlive the call. present(): the key was present before. If many threads change the key, f may
  // run often. Costs: those of get() and of compare_exchange().
  template <class F>
    requires(HasExactBits<V>)
  Found modify(const K& key, F&& f) {
    for (;;) {
      auto copy = get(key);
      if (!copy) return std::move(copy.error());
      std::optional<V> before;
      if (*copy) before = V(**copy);
      const auto made = f(std::as_const(before));  // owns what `after` may be a view of
      const std::optional<V> after(made);
      const bool same =
          before.has_value() == after.has_value() &&
          (!before || detail::same_value(detail::to_value(*before), detail::to_value(*after)));
      if (same) return Found(before.has_value());
      Exchanged done = compare_exchange(key, before, after);
      if (!done.ok()) return std::move(done).status();
      if (done.exchanged()) return Found(before.has_value());
    }
  }
  // Adds to the value of the key, and returns the value from before. An absent key has the value 0,
  // and is inserted. Overflow wraps around. As modify().
  Expected<V> fetch_add(const K& key, V delta)
    requires(std::integral<V> && !std::same_as<V, bool>)
  {
    for (;;) {
      std::optional<V> before;
      Found found = read(key, [&](V value) { before = value; });
      if (!found.ok()) return fail(std::move(found).status());
      const auto sum = static_cast<V>(static_cast<std::uint64_t>(before.value_or(0)) +
                                      static_cast<std::uint64_t>(delta));
      Exchanged done = compare_exchange(key, before, sum);
      if (!done.ok()) return fail(std::move(done).status());
      if (done.exchanged()) return before.value_or(0);
    }
  }

  // Does all mutations. Each is atomic by itself: a crash leaves any of them whole or absent, and
  // other threads may see some of them early. They are durable when the call returns. Mutations of
  // one key take effect in their order. phast, level and clevel overlap the cache misses of 16
  // mutations and wait for their write-backs together; other engines gain less. 16 to 256 mutations
  // per call gain most.
  // Calls done(i, found) in order, where `found` is what the single call would have returned. If
  // `done` throws, mutations that come later may be done, or not. It must not close the pool or
  // drop the map.
  // Returns ok if all succeeded, otherwise the first error; the rest is tried anyway.
  template <class F>
  Status write_many(std::span<const Mutation<K, V>> mutations, F&& done) {
    Status first;
    std::array<detail::Mutation, kBatch> batch;
    for (std::size_t begin = 0; begin < mutations.size(); begin += kBatch) {
      const std::size_t n = std::min(kBatch, mutations.size() - begin);
      for (std::size_t i = 0; i < n; ++i) {
        const Mutation<K, V>& mutation = mutations[begin + i];
        batch[i] = {.kind = mutation.kind,
                    .key = detail::to_key(mutation.key),
                    .value = detail::to_value(mutation.value)};
      }
      detail::Carried each([&](std::size_t i, Expected<bool> result) {
        const Found found = detail::found_of(batch[i].kind, std::move(result));
        if (!found.ok() && first.ok()) first = found.status();
        done(begin + i, found);
      });
      index_->write_many({batch.data(), n}, each);
      each.rethrow();
    }
    return first;
  }
  Status write_many(std::span<const Mutation<K, V>> mutations) {
    return write_many(mutations, [](std::size_t, const Found&) {});
  }

  // Returns a copy of the value, or nothing if the key is absent.
  Expected<std::optional<Owned<V>>> get(const K& key) {
    if constexpr (IntegerKey<K> && WordValue<V>) {
      detail::Value value;
      const auto got = index_->get_word(detail::to_key(key).word, value.word);
      if (got == detail::Index::Got::present) return detail::from_value<V>(value);
      if (got == detail::Index::Got::absent) return std::nullopt;
    }
    return detail::owned_copy<V>(
        [&](auto visit) { return index_->read(detail::to_key(key), visit); });
  }
  // present(): the key exists. Copies nothing.
  Found contains(const K& key) {
    return detail::present_if(index_->read(detail::to_key(key), [](const detail::Value&) {}));
  }
  // Calls visit(value) if the key is present. Copies nothing; the view ends with the callback.
  // `visit` may read maps of the same pool, and may throw. It must not change a map, and must not
  // call Pool. While it runs, no freed block is reused, so it must be short.
  template <class F>
  Found read(const K& key, F&& visit) {
    detail::Carried one([&](const detail::Value& value) { visit(detail::from_value<V>(value)); });
    auto present = index_->read(detail::to_key(key), one);
    one.rethrow();
    return detail::present_if(std::move(present));
  }
  // Calls visit(i, value) for each keys[i] that is present, in order. Returns how many are present.
  // Copies nothing; `visit` has the limits of that of read(). The cache misses of up to 64 lookups
  // overlap. The lookups are not one atomic operation.
  template <class F>
  Expected<std::uint64_t> read_many(std::span<const K> keys, F&& visit) {
    std::uint64_t present = 0;
    std::array<detail::Key, kBatch> batch;
    for (std::size_t begin = 0; begin < keys.size(); begin += kBatch) {
      const std::size_t n = std::min(kBatch, keys.size() - begin);
      for (std::size_t i = 0; i < n; ++i) batch[i] = detail::to_key(keys[begin + i]);
      detail::Carried each([&](std::size_t i, const detail::Value& value) {
        visit(begin + i, detail::from_value<V>(value));
      });
      auto found = index_->read_many(std::span<const detail::Key>(batch.data(), n), each);
      each.rethrow();
      if (!found) return found;
      present += *found;
    }
    return present;
  }
  // Copies the value of each keys[i] into values[i]; values[i] is empty if the key is absent.
  // Returns how many keys are present. The cache misses of up to 64 lookups overlap; batches of 8
  // to 64 keys gain most. The lookups are not one atomic operation.
  // Errors: invalid_argument if `values` is shorter than `keys`.
  Expected<std::uint64_t> get_many(std::span<const K> keys,
                                   std::span<std::optional<Owned<V>>> values) {
    if (values.size() < keys.size()) {
      return fail(StatusCode::invalid_argument, "get_many: %zu keys, but room for %zu values",
                  keys.size(), values.size());
    }
    for (std::size_t i = 0; i < keys.size(); ++i) values[i].reset();
    bool copied = true;
    auto present = read_many(keys, [&](std::size_t i, const V& value) {
      copied &= detail::attempt([&] { values[i].emplace(value); });
    });
    if (present && !copied) return fail(StatusCode::out_of_memory);
    return present;
  }

  // Calls visit(key, value) for every entry, in the engine's order. `visit` returns void, or bool
  // where false ends the walk. Returns how many entries were visited, also the last one if it ended
  // the walk. Views end with the callback, which has the limits of that of read(). An entry that is
  // present throughout is visited once. One that is inserted or removed meanwhile may be visited or
  // not. In a hash table, one that is removed and inserted again meanwhile may be visited twice.
  // O(n); in a hash table O(slots).
  template <class F>
  Expected<std::uint64_t> for_each(F&& visit) {
    std::uint64_t visited = 0;
    detail::Carried each([&](std::span<const detail::Entry> entries) {
      for (const detail::Entry& entry : entries) {
        ++visited;
        if (!detail::goes_on(visit, detail::from_key<K>(entry.key),
                             detail::from_value<V>(entry.value))) {
          return false;
        }
      }
      return true;
    });
    auto done = index_->for_each(each);
    each.rethrow();
    if (!done) return fail(std::move(done.error()));
    return visited;
  }

  // Returns how many entries there are: exact if no mutation runs meanwhile. O(threads). In an
  // engine other than phast the first call after an open reads the whole map, and mutations wait;
  // in a callback, or beside a read_batch(), it reads the map each time until then.
  Expected<std::uint64_t> size() { return index_->size(); }
  // Figures of this map, without its name (stats.h). May read the whole map: O(n).
  MapStats stats() { return detail::stats_of(*index_); }

 private:
  friend class WriteBatch;
  static constexpr std::size_t kBatch = 64;
  detail::Handle<detail::Index> index_;
};

template <MapKey K, MapValue V>
class OrderedMap : public Map<K, V> {
 public:
  // What scan(options) returns.
  using Iterator = perdure::Iterator<K, V>;

  // Pool::ordered_map() makes it.
  explicit OrderedMap(detail::Handle<detail::OrderedIndex> index) noexcept
      : Map<K, V>(index), ordered_(std::move(index)) {}

  // Calls visit(key, value) for every entry of the range, in order. `visit` returns void, or bool
  // where false ends the scan. Returns how many entries were visited. Views end with the callback,
  // which has the limits of that of read(). Entries that are inserted or removed meanwhile may be
  // visited or not: a scan is not a snapshot. O(log n) and O(1) for each entry.
  template <class F>
  Expected<std::uint64_t> scan(const ScanOptions<K>& options, F&& visit) {
    return detail::scan_entries<K, V>(
        options, [&](const auto& range, auto each) { return ordered_->scan(range, each); }, visit);
  }
  // The same for the keys in [from, to); none if `to` is not above `from`.
  template <class F>
  Expected<std::uint64_t> scan(const K& from, const K& to, F&& visit) {
    return scan(ScanOptions<K>{.from = from, .to = to}, std::forward<F>(visit));
  }
  // Returns how many entries the range has: O(log n) and O(1) for each of them.
  Expected<std::uint64_t> count(const ScanOptions<K>& options = {}) {
    return scan(options, [](const K&, const V&) {});
  }
  // Erases the entries of the range, so also those with a prefix, and returns how many it erased.
  // It is not one atomic operation: the entries go one by one, in groups that share fences. Those
  // that are inserted meanwhile may stay. After a crash or an error some are erased; the same call
  // goes on with the rest.
  Expected<std::uint64_t> erase_range(const ScanOptions<K>& options) {
    detail::PrefixEnd end;
    auto range = scan_range(options, end);
    if (!range) return fail(std::move(range.error()));
    return detail::erase_entries(*ordered_, IntegerKey<K>, *range);
  }
  // Returns an iterator on the first entry of the range. An error is in its status(). See Iterator
  // in scan.h.
  Iterator scan(const ScanOptions<K>& options = {}) {
    return Iterator(detail::cursor_of(ordered_, options));
  }

 private:
  friend class WriteBatch;
  detail::Handle<detail::OrderedIndex> ordered_;
};

}  // namespace perdure
